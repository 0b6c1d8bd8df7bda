import { useEffect, useState } from "preact/hooks";

import { html, navigate, present, signal, useValue } from "../lib/base.js";
import * as format from "../lib/format.js";
import { get, patch, pathOf, post, put, remove, useLive, withQuery } from "../lib/live.js";
import { FINISHED } from "../lib/run_state.js";
import { Ago, AskButton, Confirm, Fault, Section, Status, announce, each, options, typed, useAct, useFields } from "./basics.js";

const FORK = "A new run keeps the finished steps up to one that you choose; from there on steps run again, and calls of agents are paid for again. This run stays as it is.";
const AGAIN = "A new run begins at the first step, with the same arguments unless you change them. Every step runs again, and calls of agents are paid for again.";

/** @type {Record<string, Order>} */
export const ORDERS = {
  resume: ["Resume", ["paused", "failed", "cancelled"], resumed],
  pause: ["Pause", ["pending", "running", "waiting"], () => "The step in progress is finished first; no further step begins until you resume the run."],
  interrupt: ["Pause now", ["running"], () => "The step in progress is ended. It begins anew when you resume the run, and what its agent has done so far is paid."],
  fork: ["Fork", ["pending", "running", "waiting", "paused", ...FINISHED], () => FORK],
  cancel: ["Cancel", ["pending", "running", "waiting", "paused"], () => "Running commands and agents are stopped. Finished steps stay in the journal, and the run can be resumed."],
  delete: ["Delete", FINISHED, () => "Its folder with journal, logs and outputs is removed. Files in the workspace and receipts are kept."],
};

export const DANGERS = ["cancel", "delete"];

/** Recipes of these languages have a form in which a run is started. */
const LANGUAGES = ["control_room", "agent_recipes", "orchestrate", "amplifier"];

/** @param {any} run */
function resumed({ status, error, steps = [] }) {
  // A check of the evidence in a reply fails the step that replied.
  const key = error?.key?.replace(/\.evidence$/, "");
  const at = key ? `at ${key}` : "where it stopped";
  const again = status === "paused" ? "A step that was cut off, if any," : `The step ${key || "that was cut off"}`;
  if (metLimit(error)) return `This run continues ${at}. It is paused again at once while the limit is reached.`;
  const step = steps.find((/** @type {any} */ each) => each.key === key);
  const cost = step?.tool || step?.phase === "dod" ? "it calls no agent. First remove the cause, such as a missing file; to change an argument, start again." : "if it calls an agent, that call is paid for again.";
  return `This run continues ${at}. Finished steps are kept and not paid for again. ${again} runs again; ${cost}`;
}

/** @param {any} error */
export function metLimit(error) {
  return ["budget_exhausted", "time_limit"].includes(error?.code);
}

/** @param {any} run */
function isStopped(run) {
  return run.status === "paused" || (run.status !== "done" && FINISHED.includes(run.status));
}

