// @ts-check
import { useEffect, useState } from "preact/hooks";

import { html } from "../lib/base.js";
import { get, newKey, post } from "../lib/live.js";
import { Ago, Confirm, Content, Fault, Section, Status, Took, announce, each, typed, useFault } from "./basics.js";

/** @param {string} id */
const pathOf = (id) => `/api/gates/${encodeURIComponent(id)}`;

/**
 * A gate with what only its own address tells: what is decided on, who asks, who decided.
 * @param {string} id @param {unknown} [version]
 * @returns {[any, Error | null]}
 */
function useGate(id, version) {
  const [gate, setGate] = useState(/** @type {any} */ (null));
  const [error, setError] = useFault();
  useEffect(() => {
    get(pathOf(id)).then(setGate, setError);
  }, [id, version]);
  return [gate, error];
}

/**
 * A question of a run, and the buttons that decide it.
 * @param {{gate: any, onDecided?: () => void}} props
 */
export function GateCard({ gate, onDecided }) {
  const [decision, setDecision] = useState("");
  const [message, setMessage] = useState("");
  const [key] = useState(newKey);
  const [detail, error] = useGate(gate.gate_id, gate.shown_sha256);
  const by = detail?.asked_by;
  const decide = async () => {
    // What stands on the page is what is answered.
    const body = { decision, message: message || undefined, shown_sha256: (detail || gate).shown_sha256 || undefined };
    await post(pathOf(gate.gate_id), body, { "Idempotency-Key": `${key}-${decision}` });
    announce(`${decision}: recorded`);
    onDecided?.();
  };
  return html`<article class="card gate" data-row data-gate=${gate.gate_id}>
    <header><${Status} of="waiting" /> <a class="row-link" href=${`/runs/${gate.run_id}`}>${by?.description || gate.recipe_id}</a>
      <span class="push muted" title=${gate.asked_at}>for <${Took} from=${gate.asked_at} /></span></header>
    <p class="muted">Step <code>${gate.key}</code> of ${gate.recipe_id} asks${by?.session_plan_task_id && html`, task ${by.session_plan_task_id} of <a href=${`/plans/${by.session_id}`}>its plan</a>`}:</p>
    <${Question} gate=${detail || gate} />
    <${Fault} error=${error} />
    ${gate.expires_at && html`<p class="muted">Without an answer <strong>${gate.default}</strong> counts, <${Ago} at=${gate.expires_at} />.</p>`}
    ${gate.approvals && html`<p class="muted">${gate.approvals.needed} keys must agree${gate.approvals.not_starter ? ", other than that of the run's starter" : ""}; so far: ${gate.approvals.given.map((/** @type {any} */ vote) => `${vote.decision} (${vote.author?.name || "?"})`).join(", ") || "none"}.</p>`}
    <label>Message (optional) <input value=${message} maxlength="4000" onInput=${typed(setMessage)} /></label>
    <div class="actions">${gate.options.map((/** @type {string} */ option, /** @type {number} */ index) => html`
      <button type="button" data-decision=${option} class=${index === 0 ? "primary" : ""} onClick=${() => setDecision(option)}>${option}</button>`)}</div>
    ${decision && html`<${Confirm} title=${`Answer “${decision}”?`} confirm=${decision} danger=${decision === "deny"}
      onConfirm=${decide} onClose=${() => setDecision("")}>
      <p>${gate.approvals ? `It counts once ${gate.approvals.needed} keys agree; one denial decides` : "The first answer counts"}${decision === "deny" ? ", and a denial is final" : ""}.</p></${Confirm}>`}
  </article>`;
}

/** Exactly what is decided on: in its parts, or, while those are not known or are cut, as a whole. @param {{gate: any}} props */
function Question({ gate }) {
  const parts = gate.shown?.some((/** @type {any} */ part) => part.truncated) ? null : gate.shown;
  if (!parts?.length) return html`<${Content} text=${gate.prompt} kind="question" />`;
  return each(parts, (part) => html`<${Content} key=${part.name} text=${part.text} kind=${part.kind === "text" ? "question" : part.kind} />`);
}

/** What was answered, and by whom. @param {{id: string, asks?: boolean}} props `asks`: with the question. */
export function Decided({ id, asks = false }) {
  const [gate, error] = useGate(id);
  if (!gate?.decision) return html`<${Fault} error=${error} />`;
  return html`<div>${asks && html`<a href=${`/runs/${gate.run_id}`}>${gate.asked_by.description}</a>: `}
    <strong>${gate.decision}</strong>${gate.message && html` “${gate.message}”`} <span class="muted">${author(gate)}, <${Ago} at=${gate.decided_at} /></span></div>`;
}

/** @param {any} gate */
function author({ by_default, decided_by: by }) {
  if (by_default) return "nobody answered in time";
  if (!by) return "by a person";
  return `by ${by.name || "a person"}${by.name && by.claimed ? " (as claimed)" : ""}, ${VIA[by.via] || by.via}`;
}

/** How an answer came. @type {Record<string, string>} */
const VIA = { local: "on this machine", token: "with the token", browser: "in a browser", key: "with a key" };

/** Gates that were open while this page was, and are no more. @param {{gates: any[] | null}} props */
export function Answered({ gates }) {
  const [seen, setSeen] = useState(/** @type {string[]} */ ([]));
  useEffect(() => {
    const fresh = (gates || []).map((gate) => gate.gate_id).filter((id) => !seen.includes(id));
    if (fresh.length) setSeen([...seen, ...fresh]);
  }, [gates]);
  const gone = gates ? seen.filter((id) => !gates.some((gate) => gate.gate_id === id)).slice(-20) : [];
  if (!gone.length) return null;
  return html`<${Section} title="Answered meanwhile"><ul class="lines">${gone.reverse().map((id) => html`<li key=${id}><${Decided} id=${id} asks /></li>`)}</ul></${Section}>`;
}
