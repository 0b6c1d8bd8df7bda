import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { html } from "../lib/base.js";
import { Problem, followStream, request, sleep, useLive, withQuery } from "../lib/live.js";
import { Fault, Section, options, typed, useAct, useFault } from "./basics.js";

// Bytes.
const TAIL = 200_000;

const RETRY = 1000;

/** Logs that are offered at once. */
const MOST = 30;

/** @type {any[]} */
const NONE = [];

/** @type {Do.stepLink} */
export function stepLink(key, log = "") {
  const query = new URLSearchParams(window.location.search);
  query.set("step", key);
  query.delete("log");
  return withQuery(window.location.pathname, { ...Object.fromEntries(query), log });
}

/** @type {Do.useLogs} */
export function useLogs(path, ended) {
  const { data, refresh } = useLive(path && `${path}/logs`, { pause: ended ? 3600_000 : 3000 });
  // A run may be resumed and end again before the page hears of it.
  useEffect(refresh, [ended]);
  return data || NONE;
}

/** @type {Do.logsOf} */
export function logsOf(names, { key, attempt }) {
  const stem = `${key.replace(/^\.|[^\w.#@+=,~%[\]-]+/g, coded)}.`;
  return names.filter((name) => {
    const [, number = "", kind] = /^(\d+\.)?(\w+)(\.\w{2,3})?$/.exec(name.startsWith(stem) ? name.slice(stem.length) : "") || [];
    return kind && (!number || parseInt(number) === (attempt || 1));
  });
}

/** @param {string} text */
function coded(text) {
  return Array.from(new TextEncoder().encode(text), (byte) => `%${byte.toString(16).toUpperCase()}`).join("");
}

/** @param {string} name */
export function kindOf(name) {
  return name.replace(/\.(md|txt)$/, "").replace(/^.*\./, "");
}

/** While steps are at work: the output of the newest one, or what a person reads. @param {Props} props */
export function Logs({ path, state: { open, finished }, names, live }) {
  const [chosen, setChosen] = useState("");
  const [text, setText] = useState("");
  const [, tidy] = useState({});
  const frame = useRef(null);
  const followed = useRef("");
  const growing = [...open]
    .sort((one, other) => Date.parse(other.started_at) - Date.parse(one.started_at))
    .flatMap((step) => logsOf(names, step).filter((name) => ["output", "stdout"].includes(kindOf(name))));
  if (growing.length && !reads(frame.current)) followed.current = growing[0];
  const name = chosen || followed.current;
  const choose = (/** @type {string} */ next) => {
    followed.current = growing[0] || "";
    setChosen(next);
    tidy({});
  };
  if (!names.length && !live) return null;
  const failed = finished.filter((step) => step?.status === "failed").slice(-MOST);
  const first = [name, ...growing, ...failed.flatMap((step) => logsOf(names, step))];
  const found = [...new Set(names.length > MOST ? [...first, ...names] : names)].filter((each) => each && (each === name || each.toLowerCase().includes(text.toLowerCase())));
  const step = name && [...open, ...finished].find((each) => each && logsOf([name], each).length);
  return html`<div ref=${frame} onFocusOut=${() => tidy({})}><${Section} title="Logs" count=${names.length}
    actions=${html`${names.length > MOST && html`<input type="search" aria-label="Find a log" placeholder="Find a log" value=${text} onInput=${typed(setText)} />`}
      <label>Log <select onChange=${typed(choose)}>
      <option value="" selected=${!name}>${growing.length ? "newest output" : "choose…"}</option>${options(found.slice(0, MOST).map((log) => [log, log]), name)}
      ${found.length > MOST && html`<option disabled>${found.length - MOST} more: find them by name</option>`}</select></label>
      ${name && html`<${SaveLog} path=${path} name=${name} />`}`}>
    ${step ? html`<p class="muted wide">Step <a href=${stepLink(step.key)}>${step.key}</a></p>` : !name && html`<p class="muted">${live ? "No output yet." : "Choose a log. One that grows is followed."}</p>`}
    ${name ? html`<${Log} key=${name} path=${logPath(path, name)} live=${live} />` : live && html`<pre class="log live"></pre>`}
  <//></div>`;
}

/** Whether a person is in the log: further up, or with the focus. @param {HTMLElement | null} frame */
function reads(frame) {
  const log = frame?.querySelector(".log");
  return Boolean(log && (log.matches(":focus") || !isAtEnd(log)));
}

/** @param {Element} log */
function isAtEnd({ scrollTop, scrollHeight, clientHeight }) {
  return scrollTop + clientHeight > scrollHeight - 40;
}

/** @param {string} path @param {string} name */
export function logPath(path, name) {
  return `${path}/logs/${encodeURIComponent(name)}`;
}

/** The link alone would leave the sign-in behind. @param {Props} props */
export function SaveLog({ path, name }) {
  const file = logPath(path, name);
  const [save, error] = useAct(async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await (await request("GET", file)).blob());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  });
  return html`<a class="button" href=${file} onClick=${save}>Save whole log</a><${Fault} error=${error} />`;
}

/** @param {Props} props */
export function Log({ path, live }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [error, setError] = useFault();
  const frame = useRef(null);
  const atEnd = useRef(true);
  useEffect(() => {
    const ended = new AbortController();
    tail(path, ended, setText).catch((caught) => ended.signal.aborted || setError(caught));
    return () => ended.abort();
  }, [path]);
  // Who reads further up is left there.
  useLayoutEffect(() => {
    if (frame.current && atEnd.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [text]);
  const look = () => {
    if (frame.current) atEnd.current = isAtEnd(frame.current);
  };
  return html`<${Fault} error=${error} /><pre class=${live ? "log live" : "log"} tabindex="0" ref=${frame} onScroll=${look}>${text === null ? "…" : text}</pre>`;
}

/** @type {Tail} */
async function tail(path, stopped, show) {
  let last = "";
  let over = false;
  while (!over && !stopped.signal.aborted) {
    const ended = new AbortController();
    stopped.signal.addEventListener("abort", () => ended.abort(), { once: true });
    try {
      await followStream(withQuery(`${path}/stream`, last ? {} : { tail: TAIL }), last, ended, (item) => {
        last = item.id || last;
        if (item.type === "end") over = true;
        if (item.type === "reset") show(() => "");
        if (item.type === "text") show((before) => ((before || "") + JSON.parse(item.data).text).slice(-TAIL));
      });
    } catch (error) {
      if (error instanceof Problem) throw error;
    }
    if (over) show((before) => before ?? "");
    else await sleep(RETRY, stopped.signal);
  }
}
