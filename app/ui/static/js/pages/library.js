// @ts-check
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { address } from "../lib/router.js";
import { Command, Empty, Fault, PageTitle, Section, Status } from "../parts/basics.js";
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
    ${graph?.nodes?.length > 0 && html`<${Graph} graph=${graph} onChoose=${() => undefined} />`}</${Section}>`;
}

/** Agents: who does what, and whether it works. */
export function Agents() {
  const agents = useLive("/api/agents");
  return html`
    <${PageTitle} title="Agents" lead="Roles that recipes name, the agents that play them, and what each is doing." />
    <${Fault} error=${agents.error} retry=${agents.refresh} />
    ${agents.data?.length === 0 && html`<${Empty} title="No agent is configured." command="control-room agents check" />`}
    ${agents.data?.length > 0 && html`<div class="table-frame" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>State</th><th>Agent</th><th>Role</th><th>Backend</th><th>Model</th><th>Tier</th><th>Works for</th></tr></thead><tbody>
      ${agents.data.map((/** @type {any} */ agent) => html`<tr key=${agent.id} data-row><td><${Status} of=${agent.state} /></td><td>${agent.id}</td><td>${agent.archetype}</td>
        <td>${agent.backend}</td><td>${agent.model || "default"}</td><td>${agent.tier}</td><td>${agent.run && html`<a href=${`/runs/${agent.run}`}>${agent.key}</a>`}</td></tr>`)}
    </tbody></table></div>`}
    <${Section} title="Which backends work here?"><p>Checked from a terminal, with the install line of each that is missing:</p><${Command} text="control-room agents check" /></${Section}>`;
}
