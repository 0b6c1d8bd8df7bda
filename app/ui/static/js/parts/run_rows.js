// @ts-check
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { Ago, Progress, Status, Took } from "./basics.js";
import { Virtual } from "./virtual.js";

/**
 * A table of runs; only those near the view are in the page.
 * @param {{runs: any[], chosen?: Set<string>, onChoose?: (id: string, on: boolean) => void, onNear?: (first: number, last: number) => void, to?: string}} props
 *   `to`: beginning of the address of a run's page.
 */
export function RunTable({ runs, chosen, onChoose, onNear, to = "/runs/" }) {
  return html`<div class=${`table runs ${onChoose ? "selectable" : ""}`} role="table" aria-label="Runs" aria-rowcount=${runs.length + 1}>
    <div class="row head" role="row" aria-rowindex="1">
      ${onChoose && html`<span role="columnheader"><span class="hidden">Select</span></span>`}
      <span role="columnheader">Status</span><span role="columnheader">Run</span><span role="columnheader">Recipe</span><span role="columnheader">Progress</span>
      <span role="columnheader" class="right">Tokens</span><span role="columnheader" class="right">Cost</span><span role="columnheader" class="right">Duration</span><span role="columnheader" class="right">Changed</span>
    </div>
    <${Virtual} items=${runs} name=${(/** @type {any} */ run) => run.run_id} depends=${[chosen]} onNear=${onNear}
      row=${(/** @type {any} */ run) => html`<${RunRow} run=${run} to=${to} chosen=${chosen} onChoose=${onChoose} />`} />
  </div>`;
}

/** @param {{run: any, to: string, chosen?: Set<string>, onChoose?: (id: string, on: boolean) => void}} props */
function RunRow({ run, to, chosen, onChoose }) {
  const title = run.description || run.recipe_id;
  return html`${onChoose && html`<span role="cell" class="check"><input type="checkbox" aria-label=${`Select ${title}`} checked=${chosen?.has(run.run_id)}
      onChange=${(/** @type {any} */ event) => onChoose(run.run_id, event.target.checked)} /></span>`}
    <span role="cell"><${Status} of=${run.status} note=${run.unreadable ? "unreadable" : ""} /></span>
    <span role="cell" class="name"><a class="row-link cut" href=${to + run.run_id} title=${title}>${title}</a>
      <span class="cut muted">${run.error_code ? html`<span class="wrong-text">${run.error_code}</span>` : run.live_step ? liveStep(run.live_step) : html`<span class="mono">${run.run_id}</span>`}</span></span>
    <span role="cell" class="recipe cut"><a href=${`/runs?recipe_id=${encodeURIComponent(run.recipe_id)}`}>${run.recipe_id}</a></span>
    <span role="cell" class="progress-cell"><${Progress} done=${run.current_step_index} total=${run.total_steps} /></span>
    <span role="cell" class="right number tokens">${format.number(format.tokens(run.usage))}</span>
    <span role="cell" class="right number cost">${format.money(run.usage?.cost_usd)}</span>
    <span role="cell" class="right took"><${Took} from=${run.started_at || run.created_at} to=${run.completed_at} /></span>
    <span role="cell" class="right when"><${Ago} at=${run.updated_at} /></span>`;
}

/** @param {any} step */
function liveStep(step) {
  return html`${step.key}${step.output_at && html` · last output <${Ago} at=${step.output_at} />`}`;
}

/** Runs as short lines, for the home page. @param {{runs: any[]}} props */
export function RunLines({ runs }) {
  return html`<ul class="lines">${runs.map(
    (run) => html`<li key=${run.run_id} data-row>
      <${Status} of=${run.status} note=${run.error_code} />
      <a class="wide row-link" href=${`/runs/${run.run_id}`}>${run.description || run.recipe_id}</a>
      <span class="muted">${run.live_step ? liveStep(run.live_step) : run.recipe_id}</span>
      <${Progress} done=${run.current_step_index} total=${run.total_steps} />
      <${Ago} at=${run.updated_at} />
    </li>`,
  )}</ul>`;
}

/** Whether a plan waits for a person. @param {any} plan */
export function asksForPerson(plan) {
  return plan.status === "draft" || Boolean(plan.tasks.needs_scoping);
}

/** Plans that wait for a person. @param {{plans: any[]}} props */
export function PlanLines({ plans }) {
  if (!plans.length) return null;
  return html`<ul class="lines">${plans.map((plan) => html`<li key=${plan.session_id} data-row>
    <${Status} of=${plan.tasks.needs_scoping ? "needs_scoping" : plan.status} />
    <a class="wide row-link" href=${`/plans/${plan.session_id}`}>${plan.intent || plan.session_id}</a>
    <span class="muted">${plan.tasks.needs_scoping ? format.plural(plan.tasks.needs_scoping, "question") : "to approve"}</span>
  </li>`)}</ul>`;
}
