// @ts-check
import { useState } from "preact/hooks";

import * as format from "../lib/format.js";
import { html } from "../lib/html.js";

/** Characters that are shown at first. */
const SHOWN = 20_000;

/** Lines of a diff by their first character. @type {Record<string, string>} */
const LINES = { "+": "added", "-": "removed", "@": "muted" };

/** A text as it is, never markup; a long one on request as a whole. @param {{text: string, kind?: string}} props */
export function Content({ text, kind = "text" }) {
  const [whole, setWhole] = useState(false);
  const shown = whole ? text : text.slice(0, SHOWN);
  return html`<pre class=${`shown shown-${kind}`} tabindex="0">${kind === "diff" ? colored(shown) : shown}</pre>
    ${shown.length < text.length && html`<p><button type="button" onClick=${() => setWhole(true)}>Show all ${format.number(text.length)} characters</button></p>`}`;
}

/** @param {string} text */
function colored(text) {
  return text.split(/(?<=\n)/).map((line) => (LINES[line[0]] ? html`<span class=${LINES[line[0]]}>${line}</span>` : line));
}
