import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { address, html, setQuery, useNow } from "../lib/base.js";
import * as format from "../lib/format.js";
import { get, onEvents, pathOf, useLive, withQuery } from "../lib/live.js";
import { FINISHED, answered, bar, happened, isOpen, nameOf, rows, sentence, span, ticks, withOlder, worked } from "../lib/run_state.js";
import { Ago, Command, Content, Empty, Fault, Id, Missing, Opened, PageTitle, Progress, Section, Status, Took, each, options, toQuery, useFault, useList } from "../parts/basics.js";
import { Graph } from "../parts/graph.js";
import { Log, Logs, SaveLog, kindOf, logPath, logsOf, stepLink, useLogs } from "../parts/logs.js";
import { ChangeLimits, Fork, Marks, RunActions, RunLimits, Verified, metLimit, wasDenied } from "../parts/orders.js";
import { Decided, Questions, RunTable, Virtual } from "../parts/rows.js";

/** @type {any[]} */
const NONE = [];

/** Milliseconds between two looks at a run that executes: no event tells of its outputs, and of its place in a queue. */
const HEARTBEAT = 3000;

const PORTION = 200;

/** @param {Props} props */
export function Run({ id }) {
  const path = pathOf("runs", id);
  const mine = (/** @type {any} */ event) => event.run_id === id;
  const [every, setEvery] = useState(0);
  const live = useLive(path, { on: mine, every });
  useEffect(() => setEvery(live.data?.status === "running" ? HEARTBEAT : 0), [live.data?.status]);
  const gates = useLive(live.data?.status === "waiting" ? withQuery("/api/gates", { run_id: id }) : null, { on: mine });
  const [state, onNear] = useRunState(path, id, live.data);
  const logs = useLogs(state && path, state?.run.completed_at);
  // The logs of a run that was at work stay at the top.
  const begun = useRef("");
  if (["running", "pending"].includes(state?.run.status)) begun.current = id;
  const atWork = begun.current === id;
  if (!state) return html`<${Missing} title="Run" id=${id} live=${live} />`;
  const { run } = state;
  const [chosen, log] = ["step", "log"].map((name) => address.value.query.get(name));
  const reader = html`<${Logs} key=${`logs ${id}`} path=${path} state=${state} names=${logs} live=${atWork} />`;
  return html`
    <${PageTitle} title=${run.task.description || run.recipe_id} lead=${html`<${Stands} state=${state} />`}
      actions=${html`<${RunActions} run=${run} onDone=${live.refresh} />`} />
    <${Fault} error=${live.error} retry=${live.refresh} />
    ${run.unreadable && html`<p class="fault"><strong>${run.unreadable.file} cannot be read now (${run.unreadable.errno}).</strong> The last known state is shown, and nothing is changed. Next try: <${Ago} at=${run.unreadable.next_try_at} />.</p>`}
    <${WhatHappened} run=${run} onDone=${live.refresh} />
    <${Why} run=${run} path=${path} mine=${mine} />
    <${Questions} gates=${live.data && live.data.status !== "waiting" ? NONE : gates.data} own onDecided=${live.refresh} />
    <${Opens} run=${run} />
    ${run.status === "done" && html`<${Outputs} run=${run} result />`}
    ${atWork && reader}
    <${Facts} run=${run} onDone=${live.refresh} />
    <div class="beside"><${RecipeGraph} path=${path} mine=${mine} denied=${wasDenied(run) ? run.error.key : ""} over=${run.status === "done"} /><${Steps} state=${state} onNear=${onNear} /></div>
    <${Outputs} run=${run} />
    ${!atWork && reader}
    <${Children} id=${id} />
    ${chosen && html`<${StepDrawer} state=${state} name=${chosen} names=${logs} log=${log} onClose=${() => setQuery({ step: null, log: null })} />`}`;
}

