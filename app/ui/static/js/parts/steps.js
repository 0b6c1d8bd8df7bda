// @ts-check
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { html, useNow } from "../lib/base.js";
import * as format from "../lib/format.js";
import { get, useLive, withQuery } from "../lib/live.js";
import { bar, isOpen, nameOf, rows, span } from "../lib/run_state.js";
import { Ago, Content, Empty, Fault, Opened, Progress, Section, Status, Took, each, useFault } from "./basics.js";
import { Decided } from "./gate_card.js";
import { Fork } from "./orders.js";
import { Virtual } from "./rows.js";

/** Ticks of the time axis. */
const TICKS = [0, 0.5];

/**
 * The steps of a run with their place in time; only those near the view are in the page.
 * @param {{state: import("../lib/run_state.js").RunState, onNear: (first: number, last: number) => void}} props
 */
export function Steps({ state, onNear }) {
  const { run } = state;
  const items = useMemo(() => rows(state), [state]);
  const { from, to } = span(run, useNow(!run.completed_at));
  const range = useMemo(() => ({ from, to }), [from, to]);
  const others = items.length > (run.total_steps ?? items.length);
  return html`<${Section} title="Steps" actions=${html`<${Progress} done=${run.current_step_index} total=${run.total_steps} />${others && html`<span class="muted" title="Loops, checks, gates and evidence have rows of their own">in ${format.plural(items.length, "row")}</span>`}`}>
    ${items.length === 0 && html`<${Empty} title="No step has begun." />`}
    ${items.length > 0 && html`<div class="table steps scrolls" role="table" aria-label="Steps" aria-rowcount=${items.length + 1} tabindex="0">
      <div class="row head" role="row" aria-rowindex="1"><span role="columnheader">Status</span><span role="columnheader">Step</span><span role="columnheader">By</span>
        <span role="columnheader" class="axis"><span class="hidden">Time</span>${TICKS.map((at) => html`<span style=${{ left: `${100 * at}%` }}>${at === 0 ? "0" : format.length((at * (to - from)) / 1000)}</span>`)}</span>
        <span role="columnheader" class="right">Tokens</span><span role="columnheader" class="right">Duration</span></div>
      <${Virtual} items=${items} name=${nameOf} depends=${[range]} onNear=${onNear}
        row=${(/** @type {any} */ step) => html`<${StepRow} step=${step} range=${range} />`} />
    </div>`}
  </${Section}>`;
}

/** @param {{step: any, range: {from: number, to: number}}} props */
function StepRow({ step, range }) {
  const by = step.tool || step.agent_archetype || (step.gate_id ? "a person" : "");
  const tries = (step.attempts || []).filter((/** @type {any} */ each) => each.attempt !== step.attempt);
  const at = useNow(isOpen(step));
  return html`
    <span role="cell"><${Status} of=${standing(step)} note=${placeOf(step)} /></span>
    <span role="cell" class="name"><span class="cut"><a class="row-link" href=${stepLink(step.key)}>${step.key}</a>${step.attempt > 1 && html` <span class="muted">attempt ${step.attempt}</span>`}</span>
      <span class="cut muted">${step.error ? step.error.message : step.output_preview || heartbeat(step, at)}</span></span>
    <span role="cell" class="by cut">${by}${step.agent_id && step.agent_id !== by && html` <span class="muted">${step.agent_id}</span>`}</span>
    <span role="cell" class="timeline">${tries.map((/** @type {any} */ each) => html`<${Bar} step=${each} range=${range} at=${0} kind="tried" />`)}
      <${Bar} step=${step} range=${range} at=${at} kind=${standing(step)} /></span>
    <span role="cell" class="right number tokens">${step.usage ? format.number(format.tokens(step.usage)) : ""}</span>
    <span role="cell" class="right"><${Took} from=${step.started_at} to=${step.completed_at} /></span>`;
}

