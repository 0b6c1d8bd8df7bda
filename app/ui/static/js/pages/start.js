// @ts-check
import { useState } from "preact/hooks";

import { newKey, post } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { address, navigate, setQuery } from "../lib/router.js";
import { fields, places, read } from "../lib/schema_form.js";
import { Empty, Fault, PageTitle, Section, Status, useFault } from "../parts/basics.js";
import { LimitFields, amounts } from "../parts/budget.js";
import { Preflight, usePreflight } from "../parts/preflight.js";
import { Schedule } from "../parts/schedule.js";

/** Start: describe it, or choose a recipe and fill in its form. */
export function Start() {
  const chosen = address.value.query.get("recipe");
  return html`
    <${PageTitle} title="Start a run" lead="Describe the task, or choose a recipe and fill in its form." />
    ${chosen ? html`<${RecipeForm} key=${chosen} id=${chosen} />` : html`<${Describe} /><${Choose} />`}`;
}

/** The box through the router. */
function Describe() {
  const [text, setText] = useState("");
  const [routed, setRouted] = useState(/** @type {any} */ (null));
  const [error, setError] = useFault();
  const route = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const found = await post("/api/route", { description: text });
      if (found.recipe_id) {
        sessionStorage.setItem(`control-room.args.${found.recipe_id}`, JSON.stringify(found.initial_args));
        navigate(`/start?${new URLSearchParams({ recipe: found.recipe_id, description: text })}`);
      }
      setRouted(found);
    } catch (caught) {
      setError(caught);
    }
  };
  return html`<form class="card" onSubmit=${route}>
    <label>Describe the task <input id="describe" required placeholder="Draft scene 22" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
    <${Fault} error=${error} />
    ${routed && !routed.recipe_id && html`<p class="muted">${routed.reason}</p>`}
    <div class="actions"><button type="submit" class="primary">Find a recipe</button></div>
  </form>`;
}

/** Search of recipes. */
function Choose() {
  const recipes = useLive("/api/recipes?limit=1000", { pause: 10_000 });
  const [text, setText] = useState("");
  const found = (recipes.data || []).filter((/** @type {any} */ recipe) => `${recipe.recipe_id} ${recipe.label}`.toLowerCase().includes(text.toLowerCase()));
  return html`<${Section} title="Recipes" count=${found.length}
    actions=${html`<label><span class="hidden">Search</span><input id="search" type="search" placeholder="Search recipes" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>`}>
    <${Fault} error=${recipes.error} />
    ${recipes.data && !found.length && html`<${Empty} title="No recipe matches." />`}
    <ul class="lines">${found.map((/** @type {any} */ recipe) => html`<li data-row key=${recipe.recipe_id}>
      <${Status} of=${recipe.valid ? "valid" : "invalid"} note=${recipe.ready || !recipe.valid ? "" : "not ready"} />
      <a class="row-link" href=${`/start?recipe=${encodeURIComponent(recipe.recipe_id)}`}>${recipe.recipe_id}</a>
      <span class="wide">${recipe.label !== recipe.recipe_id && recipe.label} <span class="muted">${recipe.lacks.map((/** @type {any} */ each) => each.message).join(" ")}</span></span><span class="muted">${recipe.dialect} · ${recipe.layer}</span></li>`)}</ul>
  </${Section}>`;
}

/** @param {{id: string}} props */
function RecipeForm({ id }) {
  const recipe = useLive(`/api/recipes/${encodeURIComponent(id)}`, { pause: 3600_000 });
  if (!recipe.data) return html`<${Fault} error=${recipe.error} retry=${recipe.refresh} />`;
  return html`<${Filled} recipe=${recipe.data} />`;
}

/** @param {{recipe: any}} props */
function Filled({ recipe }) {
  const all = fields(recipe.args_schema);
  const [values, setValues] = useState(() => initial(recipe.recipe_id, all));
  const [description, setDescription] = useState(address.value.query.get("description") || "");
  const [faults, setFaults] = useState(/** @type {Record<string, string>} */ ({}));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [key] = useState(newKey);
  const [limits, setLimits] = useState(/** @type {Record<string, string>} */ ({}));
  const request = { recipe_id: recipe.recipe_id, description: description || recipe.label || recipe.recipe_id, args: read(all, values).args, ...limited(limits) };
  const { report, error: unknown } = usePreflight(request);
  const [found, others] = beside(report?.problems || [], all);
  // Nobody is told of a field that is still to be filled in.
  const refused = Object.fromEntries(Object.entries(found).filter(([name]) => values[name] !== "" && values[name] !== undefined));
  const filled = () => {
    const given = read(all, values);
    setFaults(given.faults);
    return Object.keys(given.faults).length ? null : given.args;
  };
  const start = async (/** @type {Event} */ event) => {
    event.preventDefault();
    // What is left empty can be found in the project, which the report tells.
    if (!report?.ok && !filled()) return;
    try {
      const run = await post("/api/runs", request, { "Idempotency-Key": `${key}-${await digest(request)}` });
      navigate(`/runs/${run.run_id}`);
    } catch (caught) {
      setError(caught);
      setFaults(beside(/** @type {any} */ (caught).faults || [], all)[0]);
    }
  };
  const files = useLive(all.some((each) => each.path) ? "/api/files" : null, { pause: 3600_000 });
  const change = (/** @type {string} */ name) => (/** @type {any} */ value) => {
    setValues({ ...values, [name]: value });
    setFaults({ ...faults, [name]: "" });
  };
  return html`<div class="columns"><form class="card form" onSubmit=${start} novalidate>
    <h2>${recipe.label || recipe.recipe_id} <a class="muted" href="/start" onClick=${() => setQuery({ recipe: null })}>choose another</a></h2>
    ${!recipe.ready && html`<p class="fault"><strong>This recipe cannot run here yet.</strong></p>`}
    ${recipe.lacks.map((/** @type {any} */ each) => html`<p class="wrong-text">${each.message}</p>`)}
    <label>Description <input value=${description} placeholder=${recipe.label || ""} onInput=${(/** @type {any} */ event) => setDescription(event.target.value)} /></label>
    <datalist id="files">${places(files.data?.files || []).map((each) => html`<option value=${each} />`)}</datalist>
    ${all.map((each) => html`<${Input} field=${each} value=${values[each.name]} found=${report?.args?.[each.name]} fault=${faults[each.name] || refused[each.name]} onChange=${change(each.name)} />`)}
    <details><summary class="link">Limits</summary><p class="help">A run that meets a limit is paused; raise it, and the run continues.</p><${LimitFields} values=${limits} onChange=${setLimits} /></details>
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary" id="start">Start</button></div>
    <${Schedule} recipe=${recipe.recipe_id} args=${filled} />
  </form><${Preflight} report=${report} error=${unknown} others=${others} faults=${others.length + Object.keys(refused).length} nodes=${recipe.graph?.nodes.filter(acts) || []} /></div>`;
}

