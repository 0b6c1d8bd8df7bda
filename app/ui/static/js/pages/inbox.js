// @ts-check
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { Empty, Fault, PageTitle, Section } from "../parts/basics.js";
import { Answered, GateCard } from "../parts/gate_card.js";
import { PlanLines, RunLines, asksForPerson } from "../parts/run_rows.js";

/** Inbox: every question to a person. */
export function Inbox() {
  const gates = useLive("/api/gates?limit=100");
  const plans = useLive("/api/sessions?limit=100", { every: 5000 });
  const parked = useLive("/api/runs?status=paused&limit=100");
  const asking = (plans.data || []).filter(asksForPerson);
  const nothing = gates.data && plans.data && parked.data && !gates.data.length && !asking.length && !parked.data.length;
  return html`
    <${PageTitle} title="Inbox" lead="Questions that runs and plans ask, and runs that wait for a person." />
    <${Fault} error=${gates.error || plans.error || parked.error} retry=${gates.refresh} />
    ${nothing && html`<${Empty} title="Nothing waits for you." command="control-room gates">
      <p>A run asks here when its recipe has a gate or an approval.</p></${Empty}>`}
    ${gates.data?.length > 0 && html`<${Section} title="Gates" count=${gates.data.length}>
      ${gates.data.map((/** @type {any} */ gate) => html`<${GateCard} key=${gate.gate_id} gate=${gate} onDecided=${gates.refresh} />`)}</${Section}>`}
    <${Answered} gates=${gates.data} />
    ${asking.length > 0 && html`<${Section} title="Plans" count=${asking.length}><${PlanLines} plans=${asking} /></${Section}>`}
    ${parked.data?.length > 0 && html`<${Section} title="Paused and parked runs" count=${parked.data.length}><${RunLines} runs=${parked.data} /></${Section}>`}`;
}
