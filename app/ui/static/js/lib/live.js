// @ts-check
import { useEffect, useState } from "preact/hooks";

import { Problem, reachable, request } from "./api.js";

/** Seconds that the service may hold a request until something changes. */
const WAIT = 20;

/** Milliseconds between two tries while the service is away, at least and at most. */
const RETRY = { first: 500, most: 8000 };

/**
 * @template T
 * @typedef {{data: T | null, error: Error | null}} Live
 */

/**
 * Show an address of the API and keep it up to date by long polls, only while the page is visible: browsers allow six
 * connections to a service, and hidden pages would use them up.
 * @template T
 * @param {string | null} path None: nothing is asked.
 * @param {{pause?: number}} [options] `pause`: milliseconds between polls of an address that has no long poll.
 * @returns {Live<T> & {refresh: () => void}}
 */
export function useLive(path, { pause = 0 } = {}) {
  const [state, setState] = useState(/** @type {Live<T>} */ ({ data: null, error: null }));
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const ended = new AbortController();
    setState((before) => (round ? before : { data: null, error: null }));
    follow(path, pause, ended.signal, setState);
    return () => ended.abort();
  }, [path, round]);
  return { ...state, refresh: () => setRound((count) => count + 1) };
}

/**
 * @template T
 * @param {string} path
 * @param {number} pause
 * @param {AbortSignal} ended
 * @param {(state: Live<T>) => void} show
 */
async function follow(path, pause, ended, show) {
  let etag = "";
  let delay = RETRY.first;
  while (!ended.aborted) {
    await visible(ended);
    try {
      const waits = etag && !pause;
      const reply = await request("GET", waits ? waiting(path) : path, {
        headers: etag ? { "If-None-Match": etag } : {},
        signal: ended,
      });
      delay = RETRY.first;
      if (reply.status !== 304) {
        etag = reply.headers.get("ETag") || "";
        show({ data: await reply.json(), error: null });
      }
      if (pause || !etag) await sleep(pause || WAIT * 250, ended);
    } catch (error) {
      if (ended.aborted) return;
      if (error instanceof Problem) show({ data: null, error });
      etag = error instanceof Problem ? "" : etag;
      await sleep(delay, ended);
      delay = Math.min(2 * delay, RETRY.most);
    }
  }
}

/** @param {string} path */
function waiting(path) {
  return `${path}${path.includes("?") ? "&" : "?"}wait=${WAIT}`;
}

/** @param {number} milliseconds @param {AbortSignal} ended */
function sleep(milliseconds, ended) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    ended.addEventListener("abort", () => (clearTimeout(timer), resolve(undefined)), { once: true });
  });
}

/** @param {AbortSignal} ended */
function visible(ended) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => document.hidden || resolve(undefined);
    document.addEventListener("visibilitychange", look, { signal: ended });
    ended.addEventListener("abort", () => resolve(undefined), { once: true });
  });
}

/** Look now and then whether a service that is away has come back, where no page is asking it. */
export function watchService() {
  setInterval(async () => {
    if (reachable.value !== "no" || document.hidden) return;
    await request("GET", "/healthz").catch(() => undefined);
  }, 2000);
}
