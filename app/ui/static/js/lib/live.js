import { useEffect, useState } from "preact/hooks";

import { setClock, signal } from "./base.js";

/** Whether the service answers: `yes`, `no`, or `refused` (it wants a sign-in). */
export const reachable = signal(/** @type {"yes" | "no" | "refused"} */ ("yes"));

const SESSION = "control-room.session";

export class Problem extends Error {
  /** @param {number} status @param {any} body */
  constructor(status, body) {
    super(body?.detail || body?.title || `The service answered ${status}.`);
    this.status = status;
    this.code = String(body?.code || `http_${status}`);
    this.title = String(body?.title || "The request was refused");
    /** @type {Flaw[]} */
    this.faults = Array.isArray(body?.flaws) ? body.flaws : [];
    this.facts = body?.facts || {};
  }
}

/** @type {Do.sessionHeader} */
function sessionHeader() {
  const key = window.sessionStorage.getItem(SESSION);
  return key ? { "X-Control-Room-Session": key } : {};
}

export const isSignedIn = signal(window.sessionStorage.getItem(SESSION) !== null);

/** What the signed-in key may do; empty: everything, or not known yet. */
export const role = signal("");

/** @type {Do.keepSession} */
export function keepSession(key) {
  if (key) window.sessionStorage.setItem(SESSION, key);
  else window.sessionStorage.removeItem(SESSION);
  isSignedIn.value = key !== null;
}

export async function signOut() {
  await request("DELETE", "/api/session");
  keepSession(null);
  reachable.value = "refused";
}

/** @type {Do.request} */
export async function request(method, path, { body, headers = {}, signal: abort } = {}) {
  const session = sessionHeader();
  /** @type {Words} */
  const sent = { ...session, ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let reply;
  try {
    reply = await fetch(path, {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: abort,
      cache: "no-store",
    });
  } catch (error) {
    if (!abort?.aborted) reachable.value = "no";
    throw error;
  }
  setClock(reply.headers.get("Date"));
  // A refusal of a request that was sent before the sign-in says nothing about it.
  const isStale = JSON.stringify(session) !== JSON.stringify(sessionHeader());
  if (reply.status !== 401) reachable.value = "yes";
  else if (!isStale) reachable.value = "refused";
  if (!reply.ok && reply.status !== 304) throw new Problem(reply.status, await reply.json().catch(() => ({ title: reply.statusText })));
  return reply;
}

/** @type {Do.get} */
export async function get(path) {
  return (await request("GET", path)).json();
}

/** @type {Do.nextOf} */
export function nextOf(reply) {
  return /<([^>]+)>; *rel="next"/.exec(reply.headers.get("Link") || "")?.[1] || "";
}

/** @type {Do.post} */
export async function post(path, body = {}, headers = {}) {
  const reply = await request("POST", path, { body, headers });
  return reply.status === 204 ? null : reply.json();
}

/** @type {Do.change[]} */
export const [patch, put] = ["PATCH", "PUT"].map((method) => async (path, body) => (await request(method, path, { body })).json());

/** @type {Do.remove} */
export async function remove(path) {
  await request("DELETE", path);
}

/** @type {Do.pathOf} */
export function pathOf(kind, id) {
  return `/api/${kind}/${encodeURIComponent(id)}`;
}

/** @type {Do.withQuery} */
export function withQuery(path, query) {
  const given = Object.entries(query).flatMap(([name, value]) => [value].flat().map((each) => [name, String(each ?? "")]));
  const text = new URLSearchParams(given.filter(([, value]) => value !== "")).toString();
  return text ? `${path}?${text}` : path;
}

export function newKey() {
  return `ui-${crypto.randomUUID()}`;
}

/** Whether events arrive; while they do not, pages poll. */
const isLive = signal(false);

/** Milliseconds between two tries, at least and at most. */
const RETRY = { first: 300, most: 8000 };

/** Milliseconds until the next try where the stream is refused. */
const REFUSED = 60_000;

/** @type {Set<(event: RunEvent | null) => void>} */
const listeners = new Set();

let last = "";

/** @type {Do.onEvents} */
export function onEvents(listen) {
  listeners.add(listen);
  return () => listeners.delete(listen);
}

/** @type {Do.tell} */
function tell(event) {
  for (const listen of [...listeners]) listen(event);
}

export async function follow() {
  let delay = RETRY.first;
  for (;;) {
    try {
      await followStream("/api/events", last, new AbortController(), take, () => {
        delay = RETRY.first;
        isLive.value = true;
        if (!last) tell(null);
      });
    } catch (error) {
      // What refuses the stream, as a proxy may, will refuse it for a while.
      if (error instanceof Problem && error.status !== 401 && error.status < 500) delay = REFUSED;
    }
    isLive.value = false;
    if (!document.hidden) await sleep(delay);
    delay = Math.min(2 * delay, Math.max(delay, RETRY.most));
  }
}

/** @type {Do.take} */
function take(item) {
  if (item.id) last = item.id;
  if (item.type === "reset") tell(null);
  else if (item.data) tell(JSON.parse(item.data));
}

/** @type {Do.sleep} */
export function sleep(milliseconds, ended) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    ended?.addEventListener("abort", () => (clearTimeout(timer), resolve(undefined)), { once: true });
  });
}

