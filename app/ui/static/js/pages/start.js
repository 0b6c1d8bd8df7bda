import { useEffect, useState } from "preact/hooks";

import { address, html, navigate, setQuery, useValue } from "../lib/base.js";
import * as format from "../lib/format.js";
import { isSignedIn, newKey, pathOf, post, role, useLive, withQuery } from "../lib/live.js";
import { Command, Fault, PageTitle, Status, each, options, typed, useAct } from "../parts/basics.js";
import { LimitFields, amounts, unlimited, usePreflight } from "../parts/orders.js";
import { Choose, steps, told } from "./library.js";

export function Start() {
  const chosen = address.value.query.get("recipe");
  return html`
    <${PageTitle} title="Start a run" lead=${address.value.query.get("schedule") ? `${chosen ? "Fill in the form" : "Choose a recipe"}; its schedule is at the end of the form.` : chosen ? "Fill in the form; “What it will do” follows what you enter." : "Describe the task, or choose a recipe and fill in its form."} />
    <p class="notice refusal">You can look here, but your role cannot start a run.</p>
    ${chosen ? html`<${RecipeForm} key=${chosen} id=${chosen} />` : html`<${Describe} /><${Choose} />`}`;
}

function Describe() {
  const [text, setText] = useState("");
  const [routed, setRouted] = useState(null);
  const open = (/** @type {any} */ found) => {
    sessionStorage.setItem(`control-room.args.${found.recipe_id}`, JSON.stringify(found.initial_args));
    navigate(withQuery("/start", { recipe: found.recipe_id, description: text }));
  };
  const [route, error] = useAct(async () => {
    const found = await post("/api/route", { description: text });
    if (found.candidates.length === 1) open(found);
    else setRouted(found);
  });
  return html`<form class="card" onSubmit=${route}>
    <label>Describe the task <input id="describe" required placeholder="Draft scene 22" value=${text} onInput=${typed(setText)} /></label>
    <${Fault} error=${error} />
    ${routed && html`<p role="status">${routed.routable ? `${routed.candidates.length} recipes fit. Choose one; the first covers most of the description.` : `${routed.reason} Choose a recipe below.`}</p>
      <ol class="lines">${each(routed.candidates, (found) => html`<li data-row><button onClick=${() => open(found)}>${found.recipe_id}</button>
        <span class="wide muted">It covers ${format.plural(found.characters, "character")} of the description by <code>${found.pattern}</code></span></li>`)}</ol>`}
    <div class="actions"><button type="submit" class="primary">Find a recipe</button></div>
  </form>`;
}

/** @param {Props} props */
function RecipeForm({ id }) {
  const recipe = useLive(pathOf("recipes", id), { pause: 3600_000 });
  if (!recipe.data) return html`<${Fault} error=${recipe.error} retry=${recipe.refresh} />`;
  return html`<${Filled} recipe=${recipe.data} />`;
}

