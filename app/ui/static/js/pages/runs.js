// @ts-check
import { useEffect, useRef, useState } from "preact/hooks";

import { nextOf, post, request, withQuery } from "../lib/api.js";
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { address, setQuery } from "../lib/router.js";
import { Confirm, Empty, Fault, PageTitle, announce, useFault } from "../parts/basics.js";
import { LabelDialog } from "../parts/labels.js";
import { RunTable } from "../parts/rows.js";

const STATES = ["pending", "running", "waiting", "paused", "done", "failed", "cancelled"];
const PAGE = 100;

/** Rows before the end of the list at which the next page is read. */
const AHEAD = 30;

/** Milliseconds without a key after which a search begins. */
const TYPING = 250;

/** Runs: filters in the address, live rows, orders for many. */
export function Runs() {
  const query = address.value.query;
  const filters = { q: query.get("q"), status: query.getAll("status"), recipe_id: query.get("recipe_id"), label: query.get("label")?.replace(/^([^:=]+)=/, "$1:"), session_id: query.get("session_id") };
  const path = withQuery("/api/runs", { ...filters, limit: PAGE });
  const first = useLive(path);
  const older = useOlder(path, first.of === path ? first.next || "" : "");
  const [chosen, setChosen] = useState(new Set());
  const runs = unique([...(first.data || []), ...older.runs]);
  const choose = (/** @type {string} */ id, /** @type {boolean} */ on) => {
    const next = new Set(chosen);
    if (on) next.add(id);
    else next.delete(id);
    setChosen(next);
  };
  return html`
    <${PageTitle} title="Runs" actions=${html`<a class="button primary" href="/start">Start a run</a>`} />
    <${Filters} query=${query} />
    <${Fault} error=${first.error || older.error} retry=${first.refresh} />
    ${chosen.size > 0 && html`<${BulkBar} chosen=${chosen} onDone=${() => (setChosen(new Set()), first.refresh())} />`}
    ${runs.length > 0 && html`<${RunTable} runs=${runs} chosen=${chosen} onChoose=${choose} onNear=${(/** @type {number} */ _, /** @type {number} */ last) => last + AHEAD > runs.length && older.read()} />`}
    ${first.data && runs.length === 0 && html`<${Empty} title="No run matches.">
      <p><a href="/runs">Show all runs</a>, or <a href="/start">start one</a>.</p></${Empty}>`}`;
}

/**
 * Older runs, a page at a time.
 * @param {string} path The address of the newest. @param {string} second The address of the page after them.
 */
function useOlder(path, second) {
  const kept = useRef({ path, runs: /** @type {any[]} */ ([]), next: "", busy: false });
  const [error, setError] = useFault();
  const [, setRound] = useState(0);
  if (kept.current.path !== path) kept.current = { path, runs: [], next: "", busy: false };
  const read = async () => {
    const here = kept.current;
    const next = here.runs.length ? here.next : second;
    if (here.busy || !next) return;
    here.busy = true;
    try {
      const reply = await request("GET", next);
      here.runs = [...here.runs, ...(await reply.json())];
      here.next = nextOf(reply);
      setError(null);
    } catch (caught) {
      setError(caught);
    }
    here.busy = false;
    setRound((round) => round + 1);
  };
  return { runs: kept.current.runs, error, read };
}

/** @param {{query: URLSearchParams}} props */
function Filters({ query }) {
  const asked = query.get("q") || "";
  const [text, setText] = useState(asked);
  const timer = useRef(0);
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => setQuery({ [name]: event.target.value });
  // What is being written wins over the address, which follows it.
  const search = (/** @type {any} */ event) => {
    clearTimeout(timer.current);
    setText(event.target.value);
    timer.current = setTimeout(() => ((timer.current = 0), setQuery({ q: event.target.value.trim() })), TYPING);
  };
  useEffect(() => {
    if (!timer.current && text.trim() !== asked) setText(asked);
  }, [asked]);
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label><span class="hidden">Search</span><input id="search" type="search" placeholder="Search text or id" value=${text} onInput=${search} /></label>
    <label><span class="hidden">Status</span><select onChange=${change("status")}>
      <option value="">any status</option>
      ${STATES.map((state) => html`<option value=${state} selected=${query.getAll("status").join() === state}>${state}</option>`)}
      ${query.getAll("status").length > 1 && html`<option value="" selected>${query.getAll("status").join(" or ")}</option>`}
    </select></label>
    <label><span class="hidden">Recipe</span><input placeholder="Recipe" value=${query.get("recipe_id") || ""} onChange=${change("recipe_id")} /></label>
    ${query.get("session_id") && html`<button type="button" onClick=${() => setQuery({ session_id: null })}>Session ${query.get("session_id")} ✕</button>`}
    <label><span class="hidden">Label</span><input placeholder="Label key=value" value=${query.get("label") || ""} onChange=${change("label")} /></label>
  </form>`;
}

/** Orders for many runs, and what is said before they are given. */
const ORDERS = /** @type {const} */ ([
  ["pause", "Pause", "Steps in progress are finished first."],
  ["unpause", "Continue", "They continue where they stopped."],
  ["resume", "Resume", "They continue from the steps that ended them."],
  ["cancel", "Cancel", "Running commands and agents are stopped."],
  ["delete", "Delete", "Their folders with journals, logs and outputs are removed."],
]);

/** Orders for all chosen runs. @param {{chosen: Set<string>, onDone: () => void}} props */
function BulkBar({ chosen, onDone }) {
  const [asked, setAsked] = useState("");
  const [outcome, setOutcome] = useState(/** @type {any} */ (null));
  const order = ORDERS.find(([name]) => name === asked);
  const act = async (/** @type {any} */ more) => {
    const found = await post("/api/runs/bulk", { action: asked, run_ids: [...chosen], expected: chosen.size, ...more });
    announce(`${found.done.length} accepted, ${found.refused.length} refused`);
    if (found.refused.length) setOutcome(found);
    else onDone();
  };
  return html`<div class="bulk" role="region" aria-label="Selected runs">
    <strong>${format.plural(chosen.size, "run")} selected</strong>
    ${ORDERS.map(([name, label]) => html`<button type="button" onClick=${() => setAsked(name)}>${label}</button>`)}
    <button type="button" onClick=${() => setAsked("label")}>Label</button>
    <button type="button" class="quiet" onClick=${onDone}>Clear selection</button>
    ${asked === "label" && html`<${LabelDialog} title=${`Label ${format.plural(chosen.size, "run")}`} onLabel=${(/** @type {any} */ labels) => act({ labels })} onClose=${() => setAsked("")} />`}
    ${outcome && html`<div class="outcome" role="status"><p>${format.plural(outcome.done.length, "run")} accepted it, ${outcome.refused.length} refused:</p>
      <ul>${outcome.refused.map((/** @type {any} */ each) => html`<li><a href=${`/runs/${each.run_id}`}>${each.run_id}</a> ${each.problem.detail || each.problem.title}</li>`)}</ul></div>`}
    ${order && html`<${Confirm} title=${`${order[1]} ${format.plural(chosen.size, "run")}?`} confirm=${`${order[1]} ${chosen.size}`} danger=${["cancel", "delete"].includes(asked)}
      onConfirm=${() => act({})} onClose=${() => setAsked("")}><p>${order[2]} Runs whose state does not allow it are left as they are, and named.</p></${Confirm}>`}
  </div>`;
}

/** @param {any[]} runs */
function unique(runs) {
  return [...new Map(runs.map((run) => [run.run_id, run])).values()];
}
