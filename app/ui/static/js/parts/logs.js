// @ts-check
import { useEffect, useState } from "preact/hooks";

import { request } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { Fault, Section } from "./basics.js";

/** Characters of a log that are shown, from its end. */
const LOG_SHOWN = 200_000;

/** The logs of a run, one at a time. @param {{path: string, live: boolean}} props */
export function Logs({ path, live }) {
  const logs = useLive(`${path}/logs`, { pause: live ? 3000 : 3600_000 });
  const [name, setName] = useState("");
  if (!logs.data?.length) return null;
  return html`<${Section} title="Logs" count=${logs.data.length}
    actions=${html`<label>Log <select onChange=${(/** @type {any} */ event) => setName(event.target.value)}>
      <option value="">choose…</option>${logs.data.map((/** @type {string} */ each) => html`<option value=${each}>${each}</option>`)}</select></label>`}>
    ${name && html`<${Log} key=${name} path=${`${path}/logs/${encodeURIComponent(name)}`} live=${live} />`}
  </${Section}>`;
}

/** @param {{path: string, live: boolean}} props */
function Log({ path, live }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  useEffect(() => {
    const ended = new AbortController();
    const read = () => request("GET", path, { signal: ended.signal }).then((reply) => reply.text()).then(setText, setError);
    read();
    const timer = live ? setInterval(read, 2000) : 0;
    return () => (clearInterval(timer), ended.abort());
  }, [path, live]);
  return html`<${Fault} error=${error} /><pre class="log" tabindex="0">${text === null ? "…" : text.slice(-LOG_SHOWN)}</pre>`;
}