/** @param {{field: import("../lib/schema_form.js").Field, value: any, found?: any, fault?: string, onChange: (value: any) => void}} props
 *   `found`: what is taken where the field is left empty. */
function Input({ field, value, found, fault, onChange }) {
  const change = (/** @type {any} */ event) => onChange(field.kind === "boolean" ? event.target.checked : event.target.value);
  const name = `arg-${field.name}`;
  const shared = { id: name, "aria-invalid": Boolean(fault), "aria-describedby": `${name}-help`, placeholder: found === undefined || found === null ? "" : text(found, field) };
  return html`<div class=${fault ? "field wrong" : "field"}>
    <label for=${name}>${field.label}${field.required ? " (required)" : ""}</label>
    ${control(field, value, change, shared)}
    <p class="help" id=${`${name}-help`}>${fault && html`<strong class="wrong-text">${fault}</strong> `}${field.help}${field.kind === "list" && " One per line."}</p>
  </div>`;
}

/** @param {import("../lib/schema_form.js").Field} field @param {any} value @param {any} change @param {any} shared */
function control(field, value, change, shared) {
  switch (field.kind) {
    case "boolean":
      return html`<input type="checkbox" ...${shared} checked=${value} onChange=${change} />`;
    case "choice":
      return html`<select ...${shared} onChange=${change}>${!field.required && html`<option value=""></option>`}
        ${field.options.map((each) => html`<option value=${each} selected=${each === value}>${each}</option>`)}</select>`;
    case "list":
      return html`<textarea ...${shared} rows="3" value=${value} onInput=${change}></textarea>
        ${field.path && html`<input list="files" placeholder="Add a file or folder" aria-label=${`Add to ${field.label}`} onChange=${(/** @type {any} */ event) => {
          if (event.target.value) change({ target: { value: [value, event.target.value].filter(Boolean).join("\n") } });
          event.target.value = "";
        }} />`}`;
    case "json":
    case "long":
      return html`<textarea ...${shared} rows=${field.kind === "long" ? 6 : 3} value=${value} onInput=${change}></textarea>`;
    default:
      return html`<input ...${shared} inputmode=${field.kind === "number" ? "decimal" : undefined} list=${field.path ? "files" : undefined} value=${value} onInput=${change} />`;
  }
}

/** @param {string} id @param {import("../lib/schema_form.js").Field[]} all */
function initial(id, all) {
  const key = `control-room.args.${id}`;
  const found = JSON.parse(sessionStorage.getItem(key) || "{}");
  sessionStorage.removeItem(key);
  return Object.fromEntries(all.map((each) => [each.name, found[each.name] === undefined ? each.initial : text(found[each.name], each)]));
}

/** @param {any} value @param {import("../lib/schema_form.js").Field} field */
function text(value, field) {
  if (field.kind === "list" && Array.isArray(value)) return value.join("\n");
  return typeof value === "object" ? JSON.stringify(value) : value;
}

/** The limits of a request, where there are any. @param {Record<string, string>} values */
function limited(values) {
  const given = Object.entries(amounts(values)).filter(([, amount]) => amount !== null);
  return given.length ? { limits: Object.fromEntries(given) } : {};
}

/** Whether a node of a graph does something. @param {any} node */
function acts(node) {
  return node.kind !== "start" && node.kind !== "end";
}

/**
 * The faults of a refusal: those that belong to one field each, and the others.
 * @param {any[]} flaws @param {import("../lib/schema_form.js").Field[]} all
 * @returns {[Record<string, string>, any[]]}
 */
function beside(flaws, all) {
  /** @type {Record<string, string>} */
  const found = {};
  const others = flaws.filter((flaw) => {
    const name = /^\$?\.?(?:args\.)?([A-Za-z0-9_-]+)/.exec(flaw.path || "")?.[1];
    if (name === undefined || !all.some((each) => each.name === name)) return true;
    found[name] = flaw.message || "";
    return false;
  });
  return [found, others];
}

/** A short hash, so that a changed form is another start. @param {unknown} value */
async function digest(value) {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  if (!crypto.subtle) return String(bytes.length);
  const hash = await crypto.subtle.digest("SHA-256", bytes);
  return [...new Uint8Array(hash).slice(0, 6)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
