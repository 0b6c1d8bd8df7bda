import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { html } from "../lib/base.js";
import { Problem, followStream, sleep, useLive, withQuery } from "../lib/live.js";
import { Fault, Section, options, typed, useFault } from "./basics.js";

/** Bytes of a log that are shown, from its end. */
const TAIL = 200_000;

/** Milliseconds between two tries of a stream that broke. */
const RETRY = 1000;

/** @param {{path: string, ended: string | null}} props */
export function Logs({ path, ended }) {
  const logs = useLive(`${path}/logs`, { pause: ended ? 3600_000 : 3000 });
  // A run may be resumed and end again before the page hears of it.
  useEffect(logs.refresh, [ended]);
  const [name, setName] = useState("");
  if (!logs.data?.length) return null;
  return html`<${Section} title="Logs" count=${logs.data.length}
    actions=${html`<label>Log <select onChange=${typed(setName)}>
      <option value="">choose…</option>${options(logs.data.map((/** @type {string} */ log) => [log, log]), name)}</select></label>
      ${name && html`<a class="button" href=${`${path}/logs/${encodeURIComponent(name)}`} target="_blank" rel="noopener">Whole log</a>`}`}>
    ${!name && html`<p class="muted">Choose a log to read its end. A log that still grows is followed.</p>`}
    ${name && html`<${Log} key=${name} path=${`${path}/logs/${encodeURIComponent(name)}`} />`}
  </${Section}>`;
}

/** @param {{path: string}} props */
function Log({ path }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [error, setError] = useFault();
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
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
    const { scrollTop = 0, scrollHeight = 0, clientHeight = 0 } = frame.current || {};
    atEnd.current = scrollTop + clientHeight > scrollHeight - 40;
  };
  return html`<${Fault} error=${error} /><pre class="log" tabindex="0" ref=${frame} onScroll=${look}>${text === null ? "…" : text}</pre>`;
}

/**
 * Follow a log until its run has ended, through lost connections.
 * @param {string} path @param {AbortController} stopped @param {(change: (before: string | null) => string) => void} show
 */
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
