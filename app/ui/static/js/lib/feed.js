// @ts-check
/**
 * The events of all runs, as one stream for everything that a tab shows. A browser allows six connections to a service;
 * this is the only one that a page keeps open, a log that is followed aside.
 */
import { signal } from "@preact/signals";

import { Problem } from "./api.js";
import { followStream } from "./stream.js";

/** @typedef {{seq: number, at: string, type: string, run_id: string, key: string | null, data: any}} RunEvent */

/** Whether events arrive; while they do not, pages ask again and again. */
export const isLive = signal(false);

/** Milliseconds between two tries, at least and at most. */
const RETRY = { first: 300, most: 5000 };

/** Milliseconds until the next try where the stream is refused. */
const REFUSED = 60_000;

/** @type {Set<(event: RunEvent | null) => void>} */
const listeners = new Set();

let last = "";

/**
 * Hear of every event of a run; null says that events were missed, and everything is to be read again.
 * @param {(event: RunEvent | null) => void} listen
 * @returns {() => void} To hear no more.
 */
export function onEvents(listen) {
  listeners.add(listen);
  return () => listeners.delete(listen);
}

/** @param {RunEvent | null} event */
function tell(event) {
  for (const listen of [...listeners]) listen(event);
}

/** Follow the stream for the life of the page, while the page is visible. */
export async function follow() {
  let delay = RETRY.first;
  for (;;) {
    await visible();
    const ended = new AbortController();
    const hide = () => document.hidden && ended.abort();
    document.addEventListener("visibilitychange", hide);
    try {
      await read(ended, () => (delay = RETRY.first));
    } catch (error) {
      // What refuses the stream, as a proxy may, will refuse it for a while; pages then poll.
      if (error instanceof Problem && error.status !== 401 && error.status < 500) delay = REFUSED;
    }
    document.removeEventListener("visibilitychange", hide);
    isLive.value = false;
    if (!ended.signal.aborted || !document.hidden) await pause(delay);
    delay = Math.min(2 * delay, Math.max(delay, RETRY.most));
  }
}

/** @param {AbortController} ended @param {() => void} opened */
async function read(ended, opened) {
  await followStream("/api/events", last, ended, take, () => {
    opened();
    isLive.value = true;
    if (!last) tell(null);
  });
}

/** @param {{type: string, id: string, data: string}} item */
function take(item) {
  if (item.id) last = item.id;
  if (item.type === "reset") tell(null);
  else if (item.data) tell(JSON.parse(item.data));
}

function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve(undefined);
    };
    document.addEventListener("visibilitychange", look);
  });
}

/** @param {number} milliseconds */
function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
