// @ts-check
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { Status } from "./basics.js";

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
