// @ts-check
import { html } from "../lib/html.js";
import { withQuery } from "../lib/api.js";
import { useLive } from "../lib/live.js";
import * as format from "../lib/format.js";
import { Empty, Fault, PageTitle, Section, Status } from "../parts/basics.js";
import { GateCard } from "../parts/gate_card.js";
import { RunLines } from "../parts/run_rows.js";

const EXAMPLE = `control-room run analytical_consistency --arg 'canon_paths:=["Compendium"]'`;
/** Runs that the page looks at. */
const NEWEST = 100;
const DAY = 24 * 3600 * 1000;

/** Home: what waits for me, what runs, what failed. */
export function Home() {
  const gates = useLive("/api/gates?limit=20");
  const plans = useLive("/api/sessions?limit=100");
  const runs = useLive(`/api/runs?limit=${NEWEST}`);
  const failed = useLive(withQuery("/api/runs", { status: "failed", limit: 20, created_after: yesterday() }));
  const parked = (runs.data || []).filter((/** @type {any} */ run) => run.status === "paused" && run.error_code);
  const running = (runs.data || []).filter((/** @type {any} */ run) => ["running", "pending"].includes(run.status));
  const asking = (plans.data || []).filter(asksForPerson);
  const waiting = (gates.data?.length || 0) + parked.length + asking.length;
  return html`
    <${PageTitle} title="Home" lead=${lead(waiting, running.length, failed.data?.length || 0)}
      actions=${html`<a class="button primary" href="/start">Start a run</a>`} />
    <${Fault} error=${runs.error} retry=${runs.refresh} />
    <${Section} title="Waiting for you" count=${waiting} actions=${html`<a href="/inbox">Inbox</a>`}>
      ${waiting === 0 && runs.data && html`<p class="muted">Nothing waits for you.</p>`}
      ${(gates.data || []).map((/** @type {any} */ gate) => html`<${GateCard} key=${gate.gate_id} gate=${gate} onDecided=${gates.refresh} />`)}
      <${Plans} plans=${asking} />
      ${parked.length > 0 && html`<${RunLines} runs=${parked} />`}
    </${Section}>
    <${Section} title="Running now" count=${running.length} actions=${html`<a href="/runs?status=running">All running</a>`}>
      ${runs.data?.length === NEWEST && html`<p class="muted">Among the newest ${NEWEST} runs.</p>`}
      ${running.length > 0 && html`<${RunLines} runs=${running} />`}
      ${running.length === 0 && runs.data && html`<${Empty} title="Nothing is running."
        command=${EXAMPLE}>
        <p><a href="/start">Start a run</a>, or from a terminal:</p></${Empty}>`}
    </${Section}>
    <${Section} title="Failed runs of the last 24 hours" count=${failed.data?.length || 0} actions=${html`<a href="/runs?status=failed">All failed</a>`}>
      ${failed.data?.length > 0 ? html`<${RunLines} runs=${failed.data} />` : failed.data && html`<p class="muted">Nothing failed.</p>`}
    </${Section}>
    <${ServiceState} />`;
}

/** @param {{plans: any[]}} props */
function Plans({ plans }) {
  if (!plans.length) return null;
  return html`<ul class="lines">${plans.map((plan) => html`<li key=${plan.session_id}>
    <${Status} of=${plan.tasks.needs_scoping ? "needs_scoping" : plan.status} />
    <a class="wide" href=${`/plans/${plan.session_id}`}>${plan.intent || plan.session_id}</a>
    <span class="muted">${plan.tasks.needs_scoping ? format.plural(plan.tasks.needs_scoping, "question") : "to approve"}</span>
  </li>`)}</ul>`;
}

/** The pool and the disk. */
function ServiceState() {
  const ready = useLive("/readyz", { pause: 5000 });
  const state = ready.data;
  return html`<${Section} title="Service">
    <dl class="facts">
      <dt>State</dt><dd>${state ? state.status : "not ready"}</dd>
      <dt>Workers</dt><dd class="number">${state ? `${state.running} of ${state.limit} busy` : "–"}</dd>
      <dt>Queue</dt><dd class="number">${state ? format.plural(state.queued, "run") : "–"}</dd>
      <dt>At rest</dt><dd class="number">${state ? format.plural(state.resting, "run") : "–"}</dd>
    </dl>
  </${Section}>`;
}

/** @param {any} plan */
function asksForPerson(plan) {
  return plan.status === "draft" || Boolean(plan.tasks.needs_scoping);
}

/** @param {number} waiting @param {number} running @param {number} failed */
function lead(waiting, running, failed) {
  const waits = waiting ? `${format.plural(waiting, "thing")} ${waiting === 1 ? "waits" : "wait"} for you` : "Nothing waits for you";
  return `${waits}; ${format.plural(running, "run")} in progress; ${failed || "no"} ${failed === 1 ? "failure" : "failures"} among runs of the last 24 hours.`;
}

let since = "";

/** The same instant for a page's life, so that polls have one address. */
function yesterday() {
  since = since || new Date(Date.now() - DAY).toISOString();
  return since;
}
