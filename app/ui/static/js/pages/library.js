// @ts-check
import { useState } from "preact/hooks";

import { patch, withQuery } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { address, setQuery } from "../lib/router.js";
import { Ago, Command, Empty, Fault, Id, PageTitle, Section, Status, useFault } from "../parts/basics.js";
import { Graph } from "../parts/graph.js";

/** Recipes: what there is, and what is wrong with it. */
export function Recipes() {
  const recipes = useLive("/api/recipes?limit=1000", { pause: 5000 });
  const chosen = address.value.query.get("recipe");
  return html`
    <${PageTitle} title="Recipes" lead="Recipes of this project and those that come with Control Room. Changed files are seen at once." />
    <${Fault} error=${recipes.error} retry=${recipes.refresh} />
    ${chosen && html`<${Recipe} key=${chosen} id=${chosen} />`}
    ${recipes.data?.length === 0 && html`<${Empty} title="There is no recipe." command="control-room init" />`}
    ${recipes.data?.length > 0 && html`<div class="table-frame" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>State</th><th>Recipe</th><th>Language</th><th>From</th><th><span class="hidden">Start</span></th></tr></thead><tbody>
      ${recipes.data.map((/** @type {any} */ recipe) => html`<tr key=${`${recipe.layer}/${recipe.recipe_id}`} data-row>
        <td><${Status} of=${recipe.valid ? "valid" : "invalid"} note=${recipe.ready || !recipe.valid ? "" : "not ready"} /></td>
        <td class="wide"><a class="row-link" href=${`/recipes?recipe=${encodeURIComponent(recipe.recipe_id)}`}>${recipe.recipe_id}</a><div class="muted">${recipe.label}</div>
          ${recipe.lacks.map((/** @type {any} */ each) => html`<div class="muted">${each.message}</div>`)}
          ${recipe.flaws.map((/** @type {any} */ flaw) => html`<div class="wrong-text">${recipe.path}${flaw.line ? `:${flaw.line}` : ""} <code>${flaw.path}</code> ${flaw.message}</div>`)}</td>
        <td>${recipe.dialect}</td><td>${recipe.layer}</td>
        <td>${recipe.valid && html`<a href=${`/start?recipe=${encodeURIComponent(recipe.recipe_id)}`}>Start</a>`}</td></tr>`)}
    </tbody></table></div>`}`;
}

/** @param {{id: string}} props */
function Recipe({ id }) {
  const recipe = useLive(`/api/recipes/${encodeURIComponent(id)}`, { pause: 3600_000 });
  if (!recipe.data) return html`<${Fault} error=${recipe.error} />`;
  const { graph, label, path } = recipe.data;
  return html`<${Section} title=${label || id} actions=${html`<a class="button primary" href=${`/start?recipe=${encodeURIComponent(id)}`}>Start</a>`}>
    <p class="muted mono">${path}</p>
    ${graph?.nodes?.length > 0 && html`<${Graph} graph=${graph} plain onChoose=${() => undefined} />`}</${Section}>`;
}

/** Agents: who does what, and whether it works. */
export function Agents() {
  const agents = useLive("/api/agents");
  return html`
    <${PageTitle} title="Agents" lead="Roles that recipes name, the agents that play them, and what each is doing." />
    <${Fault} error=${agents.error} retry=${agents.refresh} />
    ${agents.data?.length === 0 && html`<${Empty} title="No agent is configured." command="control-room agents check" />`}
    ${agents.data?.length > 0 && html`<div class="table-frame" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>State</th><th>Agent</th><th>Role</th><th>Backend</th><th>Model</th><th>Tier</th><th>Works for</th></tr></thead><tbody>
      ${agents.data.map((/** @type {any} */ agent) => html`<tr key=${agent.id} data-row><td>${agent.fault ? html`<${Status} of="invalid" word="not usable" />` : html`<${Status} of=${agent.state} />`}</td><td>${agent.id}${agent.fault && html`<div class="wrong-text">${agent.fault}</div>`}</td><td>${agent.archetype}</td>
        <td>${agent.backend}</td><td>${agent.model || "default"}</td><td>${agent.tier}</td><td>${agent.run && html`<a href=${`/runs/${agent.run}`}>${agent.key}</a>`}</td></tr>`)}
    </tbody></table></div>`}
    <${Section} title="All backends"><p>The same from a terminal, with the backends that no agent uses:</p><${Command} text="control-room agents check" /></${Section}>`;
}

