import { h, options } from "preact";
import { useEffect, useState } from "preact/hooks";
import htm from "htm";

export const html = htm.bind(h);

/** Controls, direction marks and what is not seen, but for signs that join letters or draw an emoji. */
const STEERING = /(?![\n\t\u200c\u200d\ufe00-\ufe0f]|\r\n)[\p{Cc}\p{DI}\p{Zl}\p{Zp}\ufff9-\ufffb]/gu;

/** @type {OfText} */
export function visible(text) {
  return text.replace(STEERING, (sign) => `\\u${sign.codePointAt(0)?.toString(16).padStart(4, "0")}`);
}

// Every text of a page passes here.
options.vnode = (node) => {
  const { props, type } = node;
  if (typeof props === "string") node.props = visible(props);
  if (type === "button") props.type ||= type;
  if (typeof type === "string") for (const name of ["title", "aria-label"]) if (props[name]) props[name] = visible(String(props[name]));
};

/** @type {Do.signal} */
export function signal(value) {
  /** @type {Set<(value: any) => void>} */
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

/** @type {Do.useValue} */
export function useValue(from) {
  const [, setValue] = useState(from.value);
  useEffect(() => from.subscribe(setValue), [from]);
  return from.value;
}

/** Milliseconds by which the clock of the service is ahead of this one. */
let ahead = 0;

/** The present moment of the service in milliseconds: its instants are counted from there. */
export function present() {
  return Date.now() + ahead;
}

/** Take over the clock of an answer, which has whole seconds. @param {string | null} date */
export function setClock(date) {
  const found = Date.parse(date || "") - present();
  if (!(Math.abs(found) > 2500)) return;
  ahead += found;
  tick();
}

const now = signal(present());
const never = signal(0);

/** The present minute, for addresses that are read again when it is over. */
export const minute = signal(0);

/** @type {Do.useNow} */
export function useNow(goesOn = true) {
  return useValue(goesOn ? now : never);
}

function tick() {
  now.value = present();
  minute.value = now.value - (now.value % 60_000);
}

/** @type {Do.startClock} */
export function startClock(isKnown) {
  setInterval(() => {
    if (!document.hidden && isKnown()) tick();
  }, 1000);
  tick();
}

export const address = signal(read());

function read() {
  const { pathname, search } = window.location;
  return { path: pathname, query: new URLSearchParams(search), href: pathname + search };
}

/** @type {Record<string, number>} */
const left = {};

/** Take over the address; return that of another page, which is left. */
function turn() {
  const { href, path } = address.value;
  left[href] = window.scrollY;
  address.value = read();
  return path !== address.value.path && href;
}

/** On the way back: return to the place, and to the link that was followed, as soon as they are drawn. */
function back() {
  const from = turn();
  const top = left[address.value.href] || 0;
  let frames = 120;
  const seek = () => {
    if (window.scrollY < top) window.scrollTo(0, top);
    const link = document.querySelector(`main a[href="${from}"]`);
    if (link instanceof HTMLElement) link.focus({ preventScroll: true });
    else if (frames--) requestAnimationFrame(seek);
  };
  if (from) requestAnimationFrame(seek);
}

/** @type {Do.navigate} */
export function navigate(to, { replace = false, state = null } = {}) {
  window.history[replace ? "replaceState" : "pushState"](state, "", to);
  if (turn()) window.scrollTo(0, 0);
}

/** @type {Do.setQuery} */
export function setQuery(changes) {
  const query = new URLSearchParams(window.location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  navigate(window.location.pathname + (text ? `?${text}` : ""), { replace: true });
}

/** @type {Do.match} */
export function match(pattern, path) {
  const wanted = pattern.split("/");
  const given = path.replace(/\/+$/, "").split("/");
  if (path === "/" ? pattern !== "/" : wanted.length !== given.length) return null;
  /** @type {Words} */
  const found = {};
  for (const [index, part] of wanted.entries()) {
    if (part.startsWith(":")) {
      try {
        found[part.slice(1)] = decodeURIComponent(given[index]);
      } catch {
        return null;
      }
    } else if (path !== "/" && part !== given[index]) return null;
  }
  return found;
}

export function interceptLinks() {
  window.history.scrollRestoration = "manual";
  window.addEventListener("popstate", back);
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target || link.download) return;
    if (link.origin !== window.location.origin || /^\/(api|ui|metrics|healthz|readyz)(\/|$)/.test(link.pathname)) return;
    if (link.hash && link.pathname === window.location.pathname) return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
  // The second click of a double click would undo an order, or confirm it unread.
  document.addEventListener("click", (event) => event.detail > 1 && event.target instanceof Element && event.target.closest("main button:not([data-move])") && (event.preventDefault(), event.stopPropagation()), true);
}
