// @ts-check
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { html } from "../lib/base.js";
import * as format from "../lib/format.js";
import { Ago, Progress, Status, Took } from "./basics.js";

/**
 * A table of runs; only those near the view are in the page.
 * @param {{runs: any[], chosen?: Set<string>, onChoose?: (id: string, on: boolean) => void, onNear?: (first: number, last: number) => void, to?: string}} props
 *   `to`: beginning of the address of a run's page.
 */
export function RunTable({ runs, chosen, onChoose, onNear, to = "/runs/" }) {
  return html`<div class=${`table runs ${onChoose ? "selectable" : ""}`} role="table" aria-label="Runs" aria-rowcount=${runs.length + 1}>
    <div class="row head" role="row" aria-rowindex="1">
      ${onChoose && html`<span role="columnheader"><span class="hidden">Select</span></span>`}
      <span role="columnheader">Status</span><span role="columnheader">Run</span><span role="columnheader">Recipe</span><span role="columnheader">Steps</span>
      <span role="columnheader" class="right">Tokens</span><span role="columnheader" class="right">Cost</span><span role="columnheader" class="right">Duration</span><span role="columnheader" class="right">Changed</span>
    </div>
    <${Virtual} items=${runs} name=${(/** @type {any} */ run) => run.run_id} depends=${[chosen]} onNear=${onNear}
      row=${(/** @type {any} */ run) => html`<${RunRow} run=${run} to=${to} chosen=${chosen} onChoose=${onChoose} />`} />
  </div>`;
}

/** @param {{run: any, to: string, chosen?: Set<string>, onChoose?: (id: string, on: boolean) => void}} props */
function RunRow({ run, to, chosen, onChoose }) {
  const title = run.description || run.recipe_id;
  return html`${onChoose && html`<span role="cell" class="check"><label><input type="checkbox" aria-label=${`Select ${title}`} checked=${chosen?.has(run.run_id)}
      onChange=${(/** @type {any} */ event) => onChoose(run.run_id, event.target.checked)} /></label></span>`}
    <span role="cell"><${Status} of=${run.status} note=${run.unreadable ? "unreadable" : run.pinned && "pinned"} /></span>
    <span role="cell" class="name"><a class="row-link cut" href=${to + run.run_id} title=${title}>${title}</a>
      <span class="cut muted">${run.error_code ? html`<span class="wrong-text">${run.error_code}</span>` : run.live_step ? liveStep(run.live_step) : html`<span class="mono">${run.run_id}</span>`}</span></span>
    <span role="cell" class="recipe cut"><a href=${`/runs?recipe_id=${encodeURIComponent(run.recipe_id)}`}>${run.recipe_id}</a></span>
    <span role="cell" class="progress-cell"><${Progress} done=${run.current_step_index} total=${run.total_steps} /></span>
    <span role="cell" class="right number tokens">${format.number(format.tokens(run.usage))}</span>
    <span role="cell" class="right number cost">${format.spent(run.usage)}</span>
    <span role="cell" class="right took"><${Took} from=${run.started_at} to=${run.completed_at} /></span>
    <span role="cell" class="right when"><${Ago} at=${run.updated_at} /></span>`;
}

/** @param {any} step */
function liveStep(step) {
  return html`${step.key}${step.output_at && html` · last output <${Ago} at=${step.output_at} />`}`;
}

/** Runs as short lines, for the home page. @param {{runs: any[]}} props */
export function RunLines({ runs }) {
  return html`<ul class="lines">${runs.map(
    (run) => html`<li key=${run.run_id} data-row>
      <${Status} of=${run.status} note=${run.error_code} />
      <a class="wide row-link" dir="auto" href=${`/runs/${run.run_id}`}>${run.description || run.recipe_id}</a>
      <span class="muted">${run.live_step ? liveStep(run.live_step) : run.description !== run.recipe_id && run.recipe_id}</span>
      <${Progress} done=${run.current_step_index} total=${run.total_steps} />
      ${typeof (run.usage?.cost_usd ?? run.usage?.cost_estimated_usd) === "number" && html`<span class="number muted" title="Cost">${format.spent(run.usage)}</span>`}
      ${run.status === "running" ? html`<span class="when muted" title="Duration"><${Took} from=${run.started_at} /></span>` : html`<span class="when"><${Ago} at=${run.updated_at} /></span>`}
    </li>`,
  )}</ul>`;
}

