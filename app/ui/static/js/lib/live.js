// @ts-check
import { useEffect, useState } from "preact/hooks";

import { Problem, nextOf, reachable, request } from "./api.js";
import { isLive, onEvents, sleep, visible } from "./feed.js";

/** Seconds that the service may hold a request until something changes, where no events arrive. */
const WAIT = 20;

/** Milliseconds between two tries while the service is away, at least and at most. */
const RETRY = { first: 500, most: 8000 };

/** Milliseconds between two answers of an address whose events come fast, and in which events come together. */
const GAP = 1000;
const TOGETHER = 30;

/** Milliseconds after which an address is read again without an event: runs of other processes are in none. */
const UNHEARD = 20_000;

/** Events that change what a run counts as, or what a step cost. @type {Concerns} */
export const aboutRuns = (event) => !["step.started", "step.retrying", "recipe.note"].includes(event.type);

/**
 * @template T
 * @typedef {{data: T | null, error: Error | null, of: string | null, next?: string}} Live `of`: the address that it belongs
 *   to; `next`: the address of the next page.
 */

const NOTHING = { data: null, error: null, of: null };

/** @typedef {(event: import("./feed.js").RunEvent) => boolean} Concerns Whether an event may change an answer. */

/**
 * Show an address of the API and keep it up to date, only while the page is visible: it is read again after an event
 * that concerns it; where no events arrive, by long polls.
 * @template T
 * @param {string | null} path None: nothing is asked.
 * @param {{pause?: number, every?: number, on?: Concerns, long?: boolean}} [options] `pause`: milliseconds between polls of
 *   what no event tells of; `every`: the same of what has no long poll, where no events arrive, and of what events tell
 *   in part; `on`: events that concern the address, all by default; `long`: long polls always, at most once in a page.
 * @returns {Live<T> & {refresh: () => void}}
 */
export function useLive(path, { pause = 0, every = 0, on = () => true, long = false } = {}) {
  const [state, setState] = useState(/** @type {Live<T>} */ (NOTHING));
  const [round, setRound] = useState(0);
  useEffect(() => {
    // What was shown of another address stays until its successor is there: a filter that changes lets nothing flicker.
    if (path === null) return setState(NOTHING);
    const ended = new AbortController();
    keep(path, { pause, every, on, long }, ended.signal, setState);
    return () => ended.abort();
  }, [path, round, every]);
  return { ...state, refresh: () => setRound((count) => count + 1) };
}

/**
 * @template T
 * @param {string} path
 * @param {{pause: number, every: number, on: Concerns, long: boolean}} how
 * @param {AbortSignal} ended
 * @param {(state: Live<T>) => void} show
 */
async function keep(path, { pause, every, on, long }, ended, show) {
  let etag = "";
  let delay = RETRY.first;
  const news = new News(on, ended);
  while (!ended.aborted) {
    await visible(ended);
    const byEvents = isLive.value && !pause && !long;
    const begun = performance.now();
    news.forget();
    try {
      const reply = await request("GET", etag && !pause && !every && !byEvents ? waiting(path) : path, {
        headers: etag ? { "If-None-Match": etag } : {},
        signal: ended,
      });
      delay = RETRY.first;
      if (reply.status !== 304) {
        etag = reply.headers.get("ETag") || "";
        show({ data: await reply.json(), error: null, of: path, next: nextOf(reply) });
      }
      if (byEvents) await news.come(every || UNHEARD);
      const rest = byEvents ? Math.max(TOGETHER, begun + GAP - performance.now()) : pause || every || (etag ? 0 : WAIT * 250);
      if (rest) await sleep(rest, ended);
    } catch (error) {
      if (ended.aborted) return;
      if (error instanceof Problem) show({ data: null, error, of: path });
      etag = error instanceof Problem ? "" : etag;
      await sleep(delay, ended);
      delay = Math.min(2 * delay, RETRY.most);
    }
  }
}

/** Whether something has happened that an answer does not hold yet. */
class News {
  /** @param {Concerns} on @param {AbortSignal} ended */
  constructor(on, ended) {
    this.is = false;
    /** @type {(() => void) | null} */
    this.heard = null;
    const wake = () => {
      this.is = true;
      this.heard?.();
    };
    const stop = [onEvents((event) => (event === null || on(event)) && wake()), isLive.subscribe(wake)];
    ended.addEventListener("abort", () => (stop.forEach((each) => each()), wake()), { once: true });
  }

  forget() {
    this.is = false;
  }

  /** Wait for news, or as long as is right without any. @param {number} milliseconds @returns {Promise<void>} */
  come(milliseconds) {
    if (this.is) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.heard = () => (clearTimeout(timer), resolve());
    });
  }
}

/** @param {string} path */
function waiting(path) {
  return `${path}${path.includes("?") ? "&" : "?"}wait=${WAIT}`;
}

/** Look now and then whether a service that is away has come back, where no page is asking it. */
export function watchService() {
  setInterval(async () => {
    if (reachable.value !== "no" || document.hidden) return;
    await request("GET", "/healthz").catch(() => undefined);
  }, 2000);
}
