// @ts-check
import { useEffect, useRef } from "preact/hooks";

import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { Ago, Fault, Status, Took } from "./basics.js";

/**
 * Everything about one step: its attempts, output, error, tokens, receipt.
 * @param {{run: any, name: string, onClose: () => void}} props
 */
export function StepDrawer({ run, name, onClose }) {
  const panel = useRef(/** @type {HTMLElement | null} */ (null));
  const lines = useLive(`/api/runs/${run.run_id}/steps?limit=1000`, { pause: 4000 });
  useEffect(() => {
    const before = document.activeElement;
    panel.current?.focus();
    return () => before instanceof HTMLElement && before.focus();
  }, [name]);
  const belongs = (/** @type {any} */ step) => step.key === name || step.step_id === name || step.key?.replace(/[#[].*$/, "") === name;
  const recorded = (lines.data || []).filter(belongs);
  const open = run.steps.filter((/** @type {any} */ step) => step.status === "running" && belongs(step));
  const close = (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && onClose();
  return html`<aside class="drawer" role="dialog" aria-label=${`Step ${name}`} tabindex="-1" ref=${panel} onKeyDown=${close}>
    <header><h2>${name}</h2><button type="button" class="quiet" onClick=${onClose} aria-label="Close">✕</button></header>
    <${Fault} error=${lines.error} />
    ${open.map((/** @type {any} */ step) => html`<${Attempt} step=${step} />`)}
    ${recorded.reverse().map((/** @type {any} */ step) => html`<${Attempt} step=${step} />`)}
    ${lines.data && !open.length && !recorded.length && html`<p class="muted">This step has not begun.</p>`}
  </aside>`;
}

/** @param {{step: any}} props */
function Attempt({ step }) {
  const output = step.output ?? step.output_preview;
  return html`<section class="attempt">
    <p><${Status} of=${step.status} note=${step.key} /> <span class="muted">attempt ${step.attempt || 1}</span></p>
    <dl class="facts">
      <dt>Began</dt><dd><${Ago} at=${step.started_at} /></dd>
      <dt>Duration</dt><dd><${Took} from=${step.started_at} to=${step.completed_at} /></dd>
      ${step.agent_id && html`<dt>Agent</dt><dd>${step.agent_id}</dd>`}
      ${step.usage && html`<dt>Tokens</dt><dd class="number">${format.number(format.tokens(step.usage))}</dd><dt>Cost</dt><dd class="number">${format.money(step.usage.cost_usd)}</dd>`}
      ${step.receipt_id && html`<dt>Receipt</dt><dd><a href=${`/api/audit/receipts/${step.receipt_id}`} target="_blank" rel="noopener">${step.receipt_id}</a></dd>`}
    </dl>
    ${step.error && html`<div class="fault"><strong>${step.error.code}</strong><p>${step.error.message}</p></div>`}
    ${output !== undefined && output !== null && html`<pre class="shown" tabindex="0">${typeof output === "string" ? output : JSON.stringify(output, null, 2)}</pre>`}
  </section>`;
}
