// @ts-check
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { address, html, setQuery } from "../lib/base.js";
import * as format from "../lib/format.js";
import { Problem, followStream, get, onEvents, sleep, useLive, withQuery } from "../lib/live.js";
import { FINISHED, answered, happened, sentence, withOlder } from "../lib/run_state.js";
import { Ago, Command, Fault, Id, Missing, Opened, PageTitle, Section, Status, Took, each, options, typed, useFault } from "../parts/basics.js";
import { RunLimits } from "../parts/budget.js";
import { Answered, GateCard } from "../parts/gate_card.js";
import { Graph } from "../parts/graph.js";
import { Marks, RunActions, Verified } from "../parts/orders.js";
import { RunTable } from "../parts/rows.js";
import { StepDrawer, Steps, stepLink } from "../parts/steps.js";

/** @type {any[]} */
const NONE = [];

/** Milliseconds between two looks at a run that executes: no event tells of its outputs, and of its place in a queue. */
const HEARTBEAT = 3000;

/** Steps that are read at a time, where a run has more than its answer holds. */
const PORTION = 200;

/** A run: how it stands, its graph, timeline, steps, outputs and logs. @param {{id: string}} props */
export function Run({ id }) {
  const path = `/api/runs/${encodeURIComponent(id)}`;
  const mine = (/** @type {any} */ event) => event.run_id === id;
  const [every, setEvery] = useState(0);
  const live = useLive(path, { on: mine, every });
  useEffect(() => setEvery(live.data?.status === "running" ? HEARTBEAT : 0), [live.data?.status]);
  const gates = useLive(live.data?.status === "waiting" ? withQuery("/api/gates", { run_id: id }) : null, { on: mine });
  const [state, onNear] = useRunState(path, id, live.data);
  const title = live.data && (live.data.task.description || live.data.recipe_id);
  useEffect(() => {
    if (title) document.title = `${title} · Control Room`;
  }, [title]);
  if (!state) return html`<${Missing} title="Run" id=${id} live=${live} />`;
  const { run } = state;
  const chosen = address.value.query.get("step");
  return html`
    <${PageTitle} title=${run.task.description || run.recipe_id} lead=${html`<${Status} of=${run.status} /> ${stopped(run) ? STOPPED[run.status] : sentence(run, state.open)}`}
      actions=${html`<${RunActions} run=${run} onDone=${live.refresh} />`} />
    <${Fault} error=${live.error} retry=${live.refresh} />
    ${run.unreadable && html`<p class="fault"><strong>${run.unreadable.file} cannot be read now (${run.unreadable.errno}).</strong> The last known state is shown, and nothing is changed. Next try: <${Ago} at=${run.unreadable.next_try_at} />.</p>`}
    <${WhatHappened} run=${run} onDone=${live.refresh} />
    <${Why} run=${run} path=${path} mine=${mine} />
    ${each(gates.data, (gate) => html`<${GateCard} key=${gate.gate_id} gate=${gate} onDecided=${live.refresh} />`)}
    <${Answered} gates=${live.data && live.data.status !== "waiting" ? NONE : gates.data} />
    <${Facts} run=${run} onDone=${live.refresh} />
    <div class="beside"><${RecipeGraph} path=${path} mine=${mine} /><${Steps} state=${state} onNear=${onNear} /></div>
    <${Outputs} run=${run} />
    <${Logs} path=${path} live=${!FINISHED.includes(run.status)} />
    <${Children} id=${id} />
    ${chosen && html`<${StepDrawer} state=${state} name=${chosen} onClose=${() => setQuery({ step: null })} />`}`;
}

/**
 * Keep what is known of a run over its answers, and read older steps when they come near.
 * @param {string} path @param {string} id @param {any} answer
 * @returns {[import("../lib/run_state.js").RunState | null, (first: number, last: number) => void]}
 */
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

/** What is said of a run whose error stands below. @type {Record<string, string>} */
const STOPPED = { failed: "It failed; the reason is below.", paused: "It is parked; the reason is below." };

/** @param {any} run */
function stopped(run) {
  return Boolean(run.error) && run.status in STOPPED;
}

/** Why a run stopped, and what sends it on. @param {{run: any, onDone: () => void}} props */
function WhatHappened({ run, onDone }) {
  if (run.status !== "paused" && (run.status === "done" || !FINISHED.includes(run.status))) return null;
  const { code, message, key } = run.error || {};
  return html`${stopped(run) && html`<div class="fault" role="note">
      <strong>${run.status === "failed" ? "Why it failed" : "Why it is parked"}</strong>
      <p>${message} <code>${code}</code></p>${key && html`<p>At step <a href=${stepLink(key)}>${key}</a>.</p>`}</div>`}
    <${Section} title="What next"><div class="card"><${RunActions} run=${run} onDone=${onDone} next /></div></${Section}>`;
}

