// @ts-check
import { signal } from "./signal.js";

/** @typedef {{path?: string, code?: string, message?: string}} Fault */

/** Whether the service answers: `yes`, `no`, or `refused` (it wants a sign-in). */
export const reachable = signal(/** @type {"yes" | "no" | "refused"} */ ("yes"));

const SESSION = "control-room.session";

/** What the service refused, as its problem document says it. */
export class Problem extends Error {
  /** @param {number} status @param {any} body */
  constructor(status, body) {
    super(body?.detail || body?.title || `The service answered ${status}.`);
    this.status = status;
    this.code = String(body?.code || `http_${status}`);
    this.title = String(body?.title || "The request was refused");
    /** @type {Fault[]} */
    this.faults = Array.isArray(body?.flaws) ? body.flaws : [];
    this.facts = body?.facts || {};
  }
}

/** @returns {Record<string, string>} */
function sessionHeader() {
  const key = window.sessionStorage.getItem(SESSION);
  return key ? { "X-Control-Room-Session": key } : {};
}

/** Whether this tab is signed in. */
export const isSignedIn = signal(window.sessionStorage.getItem(SESSION) !== null);

/**
 * Keep the second secret of a sign-in for this tab, or forget it.
 * @param {string | null} key
 */
export function keepSession(key) {
  if (key) window.sessionStorage.setItem(SESSION, key);
  else window.sessionStorage.removeItem(SESSION);
  isSignedIn.value = key !== null;
}

/** End the sign-in: here, and as the browser's cookie. */
export async function signOut() {
  await request("DELETE", "/api/session");
  keepSession(null);
  reachable.value = "refused";
}

/**
 * Send a request; throw a `Problem` if it is refused, and a `TypeError` if nobody answers.
 * @param {string} method
 * @param {string} path
 * @param {{body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 */
export async function request(method, path, { body, headers = {}, signal: abort } = {}) {
  const session = sessionHeader();
  /** @type {Record<string, string>} */
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
  // A refusal of a request that was sent before the sign-in says nothing about it.
  const isStale = JSON.stringify(session) !== JSON.stringify(sessionHeader());
  if (reply.status !== 401) reachable.value = "yes";
  else if (!isStale) reachable.value = "refused";
  if (!reply.ok && reply.status !== 304) throw new Problem(reply.status, await problemOf(reply));
  return reply;
}

/** @param {Response} reply */
async function problemOf(reply) {
  try {
    return await reply.json();
  } catch {
    return { title: reply.statusText };
  }
}

/** @param {string} path @param {AbortSignal} [abort] */
export async function get(path, abort) {
  return (await request("GET", path, { signal: abort })).json();
}

/** The address of the next page of a list, or empty. @param {Response} reply */
export function nextOf(reply) {
  return /<([^>]+)>; *rel="next"/.exec(reply.headers.get("Link") || "")?.[1] || "";
}

/** @param {string} path @param {unknown} [body] @param {Record<string, string>} [headers] */
export async function post(path, body = {}, headers = {}) {
  const reply = await request("POST", path, { body, headers });
  return reply.status === 204 ? null : reply.json();
}

/** @param {string} path @param {unknown} body */
export async function patch(path, body) {
  return (await request("PATCH", path, { body })).json();
}

/** @param {string} path @param {unknown} body */
export async function put(path, body) {
  return (await request("PUT", path, { body })).json();
}

/** @param {string} path */
export async function remove(path) {
  await request("DELETE", path);
}

/**
 * Return the path with a query made of the values that are not empty.
 * @param {string} path
 * @param {Record<string, string | number | string[] | null | undefined>} query
 */
export function withQuery(path, query) {
  const given = Object.entries(query).flatMap(([name, value]) => [value].flat().map((each) => [name, String(each ?? "")]));
  const text = new URLSearchParams(given.filter(([, value]) => value !== "")).toString();
  return text ? `${path}?${text}` : path;
}

/** A key that makes a start idempotent, however often its button is pressed. */
export function newKey() {
  return `ui-${crypto.randomUUID()}`;
}