/** @param {Props} props */
export function RunActions({ run, onDone, next = false }) {
  const [asked, setAsked] = useState("");
  const [blocked, setBlocked] = useState(false);
  const stopped = isStopped(run);
  const offered = Object.keys(ORDERS).filter((name) => ORDERS[name][1].includes(run.status) && !refuses(run, name) && !(name === "pause" && run.reason === "pausing") && (["resume", "fork", "delete"].includes(name) && stopped) === next);
  const order = asked && asked !== "fork" && ORDERS[asked];
  const act = async () => {
    await give(asked, run);
    announce(`${ORDERS[asked][0]}: accepted`);
    if (asked === "delete") navigate("/runs");
    onDone();
  };
  const button = (/** @type {string} */ name) => html`<button title=${next ? null : ORDERS[name][2](run)} class=${DANGERS.includes(name) ? "quiet danger" : name === "resume" && !metLimit(run.error) ? "primary" : ""} onClick=${() => setAsked(name)}>${ORDERS[name][0]}</button>`;
  const first = wasDenied(run) && next ? "button primary" : "button";
  const again = LANGUAGES.includes(run.dialect) && FINISHED.includes(run.status) && (stopped === next) &&
    html`<a class=${first} title=${next ? null : AGAIN} href=${withQuery("/start", { recipe: run.recipe_id, description: run.task.description })} onClick=${() => keepArgs(run)}>Start again</a>`;
  return html`${next ? html`<dl class="choices">${offered.map((name) => html`${name === "delete" && again && html`<dt>${again}</dt><dd>${AGAIN}</dd>`}<dt>${button(name)}</dt><dd>${ORDERS[name][2](run)}</dd>`)}</dl>` : html`${again}${offered.map(button)}`}
    ${order && html`<${Confirm} title=${asked === "interrupt" ? "Pause this run now?" : `${order[0]} this run?`} confirm=${asked === "cancel" ? "Cancel the run" : order[0]} danger=${DANGERS.includes(asked)} blocked=${asked === "resume" && blocked} onConfirm=${act} onClose=${() => setAsked("")}>
      <p>${order[2](run)}</p>${asked === "resume" && run.status !== "paused" && html`<${Preview} id=${run.run_id} body=${{ order: "resume" }} onFound=${setBlocked} />`}<//>`}
    ${asked === "fork" && html`<${Fork} run=${run} from=${wasDenied(run) ? run.error.key : ""} onClose=${() => setAsked("")} />`}`;
}

/** @param {any} run @param {string} name */
function refuses({ orders, status }, name) {
  return orders?.[name === "interrupt" ? "pause" : name === "resume" && status === "paused" ? "unpause" : name];
}

/** @param {any} run */
export function wasDenied({ error }) {
  return error?.code === "approval_denied";
}

/** @param {any} run */
function keepArgs(run) {
  sessionStorage.setItem(`control-room.args.${run.recipe_id}`, JSON.stringify(run.task.initial_args));
}

/** @param {string} name @param {any} run */
async function give(name, { run_id, status }) {
  const path = pathOf("runs", run_id);
  if (name === "delete") await remove(path);
  else if (name === "interrupt") await post(`${path}/pause`, { interrupt: true });
  else await post(`${path}/${name === "resume" && status === "paused" ? "unpause" : name}`);
}

/** Whether a run's files are what was written: checked on request, as it reads the whole journal. @param {Props} props */
export function Verified({ run: { run_id, status, updated_at } }) {
  const [found, setFound] = useState(null);
  const [check, error] = useAct(async () => {
    setFound({ ...(await get(`${pathOf("runs", run_id)}/verification`)), at: new Date(present()).toISOString(), of: updated_at });
    announce("The journal is checked");
  });
  const broken = found?.files.filter((/** @type {any} */ file) => file.reason);
  // Lines that came later are not checked.
  const isNew = found?.of === updated_at && FINISHED.includes(status);
  return html`${found && html`<${Status} of=${found.ok ? "valid" : "invalid"} note=${!isNew && html`checked <${Ago} at=${found.at} />`} /> `}${!isNew && html`<button class="small" title="Check that no file of this run was changed or damaged" onClick=${check}>Verify</button>`}
    ${each(broken, (file) => html`<div class="wrong-text">${file.file}${file.line ? `:${file.line}` : ""} ${file.reason}</div>`)}
    ${found?.advice && !found.ok && html`<div>${found.advice}</div>`}<${Fault} error=${error} />`;
}

const QUIET = 400;

/** What a request would do, looked at again after each change of it. @param {any} body @param {string} [path] */
export function usePreflight(body, path = "/api/preflight") {
  const [found, setFound] = useState({ report: /** @type {any} */ (null), error: /** @type {Error | null} */ (null) });
  const text = JSON.stringify(body);
  useEffect(() => {
    let over = false;
    const show = (/** @type {any} */ next) => over || setFound(next);
    const look = () => post(path, body).then((report) => show({ report, error: null }), (error) => show({ report: null, error }));
    const timer = setTimeout(look, found.report ? QUIET : 0);
    return () => ((over = true), clearTimeout(timer));
  }, [text]);
  return found;
}

const MOST = 12;

/** @param {Props} props */
function Preview({ id, body, onFound }) {
  const { report, error } = usePreflight(body, `${pathOf("runs", id)}/preview`);
  const performed = (report?.steps || []).filter((/** @type {any} */ each) => each.action === "again" || each.action === "next");
  const idle = report && !report.again && !performed.length;
  useEffect(() => onFound(Boolean(report && (idle || report.problems.length))), [report]);
  if (!report) return html`<${Fault} error=${error} /><p class="muted">${error ? "" : "Looking at what it will do…"}</p>`;
  return html`<div class="preview" role="status">
    ${each(report.problems, (each) => html`<p class="wrong-text">${each.message}</p>`)}
    ${idle && !report.problems.length && html`<p class="wrong-text">Nothing would run again: choose an earlier step.</p>`}
    ${!report.problems.length && html`<p>${format.plural(report.taken_over, "row")} of the list of steps ${report.taken_over === 1 ? "is" : "are"} kept, ${report.again} ${report.again === 1 ? "runs" : "run"} again${paid(report.paid_before)}.${" "}
      ${report.calls_at_most === null ? unlimited(report.note) : report.calls_at_most === 0 ? `No agent is called${report.note ? `: ${report.note}` : ""}.` : `Agents are called at most ${format.plural(report.calls_at_most, "time")}${report.cost_usd_at_most === null ? "" : `, for ${format.money(report.cost_usd_at_most)}`}.`}</p>`}
    ${performed.length > 0 && html`<p>Performed next: ${performed.slice(0, MOST).map((/** @type {any} */ each) => html`<code title=${each.why}>${each.key}</code>${" "}`)}${performed.length > MOST && `and ${performed.length - MOST} more`}</p>`}
    <p class="muted">${report.workspace_note}</p></div>`;
}

/** @param {string} why */
export function unlimited(why) {
  return `How often it calls agents is not known${why ? `: ${why}` : ""}.`;
}

/** @param {any} usage */
function paid(usage) {
  return usage?.cost_usd ? `, which cost ${format.money(usage.cost_usd)} before` : "";
}

/** @param {Props} props */
export function Fork({ run, from = "", onClose }) {
  const before = run.task.initial_args;
  const [values, change] = useFields({ from, prompt: "", agent: "", args: JSON.stringify(before, null, 1) });
  const [blocked, setBlocked] = useState(false);
  const [args, fault] = others(values.args, before);
  const body = Object.fromEntries(Object.entries({ ...values, args }).filter(([, value]) => value));
  const fork = async () => {
    if (fault) throw new SyntaxError(fault);
    const made = await post(`${pathOf("runs", run.run_id)}/fork`, body);
    navigate(`/runs/${made.run_id}`);
  };
  return html`<${Confirm} title="Fork this run?" confirm="Fork" blocked=${blocked} onConfirm=${fork} onClose=${onClose}>
    <p>${FORK}</p>
    <label>From step (empty: the first that your changes concern) <input list="keys" value=${values.from} onInput=${change("from")} /></label>
    <datalist id="keys">${each(run.steps, (step) => html`<option value=${step.key} />`)}</datalist>
    ${values.from && html`<label>Another prompt for this step, replacing the recipe's (optional) <textarea rows="3" value=${values.prompt} onInput=${change("prompt")}></textarea></label>
      <label>Another agent for this step (optional) <input value=${values.agent} onInput=${change("agent")} /></label>`}
    <label>Arguments, as JSON <textarea class="mono" rows="4" spellcheck=${false} value=${values.args} onInput=${change("args")}></textarea></label>
    ${fault ? html`<p class="wrong-text">${fault}</p>` : html`<${Preview} id=${run.run_id} body=${{ order: "fork", ...body }} onFound=${setBlocked} />`}<//>`;
}

