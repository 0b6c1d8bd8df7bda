// @ts-check
/**
 * The events of all runs, as one stream for everything that a tab shows. A browser allows six connections to a service;
 * this is the only one that a page keeps open, a log that is followed aside.
 */
import { Problem, request } from "./api.js";
import { signal } from "./signal.js";

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
    if (!ended.signal.aborted || !document.hidden) await sleep(delay);
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

/** @param {number} milliseconds @param {AbortSignal} [ended] */
export function sleep(milliseconds, ended) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    ended?.addEventListener("abort", () => (clearTimeout(timer), resolve(undefined)), { once: true });
  });
}

/** Wait until the page is visible. @param {AbortSignal} [ended] @returns {Promise<void>} */
export function visible(ended) {
  return new Promise((resolve) => {
    const over = new AbortController();
    const look = () => {
      if (document.hidden && !ended?.aborted) return;
      over.abort();
      resolve();
    };
    document.addEventListener("visibilitychange", look, { signal: over.signal });
    ended?.addEventListener("abort", look, { signal: over.signal });
    look();
  });
}

/** Milliseconds without a byte after which a connection counts as lost; the service sends something far more often. */
const SILENCE = 60_000;

/** @typedef {{type: string, id: string, data: string}} Item */

/**
 * Follow Server-Sent Events until they end; by `fetch`, which can send the header of a sign-in where `EventSource` cannot.
 * @param {string} path @param {string} last Id of the last item seen. @param {AbortController} ended
 * @param {(item: Item) => void} take @param {() => void} [opened]
 */
export async function followStream(path, last, ended, take, opened = () => undefined) {
  const reply = await request("GET", path, { headers: last ? { "Last-Event-ID": last } : {}, signal: ended.signal });
  if (!reply.body) return;
  opened();
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silence = setTimeout(() => ended.abort(), SILENCE);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const [items, after] = parsed(rest + value);
    rest = after;
    items.forEach(take);
  }
}

/**
 * Return the whole items of a stream's text, and what is left of it. Pure.
 * @param {string} text
 * @returns {[Item[], string]}
 */
export function parsed(text) {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() || "";
  const items = blocks.map((block) => {
    const item = { type: "", id: "", data: "" };
    for (const line of block.split("\n")) {
      const [, name, value] = /^(event|id|data): ?(.*)$/s.exec(line) || [];
      if (name === "event") item.type = value;
      else if (name === "id") item.id = value;
      else if (name === "data") item.data += value;
    }
    return item;
  });
  return [items.filter((item) => item.type || item.data || item.id), rest];
}