/** Whether a plan waits for a person. @param {any} plan */
export function asksForPerson(plan) {
  return plan.status === "draft" || Boolean(plan.tasks.needs_scoping);
}

/** Plans that wait for a person. @param {{plans: any[]}} props */
export function PlanLines({ plans }) {
  if (!plans.length) return null;
  return html`<ul class="lines">${plans.map((plan) => html`<li key=${plan.session_id} data-row>
    <${Status} of=${plan.tasks.needs_scoping ? "needs_scoping" : plan.status} />
    <a class="wide row-link" href=${`/plans/${plan.session_id}`}>${plan.intent || plan.session_id}</a>
    <span class="muted">${plan.tasks.needs_scoping ? format.plural(plan.tasks.needs_scoping, "question") : "to approve"}</span>
  </li>`)}</ul>`;
}

/** Rows beyond each edge of what is visible, and the step in which the first one moves. */
const SPARE = 12;
const STEP = 6;

/** Pixels of a row before one has been measured. */
const GUESS = 56;

/**
 * Rows of equal height, of which only those near the view are in the page. A row whose item is the same object is not
 * rendered again; a missing item is a placeholder, and is asked for when it comes near.
 * @param {{items: any[], row: (item: any, index: number) => any, name: (item: any) => string, depends?: any[], onNear?: (first: number, last: number) => void}} props
 */
export function Virtual({ items, row, name, depends = [], onNear }) {
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const height = useRef(GUESS);
  const kept = useRef({ depends, rows: new WeakMap() });
  const [[first, last], setRange] = useState([0, 40]);
  if (depends.some((each, index) => each !== kept.current.depends[index])) kept.current = { depends, rows: new WeakMap() };

  const look = () => {
    if (!frame.current) return;
    const [from, to] = near(frame.current, height.current, items.length);
    setRange((before) => (before[0] === from && before[1] === to ? before : [from, to]));
  };
  useLayoutEffect(() => {
    const shown = frame.current?.querySelector(".row");
    height.current = shown?.getBoundingClientRect().height || height.current;
    look();
  });
  useEffect(() => {
    const listen = { capture: true, passive: true };
    document.addEventListener("scroll", look, listen);
    window.addEventListener("resize", look);
    return () => {
      document.removeEventListener("scroll", look, listen);
      window.removeEventListener("resize", look);
    };
  }, [items.length]);
  useEffect(() => onNear?.(first, last), [first, last, items.length]);

  const { rows } = kept.current;
  const shown = [];
  for (let index = first; index < Math.min(last, items.length); index += 1) shown.push(one(items[index], index, rows, row, name));
  return html`<div ref=${frame} class="virtual" role="rowgroup" style=${{ height: `${items.length * height.current}px` }}>
    <div style=${{ transform: `translateY(${first * height.current}px)` }}>${shown}</div></div>`;
}

/**
 * @param {any} item @param {number} index @param {WeakMap<object, {index: number, node: any}>} rows
 * @param {(item: any, index: number) => any} row @param {(item: any) => string} name
 */
function one(item, index, rows, row, name) {
  if (item === undefined) return html`<div key=${`missing-${index}`} class="row missing" role="row"><span role="cell" class="muted">…</span></div>`;
  const before = rows.get(item);
  if (before && before.index === index) return before.node;
  const node = html`<div key=${name(item)} class="row" role="row" data-row aria-rowindex=${index + 2}>${row(item, index)}</div>`;
  rows.set(item, { index, node });
  return node;
}

/** The rows near the view, in whole steps. @param {HTMLElement} frame @param {number} height @param {number} count */
function near(frame, height, count) {
  const scroller = frame.closest(".scrolls");
  const view = scroller ? scroller.getBoundingClientRect() : { top: 0, bottom: window.innerHeight };
  const from = frame.getBoundingClientRect().top;
  const top = Math.max(view.top, 0) - from;
  const bottom = Math.min(view.bottom, window.innerHeight) - from;
  const first = Math.max(0, Math.floor((top / height - SPARE) / STEP) * STEP);
  const last = Math.min(count, Math.ceil((bottom / height + SPARE) / STEP) * STEP);
  return [Math.min(first, Math.max(0, count - 1)), Math.max(last, Math.min(count, first + STEP))];
}