/** The arguments that a text changes; null: none. @type {(text: string, before: any) => [any, string]} */
function others(text, before) {
  try {
    const changed = Object.entries(JSON.parse(text || "{}")).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]));
    return [changed.length ? Object.fromEntries(changed) : null, ""];
  } catch {
    return [null, "The arguments are not valid JSON."];
  }
}

/** @param {Words} labels */
function written(labels) {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join("\n");
}

/** @type {Changes} */
function changes(text, before = {}) {
  /** @type {Record<string, string | null>} */
  const found = {};
  const named = new Set();
  for (const line of text.split("\n").map((each) => each.trim())) {
    if (!line) continue;
    const [, key, value] = /^([^=]+?)(?:=(.*)|-)$/.exec(line) || [];
    if (!key) throw new SyntaxError(`“${line}” is not a label: write key=value, or key- to remove one.`);
    named.add(key);
    if (value === undefined || value !== before[key]) found[key] = value ?? null;
  }
  for (const key of Object.keys(before)) if (!named.has(key)) found[key] = null;
  return found;
}

/** @param {Props} props */
export function LabelDialog({ title, before, onLabel, onClose, children }) {
  const [text, setText] = useState(written(before || {}));
  const save = async () => {
    const labels = changes(text, before);
    if (Object.keys(labels).length) await onLabel(labels);
  };
  return html`<${Confirm} title=${title} confirm="Label" onConfirm=${save} onClose=${onClose}>${children}
    <label><span>One <code>key=value</code> per line${before ? "" : html`; <code>key-</code> removes one`}</span>
      <textarea rows="5" value=${text} onInput=${typed(setText)}></textarea></label><//>`;
}