/** @param {{run: any, onDone: () => void}} props */
function Facts({ run, onDone }) {
  const service = useLive("/api/stats", { pause: 3600_000 }).data?.service;
  return html`<dl class="facts card">
    <dt>Run</dt><dd><${Id} id=${run.run_id} /></dd>
    <dt>Recipe</dt><dd><a href=${`/recipes?recipe=${encodeURIComponent(run.recipe_id)}`}>${run.recipe_id}</a> <span class="muted">${run.dialect}</span></dd>
    <dt>Created</dt><dd><${Ago} at=${run.created_at} /></dd>
    <dt>Duration</dt><dd><${Took} from=${run.started_at} to=${run.completed_at} /></dd>
    <dt>Tokens</dt><dd class="number">${format.number(format.tokens(run.usage))}</dd>
    <dt>Cost</dt><dd class="number">${format.price(run.usage)}</dd>
    <dt>Journal</dt><dd><${Verified} id=${run.run_id} ended=${FINISHED.includes(run.status)} /></dd>
    ${run.forked_from && html`<dt>Forked from</dt><dd><a href=${`/runs/${run.forked_from}`}>${run.forked_from}</a></dd>`}
    ${run.parent_run_id && html`<dt>Started by</dt><dd><a href=${`/runs/${run.parent_run_id}`}>${run.parent_run_id}</a></dd>`}
    <dt>Session</dt><dd><a href=${`/runs?session_id=${encodeURIComponent(run.session_id)}`}>${run.session_id}</a></dd>
    <dt>Arguments</dt><dd><details><summary>${Object.keys(run.task.initial_args).join(", ") || "none"}</summary><div class="mono">${Object.entries(run.task.initial_args).map(([name, value]) => html`<div>${name}: ${typeof value === "string" ? value : JSON.stringify(value)}</div>`)}</div></details></dd>
    ${service && html`<dt>Engine</dt><dd>${service.engine}</dd>`}
    <dt>Workspace</dt><dd class="mono">${run.working_dir}</dd>
    ${Object.entries(run.labels).map(([name, value]) => html`<dt>${name}</dt><dd><a href=${withQuery("/runs", { label: `${name}:${value}` })}>${String(value)}</a></dd>`)}
    ${(run.budget || !FINISHED.includes(run.status)) && html`<dt>Limits</dt><dd><${RunLimits} run=${run} onDone=${onDone} /></dd>`}
    <dt>Orders</dt><dd><a href=${`/access?target=${run.run_id}`}>who ordered what</a></dd>
    <dt>Labels</dt><dd><${Marks} run=${run} onDone=${onDone} /></dd>
  </dl>`;
}

/** The recipe as the run froze it, with the state of each node. @param {{path: string, mine: (event: any) => boolean}} props */
function RecipeGraph({ path, mine }) {
  const graph = useLive(`${path}/graph`, { on: mine, every: 3000 });
  if (!graph.data?.nodes?.length) return null;
  return html`<${Section} title="Graph"><${Graph} graph=${graph.data} onChoose=${(/** @type {any} */ node) => setQuery({ step: node.key || node.id })} /></${Section}>`;
}

