// @ts-check
import { useEffect, useMemo, useState } from "preact/hooks";

import { request } from "../lib/api.js";
import { now } from "../lib/clock.js";
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { FINISHED, bar, latest, nodeStates, sentence, span } from "../lib/run_state.js";
import { address, setQuery } from "../lib/router.js";
import { RunActions } from "../parts/actions.js";
import { Ago, Empty, Fault, Id, PageTitle, Progress, Section, Status, Took } from "../parts/basics.js";
import { GateCard } from "../parts/gate_card.js";
import { Graph } from "../parts/graph.js";
import { StepDrawer } from "../parts/step_drawer.js";

/** Characters of a log that are shown, from its end. */
const LOG_SHOWN = 200_000;

/** A run: how it stands, its graph, timeline, steps, outputs and logs. @param {{id: string}} props */
export function Run({ id }) {
  const path = `/api/runs/${encodeURIComponent(id)}`;
  const live = useLive(path);
  const gates = useLive(live.data?.status === "waiting" ? `/api/gates?run_id=${encodeURIComponent(id)}` : null);
  const run = live.data;
  if (!run) return html`<${PageTitle} title="Run" lead=${id} /><${Fault} error=${live.error} retry=${live.refresh} />`;
  const chosen = address.value.query.get("step");
  return html`
    <${PageTitle} title=${run.task.description || run.recipe_id} lead=${html`<${Status} of=${run.status} /> ${sentence(run)}`}
      actions=${html`<${RunActions} run=${run} onDone=${live.refresh} />`} />
    <${Fault} error=${live.error} retry=${live.refresh} />
    ${run.unreadable && html`<p class="fault"><strong>${run.unreadable.file} cannot be read now.</strong> The last known state is shown; it is tried again.</p>`}
    ${gates.data?.map((/** @type {any} */ gate) => html`<${GateCard} key=${gate.gate_id} gate=${gate} onDecided=${live.refresh} />`)}
    <${Facts} run=${run} />
    <div class="beside"><${RecipeGraph} run=${run} /><${Steps} run=${run} /></div>
    <${Outputs} run=${run} />
    <${Logs} run=${run} />
    ${chosen && html`<${StepDrawer} run=${run} name=${chosen} onClose=${() => setQuery({ step: null })} />`}`;
}

/** @param {{run: any}} props */
function Facts({ run }) {
  return html`<dl class="facts card">
    <dt>Run</dt><dd><${Id} id=${run.run_id} /></dd>
    <dt>Recipe</dt><dd><a href=${`/recipes?recipe=${encodeURIComponent(run.recipe_id)}`}>${run.recipe_id}</a> <span class="muted">${run.dialect}</span></dd>
    <dt>Progress</dt><dd><${Progress} done=${run.current_step_index} total=${run.total_steps} /></dd>
    <dt>Started</dt><dd><${Ago} at=${run.created_at} /></dd>
    <dt>Duration</dt><dd><${Took} from=${run.created_at} to=${run.completed_at} /></dd>
    <dt>Tokens</dt><dd class="number">${format.number(format.tokens(run.usage))}</dd>
    <dt>Cost</dt><dd class="number">${format.money(run.usage?.cost_usd)}</dd>
    ${run.parent_run_id && html`<dt>Started by</dt><dd><a href=${`/runs/${run.parent_run_id}`}>${run.parent_run_id}</a></dd>`}
    <dt>Session</dt><dd><a href=${`/runs?session_id=${encodeURIComponent(run.session_id)}`}>${run.session_id}</a></dd>
    <dt>Workspace</dt><dd class="mono">${run.working_dir}</dd>
    ${Object.entries(run.labels).map(([name, value]) => html`<dt>${name}</dt><dd>${String(value)}</dd>`)}
  </dl>`;
}

/** @param {{run: any}} props */
function RecipeGraph({ run }) {
  const recipe = useLive(`/api/recipes/${encodeURIComponent(run.recipe_id)}`, { pause: 3600_000 });
  const graph = recipe.data?.graph;
  const states = useMemo(() => (graph ? nodeStates(graph, run.steps) : new Map()), [graph, run.steps]);
  if (!graph?.nodes?.length) return null;
  return html`<${Section} title="Graph"><p class="muted">The recipe as its file is now.</p><${Graph} graph=${graph} states=${states} onChoose=${(/** @type {string} */ step) => setQuery({ step })} /></${Section}>`;
}