/** @param {Props} props */
export function Marks({ run, onDone }) {
  const [asked, setAsked] = useState(false);
  const mark = async (/** @type {any} */ body) => {
    await patch(pathOf("runs", run.run_id), body);
    announce("Saved");
    onDone();
  };
  const [pin, error] = useAct(() => mark({ pinned: !run.pinned }));
  return html`<${Fault} error=${error} /><button class="small" onClick=${() => setAsked(true)}>${Object.keys(run.labels).length ? "Change" : "Add"} labels</button>
    <button class="small" aria-pressed=${Boolean(run.pinned)} title="A pinned run is never pruned" onClick=${pin}>${run.pinned ? "Unpin" : "Pin"}</button>
    ${asked && html`<${LabelDialog} title="Labels of this run" before=${run.labels} onLabel=${(/** @type {any} */ labels) => mark({ labels })} onClose=${() => setAsked(false)} />`}`;
}

/** @type {Limited[]} */
const AMOUNTS = [
  ["cost_usd", "US dollars", format.money],
  ["tokens", "tokens", format.number],
  ["calls", "calls of agents", format.number],
];

/** @type {Limited[]} */
const TIMES = [
  ["wall_seconds", "seconds since the start", format.duration],
  ["active_seconds", "seconds at work", format.duration],
];

export const LIMITS = [...AMOUNTS, ...TIMES];

const LOOK = 5000;

/** @param {Props} props */
function Standing({ of: state }) {
  const { limits, left, used } = state;
  const isSet = (/** @type {Limited} */ [name]) => (limits[name] ?? null) !== null;
  return html`${AMOUNTS.filter(isSet).map(([name, unit, written]) => {
      const taken = limits[name] - (left[name] ?? limits[name]);
      const costs = name === "cost_usd";
      return html`<div class="budget"><progress max=${limits[name] || 1} value=${Math.max(0, taken)} aria-label=${unit}></progress>
        <span>${costs && used.calls_without_price > 0 ? "≥ " : ""}${written(taken)} of ${written(limits[name])}${costs ? "" : ` ${unit}`}</span>
        ${state.reserved[name] > 0 && html`<span class="muted">${written(state.reserved[name])} reserved</span>`}
        ${costs && format.unpriced(used).map((calls) => html`<span class="muted">${calls}</span>`)}
        ${left[name] < 0 && html`<span class="wrong-text">exceeded by ${written(-left[name])}</span>`}</div>`;
    })}
    ${TIMES.filter(isSet).map(([name, unit, written]) => html`<div class="budget"><span>at most ${written(limits[name])} ${unit.replace("seconds ", "")}</span></div>`)}`;
}

/** @param {Props} props */
export function RunLimits({ run, onDone }) {
  return html`<div>${run.budget && html`<${Standing} of=${run.budget} />`}
    ${!FINISHED.includes(run.status) && html`<${ChangeLimits} run=${run} onDone=${onDone} class="small">${run.budget ? "Change" : "Set"} limits<//>`}</div>`;
}

/** @param {any} props */
export function ChangeLimits({ run, onDone, class: kind, children }) {
  const [asked, setAsked] = useState(false);
  const save = async (/** @type {any} */ limits) => {
    await patch(`${pathOf("runs", run.run_id)}/limits`, limits);
    announce("The limits are changed");
    onDone();
  };
  return html`<button class=${kind} onClick=${() => setAsked(true)}>${children}</button>
    ${asked && html`<${LimitDialog} title="Limits of this run" limits=${run.budget?.limits || {}} kinds=${LIMITS} onSave=${save} onClose=${() => setAsked(false)} />`}`;
}

/** @param {Props} props */
function LimitDialog({ title, limits, kinds, onSave, onClose, children }) {
  const [values, setValues] = useState(/** @type {Words} */ (Object.fromEntries(kinds.map(([name]) => [name, String(limits[name] ?? "")]))));
  const save = () => onSave(amounts(values));
  return html`<${Confirm} title=${title} confirm="Save" onConfirm=${save} onClose=${onClose}>
    ${children}
    <${LimitFields} values=${values} kinds=${kinds} onChange=${setValues} /><//>`;
}