/** Issues: what checks, agents and people have found. */
export function Issues() {
  const status = address.value.query.get("status") || "open";
  const issues = useLive(withQuery("/api/issues", { status: status === "all" ? "" : status, limit: 200 }));
  return html`
    <${PageTitle} title="Issues" lead="Findings of checks and agents, failed definitions of done, and notes of people."
      actions=${html`<label>Show <select onChange=${(/** @type {any} */ event) => setQuery({ status: event.target.value })}>
        ${["open", "closed", "all"].map((each) => html`<option value=${each} selected=${each === status}>${each}</option>`)}</select></label>`} />
    <${Fault} error=${issues.error} retry=${issues.refresh} />
    ${issues.data?.length === 0 && html`<${Empty} title=${status === "open" ? "No issue is open." : "No issue matches."} />`}
    ${issues.data?.length > 0 && html`<div class="table-frame" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>Status</th><th>Issue</th><th>Kind</th><th>Severity</th><th class="right">Changed</th></tr></thead><tbody>
      ${issues.data.map((/** @type {any} */ issue) => html`<tr key=${issue.issue_id} data-row><td><${Status} of=${issue.status} /></td>
        <td class="wide"><a class="row-link" href=${`/issues/${issue.issue_id}`}>${issue.title}</a></td><td>${issue.kind}</td><td>${issue.severity || "–"}</td>
        <td class="right"><${Ago} at=${issue.updated_at} /></td></tr>`)}</tbody></table></div>`}`;
}

/** An issue with its trail. @param {{id: string}} props */
export function Issue({ id }) {
  const path = `/api/issues/${encodeURIComponent(id)}`;
  const live = useLive(path, { pause: 4000 });
  const [note, setNote] = useState("");
  const [error, setError] = useFault();
  const issue = live.data;
  if (!issue) return html`<${PageTitle} title="Issue" lead=${id} /><${Fault} error=${live.error} retry=${live.refresh} />`;
  const change = async (/** @type {any} */ fields) => {
    try {
      await patch(path, { ...fields, revision: issue.revision });
      setNote("");
      live.refresh();
    } catch (caught) {
      setError(caught);
    }
  };
  const other = issue.status === "open" ? "closed" : "open";
  return html`
    <${PageTitle} title=${issue.title} lead=${html`<${Status} of=${issue.status} /> ${issue.kind}${issue.severity && `, ${issue.severity}`}`}
      actions=${html`<button type="button" onClick=${() => change({ status: other, note: note || undefined })}>${other === "closed" ? "Close" : "Reopen"}</button>`} />
    <dl class="facts card"><dt>Issue</dt><dd><${Id} id=${issue.issue_id} /></dd>
      ${issue.run_id && html`<dt>Run</dt><dd><a href=${`/runs/${issue.run_id}`}>${issue.run_id}</a></dd>`}<dt>Made</dt><dd><${Ago} at=${issue.created_at} /></dd></dl>
    <pre class="shown">${issue.body}</pre>
    <h2>Notes</h2>
    <ul class="lines">${(issue.notes || []).map((/** @type {any} */ each) => html`<li><${Ago} at=${each.at} /> <span class="wide">${each.text || each.note}</span></li>`)}</ul>
    <${Fault} error=${error} />
    <form onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), change({ note }))}>
      <label>Add a note <textarea rows="2" required value=${note} onInput=${(/** @type {any} */ event) => setNote(event.target.value)}></textarea></label>
      <div class="actions"><button type="submit">Add</button></div></form>`;
}