/** @type {UseRunState} */
function useRunState(path, id, answer) {
  const kept = useRef({ path, answer: /** @type {any} */ (null), state: /** @type {any} */ (null), asked: new Set() });
  const [, setRound] = useState(0);
  if (kept.current.path !== path) kept.current = { path, answer: null, state: null, asked: new Set() };
  if (answer && kept.current.answer !== answer) {
    kept.current.state = answered(kept.current.state, answer);
    kept.current.answer = answer;
  }
  useEffect(
    () =>
      onEvents((event) => {
        const { state } = kept.current;
        if (!state || event?.run_id !== id) return;
        kept.current.state = happened(state, event);
        if (kept.current.state !== state) setRound((round) => round + 1);
      }),
    [id],
  );
  const onNear = async (/** @type {number} */ first, /** @type {number} */ last) => {
    const { state, asked } = kept.current;
    for (let index = first; state && index < Math.min(last, state.finished.length); index += 1) {
      const from = PORTION * Math.floor(index / PORTION);
      if (state.finished[index] || asked.has(from)) continue;
      asked.add(from);
      const lines = await get(withQuery(`${path}/steps`, { attempts: "true", limit: PORTION, cursor: from ? from - 1 : "" })).catch(() => asked.delete(from) && []);
      kept.current.state = withOlder(kept.current.state, from, lines);
      setRound((round) => round + 1);
    }
  };
  return [kept.current.state, onNear];
}

/** @param {Props} props */
function Stands({ state: { open, run } }) {
  const now = useNow(Boolean(run.stalled));
  return html`<${Status} of=${wasDenied(run) ? "denied" : run.status} word=${stopped(run) ? undefined : sentence(run, open, now)} />`;
}

/** @param {any} run */
function stopped({ error, status }) {
  return Boolean(error) && ["failed", "paused"].includes(status);
}

/** @param {Props} props */
function WhatHappened({ run, onDone }) {
  if (run.status !== "paused" && (run.status === "done" || !FINISHED.includes(run.status))) return null;
  const { code, message, key } = run.error || {};
  const step = run.steps.find((/** @type {any} */ each) => each.key === key);
  return html`${stopped(run) && html`<div class=${`fault is-${run.status}`} role="note">
      <strong>${wasDenied(run) ? "It was denied" : run.status === "failed" ? "Why it failed" : "Why it is paused"}</strong>
      <p>${message} <code>${code}</code></p><p>${key && html`At step <a href=${stepLink(key)}>${key}</a>${step?.attempt > 1 && `, attempt ${step.attempt}`}, `}<${Ago} at=${run.completed_at || run.updated_at} />.</p><${Raise} run=${run} onDone=${onDone} /></div>`}
    <${Section} title="What next"><div class="card"><${RunActions} run=${run} onDone=${onDone} next /></div><//>`;
}

/** @param {Props} props */
function Raise({ run, onDone }) {
  const { detail = {} } = run.error;
  if (!metLimit(run.error)) return null;
  const { run_id = run.run_id, name } = detail.budget || detail;
  if (!name && run_id === run.run_id) return html`<p><${ChangeLimits} run=${run} onDone=${onDone} class="primary">Raise the limit<//> The run then continues by itself.</p>`;
  return html`<p>Raise ${name ? html`the budget ${name} under <a href="/cost">Cost</a>` : html`the limit of <a href=${`/runs/${run_id}`}>run ${run_id}</a>`}; this run then continues by itself.</p>`;
}

/** @param {Props} props */
function Opens({ run }) {
  const issues = useLive(FINISHED.includes(run.status) ? withQuery("/api/issues", { run_id: run.run_id, limit: 100 }) : null, { pause: 60_000 });
  if (!issues.data?.length) return null;
  return html`<p class="notice"><span>It opened ${format.plural(issues.data.length, "issue")}. <a href=${withQuery("/issues", { run_id: run.run_id, status: "all" })}>Read what was found</a></span></p>`;
}