/** @param {Props} props */
export function LimitFields({ values, kinds = LIMITS, onChange }) {
  return html`${kinds.map(([name, unit]) => html`<label>At most ${unit} <input inputmode="decimal" placeholder="no limit" value=${values[name] || ""}
    onInput=${typed((value) => onChange({ ...values, [name]: value }))} /></label>`)}`;
}

/** @param {Words} values */
export function amounts(values) {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value.trim() ? (Number.isNaN(Number(value)) ? value : Number(value)) : null]));
}

const OWN = ["*", "conference", "decompose", "prompt", "review_task"];

const names = signal(/** @type {string[]} */ ([]));

export function useRecipes() {
  const { data } = useLive("/api/recipes", { pause: LOOK });
  useEffect(() => {
    if (data) names.value = [...OWN, ...data.map((/** @type {any} */ recipe) => recipe.recipe_id)];
  }, [data]);
}

/** A recipe's name, marked if no recipe has it: a budget or policy for it counts for no run. @param {Props} props */
export function Recipe({ name }) {
  const known = useValue(names);
  return html`${name}${known[0] && !known.includes(name) && html` <span class="warn-text">(there is no such recipe)</span>`}`;
}

export function Budgets() {
  useRecipes();
  const budgets = useLive("/api/budgets", { pause: LOOK });
  const [asked, setAsked] = useState(null);
  return html`<${Section} title="Budgets" actions=${html`<button onClick=${() => setAsked({ limits: {} })}>Add a budget</button>`}>
    <${Fault} error=${budgets.error} />
    ${budgets.data?.length === 0 && html`<p class="muted">No budgets yet. A run that reaches a limit is paused and loses nothing.</p>`}
    ${budgets.data?.length > 0 && html`<ul class="lines">${each(budgets.data, (budget) => html`<li key=${budget.name}><strong>${budget.name}</strong> <span class="muted">${covers(budget)}</span>
      <span class="wide"><${Standing} of=${budget} /></span>
      <span><button class="small" onClick=${() => setAsked(budget)}>Change</button><${AskButton} word="Remove" title=${`Remove budget ${budget.name}?`} kind="small danger" danger onConfirm=${() => remove(pathOf("budgets", budget.name)).then(budgets.refresh)}>
        <p>It limits nothing more: runs that it has paused continue at once, and spend.</p><//></span></li>`)}</ul>`}
    ${asked && html`<${BudgetDialog} budget=${asked} onDone=${budgets.refresh} onClose=${() => setAsked(null)} />`}<//>`;
}

/** @param {Props} props */
function BudgetDialog({ budget, onDone, onClose }) {
  const [values, change] = useFields({ name: budget.name || "", recipe_id: budget.recipe_id || "", label: budget.label ? format.label(budget.label) : "", per: budget.per || "" });
  const save = async (/** @type {any} */ given) => {
    const limits = Object.fromEntries(Object.entries(given).filter(([, amount]) => amount !== null));
    const { name, recipe_id, label, per } = values;
    const time_zone = !per ? "UTC" : budget.per ? budget.time_zone : Intl.DateTimeFormat().resolvedOptions().timeZone;
    await put(pathOf("budgets", name), { recipe_id: recipe_id || null, label: label ? format.labelled(label) : null, session_id: budget.session_id || null, per: per || null, time_zone, limits });
    announce("The budget counts");
    onDone();
  };
  return html`<${LimitDialog} title=${budget.name ? `Budget ${budget.name}` : "A new budget"} limits=${budget.limits} kinds=${AMOUNTS} onSave=${save} onClose=${onClose}>
    ${!budget.name && html`<label>Name <input required value=${values.name} onInput=${change("name")} /></label>`}
    <label>Only this recipe (all, if empty) <input value=${values.recipe_id} onInput=${change("recipe_id")} /></label>
    <label>Only this label (all, if empty) <input placeholder="book=one" value=${values.label} onInput=${change("label")} /></label>
    <label>Period <select onChange=${change("per")}>${options([["", "all time"], ["day", "each day"]], values.per)}</select></label><//>`;
}

/** @param {any} budget */
function covers({ recipe_id, label, session_id, per }) {
  const parts = [recipe_id && html`<${Recipe} name=${recipe_id} />`, label && format.label(label), session_id].filter(Boolean);
  return [parts.shift() || "all runs", ...parts.map((part) => [", ", part]), per && ", each day"];
}
