import { useEffect, useState } from "preact/hooks";

import { address, html, navigate, setQuery } from "../lib/base.js";
import * as format from "../lib/format.js";
import { newKey, patch, pathOf, post, useLive, withQuery } from "../lib/live.js";
import { FINISHED, sentence } from "../lib/run_state.js";
import { Ago, Command, Confirm, Content, Empty, Fault, Filters, Id, LocalModel, Missing, Opened, PageTitle, Search, Section, Status, Table, announce, each, options, toQuery, toggled, typed, useAct, useDraft, useList } from "../parts/basics.js";
import { Graph } from "../parts/graph.js";
import { RunTable } from "../parts/rows.js";

export function Recipes() {
  const recipes = useLive("/api/recipes?limit=1000", { pause: 5000 });
  const query = address.value.query;
  const [chosen, text] = [query.get("recipe"), (query.get("q") || "").toLowerCase()];
  const shown = recipes.data?.filter((/** @type {any} */ recipe) => `${recipe.recipe_id} ${told(recipe)} ${recipe.dialect} ${recipe.layer}`.toLowerCase().includes(text));
  return html`
    <${PageTitle} title="Recipes" lead="Recipes of this project and those that come with Control Room. Changed files are seen at once."
      actions=${html`<${Search} of="recipes" value=${query.get("q") || ""} onInput=${toQuery("q")} />`} />
    <${Fault} error=${recipes.error} retry=${recipes.refresh} />
    ${chosen && html`<${Recipe} key=${chosen} id=${chosen} />`}
    ${recipes.data?.length === 0 && html`<${Empty} title="No recipes yet." command="control-room init" />`}
    ${shown?.length === 0 && recipes.data.length > 0 && html`<${Empty} title="No recipe matches." />`}
    <${Lacks} recipes=${recipes.data} />
    <${Table} label="Recipes" rows=${shown} name=${(/** @type {any} */ recipe) => `${recipe.layer}/${recipe.recipe_id}`} columns=${RECIPES} />`;
}

/** @type {Words} */
const LANGUAGES = { control_room: "tools, agents, checks", agent_recipes: "state machine", amplifier: "steps and loops", orchestrate: "commands and agents" };

/** @type {Columns} */
const RECIPES = [
  ["Status", (recipe) => html`<${Ready} recipe=${recipe} />`],
  ["Recipe", (recipe) => html`<a class="row-link" href=${withQuery("/recipes", { recipe: recipe.recipe_id, q: address.value.query.get("q") })}>${recipe.recipe_id}</a><div class="muted">${told(recipe)}</div>
    ${each(recipe.flaws, (flaw) => html`<div class="wrong-text">${recipe.path}${flaw.line ? `:${flaw.line}` : ""} <code>${flaw.path}</code> ${flaw.message}</div>`)}`, "wide"],
  ["Steps", (recipe) => (recipe.valid ? recipe.total_steps ?? html`<span class="muted">can loop</span>` : ""), "right number"],
  ["Language", (recipe) => html`${recipe.dialect}<div class="muted">${LANGUAGES[recipe.dialect]}</div>`],
  ["From", (recipe) => recipe.layer],
  ["", (recipe) => recipe.valid && html`<a href=${withQuery("/start", { recipe: recipe.recipe_id })}>Start</a>`],
];

/** @param {any} recipe */
export function told({ recipe_id, label, description }) {
  return [label !== recipe_id && label, description].filter(Boolean).join(": ");
}

/** @param {Props} props */
function Ready({ recipe }) {
  const { lacks, ready, valid } = recipe;
  return html`<span title=${each(lacks, (lack) => lack.message).join(" ")}><${Status} of=${valid ? (ready ? "valid" : "warning") : "invalid"} word=${valid && !ready ? "not ready" : undefined} /></span>`;
}

/** @param {Props} props */
function Lacks({ recipes }) {
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const { lacks = [] } of recipes || []) for (const { message } of lacks) found.set(message, (found.get(message) || 0) + 1);
  if (!found.size) return null;
  return html`<div class="notice"><strong>Not ready:</strong>${[...found].map(([message, count]) => html`<p>${message} <span class="muted">${format.plural(count, "recipe")}</span></p>`)}</div>`;
}