/** @param {Props} props */
function Facts({ run, onDone }) {
  const busy = worked(run);
  const service = useLive("/api/stats", { pause: 3600_000 }).data?.service;
  return html`<dl class="facts card">
    <dt>Run</dt><dd><${Id} id=${run.run_id} /></dd>
    <dt>Recipe</dt><dd><a href=${withQuery("/recipes", { recipe: run.recipe_id })}>${run.recipe_id}</a> <span class="muted">${run.dialect}</span></dd>
    <dt>Created</dt><dd><${Ago} at=${run.created_at} /></dd>
    <dt title=${format.ELAPSED}>Duration</dt><dd><${Took} from=${run.started_at} to=${run.completed_at} />${busy !== null && html` <span class="muted">${format.ELAPSED}; ${format.duration(busy)} in steps</span>`}</dd>
    <dt>Tokens</dt><dd class="number">${format.number(format.tokens(run.usage))}</dd>
    <dt>Cost</dt><dd class="number">${format.price(run.usage)}</dd>
    <dt>Journal</dt><dd><${Verified} run=${run} /></dd>
    ${run.forked_from && html`<dt>Forked from</dt><dd><a href=${`/runs/${run.forked_from}`}>${run.forked_from}</a></dd>`}
    ${run.ending?.superseded_by && html`<dt>Cancelled by</dt><dd><a href=${`/runs/${run.ending.superseded_by.run_id}`}>${run.ending.superseded_by.run_id}</a> <span class="muted">concurrency key ${run.ending.superseded_by.key}</span></dd>`}
    ${run.parent_run_id && html`<dt>Started by</dt><dd><a href=${`/runs/${run.parent_run_id}`}>${run.parent_run_id}</a></dd>`}
    <dt>Session</dt><dd><a href=${withQuery("/runs", { session_id: run.session_id })}>${run.session_id}</a></dd>
    <dt>Arguments</dt><dd><${Arguments} of=${run.task.initial_args} open=${run.status === "failed"} /></dd>
    ${service && service.engine !== "embedded" && html`<dt>Engine</dt><dd>${service.engine}</dd>`}
    ${run.placed && html`<dt>Machine</dt><dd>${run.placed.host} <span class="muted">worker ${run.placed.worker}</span></dd>`}
    <dt>Workspace</dt><dd class="mono">${run.working_dir}</dd>
    ${Object.entries(run.labels).map(([name, value]) => html`<dt>${name}</dt><dd><a href=${withQuery("/runs", { label: `${name}:${value}` })}>${String(value)}</a></dd>`)}
    ${(run.budget || !FINISHED.includes(run.status)) && html`<dt>Limits</dt><dd><${RunLimits} run=${run} onDone=${onDone} /></dd>`}
    <dt>History</dt><dd><a href=${`/access?target=${run.run_id}`}>who did what</a></dd>
    <dt>Labels</dt><dd><${Marks} run=${run} onDone=${onDone} /></dd>
  </dl>`;
}

/** @param {Props} props */
function Arguments({ of, open }) {
  const names = Object.keys(of);
  if (!names.length) return "none";
  return html`<details open=${open}><summary>${names.join(", ")}</summary><div class="mono">${names.map((name) => html`<div>${name}: ${typeof of[name] === "string" ? of[name] : JSON.stringify(of[name])}</div>`)}</div></details>`;
}

/** @param {Props} props */
function RecipeGraph({ path, mine, denied, over }) {
  const graph = useLive(`${path}/graph`, { on: mine, every: 3000 });
  const [narrow] = useState(() => window.matchMedia("(max-width: 47.5rem)").matches);
  const [open, setOpen] = useState(!narrow);
  if (!graph.data?.nodes?.length) return null;
  return html`<${Section} title="Graph" actions=${narrow && html`<button aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "Hide" : "Show"} graph</button>`}>${open && html`<${Graph} graph=${graph.data} denied=${denied} over=${over} onChoose=${(/** @type {any} */ node) => setQuery({ step: node.key || node.id, log: null })} />`}<//>`;
}

const MOST = 5;

/** @param {Props} props */
function Outputs({ run, result }) {
  const path = `/api/runs/${run.run_id}/cache/`;
  const all = Object.entries(run.cache_summary);
  const written = run.steps.filter((/** @type {any} */ step) => step.output_file || (step.status === "done" && step.key.startsWith("commit.")));
  const files = result ? written.slice(-MOST) : written;
  const slots = !result ? all : files.length || all.length < 2 ? [] : all.slice(-1);
  if (!slots.length && !files.length) return null;
  return html`<${Section} title=${result ? "Result" : "Outputs"} count=${result ? undefined : files.length + slots.length}><ul class="lines">
    ${each(files, ({ key, output_file, output_preview, output_slot }) => html`<li key=${key}><${Opened} path=${path + encodeURIComponent(output_slot || key.slice(7))} title="File"><code>${output_file || output_preview}</code><//></li>`)}
    ${slots.map(([name, slot]) => html`<li key=${name}><${Opened} path=${path + encodeURIComponent(name)} title=${name}>${slot.preview}<//></li>`)}
  </ul><//>`;
}