/** What a step is shown as: one that asks a person waits, a check of the definition of done that does not hold has failed. @param {any} step */
function standing(step) {
  if (step.queued) return "queued";
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

/** @param {{step: any, range: {from: number, to: number}, at: number, kind: string}} props */
function Bar({ step, range, at, kind }) {
  const place = bar(step, range, at);
  return html`<span class=${`bar bar-${kind}`} style=${{ left: `${place.left}%`, width: `${place.width}%` }}></span>`;
}

/** The address of a step's drawer. @param {string} key */
export function stepLink(key) {
  const query = new URLSearchParams(window.location.search);
  query.set("step", key);
  return `${window.location.pathname}?${query}`;
}

/** Lines of the journal that are read at a time. */
const PORTION = 200;

/** Lines before a step's number in which its earlier tries may be. */
const BEFORE = 40;

/**
 * Everything about one step: its attempts, output, error, tokens, receipt.
 * @param {{state: import("../lib/run_state.js").RunState, name: string, onClose: () => void}} props
 */
export function StepDrawer({ state, name, onClose }) {
  const { run } = state;
  const panel = useRef(/** @type {HTMLElement | null} */ (null));
  const [lines, setLines] = useState(/** @type {any[] | null} */ (null));
  const [error, setError] = useFault();
  const [forks, setForks] = useState(false);
  const first = state.finished.findIndex((step) => step && belongs(step, name));
  const mine = state.finished.filter((step) => step && belongs(step, name));
  useEffect(() => {
    const before = document.activeElement;
    panel.current?.focus();
    return () => before instanceof HTMLElement && before.focus();
  }, [name]);
  useEffect(() => {
    read(run.run_id, name, first, mine).then(setLines, setError);
  }, [name, first, mine.length]);
  const open = state.open.filter((step) => belongs(step, name));
  const close = (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && onClose();
  const shown = lines || mine;
  return html`<div class="drawer" role="dialog" aria-label=${`Step ${name}`} tabindex="-1" ref=${panel} onKeyDown=${close}>
    <header><h2>${name}</h2><div class="actions">${mine.length > 0 && html`<button type="button" onClick=${() => setForks(true)}>Fork from this step</button>`}
      <button type="button" class="quiet" onClick=${onClose} aria-label="Close">✕</button></div></header>
    <${Fault} error=${error} />
    ${forks && html`<${Fork} run=${run} from=${name} onClose=${() => setForks(false)} />`}
    ${each(open, (step) => html`<${Attempt} key=${`open-${step.key}`} run=${run} step=${step} name=${name} />`)}
    ${each([...shown].reverse(), (step) => html`<${Attempt} key=${`${step.key}#${step.attempt}`} run=${run} step=${step} name=${name} />`)}
    ${lines && !open.length && !lines.length && html`<p class="muted">This step has not begun.</p>`}
  </div>`;
}

/** @param {any} step @param {string} name */
function belongs(step, name) {
  return step.key === name || step.step_id === name || step.key?.replace(/[#[].*$/, "") === name;
}

/**
 * Read a step's lines in the journal: near its number, and onwards until all of it that is known has been seen.
 * @param {string} runId @param {string} name @param {number} first @param {any[]} known
 */
async function read(runId, name, first, known) {
  const wanted = new Set(known.map((step) => `${step.key}#${step.attempt}`));
  const found = [];
  let cursor = Math.max(0, first - BEFORE);
  while (wanted.size) {
    const lines = await get(withQuery(`/api/runs/${encodeURIComponent(runId)}/steps`, { limit: PORTION, cursor: cursor ? cursor - 1 : "" }));
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

/** A try of a step: what is asked of whom while it goes on, and what came of it. @param {{run: any, step: any, name: string}} props */
function Attempt({ run, step, name }) {
  const path = `/api/runs/${encodeURIComponent(run.run_id)}`;
  const going = isOpen(step) && !step.gate_id;
  const { data: asked } = useLive(going ? withQuery(`${path}/request`, { key: step.key }) : null, { pause: 60_000 });
  const { backend, model } = asked || step.operation?.body || {};
  const log = `${step.key}.${step.attempt || 1}.prompt.md`;
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
    </dl>
    ${asked && html`<h3>${ASKED[asked.kind] || "What it asks"}</h3><${Content} text=${asked.text} />`}
    ${!going && step.agent_id && html`<${Opened} path=${`${path}/logs/${encodeURIComponent(log)}`} title="Prompt" />`}
    ${step.gate_id && !isOpen(step) && html`<${Decided} id=${step.gate_id} />`}
    ${step.error && html`<div class="fault"><strong>${step.error.code}</strong><p>${step.error.message}</p></div>`}
    <${Output} step=${step} />
  </section>`;
}

/** What an operation is made of. @type {Record<string, string>} */
const ASKED = { agent_call: "Prompt", command: "Command", tool_call: "Arguments" };

/** @param {{step: any}} props */
function Output({ step }) {
  const output = step.output ?? step.output_preview;
  if (output === undefined || output === null) return null;
  return html`<h3>Output</h3><${Content} text=${typeof output === "string" ? output : JSON.stringify(output, null, 2)} />`;
}