export function Choose() {
  const recipes = useLive("/api/recipes?limit=1000", { pause: 10_000 });
  const [text, setText] = useState("");
  const all = [...(recipes.data || [])].sort((one, other) => Number(other.layer === "project") - Number(one.layer === "project"));
  const found = all.filter((/** @type {any} */ recipe) => `${recipe.recipe_id} ${told(recipe)}`.toLowerCase().includes(text.toLowerCase()));
  return html`<${Section} title="Recipes" count=${recipes.data ? found.length : undefined}
    actions=${html`<${Search} of="recipes" value=${text} onInput=${typed(setText)} />`}>
    <${Fault} error=${recipes.error} />
    ${recipes.data && !found.length && html`<${Empty} title="No recipe matches." />`}
    <${Lacks} recipes=${recipes.data} />
    <ul class="lines recipes">${each(found, (recipe) => html`<li data-row key=${recipe.recipe_id}>
      <div class="wide"><a class="row-link" href=${withQuery("/start", { recipe: recipe.recipe_id, schedule: address.value.query.get("schedule") })}>${recipe.recipe_id}</a><div class="help">${told(recipe)}</div></div>
      ${!(recipe.valid && recipe.ready) && html`<${Ready} recipe=${recipe} />`}
      <span class="muted">${steps(recipe)}${recipe.dialect} · ${recipe.layer}</span></li>`)}</ul>
  <//>`;
}

/** @param {any} recipe */
export function steps({ total_steps }) {
  return total_steps ? `${format.plural(total_steps, "step")} · ` : "";
}

/** @param {Props} props */
function Recipe({ id }) {
  const recipe = useLive(pathOf("recipes", id), { pause: 3600_000 });
  if (!recipe.data) return html`<${Fault} error=${recipe.error} />`;
  const { graph, path } = recipe.data;
  return html`<${Section} title=${id} actions=${html`<a class="button primary" href=${withQuery("/start", { recipe: id })}>Start</a>`}>
    ${told(recipe.data) && html`<p>${told(recipe.data)}</p>`}<p class="muted mono">${path}</p>
    ${graph?.nodes?.length > 0 && html`<${Graph} graph=${graph} plain onChoose=${() => undefined} />`}<//>`;
}

export function Agents() {
  const agents = useLive("/api/agents");
  const stats = useLive("/api/stats", { pause: 3600_000 }).data;
  return html`
    <${PageTitle} title="Agents" lead="Recipes name roles; these agents play them. The tier (t1 small, t3 middle, t5 capable) chooses the wording of its prompts." />
    <${Fault} error=${agents.error} retry=${agents.refresh} />
    <${LocalModel} stats=${stats} />
    ${agents.data?.length === 0 && html`<${Empty} title="No agents yet." command="control-room agents check" />`}
    <${Table} label="Agents" rows=${agents.data} name="id" columns=${AGENTS} />
    <${Section} title="All backends"><p>The same from a terminal, with the backends that no agent uses:</p><${Command} text="control-room agents check" /><//>`;
}

/** @type {Columns} */
const AGENTS = [
  ["Status", (agent) => html`<${Status} of=${agent.fault ? "invalid" : agent.state} word=${agent.fault ? "not usable" : agent.state === "idle" ? undefined : "working"} />`],
  ["Agent", (agent) => html`${agent.id}${agent.fault && html`<div class="wrong-text">${agent.fault}</div>`}`, "wide"],
  ["Role", (agent) => agent.archetype],
  ["Backend", (agent) => agent.backend],
  ["Model", (agent) => agent.model || "default"],
  ["Tier", (agent) => agent.tier],
  ["Now at step", (agent) => agent.run && html`<a href=${`/runs/${agent.run}`}>${agent.key}</a>`],
];

const SEVERITIES = ["error", "warning", "hint"];

/** @type {Words} */
const SEEN = { error: "failed", warning: "warning" };

