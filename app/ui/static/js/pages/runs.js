import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { address, html, minute, present, setQuery, useValue } from "../lib/base.js";
import * as format from "../lib/format.js";
import { aboutRuns, nextOf, post, request, useLive, withQuery } from "../lib/live.js";
import { Command, Confirm, EXAMPLE, Empty, Fault, Filters, LocalModel, PageTitle, Search, Section, announce, each, options, toQuery, typed, useFault, useList } from "../parts/basics.js";
import { DANGERS, LabelDialog, ORDERS } from "../parts/orders.js";
import { PlanLines, Questions, RunLines, RunTable } from "../parts/rows.js";

const DAY = 24 * 3600 * 1000;

const MOST = 10;
/** @type {any[]} */
const NONE = [];

export function Home() {
  const now = useValue(minute);
  const [since, today] = [now - DAY, new Date(now).setHours(0, 0, 0, 0)].map((at) => new Date(at).toISOString());
  const live = useLive(withQuery("/api/stats", { since, today }), { on: aboutRuns });
  const stats = live.data;
  const { gates = 0, plans: drafts = 0 } = stats?.waits || {};
  const parked = stats?.runs.paused || 0;
  const busy = stats ? stats.runs.running + stats.runs.pending : 0;
  const asked = useLive(gates ? withQuery("/api/gates", { limit: MOST }) : null, { on: aboutRuns });
  const plans = useLive("/api/sessions?waits=true&limit=100", { every: 5000 });
  const stuck = useLive(parked ? `/api/runs?status=paused&limit=${MOST}` : null, { on: aboutRuns });
  const running = useLive(busy ? `/api/runs?status=running&status=pending&limit=${MOST}` : null);
  const failed = useLive(stats?.failed.count ? withQuery("/api/runs", { failed_after: since, limit: MOST }) : null, { on: aboutRuns });
  const ended = useLive("/api/runs?status=done&status=failed&status=cancelled&limit=20", { on: aboutRuns });
  // What failed is listed above.
  const finished = ended.data?.filter((/** @type {any} */ run) => run.status !== "failed" || run.reason === "denied").slice(0, 5);
  const asking = plans.data || NONE;
  const waiting = gates + parked + Math.max(drafts, asking.length);
  return html`
    <${PageTitle} title="Home" lead=${stats && service(stats)} />
    <${Fault} error=${live.error} retry=${live.refresh} />
    <${LocalModel} stats=${stats} />
    ${stats && html`<${Figures} stats=${stats} waiting=${waiting} busy=${busy} />`}
    <${Section} title="Waiting for you" count=${stats ? waiting : undefined} actions=${html`<a href="/inbox">Inbox</a>`}>
      <${Questions} gates=${stats && !gates ? NONE : asked.data} onDecided=${() => (asked.refresh(), live.refresh())} />
      ${waiting === 0 && stats && html`<p class="muted">Nothing waits for you.</p>`}
      <${PlanLines} plans=${asking} />
      ${parked > 0 && stuck.data?.length > 0 && html`<${RunLines} runs=${stuck.data} />`}
    <//>
    <${Section} title="In progress" count=${stats ? busy : undefined} actions=${html`<a href="/runs?status=running&status=pending">All in progress</a>`}>
      ${busy > 0 && running.data?.length > 0 && html`<${RunLines} runs=${running.data} />`}
      ${busy === 0 && stats && html`<p class="muted">Nothing is running.</p><p class="muted offer"><a href="/start">Start a run</a>, or from a terminal:</p><${Command} text=${EXAMPLE} served />`}
    <//>
    <${Section} title="Failed in the last 24 hours" count=${stats?.failed.count} actions=${html`<a href="/runs?status=failed">All failed runs</a>`}>
      ${stats?.failed.count > 0 && failed.data ? html`<${RunLines} runs=${failed.data} />` : stats && html`<p class="muted">No run failed.</p>`}
    <//>
    ${finished?.length > 0 && html`<${Section} title="Recently finished" actions=${html`<a href="/runs">All runs</a>`}><${RunLines} runs=${finished} /><//>`}`;
}

/** @param {Props} props */
function Figures({ stats, waiting, busy }) {
  const { today, pool } = stats;
  const tokens = today.input_tokens + today.output_tokens;
  return html`<dl class="figures">
    <div><dt>Waiting for you</dt><dd><a href="/inbox" aria-label=${`${waiting} waiting for you`}>${format.number(waiting)}</a></dd></div>
    <div><dt>In progress</dt><dd><a href="/runs?status=running&status=pending" aria-label=${`${busy} in progress`}>${format.number(busy)}</a></dd>
      <dd class="muted">${pool.busy} of ${pool.slots} workers busy${pool.queued > 0 ? `, ${pool.queued} queued` : ""}</dd></div>
    <div><dt>Failed in 24 hours</dt><dd><a href="/runs?failed=1" aria-label=${`${stats.failed.count} failed in 24 hours`}>${format.number(stats.failed.count)}</a></dd></div>
    <div><dt>Spent today</dt><dd><a href="/cost?days=1">${format.spent(today, "nothing")}</a></dd>
      <dd class="muted">${[...(today.calls_silent && !tokens ? [] : [`${format.number(tokens)} tokens`]), ...format.unpriced(today)].join(", ")}</dd></div>
  </dl>`;
}

