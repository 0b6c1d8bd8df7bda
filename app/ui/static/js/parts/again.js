// @ts-check
import { useState } from "preact/hooks";

import { post } from "../lib/api.js";
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { navigate } from "../lib/router.js";
import { Confirm, Fault } from "./basics.js";
import { usePreflight } from "./preflight.js";

/** Steps of a preview that are listed. */
const MOST = 12;

/**
 * What a resume or a fork would do: which steps run again, and what that costs at most.
 * @param {{id: string, body: any}} props `body`: the order.
 */
export function Preview({ id, body }) {
  const { report, error } = usePreflight(body, `/api/runs/${encodeURIComponent(id)}/preview`);
  if (!report) return html`<${Fault} error=${error} /><p class="muted">${error ? "" : "Looking at what it will do…"}</p>`;
  const performed = report.steps.filter((/** @type {any} */ each) => each.action === "again" || each.action === "next");
  return html`<div class="preview" role="status">
    ${report.problems.map((/** @type {any} */ each) => html`<p class="wrong-text">${each.message}</p>`)}
    <p>${format.plural(report.taken_over, "finished step")} ${report.taken_over === 1 ? "is" : "are"} kept, ${report.again} ${report.again === 1 ? "runs" : "run"} again${paid(report.paid_before)}.${" "}
      ${report.calls_at_most === null ? report.note || "No limit of the calls of agents is known." : `Agents are called at most ${format.plural(report.calls_at_most, "time")}${report.cost_usd_at_most === null ? "" : `, for ${format.money(report.cost_usd_at_most)}`}.`}</p>
    ${performed.length > 0 && html`<p>Performed next: ${performed.slice(0, MOST).map((/** @type {any} */ each) => html`<code title=${each.why}>${each.key}</code>${" "}`)}${performed.length > MOST && `and ${performed.length - MOST} more`}</p>`}
    <p class="muted">${report.workspace_note}</p></div>`;
}

/** @param {any} usage */
function paid(usage) {
  return usage?.cost_usd ? `, which cost ${format.money(usage.cost_usd)} before` : "";
}

/**
 * Begin a new run with the finished steps of another one.
 * @param {{run: any, from?: string, onClose: () => void}} props `from`: the step that is performed again first.
 */
export function Fork({ run, from = "", onClose }) {
  const [values, setValues] = useState({ from, prompt: "", agent: "", args: "" });
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => setValues({ ...values, [name]: event.target.value });
  const [args, fault] = json(values.args);
  const body = Object.fromEntries(Object.entries({ ...values, args }).filter(([, value]) => value));
  const fork = async () => {
    if (fault) throw new SyntaxError(fault);
    const made = await post(`/api/runs/${encodeURIComponent(run.run_id)}/fork`, body);
    navigate(`/runs/${made.run_id}`);
  };
  return html`<${Confirm} title="Run it again in a new run?" confirm="Fork" onConfirm=${fork} onClose=${onClose}>
    <p>The new run takes over the finished steps up to the first that differs; this one stays as it is.</p>
    <label>From step (the first that differs, if empty) <input value=${values.from} onInput=${change("from")} /></label>
    ${values.from && html`<label>Another task for this step, in place of all of the recipe's words (optional) <textarea rows="3" value=${values.prompt} onInput=${change("prompt")}></textarea></label>
      <label>Another agent for this step (optional) <input value=${values.agent} onInput=${change("agent")} /></label>`}
    <label>Other arguments, as JSON (optional) <input class="mono" placeholder=${JSON.stringify(run.task.initial_args).slice(0, 100)} value=${values.args} onInput=${change("args")} /></label>
    ${fault ? html`<p class="wrong-text">${fault}</p>` : html`<${Preview} id=${run.run_id} body=${{ order: "fork", ...body }} />`}</${Confirm}>`;
}

/** @param {string} text @returns {[any, string]} */
function json(text) {
  if (!text.trim()) return [null, ""];
  try {
    return [JSON.parse(text), ""];
  } catch {
    return [null, "The arguments are not valid JSON."];
  }
}