/** @param {Props} props */
function Children({ id }) {
  const runs = useList("/api/runs", { parent_run_id: id });
  if (!runs.data?.length) return null;
  return html`<${Section} title="Started by this run" count=${runs.count}><${RunTable} runs=${runs.data} />${runs.more}<//>`;
}

const LOOK = 5000;

/** Causes in the run itself that its page shows anyway. */
const SHOWN = ["ended", "gate", "parked", "paused", "pausing", "cancelling", "agent", "step", "between_steps", "more"];

/** @param {Props} props */
function Why({ run, path, mine }) {
  const { data } = useLive(FINISHED.includes(run.status) ? null : `${path}/why`, { on: mine, every: LOOK });
  const chain = data?.chain || [];
  if (FINISHED.includes(run.status) || chain.every((/** @type {any} */ each) => each.run_id === run.run_id && SHOWN.includes(each.kind))) return null;
  return html`<${Section} title="Why it does not move"><ol class="lines">
    ${each(chain, ({ act, kind, run_id, since, text, until }) => html`<li><span class="wide">${text}
        ${run_id !== run.run_id && html` <a href=${`/runs/${run_id}`}>${kind === "gate" ? "Answer it there" : run_id}</a>`}</span>
      ${since && html`<span class="muted">for <${Took} from=${since} /></span>`}
      ${until && html`<span class="muted">ends <${Ago} at=${until} /></span>`}
      ${act && kind !== "gate" && html`<${Command} text=${act} served />`}</li>`)}</ol><//>`;
}

const FEW = 12;

/** @type {Record<string, string[]>} */
const GROUPS = { failed: ["failed", "denied"], waiting: ["waiting"], open: ["running", "queued", "pending"] };

/** The steps of a run with their place in time; only those near the view are in the page. @param {Props} props */
function Steps({ state, onNear }) {
  const { run } = state;
  const all = useMemo(() => rows(state), [state]);
  const show = address.value.query.get("show") || "";
  const items = useMemo(() => (show ? all.filter((step) => step && GROUPS[show]?.includes(standing(step))) : all), [all, show]);
  useEffect(() => void (show && onNear(0, all.length)), [show, all.length]);
  const { from, to } = span(run, useNow(!run.completed_at));
  const range = useMemo(() => ({ from, to }), [from, to]);
  const others = all.length > (run.total_steps ?? all.length);
  const isRead = !all.includes(undefined);
  const groups = Object.entries(GROUPS).map(([name, states]) => [name, isRead ? `${name} (${all.filter((step) => states.includes(standing(step))).length})` : name]);
  return html`<${Section} title="Steps" actions=${html`${(all.length > FEW || show) && html`<label>Show <select onChange=${toQuery("show")}>${options([["", "all"], ...groups], show)}</select></label>`}<${Progress} of=${run} />${others && html`<span class="muted" title="Loops, checks, gates and evidence have rows of their own">in ${format.plural(all.length, "row")}</span>`}`}>
    ${items.length === 0 && html`<${Empty} title=${show ? `No step is ${show}.` : "No step has begun."} />`}
    ${items.length > 0 && html`<div class=${`table steps scrolls ${all.length > 4 * FEW ? "many" : ""}`} role="table" aria-label="Steps" aria-rowcount=${items.length + 1} tabindex="0">
      <div class="row head" role="row" aria-rowindex="1"><span role="columnheader">Status</span><span role="columnheader">Step</span><span role="columnheader" class="by">By</span>
        <span role="columnheader" class="axis"><span class="hidden">Time</span>${ticks(to - from).map((at) => html`<span style=${{ left: `${(100 * at) / (to - from)}%` }}>${at === 0 ? "0" : format.duration(at / 1000)}</span>`)}</span>
        <span role="columnheader" class="right tokens">Tokens</span><span role="columnheader" class="right">Duration</span></div>
      <${Virtual} items=${items} name=${nameOf} depends=${[range, run.status]} onNear=${show ? undefined : onNear}
        row=${(/** @type {any} */ step) => html`<${StepRow} step=${step} range=${range} />`} />
    </div>`}
  <//>`;
}