export function Issues() {
  const query = address.value.query;
  const [status, recipe, severity, run] = [query.get("status") || "open", query.get("recipe_id"), query.get("severity") || "", query.get("run_id")];
  const issues = useList("/api/issues", { status: status === "all" ? "" : status, recipe_id: recipe, severity, run_id: run });
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  const [asked, setAsked] = useState(false);
  const shown = issues.data || [];
  const closing = shown.filter((/** @type {any} */ issue) => issue.status === "open" && chosen.includes(issue.issue_id));
  const close = async () => {
    for (const { issue_id } of closing) await patch(`/api/issues/${issue_id}`, { status: "closed" });
    announce(`${format.plural(closing.length, "issue")} closed`);
    setChosen([]);
    issues.refresh();
  };
  const toggle = (/** @type {string} */ id) => setChosen(toggled(chosen, id));
  const open = shown.filter((/** @type {any} */ issue) => issue.status === "open").map((/** @type {any} */ issue) => issue.issue_id);
  /** @type {Columns} */
  const columns = [
    ["", (issue) => issue.status === "open" && html`<label><input type="checkbox" aria-label=${`Select ${issue.title}`} checked=${chosen.includes(issue.issue_id)} onChange=${() => toggle(issue.issue_id)} /></label>`, "check"],
    ["Status", (issue) => html`<${Status} of=${issue.status} />`],
    ["Issue", (issue) => html`<a class="row-link" dir="auto" href=${`/issues/${issue.issue_id}`}>${issue.title}</a>`, "wide"],
    ["Kind", (issue) => issue.kind],
    ["Severity", (issue) => issue.severity && html`<${Status} of=${SEEN[issue.severity] || "open"} word=${issue.severity} />`],
    ["Recipe", (issue) => issue.recipe_id && html`<a href=${withQuery("/issues", { recipe_id: issue.recipe_id })}>${issue.recipe_id}</a>`],
    ["Run", (issue) => issue.run_id && html`<a class="mono" href=${`/runs/${issue.run_id}`} title=${issue.run_id}>${issue.run_id.slice(-6)}</a>`],
    ["Changed", (issue) => html`<${Ago} at=${issue.updated_at} />`, "right"],
  ];
  return html`
    <${PageTitle} title="Issues" lead="Findings of checks and agents, failed definitions of done, and notes of people." />
    <${Filters}>
      <label><span class="hidden">Status</span><select onChange=${toQuery("status")}>${options([["open", "open"], ["closed", "closed"], ["all", "any status"]], status)}</select></label>
      <label><span class="hidden">Severity</span><select onChange=${toQuery("severity")}>${options([["", "any severity"], ...SEVERITIES.map((word) => [word, word])], severity)}</select></label>
      <label><span class="hidden">Recipe</span><input id="search" placeholder="Recipe" value=${recipe || ""} onChange=${toQuery("recipe_id")} /></label>
      ${run && html`<button onClick=${() => setQuery({ run_id: null })}>Run ${run} ✕</button>`}
      ${open.length > 1 && html`<button class="quiet" onClick=${() => setChosen(open)}>Select all ${open.length}</button>`}<//>
    <${Fault} error=${issues.error} retry=${issues.refresh} />
    ${closing.length > 0 && html`<div class="bulk" role="region" aria-label="Selected issues"><strong>${format.plural(closing.length, "issue")} selected</strong>
      <button onClick=${() => setAsked(true)}>Close</button><button class="quiet" onClick=${() => setChosen([])}>Clear selection</button></div>`}
    ${asked && html`<${Confirm} title=${`Close ${format.plural(closing.length, "issue")}?`} confirm=${`Close ${closing.length}`} onConfirm=${close} onClose=${() => setAsked(false)}>
      <p>A check that finds one again opens it again.</p><//>`}
    ${issues.data?.length === 0 && html`<${Empty} title=${status === "open" && !recipe && !severity ? "No open issues." : "No issue matches."}><p>Checks of recipes open issues; so do failed definitions of done.</p><//>`}
    <${Table} label="Issues" rows=${issues.data} name="issue_id" columns=${columns} />${issues.more}`;
}

/** @param {Props} props */
export function Issue({ id }) {
  const path = pathOf("issues", id);
  const live = useLive(path, { pause: 4000 });
  const [note, setNote] = useDraft(path);
  const issue = live.data;
  const [change, error] = useAct(async (fields) => {
    live.refresh(await patch(path, { ...(fields.status ? fields : {}), note: note || undefined, revision: issue.revision }));
    setNote("");
  });
  if (!issue) return html`<${Missing} title="Issue" id=${id} live=${live} />`;
  const { finding } = issue.facts;
  const quotes = finding?.statements || (finding?.quote ? [finding] : []);
  return html`
    <${PageTitle} title=${issue.title} lead=${html`<${Status} of=${issue.status} note=${[issue.kind, issue.severity].filter(Boolean).join(", ")} />`}
      actions=${html`<button onClick=${() => change({ status: issue.status === "open" ? "closed" : "open" })}>${issue.status === "open" ? "Close issue" : "Reopen issue"}</button>`} />
    <dl class="facts card"><dt>Issue</dt><dd><${Id} id=${issue.issue_id} /></dd>
      ${issue.run_id && html`<dt>Run</dt><dd><a href=${`/runs/${issue.run_id}`}>${issue.run_id}</a></dd>`}
      ${issue.recipe_id && html`<dt>Recipe</dt><dd><a href=${withQuery("/issues", { recipe_id: issue.recipe_id })}>${issue.recipe_id}</a></dd>`}
      <dt>Created</dt><dd><${Ago} at=${issue.created_at} /></dd></dl>
    ${issue.body !== issue.title && html`<${Content} text=${issue.body} kind="question" />`}
    ${quotes.length > 0 && html`<${Section} title="Evidence" count=${quotes.length}><ul class="lines">${each(quotes, (quote) => html`<li><blockquote class="wide" dir="auto">${quote.quote || quote.value}</blockquote>
      <span class="mono muted">${quote.path}${quote.line ? `:${quote.line}` : ""}</span></li>`)}</ul><//>`}
    ${each(issue.receipts, (receipt) => html`<${Opened} path=${`/api/audit/receipts/${receipt}`} title=${`Receipt ${receipt}`} />`)}
    <${Section} title="Notes" count=${issue.notes.length}>
      <ul class="lines">${each(issue.notes, (each) => html`<li><${Ago} at=${each.at} /> <span class="wide">${each.text}</span></li>`)}</ul>
      <${Fault} error=${error} />
      <form class="card" onSubmit=${change}><label>Add a note <textarea rows="2" required value=${note} onInput=${typed(setNote)}></textarea></label>
        <div class="actions"><button type="submit">Add</button></div></form><//>`;
}

