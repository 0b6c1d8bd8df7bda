// @ts-check
import { useEffect, useState } from "preact/hooks";

import { post } from "../lib/api.js";
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { Fault, Status } from "./basics.js";

/** Milliseconds without a change after which a form is looked at. */
const QUIET = 400;

/** Steps that are listed at first. */
const MOST = 20;

/**
 * What a request would do, looked at again after each change of it.
 * @param {any} body @param {string} [path]
 * @returns {{report: any, error: Error | null}}
 */
export function usePreflight(body, path = "/api/preflight") {
  const [found, setFound] = useState({ report: /** @type {any} */ (null), error: /** @type {Error | null} */ (null) });
  const text = JSON.stringify(body);
  useEffect(() => {
    let over = false;
    const look = async () => {
      const next = await post(path, body).then(
        (report) => ({ report, error: null }),
        (error) => ({ report: null, error }),
      );
      if (!over) setFound(next);
    };
    const timer = setTimeout(look, found.report ? QUIET : 0);
    return () => ((over = true), clearTimeout(timer));
  }, [text]);
  return found;
}

/**
 * What will happen, before it does.
 * @param {{report: any, error: Error | null, others: any[], faults: number, nodes: any[]}} props `others`: problems of no field;
 *   `faults`: how many problems are shown; `nodes`: the recipe's own steps, for a request that cannot be started yet.
 */
export function Preflight({ report, error, others, faults, nodes }) {
  if (!report) return html`<section class="card" aria-label="Before it starts"><p class="muted">${error ? "What it would do cannot be told now; it can be started all the same." : "Looking at what it will do…"}</p><${Fault} error=${error} /></section>`;
  const { agents, note, calls_at_most: calls } = report;
  return html`<section class="card preflight" aria-label="Before it starts">
    <header><h2>What it will do</h2>${report.ok ? html`<${Status} of="valid" word="ready to start" />` : html`<${Status} of="warning" word=${faults ? `${format.plural(faults, "thing")} to mend first` : "fill in what is required"} />`}</header>
    ${others.map((each) => html`<p class="wrong-text">${each.message} <code>${each.path}${each.line ? `:${each.line}` : ""}</code></p>`)}
    <${Planned} steps=${report.steps.length ? report.steps : nodes} />
    ${agents.length > 0 && html`<ul class="lines">${agents.map((/** @type {any} */ agent) => html`<li key=${agent.agent_id}>
      <${Status} of=${agent.ready ? "valid" : "invalid"} word=${agent.ready ? "ready" : "not ready"} /> <strong>${agent.agent_id}</strong>
      <span class="muted">${agent.backend}${agent.model && ` · ${agent.model}`}</span>${agent.fault && html`<span class="wide">${agent.fault}</span>`}</li>`)}</ul>`}
    ${report.dialect && html`<p class="muted">${calls === null ? note || "No limit of its calls of agents is known." : calls ? `It calls agents at most ${calls === 1 ? "once" : `${format.number(calls)} times`}.` : "It calls no agent."}</p>
      <p class="muted">It works in <code>${report.workspace}</code></p>`}
  </section>`;
}

/** @param {{steps: any[]}} props */
function Planned({ steps }) {
  const [all, setAll] = useState(false);
  const shown = all ? steps : steps.slice(0, MOST);
  return html`<ol class="planned">${shown.map((each) => html`<li><strong>${each.title || each.label}</strong> <span class="muted">${each.kind}${by(each)}</span></li>`)}</ol>
    ${shown.length < steps.length && html`<p><button type="button" onClick=${() => setAll(true)}>Show all ${format.number(steps.length)} steps</button></p>`}`;
}

/** @param {any} step */
function by({ agent, tool, title, label }) {
  const name = agent || tool;
  return name && !(title || label).includes(name) ? ` · ${name}` : "";
}
