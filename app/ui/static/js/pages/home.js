import { html } from "../lib/base.js";
import * as format from "../lib/format.js";
import { aboutRuns, useLive, withQuery } from "../lib/live.js";
import { Command, EXAMPLE, Empty, Fault, LocalModel, PageTitle, Section, each } from "../parts/basics.js";
import { Answered, GateCard, PlanLines, RunLines, asksForPerson } from "../parts/rows.js";

/** Rows of a part of the page; its heading leads to all. */
const MOST = 10;
/** @type {any[]} */
const NONE = [];
const DAY = 24 * 3600 * 1000;

/** Home: what waits for me, what runs, what failed, what today cost. */
export function Home() {
  const { since, today } = instants();
  const live = useLive(withQuery("/api/stats", { since, today }), { on: aboutRuns });
  const stats = live.data;
  const { gates = 0, parked = 0, plans: drafts = 0 } = stats?.waits || {};
  const busy = stats ? stats.runs.running + stats.runs.pending : 0;
  const asked = useLive(gates ? withQuery("/api/gates", { limit: MOST }) : null, { on: aboutRuns });
  const plans = useLive("/api/sessions?limit=100", { every: 5000 });
  const stuck = useLive(parked ? `/api/runs?status=paused&limit=${MOST}` : null, { on: aboutRuns });
  const running = useLive(busy ? `/api/runs?status=running&status=pending&limit=${MOST}` : null);
  const failed = useLive(stats?.failed.count ? withQuery("/api/runs", { status: "failed", limit: MOST, created_after: since }) : null, { on: aboutRuns });
  const ended = useLive("/api/runs?status=done&status=failed&status=cancelled&limit=5", { on: aboutRuns });
  const asking = (plans.data || []).filter(asksForPerson);
  const waiting = gates + parked + Math.max(drafts, asking.length);
  return html`
    <${PageTitle} title="Home" lead=${stats && service(stats)} />
    <${Fault} error=${live.error} retry=${live.refresh} />
    <${LocalModel} stats=${stats} />
    ${stats?.disk.is_full && html`<p class="fault"><strong>The disk is full.</strong> New runs are refused until there is room.</p>`}
    ${stats && html`<${Figures} stats=${stats} waiting=${waiting} busy=${busy} />`}
    <${Section} title="Waiting for you" count=${stats ? waiting : undefined} actions=${html`<a href="/inbox">Inbox</a>`}>
      ${waiting === 0 && stats && html`<p class="muted">Nothing waits for you.</p>`}
      ${gates > 0 && each(asked.data, (gate) => html`<${GateCard} key=${gate.gate_id} gate=${gate} onDecided=${() => (asked.refresh(), live.refresh())} />`)}
      <${Answered} gates=${stats && !gates ? NONE : asked.data} />
      <${PlanLines} plans=${asking} />
      ${parked > 0 && stuck.data?.length > 0 && html`<${RunLines} runs=${stuck.data} />`}
    </${Section}>
    <${Section} title="In progress" count=${stats ? busy : undefined} actions=${html`<a href="/runs?status=running&status=pending">All in progress</a>`}>
      ${busy > 0 && running.data?.length > 0 && html`<${RunLines} runs=${running.data} />`}
      ${busy === 0 && stats && html`<p class="muted">Nothing is running. <a href="/start">Start a run</a>, or from a terminal:</p><${Command} text=${EXAMPLE} served />`}
    </${Section}>
    <${Section} title="Failed in the last 24 hours" count=${stats?.failed.count} actions=${html`<a href="/runs?status=failed">All failed runs</a>`}>
      ${stats?.failed.count > 0 && failed.data ? html`<${RunLines} runs=${failed.data.filter((/** @type {any} */ run) => run.reason !== "denied")} />` : stats && html`<p class="muted">No run failed.</p>`}
    </${Section}>
    ${ended.data?.length > 0 && html`<${Section} title="Recently finished" actions=${html`<a href="/runs">All runs</a>`}><${RunLines} runs=${ended.data} /></${Section}>`}`;
}

/** @param {{stats: any, waiting: number, busy: number}} props */
function Figures({ stats, waiting, busy }) {
  const { today, pool } = stats;
  return html`<dl class="figures">
    <div><dt>Waiting for you</dt><dd><a href="/inbox" aria-label=${`${waiting} waiting for you`}>${format.number(waiting)}</a></dd></div>
    <div><dt>In progress</dt><dd><a href="/runs?status=running&status=pending" aria-label=${`${busy} in progress`}>${format.number(busy)}</a></dd>
      <dd class="muted">${pool.busy} of ${pool.slots} workers busy${pool.queued > 0 ? `, ${pool.queued} queued` : ""}</dd></div>
    <div><dt>Failed in 24 hours</dt><dd><a href="/runs?status=failed&days=1" aria-label=${`${stats.failed.count} failed in 24 hours`}>${format.number(stats.failed.count)}</a></dd></div>
    <div><dt>Spent today</dt><dd><a href="/cost?days=1">${format.spent(today, "nothing")}</a></dd>
      <dd class="muted">${format.number(today.input_tokens + today.output_tokens)} tokens${today.calls_without_price > 0 ? `, ${format.plural(today.calls_without_price, "call")} without a price` : ""}</dd></div>
  </dl>`;
}

/** Which project this is, and what executes its runs where that is another service. @param {any} stats */
function service({ disk, service: { engine, project } }) {
  return html`<code>${project}</code>${engine !== "embedded" && ` on ${engine[0].toUpperCase()}${engine.slice(1)}`}, ${format.bytes(disk.free_bytes)} of disk free`;
}

/** @type {{since: string, today: string} | null} */
let kept = null;

/** The same instants for a page's life, so that its polls have one address. */
function instants() {
  const midnight = new Date();
  midnight.setHours(0, 0, 0, 0);
  kept = kept || { since: new Date(Date.now() - DAY).toISOString(), today: midnight.toISOString() };
  return kept;
}

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
      <p>A run asks here when its recipe has a gate or an approval. The same from a terminal:</p></${Empty}>`}
    ${gates.data?.length > 0 && html`<${Section} title="Questions" count=${gates.data.length}>
      ${each(gates.data, (gate) => html`<${GateCard} key=${gate.gate_id} gate=${gate} onDecided=${gates.refresh} />`)}</${Section}>`}
    <${Answered} gates=${gates.data} />
    ${asking.length > 0 && html`<${Section} title="Plans" count=${asking.length}><${PlanLines} plans=${asking} /></${Section}>`}
    ${parked.data?.length > 0 && html`<${Section} title="Paused runs" count=${parked.data.length}><${RunLines} runs=${parked.data} /></${Section}>`}`;
}