export function Conferences() {
  const runs = useList("/api/runs", { recipe_id: "conference" });
  return html`
    <${PageTitle} title="Conferences" lead="Several agents give their opinions on the same evidence; none sees another's." />
    <${NewConference} />
    <${Fault} error=${runs.error} retry=${runs.refresh} />
    ${runs.data?.length === 0 && html`<${Empty} title="No conferences yet." command=${'control-room confer "Does the arrival hold up beside the outline?"'}>
      <p class="offer">Ask above, or from a terminal:</p><//>`}
    ${runs.data?.length > 0 && html`<${RunTable} runs=${runs.data} to="/conferences/" />${runs.more}`}`;
}

function NewConference() {
  const agents = useLive("/api/agents", { pause: 60_000 });
  const [message, setMessage] = useDraft("conference");
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  const [key] = useState(newKey);
  const able = (agents.data || []).filter((/** @type {any} */ agent) => agent.modes.includes("conference"));
  const [ask, error] = useAct(async () => {
    const body = chosen.length ? { message, agents: chosen } : { message };
    const run = await post("/api/conferences", body, { "Idempotency-Key": `${key}-${message.length}-${chosen.join()}`.slice(0, 200) });
    navigate(`/conferences/${run.run_id}`);
    setMessage("");
  });
  const toggle = (/** @type {string} */ id) => setChosen(toggled(chosen, id));
  return html`<form class="card" onSubmit=${ask}>
    <label>What is the question? The chief gathers evidence with tools first; an opinion counts only with evidence that can be verified.
      <textarea rows="2" required maxlength="20000" value=${message} onInput=${typed(setMessage)}></textarea></label>
    ${able.length > 0 && html`<fieldset><legend>Agents (all, if none is chosen)</legend>
      ${each(able, (agent) => html`<label class="choice"><input type="checkbox" checked=${chosen.includes(agent.id)} onChange=${() => toggle(agent.id)} /> ${agent.id}</label>`)}</fieldset>`}
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary">Ask</button></div>
  </form>`;
}

/** @param {Props} props */
export function Conference({ id }) {
  const live = useLive(pathOf("runs", id));
  const run = live.data;
  const ended = run && FINISHED.includes(run.status);
  const issues = useLive(ended ? withQuery("/api/issues", { run_id: id, kind: "conference", limit: 1 }) : null);
  const issue = useLive(issues.data?.[0] ? `/api/issues/${issues.data[0].issue_id}` : null, { pause: 60_000 });
  useEffect(() => {
    if (run && run.recipe_id !== "conference") navigate(`/runs/${id}`, { replace: true });
  }, [run]);
  if (!run) return html`<${Missing} title="Conference" id=${id} live=${live} />`;
  const facts = issue.data?.facts;
  return html`
    <${PageTitle} title=${facts?.message || run.task.description || "Conference"} lead=${html`<${Status} of=${run.status} word=${sentence(run)} />`}
      actions=${html`<a class="button" href=${`/runs/${run.run_id}`}>Steps and logs</a>`} />
    <${Fault} error=${live.error || issues.error || issue.error} />
    ${facts && html`<${Evidence} calls=${facts.evidence} />`}<${Opinions} opinions=${facts ? facts.opinions : answers(run)} ended=${ended} />`;
}

/** @param {Props} props */
function Evidence({ calls }) {
  return html`<${Section} title="Evidence" count=${calls.length}>
    ${calls.length === 0 && html`<p class="muted">No tool was called.</p>`}
    ${calls.length > 0 && html`<ol class="lines">${calls.map((call) => html`<li><${Status} of=${call.status === "done" ? "done" : "failed"} word=${call.status} />
      <code>${call.tool}</code><span class="wide">${call.code && format.words(call.code)}</span>
      ${call.receipt_id && html`<${Opened} path=${`/api/audit/receipts/${call.receipt_id}`} title=${call.receipt_id} />`}</li>`)}</ol>`}
  <//>`;
}

