// @ts-check
import { useState } from "preact/hooks";

import { get, withQuery } from "../lib/api.js";
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { address, setQuery } from "../lib/router.js";
import { carryOut } from "../parts/actions.js";
import { Confirm, Empty, Fault, PageTitle } from "../parts/basics.js";
import { RunTable } from "../parts/run_rows.js";

const STATES = ["pending", "running", "waiting", "paused", "done", "failed", "cancelled"];
const PAGE = 50;

/** Runs: filters in the address, live rows, orders for many. */
export function Runs() {
  const query = address.value.query;
  const filters = { status: query.get("status"), recipe_id: query.get("recipe_id"), label: query.get("label"), session_id: query.get("session_id") };
  const first = useLive(withQuery("/api/runs", { ...filters, limit: PAGE }));
  const [more, setMore] = useState(/** @type {any[]} */ ([]));
  const [chosen, setChosen] = useState(new Set());
  const runs = unique([...(first.data || []), ...more]).filter((run) => matches(run, query.get("q")));
  const choose = (/** @type {string} */ id, /** @type {boolean} */ on) => {
    const next = new Set(chosen);
    if (on) next.add(id);
    else next.delete(id);
    setChosen(next);
  };
  const loadMore = async () => {
    const last = runs.at(-1);
    if (last) setMore([...more, ...(await get(withQuery("/api/runs", { ...filters, limit: PAGE, cursor: last.run_id })))]);
  };
  return html`
    <${PageTitle} title="Runs" actions=${html`<a class="button primary" href="/start">Start a run</a>`} />
    <${Filters} query=${query} />
    <${Fault} error=${first.error} retry=${first.refresh} />
    ${chosen.size > 0 && html`<${BulkBar} chosen=${chosen} onDone=${() => (setChosen(new Set()), first.refresh())} />`}
    ${runs.length > 0 && html`<${RunTable} runs=${runs} chosen=${chosen} onChoose=${choose} />`}
    ${first.data?.length === PAGE && html`<p><button type="button" onClick=${loadMore}>Show older runs</button></p>`}
    ${first.data && runs.length === 0 && html`<${Empty} title="No run matches.">
      <p><a href="/runs">Show all runs</a>, or <a href="/start">start one</a>.</p></${Empty}>`}`;
}

/** @param {{query: URLSearchParams}} props */
function Filters({ query }) {
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => setQuery({ [name]: event.target.value });
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label><span class="hidden">Search</span><input id="search" type="search" placeholder="Search text or id" value=${query.get("q") || ""} onInput=${change("q")} /></label>
    <label><span class="hidden">Status</span><select onChange=${change("status")}>
      <option value="">any status</option>
      ${STATES.map((state) => html`<option value=${state} selected=${query.get("status") === state}>${state}</option>`)}
    </select></label>
    <label><span class="hidden">Recipe</span><input placeholder="Recipe" value=${query.get("recipe_id") || ""} onChange=${change("recipe_id")} /></label>
    <label><span class="hidden">Label</span><input placeholder="Label key:value" value=${query.get("label") || ""} onChange=${change("label")} /></label>
  </form>`;
}

/** Orders for all chosen runs. @param {{chosen: Set<string>, onDone: () => void}} props */
function BulkBar({ chosen, onDone }) {
  const [order, setOrder] = useState("");
  const act = async () => {
    for (const id of chosen) await carryOut(order, id);
    onDone();
  };
  return html`<div class="bulk" role="region" aria-label="Selected runs">
    <span>${format.plural(chosen.size, "run")} selected</span>
    ${["pause", "unpause", "resume", "cancel", "delete"].map((name) => html`<button type="button" onClick=${() => setOrder(name)}>${name}</button>`)}
    ${order && html`<${Confirm} title=${`${order} ${format.plural(chosen.size, "run")}?`} confirm=${order} danger=${["cancel", "delete"].includes(order)}
      onConfirm=${act} onClose=${() => setOrder("")}><p>The order stops at the first run whose state does not allow it. Runs before that one have accepted it.</p></${Confirm}>`}
  </div>`;
}

/** @param {any} run @param {string | null} text */
function matches(run, text) {
  if (!text) return true;
  const words = text.toLowerCase().split(/\s+/);
  const whole = [run.run_id, run.recipe_id, run.description, ...Object.values(run.labels || {})].join(" ").toLowerCase();
  return words.every((word) => whole.includes(word));
}

/** @param {any[]} runs */
function unique(runs) {
  return [...new Map(runs.map((run) => [run.run_id, run])).values()];
}