/** @param {Props} props */
function Filled({ recipe }) {
  const all = fields(recipe.args_schema);
  const [{ values, description }, setForm] = useState(() => initial(recipe.recipe_id, all));
  const [faults, setFaults] = useState(/** @type {Words} */ ({}));
  const [key] = useState(newKey);
  const [limits, setLimits] = useState(/** @type {Words} */ ({}));
  const request = { recipe_id: recipe.recipe_id, description: description || recipe.label || recipe.recipe_id, args: read(all, values).args, ...limited(limits) };
  const { report, error: unknown } = usePreflight(request);
  const [found, others] = beside(report?.problems || [], all);
  // Nobody is told of a field that is still to be filled in.
  const refused = Object.fromEntries(Object.entries(found).filter(([name]) => values[name] !== "" && values[name] !== undefined));
  // The way back to this page finds what was entered.
  useEffect(() => window.history.replaceState({ values, description }, ""), [values, description]);
  const wrong = (/** @type {Words} */ told) => {
    setFaults(told);
    requestAnimationFrame(() => /** @type {HTMLElement | null} */ (document.querySelector(".field [aria-invalid=true]"))?.focus());
  };
  const filled = () => {
    const given = read(all, values);
    wrong(given.faults);
    return Object.keys(given.faults).length ? null : given.args;
  };
  const [start, error] = useAct(async () => {
    // What is left empty can be found in the project, which the report tells.
    if (!report?.ok && !filled()) return;
    try {
      const run = await post("/api/runs", request, { "Idempotency-Key": `${key}-${await digest(request)}` });
      navigate(`/runs/${run.run_id}`);
    } catch (caught) {
      wrong(beside(/** @type {any} */ (caught).faults || [], all)[0]);
      throw caught;
    }
  });
  const mine = useValue(role);
  const files = useLive(mine !== "viewer" && (mine || !isSignedIn.value) && all.some((field) => field.path) ? "/api/files" : null, { pause: 3600_000 });
  const known = places(files.data?.files || []);
  const [warned, waits] = beside(report?.warnings || [], all);
  const unlisted = (/** @type {Field} */ field) => (recipe.dialect !== "control_room" && files.data && !files.data.truncated && field.path ? String(values[field.name] || "").split(/[\n,]/).filter((path) => path.trim() && !path.startsWith("/") && !known.includes(path.trim().replace(/^\.\/|\/$/g, ""))) : []);
  const change = (/** @type {string} */ name) => (/** @type {any} */ value) => {
    setForm({ values: { ...values, [name]: value }, description });
    setFaults({ ...faults, [name]: "" });
  };
  return html`<div class="columns"><form id="form" class="card form" onSubmit=${start} novalidate>
    <header><h2>${recipe.recipe_id}</h2><a class="push" href="/start" onClick=${() => setQuery({ recipe: null })}>Choose another recipe</a></header>
    ${told(recipe) && html`<p class="muted">${told(recipe)}</p>`}
    ${!recipe.ready && html`<div class="fault"><strong>This recipe cannot run here yet.</strong>${each(recipe.lacks, (lack) => html`<p>${lack.message}</p>`)}</div>`}
    <label>Description of this run <input value=${description} placeholder=${recipe.label || ""} onInput=${typed((text) => setForm({ values, description: text }))} /></label>
    <datalist id="files">${known.map((place) => html`<option value=${place} />`)}</datalist>
    ${all.map((field) => html`<${Input} field=${field} value=${values[field.name]} found=${report?.args?.[field.name]} offers=${known.length > 0 && field.path} fault=${faults[field.name] || refused[field.name]} warned=${warned[field.name]} unlisted=${unlisted(field)} onChange=${change(field.name)} />`)}
    <details><summary class="link">Limits</summary><p class="help">A run that meets a limit is paused; raise it, and the run continues.</p><${LimitFields} values=${limits} onChange=${setLimits} /></details>
    <${Schedule} recipe=${recipe.recipe_id} args=${filled} />
  </form><${Preflight} report=${report} error=${unknown} others=${[...others, ...waits]} faults=${others.length + Object.keys(refused).length} nodes=${recipe.graph?.nodes.filter(acts) || []} count=${steps(recipe)} lacks=${recipe.lacks}>
    <${Fault} error=${error} />
    <div class="actions"><button form="form" type="submit" class="primary" id="start" disabled=${others.length > 0}>Start</button></div><//></div>`;
}

