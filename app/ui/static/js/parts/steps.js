// @ts-check
import { useMemo } from "preact/hooks";

import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { bar, isOpen, nameOf, rows, span } from "../lib/run_state.js";
import { useNow } from "../lib/signal.js";
import { Empty, Section, Status, Took } from "./basics.js";
import { Virtual } from "./virtual.js";

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
  return html`<${Section} title="Steps" count=${items.length}>
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
    <span role="cell"><${Status} of=${standing(step)} note=${step.queued ? `${step.queued.place} of ${step.queued.of}` : ""} /></span>
    <span role="cell" class="name"><span class="cut"><a class="row-link" href=${stepLink(step.key)}>${step.key}</a>${step.attempt > 1 && html` <span class="muted">attempt ${step.attempt}</span>`}</span>
      <span class="cut muted">${step.error ? step.error.message : step.output_preview || heartbeat(step, at)}</span></span>
    <span role="cell" class="by cut">${by}${step.agent_id && step.agent_id !== by && html` <span class="muted">${step.agent_id}</span>`}</span>
    <span role="cell" class="timeline">${tries.map((/** @type {any} */ each) => html`<${Bar} step=${each} range=${range} at=${0} kind="tried" />`)}
      <${Bar} step=${step} range=${range} at=${at} kind=${standing(step)} /></span>
    <span role="cell" class="right number tokens">${step.usage ? format.number(format.tokens(step.usage)) : ""}</span>
    <span role="cell" class="right"><${Took} from=${step.started_at} to=${step.completed_at} /></span>`;
}

/** What a step is shown as: one that asks a person waits. @param {any} step */
export function standing(step) {
  if (step.queued) return "queued";
  return step.gate_id && step.status === "running" ? "waiting" : step.status;
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
