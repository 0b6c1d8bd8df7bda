// @ts-check
import { useState } from "preact/hooks";

import { newKey, post } from "../lib/api.js";
import { html } from "../lib/html.js";
import { Ago, Confirm, Status, announce } from "./basics.js";

/**
 * A question of a run, and the buttons that decide it.
 * @param {{gate: any, onDecided?: () => void}} props
 */
export function GateCard({ gate, onDecided }) {
  const [decision, setDecision] = useState("");
  const [message, setMessage] = useState("");
  const [key] = useState(newKey);
  const decide = async () => {
    const body = { decision, message: message || undefined, shown_sha256: gate.shown_sha256 || undefined };
    await post(`/api/gates/${encodeURIComponent(gate.gate_id)}`, body, { "Idempotency-Key": `${key}-${decision}` });
    announce(`${decision}: recorded`);
    onDecided?.();
  };
  return html`<article class="card gate" data-row data-gate=${gate.gate_id}>
    <header><${Status} of="waiting" /> <a class="row-link" href=${`/runs/${gate.run_id}`}>${gate.recipe_id}</a>
      <span class="muted mono">${gate.key}</span> <span class="push"><${Ago} at=${gate.asked_at} /></span></header>
    <pre class="question">${gate.prompt}</pre>
    ${gate.expires_at && html`<p class="muted">Without an answer <strong>${gate.default}</strong> counts, <${Ago} at=${gate.expires_at} />.</p>`}
    <label>Message (optional) <input value=${message} maxlength="4000" onInput=${(/** @type {any} */ event) => setMessage(event.target.value)} /></label>
    <div class="actions">${gate.options.map((/** @type {string} */ option, /** @type {number} */ index) => html`
      <button type="button" data-decision=${option} class=${index === 0 ? "primary" : ""} onClick=${() => setDecision(option)}>${option}</button>`)}</div>
    ${decision && html`<${Confirm} title=${`Answer “${decision}”?`} confirm=${decision} danger=${decision === "deny"}
      onConfirm=${decide} onClose=${() => setDecision("")}>
      <p>The first answer counts${decision === "deny" ? ", and a denial is final" : ""}.</p></${Confirm}>`}
  </article>`;
}