/** @param {Props} props */
function StepRow({ step, range }) {
  const by = step.tool || step.agent_archetype || (step.gate_id ? "a person" : "");
  const tries = (step.attempts || []).filter((/** @type {any} */ each) => each.attempt !== step.attempt);
  const at = useNow(isOpen(step));
  return html`
    <span role="cell"><${Status} of=${standing(step)} note=${placeOf(step)} /></span>
    <span role="cell" class="name"><span class="cut"><a class="row-link" href=${stepLink(step.key)}>${step.key}</a>${step.attempt > 1 && html` <span class="muted">attempt ${step.attempt}</span>`}${step.taken_over && html` <span class="muted">taken over</span>`}</span>
      <span class="cut muted">${step.error ? step.error.message : step.output_preview || heartbeat(step, at)}</span></span>
    <span role="cell" class="by cut">${by}${step.agent_id && step.agent_id !== by && html` <span class="muted">${step.agent_id}</span>`}</span>
    <span role="cell" class="timeline">${each(tries, (each) => html`<${Bar} step=${each} range=${range} at=${0} kind="tried" />`)}
      <${Bar} step=${step} range=${range} at=${at} kind=${standing(step)} /></span>
    <span role="cell" class="right number tokens">${step.usage ? format.number(format.tokens(step.usage)) : ""}</span>
    <span role="cell" class="right"><${Took} from=${step.started_at} to=${step.completed_at} /></span>`;
}

/** What a step is shown as: one that asks a person waits, a check of the definition of done that does not hold has failed. @param {any} step */
function standing(step) {
  if (step.queued) return "queued";
  if (wasDenied(step) || step.output?.denied) return "denied";
  if (step.phase === "dod" && step.holds === false) return "failed";
  return step.gate_id && step.status === "running" ? "waiting" : step.status;
}

/** @param {any} step */
function placeOf({ queued }) {
  return queued ? `${queued.place} of ${queued.of}` : "";
}

/** @param {any} step @param {number} now */
function heartbeat(step, now) {
  return isOpen(step) && step.output_at ? `last output ${format.relative(step.output_at, now)}` : "";
}

/** @param {Props} props */
function Bar({ step, range, at, kind }) {
  const place = bar(step, range, at);
  return html`<span class=${`bar bar-${kind}`} style=${{ left: `${place.left}%`, width: `${place.width}%` }}></span>`;
}

/** Lines before a step's number in which its earlier tries may be. */
const BEFORE = 40;

