/** What the page of a run shows: a pure reducer. Steps that stay the same stay the same objects: only changed rows are drawn. */

import { duration, seconds } from "./format.js";

export const FINISHED = ["done", "failed", "cancelled"];

const OPEN = ["running", "waiting", "pending", "queued"];

/** Newest steps whose order is the one in which they began: those that run side by side end in any order. */
const SORTED = 200;

/** @type {Do.isOpen} */
export function isOpen(step) {
  return OPEN.includes(step.status) && !step.completed_at;
}

/** @type {Do.nameOf} */
export function nameOf(step) {
  return `${step.key}\n${step.attempt || 1}`;
}

/** @type {Answered} */
export function answered(before, run) {
  const known = new Map([...(before?.finished || []), ...(before?.open || [])].filter(Boolean).map((step) => [nameOf(step), step]));
  const open = run.steps.filter(isOpen).map((/** @type {Step} */ step) => same(known, step));
  const newest = run.steps.filter((/** @type {Step} */ step) => !isOpen(step)).map((/** @type {Step} */ step) => same(known, step));
  const count = Math.max(run.steps_total - open.length, newest.length);
  const from = count - newest.length;
  const finished = continues(before, newest, from) ? before.finished.slice(0, from) : [];
  finished.length = from;
  return { run, finished: [...finished, ...newest], open };
}

/** @type {Continues} */
function continues(before, newest, from) {
  if (!before || before.finished.length > from + newest.length) return false;
  const both = newest.slice(0, Math.max(0, before.finished.length - from));
  return both.every((step, index) => {
    const other = before.finished[from + index];
    return !other || nameOf(other) === nameOf(step);
  });
}

/** @type {Same} */
function same(known, step) {
  const before = known.get(nameOf(step));
  return before && JSON.stringify(before) === JSON.stringify(step) ? before : step;
}

/** @type {WithOlder} */
export function withOlder(state, from, steps) {
  const finished = [...state.finished];
  steps.forEach((step, index) => {
    if (from + index < finished.length && !finished[from + index]) finished[from + index] = step;
  });
  return { ...state, finished };
}

/** An event that says nothing new changes nothing. @type {Reduced} */
export function happened(state, event) {
  const { type, data } = event;
  switch (type) {
    case "step.started":
      return started(state, event);
    case "step.finished":
    case "step.failed":
      return ended(state, event);
    case "step.interrupted":
    case "step.retrying":
      return { ...state, open: state.open.filter((step) => step.key !== event.key) };
    case "gate.opened":
      return changed(state, event.key, { gate_id: data.gate_id });
    case "run.started":
    case "run.unpaused":
    case "gate.decided":
      return withStatus(state, event, "running");
    case "run.paused":
      return withStatus(state, event, "paused", { reason: data.reason, error: data.error || null });
    case "run.waiting":
      return withStatus(state, event, "waiting");
    case "run.ended":
      return withStatus(state, event, data.status, { error: data.error || null, ending: data.ending || state.run.ending, completed_at: event.at });
    default:
      return state;
  }
}

/** @type {WithStatus} */
function withStatus(state, event, status, others = {}) {
  if (FINISHED.includes(state.run.status) && !FINISHED.includes(status) && event.at <= state.run.updated_at) return state;
  const open = FINISHED.includes(status) ? [] : state.open;
  return { ...state, open, run: { ...state.run, status, ...others, updated_at: event.at } };
}

/** @type {Reduced} */
function started(state, event) {
  const step = { key: event.key, status: "running", attempt: event.data.attempt || 1, started_at: event.at };
  if (event.data.step_id) Object.assign(step, { step_id: event.data.step_id });
  if (event.data.phase) Object.assign(step, { phase: event.data.phase });
  const name = nameOf(step);
  if (state.open.some((each) => nameOf(each) === name) || isFinished(state, step)) return state;
  return { ...state, open: [...state.open.filter((each) => each.key !== step.key), step] };
}

/** @type {Reduced} */
function ended(state, event) {
  const { data } = event;
  const step = {
    ...(state.open.find((each) => each.key === event.key) || { key: event.key, started_at: instant(event.at, -(data.duration_ms || 0)) }),
    status: event.type === "step.failed" ? "failed" : data.status || "done",
    attempt: data.attempt || 1,
    completed_at: event.at,
  };
  if (data.step_id) step.step_id = data.step_id;
  if (data.preview !== undefined) step.output_preview = data.preview;
  if (data.error) step.error = data.error;
  const open = state.open.filter((each) => each.key !== event.key);
  if (isFinished(state, step)) return open.length === state.open.length ? state : { ...state, open };
  const run = { ...state.run, steps_total: state.finished.length + 1 + open.length, updated_at: event.at };
  return { run, open, finished: [...state.finished, step] };
}

/** @type {Do.isFinished} */
function isFinished(state, step) {
  const name = nameOf(step);
  return state.finished.slice(-2 * SORTED).some((each) => each && nameOf(each) === name);
}

/** @type {Changed} */
function changed(state, key, fields) {
  return { ...state, open: state.open.map((step) => (step.key === key ? { ...step, ...fields } : step)) };
}