/** @param {any} stats */
function service({ disk, service: { engine, project } }) {
  return html`<code>${project}</code>${engine !== "embedded" && ` on ${engine[0].toUpperCase()}${engine.slice(1)}`}, ${format.bytes(disk.free_bytes)} of disk free`;
}

export function Inbox() {
  const gates = useList("/api/gates");
  const plans = useList("/api/sessions", { waits: "true" }, { every: 5000 });
  const parked = useList("/api/runs", { status: "paused" });
  const asking = plans.data || NONE;
  const nothing = gates.data && plans.data && parked.data && !gates.data.length && !asking.length && !parked.data.length;
  return html`
    <${PageTitle} title="Inbox" lead="Questions that runs and plans ask, and runs that wait for a person." />
    <${Fault} error=${gates.error || plans.error || parked.error} retry=${gates.refresh} />
    <${Questions} title="Questions" gates=${gates.data} count=${gates.count} more=${gates.more} onDecided=${gates.refresh} />
    ${nothing && html`<${Empty} title="Nothing waits for you." command="control-room gates">
      <p>A run asks here when its recipe has a gate or an approval. The same from a terminal:</p><//>`}
    ${asking.length > 0 && html`<${Section} title="Plans" count=${plans.count}><${PlanLines} plans=${asking} />${plans.more}<//>`}
    ${parked.data?.length > 0 && html`<${Section} title="Paused runs" count=${parked.count}><${RunLines} runs=${parked.data} />${parked.more}<//>`}`;
}

const AGES = [["", "any time"], ["1", "last 24 hours"], ["7", "last 7 days"], ["30", "last 30 days"]];

const STATES = ["pending", "running", "waiting", "paused", "done", "failed", "cancelled"];
const PAGE = 100;

const AHEAD = 30;

const TYPING = 250;

export function Runs() {
  const query = address.value.query;
  const [days, failed] = [query.get("days"), query.get("failed")];
  // The same instants while the list is open: its pages hang together.
  const ages = useMemo(() => ({ created_after: since(days), failed_after: since(failed) }), [days, failed]);
  const filters = { q: query.get("q"), status: query.getAll("status"), recipe_id: query.get("recipe_id"), label: format.labelled(query.get("label") || ""), session_id: query.get("session_id"), ...ages };
  const path = withQuery("/api/runs", { ...filters, limit: PAGE });
  const first = useLive(path);
  const older = useOlder(path, first.of === path ? first.next || "" : "");
  const [chosen, setChosen] = useState(new Set());
  const runs = unique([...(first.data || []), ...older.runs]);
  // An order reaches only what is in the list.
  const picked = runs.filter((run) => chosen.has(run.run_id));
  const choose = (/** @type {string} */ id, /** @type {boolean} */ on) => {
    const next = new Set(chosen);
    if (on) next.add(id);
    else next.delete(id);
    setChosen(next);
  };
  return html`
    <${PageTitle} title="Runs" />
    <${Choices} query=${query} />
    <${Fault} error=${first.error || older.error} retry=${first.refresh} />
    <${BulkBar} runs=${picked} count=${runs.length} onAll=${() => setChosen(new Set(runs.map((run) => run.run_id)))} onDone=${() => (setChosen(new Set()), first.refresh())} />
    ${runs.length > 0 && html`<${RunTable} runs=${runs} chosen=${chosen} onChoose=${choose} onNear=${(/** @type {number} */ _, /** @type {number} */ last) => last + AHEAD > runs.length && older.read()} />`}
    ${first.data && runs.length === 0 && html`<${Empty} title=${String(query) ? "No run matches." : "No runs yet."} command=${String(query) ? "" : EXAMPLE}>
      ${String(query) ? html`<p><a href="/runs">Show all runs</a><span class="offer">, or <a href="/start">start one</a></span>.</p>` : html`<p class="offer"><a href="/start">Start a run</a>, or from a terminal:</p>`}<//>`}`;
}

/** @param {string | null} days */
function since(days) {
  return Number(days) > 0 ? new Date(present() - Number(days) * DAY).toISOString() : "";
}

/** @type {UseOlder} */
function useOlder(path, second) {
  const kept = useRef({ path, runs: /** @type {any[]} */ ([]), next: "", busy: false });
  const [error, setError] = useFault();
  const [, setRound] = useState(0);
  if (kept.current.path !== path) kept.current = { path, runs: [], next: "", busy: false };
  const read = async () => {
    const here = kept.current;
    const next = here.runs.length ? here.next : second;
    if (here.busy || !next) return;
    here.busy = true;
    try {
      const reply = await request("GET", next);
      here.runs = [...here.runs, ...(await reply.json())];
      here.next = nextOf(reply);
      setError(null);
    } catch (caught) {
      setError(caught);
    }
    here.busy = false;
    setRound((round) => round + 1);
  };
  return { runs: kept.current.runs, error, read };
}

/** @param {Props} props */
function Choices({ query }) {
  const asked = query.get("q") || "";
  const [text, setText] = useState(asked);
  const timer = useRef(0);
  // What is being written wins over the address, which follows it.
  const search = typed((value) => {
    clearTimeout(timer.current);
    setText(value);
    timer.current = setTimeout(() => ((timer.current = 0), setQuery({ q: value.trim() })), TYPING);
  });
  useEffect(() => {
    if (!timer.current && text.trim() !== asked) setText(asked);
  }, [asked]);
  return html`<${Filters}>
    <${Search} of="text or id" value=${text} onInput=${search} />
    <label><span class="hidden">Status</span><select onChange=${toQuery("status")}>
      <option value="">any status</option>${options(STATES.map((state) => [state, state]), query.getAll("status").join())}
      ${query.getAll("status").length > 1 && html`<option value="" selected>${query.getAll("status").join(" or ")}</option>`}
    </select></label>
    <label><span class="hidden">Created</span><select onChange=${toQuery("days")}>${options(AGES, query.get("days") || "")}</select></label>
    <label><span class="hidden">Recipe</span><input placeholder="Recipe" value=${query.get("recipe_id") || ""} onChange=${toQuery("recipe_id")} /></label>
    ${query.get("failed") && html`<button onClick=${() => setQuery({ failed: null })}>Failed in ${24 * Number(query.get("failed"))} hours ✕</button>`}
    ${query.get("session_id") && html`<button onClick=${() => setQuery({ session_id: null })}>Session ${query.get("session_id")} ✕</button>`}
    <label><span class="hidden">Label</span><input placeholder="Label key=value" value=${format.label(query.get("label") || "")} onChange=${toQuery("label")} /></label>
  <//>`;
}

