// @ts-check
import { useEffect, useState } from "preact/hooks";

/**
 * @template T
 * @typedef {{value: T, subscribe: (listen: (value: T) => void) => () => void}} Signal
 */

/**
 * Return a value that tells its listeners when it changes.
 * @template T
 * @param {T} value
 * @returns {Signal<T>}
 */
export function signal(value) {
  /** @type {Set<(value: T) => void>} */
  const listeners = new Set();
  return {
    get value() {
      return value;
    },
    set value(next) {
      if (next === value) return;
      value = next;
      for (const listen of [...listeners]) listen(next);
    },
    subscribe(listen) {
      listeners.add(listen);
      listen(value);
      return () => listeners.delete(listen);
    },
  };
}

/**
 * Return a signal's value; the component is drawn again when it changes.
 * @template T
 * @param {Signal<T>} from
 * @returns {T}
 */
export function useValue(from) {
  const [, setValue] = useState(from.value);
  useEffect(() => from.subscribe(setValue), [from]);
  return from.value;
}

/** The present moment in milliseconds; relative times are counted from it. */
const now = signal(Date.now());
const never = signal(0);

/** Return the present moment, every second anew while something goes on; else 0. @param {boolean} [goesOn] */
export function useNow(goesOn = true) {
  return useValue(goesOn ? now : never);
}

/** Count on every second while the page is visible. */
export function startClock() {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now();
  }, 1000);
}