/** @type {Words} */
const VERDICTS = { accepted: "done", abstained: "skipped", rejected: "failed", failed: "failed" };

/** @param {Props} props */
function Opinions({ opinions, ended }) {
  return html`<${Section} title="Opinions" count=${opinions.length}>
    ${opinions.length === 0 && html`<p class="muted">${ended ? "There are no opinions." : "The chief gathers the evidence."}</p>`}<div class="columns">
    ${opinions.map((opinion) => html`<article class="card opinion" data-row tabindex="-1">
      <header><strong>${opinion.agent_id}</strong><span class="muted">${opinion.archetype}</span>
        <span class="push"><${Status} of=${VERDICTS[opinion.verdict] || opinion.verdict} word=${opinion.verdict} /></span></header>
      ${opinion.text && html`<pre>${opinion.text}</pre>`}
      ${opinion.why && html`<p class="muted">${opinion.why}</p>`}
      ${opinion.evidence && html`<details><summary>Evidence</summary><pre class="shown" tabindex="0">${JSON.stringify(opinion.evidence, null, 2)}</pre></details>`}
    </article>`)}</div><//>`;
}

/** @param {any} run */
function answers({ steps }) {
  const asked = steps.filter((/** @type {any} */ step) => step.key.startsWith("opinion.") && !step.key.endsWith(".evidence"));
  return each(asked, ({ agent_id, error, key, output_preview, status }) => ({ agent_id: agent_id || key.slice(8), verdict: status, text: output_preview || error?.message }));
}