/** The steps with their place in time. @param {{run: any}} props */
function Steps({ run }) {
  const [all, setAll] = useState(false);
  const shown = all ? run.steps : latest(run.steps);
  const range = span(run.steps, run.created_at, run.completed_at, FINISHED.includes(run.status) ? Date.parse(run.updated_at) : now.value);
  const tries = run.steps.length - latest(run.steps).length;
  return html`<${Section} title="Steps" count=${run.steps_total}
    actions=${tries > 0 && html`<label><input type="checkbox" checked=${all} onChange=${() => setAll(!all)} /> all attempts</label>`}>
    ${run.steps.length === 0 && html`<${Empty} title="No step has begun." />`}
    ${run.steps.length > 0 && html`<div class="table-frame"><table class="steps">
      <thead><tr><th>Status</th><th>Step</th><th>By</th><th class="timeline-head">Time</th><th class="right">Duration</th></tr></thead>
      <tbody>${shown.map((/** @type {any} */ step) => html`<${StepRow} key=${`${step.key}#${step.attempt}`} step=${step} range=${range} />`)}</tbody>
    </table></div>`}
    ${run.steps_total > run.steps.length && html`<p class="muted">The newest ${run.steps.length} of ${run.steps_total} steps.</p>`}
  </${Section}>`;
}

/** @param {{step: any, range: {from: number, to: number}}} props */
function StepRow({ step, range }) {
  const place = bar(step, range, now.value);
  const by = step.tool || step.agent_archetype || (step.gate_id ? "a person" : "");
  return html`<tr data-row class=${step.status === "failed" ? "is-failed" : ""}>
    <td><${Status} of=${step.gate_id && step.status === "running" ? "waiting" : step.status} /></td>
    <td class="wide"><a class="row-link" href=${stepLink(step.key)}>${step.key}</a>
      ${step.attempt > 1 && html` <span class="muted">attempt ${step.attempt}</span>`}
      <div class="muted cut">${step.error ? step.error.message : step.output_preview}</div></td>
    <td>${by}${step.agent_id && step.agent_id !== by && html` <span class="muted">${step.agent_id}</span>`}</td>
    <td class="timeline"><span class=${`bar bar-${step.status}`} style=${{ left: `${place.left}%`, width: `${place.width}%` }}></span></td>
    <td class="right"><${Took} from=${step.started_at} to=${step.completed_at} /></td>
  </tr>`;
}

/** @param {string} key */
function stepLink(key) {
  const query = new URLSearchParams(window.location.search);
  query.set("step", key);
  return `${window.location.pathname}?${query}`;
}

/** @param {{run: any}} props */
function Outputs({ run }) {
  const slots = Object.entries(run.cache_summary);
  if (!slots.length) return null;
  return html`<${Section} title="Outputs" count=${slots.length}><ul class="lines">
    ${slots.map(([name, slot]) => html`<li><a href=${`/api/runs/${run.run_id}/cache/${encodeURIComponent(name)}`} target="_blank" rel="noopener">${name}</a>
      <span class="muted">${slot.type}</span><span class="wide cut">${slot.preview}</span></li>`)}
  </ul></${Section}>`;
}

/** @param {{run: any}} props */
function Logs({ run }) {
  const logs = useLive(`/api/runs/${run.run_id}/logs`, { pause: FINISHED.includes(run.status) ? 3600_000 : 3000 });
  const [name, setName] = useState("");
  if (!logs.data?.length) return null;
  return html`<${Section} title="Logs" count=${logs.data.length}
    actions=${html`<label>Log <select onChange=${(/** @type {any} */ event) => setName(event.target.value)}>
      <option value="">choose…</option>${logs.data.map((/** @type {string} */ each) => html`<option value=${each}>${each}</option>`)}</select></label>`}>
    ${name && html`<${Log} key=${name} path=${`/api/runs/${run.run_id}/logs/${encodeURIComponent(name)}`} live=${!FINISHED.includes(run.status)} />`}
  </${Section}>`;
}

/** @param {{path: string, live: boolean}} props */
function Log({ path, live }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  useEffect(() => {
    const ended = new AbortController();
    const read = () => request("GET", path, { signal: ended.signal }).then((reply) => reply.text()).then(setText, setError);
    read();
    const timer = live ? setInterval(read, 2000) : 0;
    return () => (clearInterval(timer), ended.abort());
  }, [path, live]);
  return html`<${Fault} error=${error} /><pre class="log" tabindex="0">${text === null ? "…" : text.slice(-LOG_SHOWN)}</pre>`;
}
