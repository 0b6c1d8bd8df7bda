// @ts-check
import { useState } from "preact/hooks";

import { newKey, post, withQuery } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { navigate } from "../lib/router.js";
import { sentence } from "../lib/run_state.js";
import { Empty, Fault, Opened, PageTitle, Section, Status, useFault } from "../parts/basics.js";
import { RunTable } from "../parts/rows.js";

/** Conferences: rounds of opinions, and a new one. */
export function Conferences() {
  const runs = useLive(withQuery("/api/runs", { recipe_id: "conference", limit: 100 }));
  return html`
    <${PageTitle} title="Conferences" lead="Several agents give their opinions on the same evidence; none sees another's." />
    <${NewConference} />
    <${Fault} error=${runs.error} retry=${runs.refresh} />
    ${runs.data?.length === 0 && html`<${Empty} title="There is no conference." command=${'control-room confer "Does the arrival hold up beside the outline?"'}>
      <p>Ask above, or from a terminal:</p></${Empty}>`}
    ${runs.data?.length > 0 && html`<${RunTable} runs=${runs.data} to="/conferences/" />`}`;
}

/** The question, and whom it goes to. */
function NewConference() {
  const agents = useLive("/api/agents", { pause: 60_000 });
  const [message, setMessage] = useState("");
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  const [error, setError] = useFault();
  const [key] = useState(newKey);
  const able = (agents.data || []).filter((/** @type {any} */ agent) => agent.modes.includes("conference"));
  const ask = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const body = chosen.length ? { message, agents: chosen } : { message };
      const run = await post("/api/conferences", body, { "Idempotency-Key": `${key}-${message.length}-${chosen.join()}`.slice(0, 200) });
      navigate(`/conferences/${run.run_id}`);
    } catch (caught) {
      setError(caught);
    }
  };
  const toggle = (/** @type {string} */ id) => setChosen(chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id]);
  return html`<form class="card" onSubmit=${ask}>
    <label>What is the question? The chief gathers evidence with tools first.
      <textarea rows="2" required maxlength="20000" value=${message} onInput=${(/** @type {any} */ event) => setMessage(event.target.value)}></textarea></label>
    ${able.length > 0 && html`<fieldset><legend>Agents (all, if none is chosen)</legend>
      ${able.map((/** @type {any} */ agent) => html`<label class="choice"><input type="checkbox" checked=${chosen.includes(agent.id)} onChange=${() => toggle(agent.id)} /> ${agent.id}</label>`)}</fieldset>`}
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary">Ask</button></div>
  </form>`;
}

/** A conference: the evidence, and the opinions side by side. @param {{id: string}} props */
export function Conference({ id }) {
  const live = useLive(`/api/runs/${encodeURIComponent(id)}`);
  const run = live.data;
  const ended = run && ["done", "failed", "cancelled"].includes(run.status);
  const issues = useLive(ended ? withQuery("/api/issues", { run_id: id, kind: "conference", limit: 1 }) : null);
  const issue = useLive(issues.data?.[0] ? `/api/issues/${issues.data[0].issue_id}` : null, { pause: 60_000 });
  if (!run) return html`<${PageTitle} title="Conference" lead=${id} /><${Fault} error=${live.error} retry=${live.refresh} />`;
  const facts = issue.data?.facts;
  return html`
    <${PageTitle} title=${facts?.message || run.task.description || "Conference"} lead=${html`<${Status} of=${run.status} /> ${sentence(run)}`}
      actions=${html`<a class="button" href=${`/runs/${run.run_id}`}>Steps and logs</a>`} />
    <${Fault} error=${live.error || issues.error || issue.error} />
    ${facts ? html`<${Evidence} calls=${facts.evidence} /><${Opinions} opinions=${facts.opinions} />` : html`<${Answers} run=${run} />`}`;
}

/** @param {{calls: any[]}} props */
function Evidence({ calls }) {
  return html`<${Section} title="Evidence" count=${calls.length}>
    ${calls.length === 0 && html`<p class="muted">No tool was called.</p>`}
    ${calls.length > 0 && html`<ol class="lines">${calls.map((call) => html`<li><${Status} of=${call.status === "done" ? "done" : "failed"} word=${call.status} />
      <code>${call.tool}</code><span class="wide">${call.code || ""}</span>
      ${call.receipt_id && html`<${Opened} path=${`/api/audit/receipts/${call.receipt_id}`} title=${call.receipt_id} />`}</li>`)}</ol>`}
  </${Section}>`;
}

/** How a verdict looks. @type {Record<string, string>} */
const VERDICTS = { accepted: "done", abstained: "skipped", rejected: "failed", failed: "failed" };

/** @param {{opinions: any[]}} props */
function Opinions({ opinions }) {
  return html`<${Section} title="Opinions" count=${opinions.length}><div class="columns">
    ${opinions.map((opinion) => html`<article class="card opinion" data-row tabindex="-1">
      <header><strong>${opinion.agent_id}</strong><span class="muted">${opinion.archetype}</span>
        <span class="push"><${Status} of=${VERDICTS[opinion.verdict] || "open"} word=${opinion.verdict} /></span></header>
      ${opinion.why && html`<p class="muted">${opinion.why}</p>`}
      ${opinion.text && html`<pre>${opinion.text}</pre>`}
      ${opinion.evidence && html`<details><summary>Evidence</summary><pre class="shown" tabindex="0">${JSON.stringify(opinion.evidence, null, 2)}</pre></details>`}
    </article>`)}</div></${Section}>`;
}

/** What has come so far. @param {{run: any}} props */
function Answers({ run }) {
  const asked = run.steps.filter((/** @type {any} */ step) => step.key.startsWith("opinion.") && !step.key.endsWith(".evidence"));
  return html`<${Section} title="Opinions" count=${asked.length}>
    ${asked.length === 0 && html`<p class="muted">The chief gathers the evidence.</p>`}
    <div class="columns">${asked.map((/** @type {any} */ step) => html`<article class="card opinion"><header><strong>${step.agent_id || step.key.slice(8)}</strong>
      <span class="push"><${Status} of=${step.status} /></span></header><pre>${step.output_preview || step.error?.message || ""}</pre></article>`)}</div></${Section}>`;
}