/** @param {Props} props */
function StepDrawer({ state, name, names, log, onClose }) {
  const { run } = state;
  const panel = useRef(null);
  const [lines, setLines] = useState(null);
  const [error, setError] = useFault();
  const [forks, setForks] = useState(false);
  const first = state.finished.findIndex((step) => step && belongs(step, name));
  const mine = state.finished.filter((step) => step && belongs(step, name));
  const left = useRef("");
  useEffect(() => {
    const before = document.activeElement;
    const link = panel.current?.querySelector(`[data-log="${CSS.escape(left.current)}"]`);
    (link instanceof HTMLElement ? link : panel.current)?.focus();
    left.current = log || "";
    return () => before instanceof HTMLElement && before.focus();
  }, [name, log]);
  useEffect(() => {
    read(run.run_id, name, first, mine).then(setLines, setError);
  }, [name, first, mine.length]);
  const open = state.open.filter((step) => belongs(step, name));
  const close = (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && onClose();
  const shown = lines || mine;
  const path = pathOf("runs", run.run_id);
  return html`<div class="drawer" role="dialog" aria-label=${`Step ${name}`} tabindex="-1" ref=${panel} onKeyDown=${close}>
    <header><h2>${name}</h2><div class="actions">${mine.length > 0 && html`<button onClick=${() => setForks(true)}>Fork from this step</button>`}
      <button class="quiet" onClick=${onClose} aria-label="Close">✕</button></div></header>
    ${log && html`<p><a href=${stepLink(name)}>Back to the step</a></p><div class="actions"><code>${log}</code><${SaveLog} path=${path} name=${log} /></div><${Log} key=${log} path=${logPath(path, log)} />`}
    <${Fault} error=${error} />
    ${forks && html`<${Fork} run=${run} from=${name} onClose=${() => setForks(false)} />`}
    ${!log && each([...open, ...[...shown].reverse()], (step) => html`<${Attempt} key=${`${isOpen(step)} ${nameOf(step)}`} path=${path} step=${step} name=${name} names=${names} />`)}
    ${lines && !open.length && !lines.length && html`<p class="muted">No step of this name has begun.</p>`}
  </div>`;
}

/** @param {any} step @param {string} name */
function belongs(step, name) {
  return step.key === name || step.step_id === name || step.key?.replace(/[#[].*$/, "") === name;
}

/** @type {ReadStep} */
async function read(runId, name, first, known) {
  const wanted = new Set(known.map((step) => `${step.key}#${step.attempt}`));
  const found = [];
  let cursor = Math.max(0, first - BEFORE);
  while (wanted.size) {
    const lines = await get(withQuery(`${pathOf("runs", runId)}/steps`, { limit: PORTION, cursor: cursor ? cursor - 1 : "" }));
    for (const line of lines) {
      if (!belongs(line, name)) continue;
      found.push(line);
      wanted.delete(`${line.key}#${line.attempt}`);
    }
    if (lines.length < PORTION) break;
    cursor += lines.length;
  }
  return found;
}

/** @param {Props} props */
function Attempt({ path, step, name, names }) {
  const going = isOpen(step) && !step.gate_id;
  const { data: asked } = useLive(going ? withQuery(`${path}/request`, { key: step.key }) : null, { pause: 60_000 });
  const { backend, model } = asked || step.operation?.body || {};
  const logs = logsOf(names, step);
  return html`<section class="attempt">
    <p><${Status} of=${standing(step)} note=${placeOf(step) || `${step.key === name ? "" : `${step.key}, `}attempt ${step.attempt || 1}`} /></p>
    <dl class="facts">
      <dt>Began</dt><dd><${Ago} at=${step.started_at} /></dd>
      <dt>Duration</dt><dd><${Took} from=${step.started_at} to=${step.completed_at} /></dd>
      ${isOpen(step) && step.output_at && html`<dt>Last output</dt><dd><${Ago} at=${step.output_at} /></dd>`}
      ${step.queued && html`<dt>Waits for</dt><dd>${step.queued.backend}</dd>`}
      ${step.agent_id && html`<dt>Agent</dt><dd>${step.agent_id}</dd>`}
      ${backend && html`<dt>Backend</dt><dd>${backend}</dd><dt>Model</dt><dd>${model || step.model || "the backend's default"}</dd>`}
      ${step.usage && html`<dt>Tokens</dt><dd class="number">${format.number(format.tokens(step.usage))}</dd><dt>Cost</dt><dd class="number">${format.price(step.usage)}</dd>`}
      ${step.receipt_id && html`<dt>Receipt</dt><dd><${Opened} path=${`/api/audit/receipts/${step.receipt_id}`} title=${step.receipt_id} /></dd>`}
      ${logs.length > 0 && html`<dt>Logs</dt><dd>${each(logs, (log) => html`<a href=${stepLink(name, log)} data-log=${log}>${kindOf(log)}</a> `)}</dd>`}
    </dl>
    ${asked && html`<h3>${ASKED[asked.kind] || "What it asks"}</h3><${Content} text=${asked.text} />`}
    ${step.gate_id && !isOpen(step) && html`<${Decided} id=${step.gate_id} />`}
    ${step.error && html`<div class="fault"><p>${step.error.message} <code>${step.error.code}</code></p></div>`}
    <${Output} step=${step} />
  </section>`;
}

/** @type {Words} */
const ASKED = { agent_call: "Prompt", command: "Command", tool_call: "Arguments" };

/** @param {Props} props */
function Output({ step }) {
  const output = step.output ?? step.output_preview;
  if ((output ?? "") === "") return null;
  return html`<h3>Output</h3><${Content} text=${typeof output === "string" ? output : JSON.stringify(output, null, 2)} />`;
}