/** @param {InputProps} props */
function Input({ field, value, found, offers, fault, warned, unlisted, onChange }) {
  const change = (/** @type {any} */ event) => onChange(field.kind === "boolean" ? event.target.checked : event.target.value);
  const name = `arg-${field.name}`;
  const shared = { id: name, "aria-invalid": Boolean(fault), "aria-describedby": `${name}-help`, placeholder: found === undefined || found === null ? (offers ? "Type to find a file or folder" : "") : text(found, field) };
  return html`<div class=${fault ? "field wrong" : "field"}>
    <label for=${name}>${field.label}${field.required ? " (required)" : ""}</label>
    ${control(field, value, change, shared, offers)}
    <p class="help" id=${`${name}-help`}>${fault && html`<strong class="wrong-text">${fault}</strong> `}${warned && html`<strong class="warn-text">${warned}</strong> `}${unlisted.length > 0 && html`<strong class="warn-text">The project lists no file or folder ${unlisted.join(", ")}.</strong> `}${field.help}${field.kind === "list" && " One per line."}</p>
  </div>`;
}

/** @param {Field} field @param {any} value @param {any} change @param {any} shared @param {boolean} offers */
function control(field, value, change, shared, offers) {
  switch (field.kind) {
    case "boolean":
      return html`<input type="checkbox" ...${shared} checked=${value} onChange=${change} />`;
    case "choice":
      return html`<select ...${shared} onChange=${change}>${!(field.required && field.initial) && html`<option value="">${field.required ? "choose…" : ""}</option>`}
        ${options(field.options.map((option) => [option, option]), value)}</select>`;
    case "list":
      return html`<textarea ...${shared} rows="3" value=${value} onInput=${change}></textarea>
        ${offers && html`<input list="files" placeholder="Add a file or folder" aria-label=${`Add to ${field.label}`} onChange=${(/** @type {any} */ event) => {
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

/** @type {Initial} */
function initial(id, all) {
  if (window.history.state?.values) return window.history.state;
  const key = `control-room.args.${id}`;
  const found = JSON.parse(sessionStorage.getItem(key) || "{}");
  sessionStorage.removeItem(key);
  return { description: address.value.query.get("description") || "", values: Object.fromEntries(all.map((each) => [each.name, found[each.name] === undefined ? each.initial : text(found[each.name], each)])) };
}

/** @param {any} value @param {Field} field */
function text(value, field) {
  if (field.kind === "list" && Array.isArray(value)) return value.join("\n");
  return typeof value === "object" ? JSON.stringify(value) : value;
}

/** @param {Words} values */
function limited(values) {
  const given = Object.entries(amounts(values)).filter(([, amount]) => amount !== null);
  return given.length ? { limits: Object.fromEntries(given) } : {};
}

/** @param {any} node */
function acts(node) {
  return node.kind !== "start" && node.kind !== "end";
}

/** @type {Beside} */
function beside(flaws, all) {
  /** @type {Words} */
  const found = {};
  const others = flaws.filter((flaw) => {
    const name = /^\$?\.?(?:args\.)?([A-Za-z0-9_-]+)/.exec(flaw.path || "")?.[1];
    if (name === undefined || !all.some((each) => each.name === name)) return true;
    found[name] = flaw.message || "";
    return false;
  });
  return [found, others];
}

/** @param {unknown} value */
async function digest(value) {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  if (!crypto.subtle) return String(bytes.length);
  const hash = await crypto.subtle.digest("SHA-256", bytes);
  return [...new Uint8Array(hash).slice(0, 6)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const MOST = 20;

/** @param {PreflightProps} props */
function Preflight({ report, error, others, faults, nodes, count, lacks, children }) {
  if (!report) return html`<section class="card" aria-label="Before it starts"><p class="muted">${error ? "What it would do cannot be told now; it can be started all the same." : "Looking at what it will do…"}</p><${Fault} error=${error} />${children}</section>`;
  const { agents, note, calls_at_most: calls } = report;
  return html`<section class="card preflight" aria-label="Before it starts">
    <header><h2>What it will do</h2>${report.ok ? (report.warnings?.length ? html`<${Status} of="warning" word=${`ready, with ${format.plural(report.warnings.length, "warning")}`} />` : html`<${Status} of="valid" word=${`ready to start${report.paths_checked ? "" : "; files are not checked"}`} />`) : html`<${Status} of="warning" word=${faults ? `${format.plural(faults, "thing")} to fix first` : "fill in what is required"} />`}</header>
    ${children}
    ${each(others.filter(({ message }) => !lacks?.some((/** @type {any} */ lack) => lack.message === message)), ({ line, message, path }) => html`<p class="wrong-text">${message} <code>${path}${line ? `:${line}` : ""}</code></p>`)}
    ${count && html`<p class="muted">${count.slice(0, -3)}; gates, checks and files that it writes are not counted.</p>`}
    <${Planned} steps=${report.steps.length ? report.steps : nodes} />
    ${agents.length > 0 && html`<ul class="lines">${each(agents, (agent) => html`<li key=${agent.agent_id}>
      <${Status} of=${agent.ready ? "valid" : "invalid"} word=${agent.ready ? "ready" : "not ready"} /> <strong>${agent.agent_id}</strong>
      <span class="muted">${agent.backend}${agent.model && ` · ${agent.model}`}</span>${agent.fault && html`<span class="wide">${agent.fault}</span>`}</li>`)}</ul>`}
    ${report.dialect && html`<p class="muted">${calls === null ? unlimited(note) : calls ? `It calls agents at most ${calls === 1 ? "once" : `${format.number(calls)} times, if every loop and retry reaches its limit`}.` : "It calls no agent."}</p>
      <p class="muted">It works in <code>${report.workspace}</code></p>`}
  </section>`;
}

/** @param {Props} props */
function Planned({ steps }) {
  const [all, setAll] = useState(false);
  const shown = all ? steps : steps.slice(0, MOST);
  return html`<ol class="planned">${each(shown, (step) => html`<li><strong>${step.title || step.label}</strong> <span class="muted">${step.kind}${by(step)}</span></li>`)}</ol>
    ${shown.length < steps.length && html`<p><button onClick=${() => setAll(true)}>Show all ${format.number(steps.length)} steps</button></p>`}`;
}

/** @param {any} step */
function by({ agent, tool, title, label }) {
  const name = agent || tool;
  return name && !(title || label).includes(name) ? ` · ${name}` : "";
}

const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone;

const WAYS = [
  ["daily", "every day at", ""],
  ["cron", "by cron", "30 7 * * MON-FRI"],
  ["every", "every so many seconds", "3600"],
  ["at", "once, at", ""],
];

/** @param {Props} props */
function Schedule({ recipe, args }) {
  const [way, setWay] = useState("daily");
  const [text, setText] = useState("");
  const [zone, setZone] = useState(LOCAL);
  const [create, error] = useAct(async () => {
    const given = args();
    if (!given) return;
    if (!text) throw new Error("Enter when it starts.");
    const trigger = await post("/api/triggers", { recipe_id: recipe, args: given, schedule: schedule(way, text, zone) });
    navigate(`/triggers/${trigger.trigger_id}`);
  });
  const example = WAYS.find(([name]) => name === way)?.[2];
  return html`<details class="schedule" open=${address.value.query.has("schedule")}><summary class="link">Start it on a schedule</summary>
    <label>When <select onChange=${typed(setWay)}>${options(WAYS, way)}</select></label>
    <label><span>${way === "cron" ? "Minute, hour, day, month, weekday" : way === "every" ? "Seconds" : "Time"}</span>
        <input type=${{ daily: "time", at: "datetime-local" }[/** @type {string} */ (way)] || "text"} placeholder=${example} value=${text} onInput=${typed(setText)} /></label>
    ${(way === "cron" || way === "daily") && html`<label>Time zone <input value=${zone} onInput=${typed(setZone)} /></label>`}
    <${Fault} error=${error} />
    <div class="actions"><button onClick=${create}>Create a trigger</button></div>
    <p class="muted">Webhooks and new files start runs as well, from a terminal:</p><${Command} text=${`control-room triggers add ${recipe} --webhook github`} />
  </details>`;
}

/** @param {string} way @param {string} text @param {string} zone */
function schedule(way, text, zone) {
  if (way === "daily") return { cron: text ? `${Number(text.slice(3))} ${Number(text.slice(0, 2))} * * *` : "", timezone: zone };
  if (way === "cron") return { cron: text, timezone: zone };
  if (way === "every") return { every_seconds: Number(text) };
  const at = new Date(text);
  return { at: Number.isNaN(at.getTime()) ? text : at.toISOString() };
}

/** @param {any} schema @returns {Field[]} */
function fields(schema) {
  const required = new Set(schema?.required || []);
  // What steps set themselves is not asked for.
  const asked = Object.entries(schema?.properties || {}).filter(([, rule]) => !rule.readOnly);
  const found = asked.map(([name, each]) => field(name, each, required.has(name)));
  return [...found.filter((each) => each.required), ...found.filter((each) => !each.required)];
}

/** @param {string} name @param {any} schema @param {boolean} required @returns {Field} */
function field(name, schema, required) {
  const kind = kindOf(schema);
  const initial = kind === "boolean" ? Boolean(schema.default) : shown(schema.default, kind);
  const options = (schema.enum || []).map(String);
  const path = (kind === "text" || kind === "list") && /(^|_)(path|file|folder|director(y|ie))s?$/.test(name);
  return { name, kind, label: name[0].toUpperCase() + name.slice(1).replaceAll("_", " "), help: (schema.description || "").replaceAll("`", ""), required, initial, options, path };
}

/** @param {any} schema @returns {Field["kind"]} */
function kindOf(schema) {
  if (schema.enum) return "choice";
  if (schema.type === "boolean" || typeof schema.default === "boolean") return "boolean";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "array" && schema.items?.type === "string") return "list";
  if (schema.type === undefined && schema.default) return kindOfValue(schema.default);
  if (schema.type === "string") return (schema.maxLength || 0) > 2000 ? "long" : "text";
  return schema.type === undefined ? "any" : "json";
}

/** @param {any} value @returns {Field["kind"]} */
function kindOfValue(value) {
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) return "list";
  return typeof value === "object" ? "json" : typeof value === "string" ? "text" : "any";
}

/** @param {string[]} files */
function places(files) {
  const found = new Set();
  for (const file of files) {
    const parts = file.split("/");
    for (let end = 1; end <= parts.length; end += 1) found.add(parts.slice(0, end).join("/"));
  }
  return [...found];
}

/** @param {any} value @param {Field["kind"]} kind */
function shown(value, kind) {
  if (value === undefined || value === null) return "";
  if (kind === "list") return value.join("\n");
  return kind === "json" ? JSON.stringify(value) : String(value);
}

/** @type {ReadForm} */
function read(all, values) {
  /** @type {Record<string, any>} */
  const args = {};
  /** @type {Words} */
  const faults = {};
  for (const each of all) {
    const value = values[each.name] ?? each.initial;
    if (value === "" && each.required) faults[each.name] = "This argument is required.";
    if (value === "" || value === each.initial) {
      if (value !== "" && each.required) args[each.name] = parsed(each, value);
      continue;
    }
    try {
      args[each.name] = parsed(each, value);
    } catch {
      faults[each.name] = each.kind === "number" ? "This is not a number." : "This is not valid JSON.";
    }
  }
  return { args, faults };
}

/** @param {Field} each @param {string | boolean} value */
function parsed(each, value) {
  if (typeof value === "boolean") return value;
  if (each.kind === "list") return value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (each.kind === "json") return JSON.parse(value);
  if (each.kind === "any") return jsonOrText(value);
  if (each.kind !== "number") return value;
  const number = Number(value);
  if (!Number.isFinite(number)) throw new RangeError(value);
  return number;
}

/** @param {string} value A value of no known type: JSON if it reads so, else a text. */
function jsonOrText(value) {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
