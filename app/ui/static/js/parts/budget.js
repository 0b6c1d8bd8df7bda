// @ts-check
import { useState } from "preact/hooks";

import { html } from "../lib/base.js";
import * as format from "../lib/format.js";
import { patch, put, remove, useLive } from "../lib/live.js";
import { FINISHED } from "../lib/run_state.js";
import { Confirm, Fault, Section, announce, each, options, typed, useAct, useFields } from "./basics.js";

/**
 * What can be limited: its name, its unit in a form, and how an amount is written.
 * @type {[string, string, (amount: number) => string][]}
 */
const AMOUNTS = [
  ["cost_usd", "US dollars", format.money],
  ["tokens", "tokens", format.number],
  ["calls", "calls of agents", format.number],
];

/** @type {typeof AMOUNTS} */
const TIMES = [
  ["wall_seconds", "seconds since the start", format.duration],
  ["active_seconds", "seconds at work", format.duration],
];

/** Milliseconds between two looks at budgets. */
const LOOK = 5000;

/**
 * Each limit with what is used and reserved of it.
 * @param {{state: any}} props `state`: limits, used, reserved, left.
 */
function Standing({ state }) {
  const { limits, left } = state;
  return html`${AMOUNTS.filter(([name]) => limits[name] !== undefined && limits[name] !== null).map(([name, unit, written]) => {
      const taken = limits[name] - (left[name] ?? limits[name]);
      return html`<div class="budget"><progress max=${limits[name] || 1} value=${Math.max(0, taken)} aria-label=${unit}></progress>
        <span>${name === "cost_usd" && state.used.calls_without_price > 0 ? "≥ " : ""}${written(taken)} of ${written(limits[name])}${name === "cost_usd" ? "" : ` ${unit}`}</span>
        ${state.reserved[name] > 0 && html`<span class="muted">${written(state.reserved[name])} reserved</span>`}
        ${name === "cost_usd" && state.used.calls_without_price > 0 && html`<span class="muted">${format.plural(state.used.calls_without_price, "call")} without a price</span>`}
        ${name === "cost_usd" && state.used.calls_silent > 0 && html`<span class="muted">${format.plural(state.used.calls_silent, "call")} reported nothing</span>`}
        ${left[name] < 0 && html`<span class="wrong-text">exceeded by ${written(-left[name])}</span>`}</div>`;
    })}
    ${TIMES.filter(([name]) => limits[name] !== undefined && limits[name] !== null).map(([name, unit, written]) => html`<div class="budget"><span>at most ${written(limits[name])} ${unit.replace("seconds ", "")}</span></div>`)}`;
}

/** @param {{run: any, onDone: () => void}} props */
export function RunLimits({ run, onDone }) {
  const [asked, setAsked] = useState(false);
  const save = async (/** @type {any} */ limits) => {
    await patch(`/api/runs/${encodeURIComponent(run.run_id)}/limits`, limits);
    announce("The limits are changed");
    onDone();
  };
  const ended = FINISHED.includes(run.status);
  return html`<div>${run.budget && html`<${Standing} state=${run.budget} />`}
    ${!ended && html`<button type="button" class="small" onClick=${() => setAsked(true)}>${run.budget ? "Change" : "Set"} limits</button>`}
    ${asked && html`<${LimitDialog} title="Limits of this run" limits=${run.budget?.limits || {}} kinds=${[...AMOUNTS, ...TIMES]} onSave=${save} onClose=${() => setAsked(false)} />`}</div>`;
}

/** @param {{title: string, limits: any, kinds: typeof AMOUNTS, onSave: (limits: any) => any, onClose: () => void, children?: any}} props */
function LimitDialog({ title, limits, kinds, onSave, onClose, children }) {
  const [values, setValues] = useState(/** @type {Record<string, string>} */ (Object.fromEntries(kinds.map(([name]) => [name, String(limits[name] ?? "")]))));
  const save = () => onSave(amounts(values));
  return html`<${Confirm} title=${title} confirm="Save" onConfirm=${save} onClose=${onClose}>
    ${children}
    <${LimitFields} values=${values} kinds=${kinds} onChange=${setValues} /></${Confirm}>`;
}

