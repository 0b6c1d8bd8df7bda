// @ts-check
import { useEffect, useRef, useState } from "preact/hooks";

import { get, withQuery } from "../lib/api.js";
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { isOpen } from "../lib/run_state.js";
import { Ago, Fault, Status, Took } from "./basics.js";
import { Content } from "./content.js";
import { Decided } from "./gate_card.js";

/** Lines of the journal that are read at a time. */
const PORTION = 200;

/** Lines before a step's number in which its earlier tries may be. */
const BEFORE = 40;

/**
 * Everything about one step: its attempts, output, error, tokens, receipt.
 * @param {{state: import("../lib/run_state.js").RunState, name: string, onClose: () => void}} props
 */
export function StepDrawer({ state, name, onClose }) {
  const { run } = state;
  const panel = useRef(/** @type {HTMLElement | null} */ (null));
  const [lines, setLines] = useState(/** @type {any[] | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const first = state.finished.findIndex((step) => step && belongs(step, name));
  const mine = state.finished.filter((step) => step && belongs(step, name));
  useEffect(() => {
    const before = document.activeElement;
    panel.current?.focus();
    return () => before instanceof HTMLElement && before.focus();
  }, [name]);
  useEffect(() => {
    read(run.run_id, name, first, mine).then(setLines, setError);
  }, [name, first, mine.length]);
  const open = state.open.filter((step) => belongs(step, name));
  const close = (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && onClose();
  const shown = lines || mine;
  return html`<div class="drawer" role="dialog" aria-label=${`Step ${name}`} tabindex="-1" ref=${panel} onKeyDown=${close}>
    <header><h2>${name}</h2><button type="button" class="quiet" onClick=${onClose} aria-label="Close">✕</button></header>
    <${Fault} error=${error} />
    ${open.map((step) => html`<${Attempt} key=${`open-${step.key}`} step=${step} />`)}
    ${[...shown].reverse().map((step) => html`<${Attempt} key=${`${step.key}#${step.attempt}`} step=${step} />`)}
    ${lines && !open.length && !lines.length && html`<p class="muted">This step has not begun.</p>`}
  </div>`;
}

/** @param {any} step @param {string} name */
function belongs(step, name) {
  return step.key === name || step.step_id === name || step.key?.replace(/[#[].*$/, "") === name;
}

/**
 * Read a step's lines in the journal: near its number, and onwards until all of it that is known has been seen.
 * @param {string} runId @param {string} name @param {number} first @param {any[]} known
 */
async function read(runId, name, first, known) {
  const wanted = new Set(known.map((step) => `${step.key}#${step.attempt}`));
  const found = [];
  let cursor = Math.max(0, first - BEFORE);
  while (wanted.size) {
    const lines = await get(withQuery(`/api/runs/${encodeURIComponent(runId)}/steps`, { limit: PORTION, cursor: cursor ? cursor - 1 : "" }));
    for (const line of lines) {
      if (!belongs(line, name)) continue;
      found.push(line);
      wanted.delete(`${line.key}#${line.attempt}`);
    }
    if (lines.length < PORTION) break;
    cursor += lines.length;
  }
  return found;
}

/** @param {{step: any}} props */
function Attempt({ step }) {
  return html`<section class="attempt">
    <p><${Status} of=${step.status} note=${step.key} /> <span class="muted">attempt ${step.attempt || 1}</span></p>
    <dl class="facts">
      <dt>Began</dt><dd><${Ago} at=${step.started_at} /></dd>
      <dt>Duration</dt><dd><${Took} from=${step.started_at} to=${step.completed_at} /></dd>
      ${isOpen(step) && step.output_at && html`<dt>Last output</dt><dd><${Ago} at=${step.output_at} /></dd>`}
      ${step.agent_id && html`<dt>Agent</dt><dd>${step.agent_id}</dd>`}
      ${step.usage && html`<dt>Tokens</dt><dd class="number">${format.number(format.tokens(step.usage))}</dd><dt>Cost</dt><dd class="number">${format.money(step.usage.cost_usd)}</dd>`}
      ${step.receipt_id && html`<dt>Receipt</dt><dd><a href=${`/api/audit/receipts/${step.receipt_id}`} target="_blank" rel="noopener">${step.receipt_id}</a></dd>`}
    </dl>
    ${step.gate_id && !isOpen(step) && html`<${Decided} id=${step.gate_id} />`}
    ${step.error && html`<div class="fault"><strong>${step.error.code}</strong><p>${step.error.message}</p></div>`}
    <${Output} step=${step} />
  </section>`;
}

/** @param {{step: any}} props */
function Output({ step }) {
  const output = step.output ?? step.output_preview;
  if (output === undefined || output === null) return null;
  return html`<${Content} text=${typeof output === "string" ? output : JSON.stringify(output, null, 2)} />`;
}