/** @type {Do.visible} */
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

/** Milliseconds without a byte after which a connection counts as lost. */
const SILENCE = 60_000;

/** @type {Do.followStream} */
export async function followStream(path, last, ended, take, opened = () => undefined) {
  await visible(ended.signal);
  document.addEventListener("visibilitychange", () => document.hidden && ended.abort(), { signal: ended.signal });
  const reply = await request("GET", path, { headers: last ? { "Last-Event-ID": last } : {}, signal: ended.signal });
  if (!reply.body) return;
  opened();
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silence = setTimeout(() => ended.abort(), SILENCE);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return ended.abort();
    const [items, after] = parsed(rest + value);
    rest = after;
    items.forEach(take);
  }
}

/** @type {Do.parsed} */
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

/** Seconds that the service may hold a request until something changes. */
const WAIT = 20;

/** Milliseconds between two answers of an address whose events come fast, and in which events come together. */
const GAP = 1000;
const TOGETHER = 30;

/** Milliseconds after which an address is read again without an event: runs of other processes are in none. */
const UNHEARD = 20_000;

/** The same where no events arrive: requests that wait would take the connections that an order needs. */
const DEAF = 3000;

/** Events that change what a run counts as, or what a step cost. @type {Concerns} */
export const aboutRuns = (event) => !["step.started", "step.retrying", "recipe.note"].includes(event.type);

const NOTHING = { data: null, error: null, of: null };

/** @type {Do.useLive} */
export function useLive(path, { pause = 0, every = 0, on = () => true, long = false } = {}) {
  const [state, setState] = useState(/** @type {Live<any>} */ (NOTHING));
  const [round, setRound] = useState(0);
  useEffect(() => {
    // What was shown of another address stays until its successor is there: a filter that changes lets nothing flicker.
    if (path === null) return setState(NOTHING);
    const ended = new AbortController();
    keep(path, { pause, every, on, long }, ended.signal, setState);
    return () => ended.abort();
  }, [path, round, every, pause]);
  // What an order answered is shown at once: the next order needs its revision.
  const refresh = (/** @type {any} */ answer) => (answer?.revision && setState((before) => ({ ...before, data: answer })), setRound((count) => count + 1));
  return { ...state, refresh };
}

/** @type {Do.keep} */
async function keep(path, { pause, every, on, long }, ended, show) {
  let etag = "";
  let delay = RETRY.first;
  const news = new News(on, ended);
  while (!ended.aborted) {
    await visible(ended);
    const begun = performance.now();
    news.forget();
    try {
      const reply = await request("GET", etag && long ? `${path}?wait=${WAIT}` : path, {
        headers: etag ? { "If-None-Match": etag } : {},
        signal: ended,
      });
      delay = RETRY.first;
      if (reply.status !== 304) {
        etag = reply.headers.get("ETag") || "";
        show({ data: await reply.json(), error: null, of: path, next: nextOf(reply) });
      }
      if (!pause && !long) await news.come(every || (isLive.value ? UNHEARD : DEAF));
      await sleep(pause || Math.max(TOGETHER, begun + GAP - performance.now()), ended);
    } catch (error) {
      if (ended.aborted) return;
      if (error instanceof Problem) show({ data: null, error, of: path });
      etag = error instanceof Problem ? "" : etag;
      await sleep(delay, ended);
      delay = Math.min(2 * delay, RETRY.most);
    }
  }
}

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

  /** @param {number} milliseconds @returns {Promise<void>} */
  come(milliseconds) {
    if (this.is) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.heard = () => (clearTimeout(timer), resolve());
    });
  }
}
