// @ts-check
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { Empty, Fault, PageTitle, Section, Status } from "../parts/basics.js";
import { GateCard } from "../parts/gate_card.js";
import { RunLines } from "../parts/run_rows.js";

/** Inbox: every question to a person. */
export function Inbox() {
  const gates = useLive("/api/gates?limit=100");
  const plans = useLive("/api/sessions?limit=100");
  const parked = useLive("/api/runs?status=paused&limit=100");
  const asking = (plans.data || []).filter((/** @type {any} */ plan) => plan.status === "draft" || plan.tasks.needs_scoping);
  const nothing = gates.data && plans.data && parked.data && !gates.data.length && !asking.length && !parked.data.length;
  return html`
    <${PageTitle} title="Inbox" lead="Questions that runs and plans ask, and runs that wait for a person." />
    <${Fault} error=${gates.error || plans.error || parked.error} retry=${gates.refresh} />
    ${nothing && html`<${Empty} title="Nothing waits for you." command="control-room gates">
      <p>A run asks here when its recipe has a gate or an approval.</p></${Empty}>`}
    ${gates.data?.length > 0 && html`<${Section} title="Gates" count=${gates.data.length}>
      ${gates.data.map((/** @type {any} */ gate) => html`<${GateCard} key=${gate.gate_id} gate=${gate} onDecided=${gates.refresh} />`)}</${Section}>`}
    ${asking.length > 0 && html`<${Section} title="Plans" count=${asking.length}><ul class="lines">
      ${asking.map((/** @type {any} */ plan) => html`<li key=${plan.session_id}><${Status} of=${plan.tasks.needs_scoping ? "needs_scoping" : plan.status} />
        <a class="wide" href=${`/plans/${plan.session_id}`}>${plan.intent || plan.session_id}</a>
        <span class="muted">${plan.tasks.needs_scoping ? format.plural(plan.tasks.needs_scoping, "question") : "to approve"}</span></li>`)}</ul></${Section}>`}
    ${parked.data?.length > 0 && html`<${Section} title="Paused and parked runs" count=${parked.data.length}><${RunLines} runs=${parked.data} /></${Section}>`}`;
}