/** @param {string} at @param {number} milliseconds */
function instant(at, milliseconds) {
  return new Date(Date.parse(at) + milliseconds).toISOString();
}

/** @type {Do.rows} */
export function rows(state) {
  const older = state.finished.slice(0, Math.max(0, state.finished.length - SORTED));
  const newest = [...state.finished.slice(older.length).filter(Boolean), ...state.open];
  const begun = newest.map((step, index) => ({ step, index, at: Date.parse(step.started_at) }));
  begun.sort((one, other) => one.at - other.at || one.index - other.index);
  return [...older, ...begun.map((each) => each.step)];
}

/** @type {Sentence} */
export function sentence(run, steps = run.steps, now = 0) {
  const open = steps.filter(isOpen);
  const names = listed(open.map((step) => step.key));
  switch (run.status) {
    case "pending":
      if (!run.holder) return "It waits for a free worker.";
      return run.reason === "concurrency" ? `It waits for run ${run.holder}, which has the same concurrency key.` : `It waits for the workspace, which run ${run.holder} holds.`;
    case "running":
      if (run.reason === "cancelling") return "It is being cancelled.";
      if (run.reason === "pausing") return `It pauses after ${names || "the step in progress"}.`;
      if (run.stalled) return `${run.stalled.agent_id || run.stalled.key} has been silent for ${duration(seconds(run.stalled.since, null, now) || run.stalled.silent_seconds)}.`;
      return names ? `${open.every((step) => step.queued) ? "It is queued with" : "It works on"} ${names}.` : "It prepares its next step.";
    case "waiting":
      return `It waits for ${open.some((step) => step.gate_id) ? "an answer to " : ""}${names || "an answer"}, and uses no worker meanwhile.`;
    case "paused":
      return run.error ? `It is paused: ${run.error.message}` : "It is paused by a person.";
    case "done":
      return run.ending?.partial ? `It is done in part: ${partly(run.ending)}.` : "It is done.";
    case "cancelled":
      return `${run.ending?.superseded_by ? `Run ${run.ending.superseded_by.run_id} of the same concurrency key cancelled it.` : "It was cancelled."} It can be resumed.`;
    default:
      return run.error ? `It failed: ${run.error.message}` : "It failed.";
  }
}

/** @param {any} ending */
function partly({ cut_off_steps: cut = [], failed_steps: failed = [], reason }) {
  const parts = [failed.length && `${listed(failed)} failed`, cut.length && `the length limit cut off ${listed(cut)}`];
  return parts.filter(Boolean).join(", and ") || reason || "some steps failed";
}

/** @param {string[]} names */
function listed(names) {
  return names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

/** The seconds in which an ended run was in at least one step; null: not known, or about its duration. @param {any} run */
export function worked({ completed_at, started_at, status, steps, steps_total }) {
  if (!FINISHED.includes(status) || !completed_at || steps.length < steps_total) return null;
  const spans = steps.flatMap((/** @type {Step} */ step) => [...(step.attempts || []), step]).map((/** @type {any} */ each) => [Date.parse(each.started_at), Date.parse(each.completed_at)]);
  spans.sort((/** @type {number[]} */ one, /** @type {number[]} */ other) => one[0] - other[0]);
  let [sum, reached] = [0, 0];
  for (const [from, to] of spans) {
    if (!(to > reached)) continue;
    sum += to - Math.max(from, reached);
    reached = to;
  }
  const whole = Date.parse(completed_at) - Date.parse(started_at);
  return whole > 10_000 && sum < 0.8 * whole ? sum / 1000 : null;
}

/** Lengths of a timeline in seconds: it grows from one to the next, so that bars seldom move. */
const LENGTHS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400];

/** @type {Span} */
export function span(run, now) {
  const from = Date.parse(run.started_at || run.created_at);
  if (run.completed_at) return { from, to: Math.max(from + 1, Date.parse(run.completed_at)) };
  const seconds = Math.max(0, now - from) / 1000;
  const whole = LENGTHS.find((length) => length >= seconds) || 86400 * Math.ceil(seconds / 86400);
  return { from, to: from + 1000 * whole };
}

/** The ticks of a timeline: round numbers of milliseconds, three at most. @param {number} whole */
export function ticks(whole) {
  const fine = [1, 2, 5, 10, 20, 50, 100, 200, 500];
  const step = [...fine, ...LENGTHS.map((length) => 1000 * length)].find((each) => 3 * each >= whole) || whole / 3;
  return [0, step, 2 * step].filter((at) => at < 0.9 * whole);
}

/** @type {Placed} */
export function bar(step, range, now) {
  const whole = range.to - range.from;
  const begin = Math.min(range.to, Math.max(range.from, Date.parse(step.started_at)));
  const end = Math.min(range.to, step.completed_at ? Date.parse(step.completed_at) : Math.max(now, begin));
  const left = Math.min(99.4, (100 * (begin - range.from)) / whole);
  return { left, width: Math.min(100 - left, Math.max(0.6, (100 * (end - begin)) / whole)) };
}