/**
 * Fields for limits; an empty one limits nothing.
 * @param {{values: Record<string, string>, kinds?: typeof AMOUNTS, onChange: (values: Record<string, string>) => void}} props
 */
export function LimitFields({ values, kinds = [...AMOUNTS, ...TIMES], onChange }) {
  return html`${kinds.map(([name, unit]) => html`<label>At most ${unit} <input inputmode="decimal" placeholder="no limit" value=${values[name] || ""}
    onInput=${typed((value) => onChange({ ...values, [name]: value }))} /></label>`)}`;
}

/** Return the amounts of filled fields; what is no number is left for the service to refuse. @param {Record<string, string>} values */
export function amounts(values) {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value.trim() ? (Number.isNaN(Number(value)) ? value : Number(value)) : null]));
}

/** Budgets that several runs share. */
export function Budgets() {
  const budgets = useLive("/api/budgets", { pause: LOOK });
  const [asked, setAsked] = useState(/** @type {any} */ (null));
  const [gone, error] = useAct((name) => remove(`/api/budgets/${encodeURIComponent(name)}`).then(budgets.refresh));
  return html`<${Section} title="Budgets" actions=${html`<button type="button" onClick=${() => setAsked({ limits: {} })}>Add a budget</button>`}>
    <${Fault} error=${budgets.error || error} />
    ${budgets.data?.length === 0 && html`<p class="muted">No budgets yet. A run that reaches a limit is paused and loses nothing.</p>`}
    ${budgets.data?.length > 0 && html`<ul class="lines">${each(budgets.data, (budget) => html`<li key=${budget.name}><strong>${budget.name}</strong> <span class="muted">${covers(budget)}</span>
      <span class="wide"><${Standing} state=${budget} /></span>
      <button type="button" class="small" onClick=${() => setAsked(budget)}>Change</button><button type="button" class="small danger" onClick=${() => gone(budget.name)}>Remove</button></li>`)}</ul>`}
    ${asked && html`<${BudgetDialog} budget=${asked} onDone=${budgets.refresh} onClose=${() => setAsked(null)} />`}</${Section}>`;
}

/** @param {{budget: any, onDone: () => void, onClose: () => void}} props */
function BudgetDialog({ budget, onDone, onClose }) {
  const [values, change] = useFields({ name: budget.name || "", recipe_id: budget.recipe_id || "", label: budget.label ? format.label(budget.label) : "", per: budget.per || "" });
  const save = async (/** @type {any} */ given) => {
    const limits = Object.fromEntries(Object.entries(given).filter(([, amount]) => amount !== null));
    const { name, recipe_id, label, per } = values;
    const time_zone = budget.time_zone || Intl.DateTimeFormat().resolvedOptions().timeZone;
    await put(`/api/budgets/${encodeURIComponent(name)}`, { recipe_id: recipe_id || null, label: label ? format.labelled(label) : null, session_id: budget.session_id || null, per: per || null, time_zone, limits });
    announce("The budget counts");
    onDone();
  };
  return html`<${LimitDialog} title=${budget.name ? `Budget ${budget.name}` : "A new budget"} limits=${budget.limits} kinds=${AMOUNTS} onSave=${save} onClose=${onClose}>
    ${!budget.name && html`<label>Name <input required value=${values.name} onInput=${change("name")} /></label>`}
    <label>Only this recipe (all, if empty) <input value=${values.recipe_id} onInput=${change("recipe_id")} /></label>
    <label>Only this label (all, if empty) <input placeholder="book=one" value=${values.label} onInput=${change("label")} /></label>
    <label>Period <select onChange=${change("per")}>${options([["", "all time"], ["day", "each day"]], values.per)}</select></label></${LimitDialog}>`;
}

/** @param {any} budget */
function covers({ recipe_id, label, session_id, per }) {
  const parts = [recipe_id, label && format.label(label), session_id].filter(Boolean);
  return `${parts.join(", ") || "all runs"}${per ? ", each day" : ""}`;
}