const MANY = ["resume", "pause", "cancel", "delete"];

/** @param {Props} props */
function BulkBar({ runs, count, onAll, onDone }) {
  // What a dialog names is what it orders, whatever the list shows by then.
  const [{ asked, those }, setAsked] = useState({ asked: "", those: runs });
  const [outcome, setOutcome] = useState(null);
  const many = format.plural(those.length, "run");
  const ask = (/** @type {string} */ name) => setAsked({ asked: name, those: runs });
  const close = () => ask("");
  const fits = (/** @type {string} */ name) => runs.some((run) => ORDERS[name][1].includes(run.status));
  const clear = () => (setOutcome(null), onDone());
  const act = async (/** @type {any} */ more) => {
    const found = { done: /** @type {any[]} */ ([]), refused: /** @type {any[]} */ ([]) };
    for (const [action, some] of actions(asked, those)) {
      const { done, refused } = await post("/api/runs/bulk", { action, run_ids: each(some, (run) => run.run_id), expected: some.length, ...more });
      found.done.push(...done);
      found.refused.push(...refused);
    }
    announce(`${found.done.length} accepted, ${found.refused.length} refused`);
    if (found.refused.length) setOutcome(found);
    else clear();
  };
  if (!runs.length && !asked && !outcome) return null;
  const named = html`<ul class="outcome" tabindex="0">${each(those, (run) => html`<li class="cut"><span class="mono">${run.run_id}</span> ${run.description || run.recipe_id}</li>`)}</ul>`;
  return html`<div class="bulk" role="region" aria-label="Selected runs">
    <strong>${format.plural(runs.length, "run")} selected</strong>
    ${MANY.filter(fits).map((name) => html`<button onClick=${() => ask(name)}>${ORDERS[name][0]}</button>`)}
    <button onClick=${() => ask("label")}>Label</button>
    ${runs.length < Number(count) && html`<button class="quiet" onClick=${onAll}>Select all ${count} shown</button>`}
    <button class="quiet" onClick=${clear}>Clear selection</button>
    ${asked === "label" && html`<${LabelDialog} title=${`Label ${many}`} onLabel=${(/** @type {any} */ labels) => act({ labels })} onClose=${close}>${named}<//>`}
    ${outcome && html`<div class="outcome" role="status"><p>${format.plural(outcome.done.length, "run")} accepted it, ${outcome.refused.length} refused:</p>
      <ul>${each(outcome.refused, ({ problem, run_id }) => html`<li><a href=${`/runs/${run_id}`}>${run_id}</a> ${problem.detail || problem.title}</li>`)}</ul></div>`}
    ${MANY.includes(asked) && html`<${Confirm} title=${`${ORDERS[asked][0]} ${many}?`} confirm=${`${ORDERS[asked][0]} ${those.length}`} danger=${DANGERS.includes(asked)}
      onConfirm=${() => act({})} onClose=${close}>${named}<p>For each: ${ORDERS[asked][2]({})} Runs whose state does not allow it are left as they are, and named.</p><//>`}
  </div>`;
}

/** @type {Actions} */
function actions(asked, runs) {
  if (asked !== "resume") return [[asked, runs]];
  const [paused, ended] = [true, false].map((is) => runs.filter((run) => (run.status === "paused") === is));
  return [["unpause", paused], ["resume", ended]].filter(([, some]) => some.length);
}

/** @param {any[]} runs */
function unique(runs) {
  return [...new Map(runs.map((run) => [run.run_id, run])).values()];
}