/** Files that a run wrote into its workspace, and its slots. @param {{run: any}} props */
function Outputs({ run }) {
  const slots = Object.entries(run.cache_summary);
  const files = run.steps.filter((/** @type {any} */ step) => step.status === "done" && step.key.startsWith("commit."));
  if (!slots.length) return null;
  return html`<${Section} title="Outputs" count=${files.length + slots.length}><ul class="lines">
    ${each(files, ({ key, output_preview }) => html`<li key=${key}><strong>File</strong><code class="wide">${output_preview}</code></li>`)}
    ${slots.map(([name, slot]) => html`<li key=${name}><${Opened} path=${`/api/runs/${run.run_id}/cache/${encodeURIComponent(name)}`} title=${name}>${slot.preview}<//></li>`)}
  </ul></${Section}>`;
}

/** Runs that this one started. @param {{id: string}} props */
function Children({ id }) {
  const runs = useLive(withQuery("/api/runs", { parent_run_id: id, limit: 100 }));
  if (!runs.data?.length) return null;
  return html`<${Section} title="Started by this run" count=${runs.data.length}><${RunTable} runs=${runs.data} /></${Section}>`;
}

/** Milliseconds between two looks: no event tells how long an agent has been silent. */
const LOOK = 5000;

/** Causes in the run itself that its page shows anyway. */
const SHOWN = ["ended", "gate", "parked", "paused", "pausing", "cancelling", "agent", "step", "between_steps"];

/**
 * What an unfinished run waits for, link by link; nothing where its page says so already.
 * @param {{run: any, path: string, mine: (event: any) => boolean}} props
 */
function Why({ run, path, mine }) {
  const { data } = useLive(FINISHED.includes(run.status) ? null : `${path}/why`, { on: mine, every: LOOK });
  const chain = data?.chain || [];
  if (FINISHED.includes(run.status) || chain.every((/** @type {any} */ each) => each.run_id === run.run_id && SHOWN.includes(each.kind))) return null;
  return html`<${Section} title="Why it does not move"><ol class="lines">
    ${each(chain, ({ act, kind, run_id, since, text, until }) => html`<li><span class="wide">${text}
        ${run_id !== run.run_id && html` <a href=${`/runs/${run_id}`}>${kind === "gate" ? "Answer it there" : run_id}</a>`}</span>
      ${since && html`<span class="muted">for <${Took} from=${since} /></span>`}
      ${until && html`<span class="muted">ends <${Ago} at=${until} /></span>`}
      ${act && kind !== "gate" && html`<${Command} text=${act} served />`}</li>`)}</ol></${Section}>`;
}

/** Bytes of a log that are shown, from its end. */
const TAIL = 200_000;

/** Milliseconds between two tries of a stream that broke. */
const RETRY = 1000;

/** The logs of a run, one at a time. @param {{path: string, live: boolean}} props */
function Logs({ path, live }) {
  const logs = useLive(`${path}/logs`, { pause: live ? 3000 : 3600_000 });
  const [name, setName] = useState("");
  if (!logs.data?.length) return null;
  return html`<${Section} title="Logs" count=${logs.data.length}
    actions=${html`<label>Log <select onChange=${typed(setName)}>
      <option value="">choose…</option>${options(logs.data.map((/** @type {string} */ log) => [log, log]), name)}</select></label>
      ${name && html`<a class="button" href=${`${path}/logs/${encodeURIComponent(name)}`} target="_blank" rel="noopener">Whole log</a>`}`}>
    ${!name && html`<p class="muted">Choose a log to read its end; one that grows is followed.</p>`}
    ${name && html`<${Log} key=${name} path=${`${path}/logs/${encodeURIComponent(name)}`} />`}
  </${Section}>`;
}

/** The end of a log, and what is appended to it. @param {{path: string}} props */
function Log({ path }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [error, setError] = useFault();
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const atEnd = useRef(true);
  useEffect(() => {
    const ended = new AbortController();
    tail(path, ended, setText).catch((caught) => ended.signal.aborted || setError(caught));
    return () => ended.abort();
  }, [path]);
  // Who reads further up is left there.
  useLayoutEffect(() => {
    if (frame.current && atEnd.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [text]);
  const look = () => {
    const { scrollTop = 0, scrollHeight = 0, clientHeight = 0 } = frame.current || {};
    atEnd.current = scrollTop + clientHeight > scrollHeight - 40;
  };
  return html`<${Fault} error=${error} /><pre class="log" tabindex="0" ref=${frame} onScroll=${look}>${text === null ? "…" : text}</pre>`;
}

/**
 * Follow a log until its run has ended, through lost connections.
 * @param {string} path @param {AbortController} stopped @param {(change: (before: string | null) => string) => void} show
 */
async function tail(path, stopped, show) {
  let last = "";
  let over = false;
  while (!over && !stopped.signal.aborted) {
    const ended = new AbortController();
    stopped.signal.addEventListener("abort", () => ended.abort(), { once: true });
    try {
      await followStream(withQuery(`${path}/stream`, last ? {} : { tail: TAIL }), last, ended, (item) => {
        last = item.id || last;
        if (item.type === "end") over = true;
        if (item.type === "reset") show(() => "");
        if (item.type === "text") show((before) => ((before || "") + JSON.parse(item.data).text).slice(-TAIL));
      });
    } catch (error) {
      if (error instanceof Problem) throw error;
    }
    if (over) show((before) => before ?? "");
    else await sleep(RETRY, stopped.signal);
  }
}
