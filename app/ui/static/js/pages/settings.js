import { useState } from "preact/hooks";

import { address, html, navigate } from "../lib/base.js";
import * as format from "../lib/format.js";
import { get, isSignedIn, keepSession, newKey, patch, pathOf, post, put, remove, useLive, withQuery } from "../lib/live.js";
import { Ago, AskButton, Command, Confirm, Empty, Fault, Id, Missing, PageTitle, Section, Status, Table, announce, each, options, toggled, typed, useAct, useFields, useList } from "../parts/basics.js";
import { LIMITS, Recipe, useRecipes } from "../parts/orders.js";
import { person } from "../parts/rows.js";

const LOOK = 5000;

export function Triggers() {
  const triggers = useLive("/api/triggers", { pause: LOOK });
  return html`
    <${PageTitle} title="Triggers" lead="Start runs on a schedule, on an incoming webhook, or when a file appears."
      actions=${html`<a class="button primary" href="/start?schedule=yes">Schedule a recipe</a>`} />
    <${Fault} error=${triggers.error} retry=${triggers.refresh} />
    ${triggers.data?.length === 0 && html`<${Empty} title="No triggers yet." command="control-room triggers add RECIPE --cron '30 7 * * MON-FRI'">
      <p class="offer">Choose “Start it on a schedule” in the form of <a href="/start">a recipe</a>, or from a terminal:</p><//>`}
    <${Table} label="Triggers" rows=${triggers.data} name="trigger_id" columns=${TRIGGERS} />`;
}

/** @type {Columns} */
const TRIGGERS = [
  ["State", (trigger) => html`<${State} trigger=${trigger} />`],
  ["Trigger", (trigger) => html`<a class="row-link" href=${`/triggers/${trigger.trigger_id}`}>${trigger.name}</a>`, "wide"],
  ["Starts", (trigger) => html`<a href=${withQuery("/recipes", { recipe: trigger.recipe_id })}>${trigger.recipe_id}</a>`],
  ["When", when],
  ["Next", (trigger) => !trigger.paused && html`<${Ago} at=${trigger.next_at[0]} />`],
  ["Newest", ({ history: [newest] }) => newest && html`<${Outcome} of=${newest} /> <${Ago} at=${newest.at} />`],
];

/** @param {Props} props */
export function Trigger({ id }) {
  const path = pathOf("triggers", id);
  const live = useLive(path, { pause: LOOK });
  const [key] = useState(newKey);
  const trigger = live.data;
  const [order, error] = useAct(async ([call, said]) => (live.refresh(await call()), announce(said)));
  if (!trigger) return html`<${Missing} title="Trigger" id=${id} live=${live} />`;
  const pause = () => order([() => patch(path, { paused: !trigger.paused, revision: trigger.revision }), trigger.paused ? "Resumed" : "Paused"]);
  return html`
    <${PageTitle} title=${trigger.name} lead=${html`<${State} trigger=${trigger} /> · It starts ${trigger.recipe_id} ${when(trigger)}.`}
      actions=${html`<button class="primary" onClick=${() => order([() => post(`${path}/fire`, {}, { "Idempotency-Key": key + trigger.history[0]?.at }), "A run is started"])}>Start a run now</button>
        <button onClick=${pause}>${trigger.paused ? "Resume" : "Pause"}</button>
        <${AskButton} word="Remove" title="Remove this trigger?" kind="quiet danger" danger onConfirm=${() => remove(path).then(() => navigate("/triggers"))}>
          <p>It starts no further run. The runs that it started stay.</p><//>`} />
    <${Fault} error=${error} />
    <dl class="facts card"><dt>Trigger</dt><dd><${Id} id=${trigger.trigger_id} /></dd>
      <dt>Recipe</dt><dd><a href=${withQuery("/recipes", { recipe: trigger.recipe_id })}>${trigger.recipe_id}</a></dd>
      <dt>Arguments</dt><dd class="mono">${JSON.stringify({ ...trigger.args, ...trigger.args_from }).replace(/^{}$/, "none")}</dd>
      <dt>If a run is active</dt><dd>${OVERLAP[trigger.overlap]}</dd>
      ${trigger.kind === "schedule" && html`<dt>Missed times</dt><dd>${CATCH_UP[trigger.catch_up]}</dd>`}
      ${trigger.waiting > 0 && html`<dt>Waiting</dt><dd>${trigger.waiting}</dd>`}
      <dt>Created</dt><dd><${Ago} at=${trigger.created_at} />${trigger.created_by?.name && ` by ${trigger.created_by.name}`}</dd></dl>
    ${trigger.next_at.length > 0 && html`<${Section} title=${trigger.paused ? "Next times, once resumed" : "Next times"}><ul class="lines">${each(trigger.next_at, (at) => html`<li><${Ago} at=${at} /><span class="muted">${new Date(at).toLocaleString(undefined, { timeZoneName: "short" })}</span></li>`)}</ul><//>`}
    <${Section} title="History" count=${trigger.history.length}>
      ${trigger.history.length === 0 && html`<p class="muted">No runs yet.</p>`}
      <ul class="lines">${each(trigger.history, (past) => html`<li key=${past.occurrence}><${Outcome} of=${past} /><span class="wide">${past.subject || ""} ${past.reason || ""}</span><${Ago} at=${past.due_at} /></li>`)}</ul><//>`;
}

/** @type {Words} */
const OVERLAP = { allow: "another one starts", skip: "none starts", queue: "the next one waits for its end", cancel: "it is cancelled, and the next one starts" };

/** @type {Words} */
const CATCH_UP = { none: "start no run", one: "start one run together", all: "start one run each" };

/** @param {Props} props */
function State({ trigger }) {
  const over = trigger.kind === "schedule" && !trigger.next_at.length;
  return html`<${Status} of=${trigger.paused ? "paused" : over ? "done" : "pending"} word=${trigger.paused ? "paused" : over ? "over" : "active"} />`;
}

/** @param {Props} props */
function Outcome({ of }) {
  const state = { started: "done", repeated: "done", queued: "queued", refused: "failed" }[/** @type {string} */ (of.result)] || "skipped";
  return html`<${Status} of=${state} word=${of.result} /> ${of.run_id && html`<a href=${`/runs/${of.run_id}`}>run</a>`}`;
}

/** @type {Words} */
const UNITS = { 60: "minute", 3600: "hour", 86400: "day" };

/** @param {any} trigger */
function when({ schedule, webhook, files }) {
  if (webhook) return `for each delivery${webhook.scheme === "none" ? "" : ` signed as ${webhook.scheme}`}`;
  if (files) return `for each new file of ${files.pattern}`;
  const [, minute, hour] = /^(\d\d?) (\d\d?) \* \* \*$/.exec(schedule.cron) || [];
  if (hour) return `every day at ${hour.padStart(2, "0")}:${minute.padStart(2, "0")} (${schedule.timezone})`;
  if (schedule.cron) return `on the schedule ${schedule.cron} (${schedule.timezone})`;
  return schedule.every_seconds ? `every ${UNITS[schedule.every_seconds] || format.duration(schedule.every_seconds)}` : `once, ${new Date(schedule.at).toLocaleString()}`;
}

const ENDPOINTS = "/api/notifications/endpoints";

/** @type {[string, string][]} */
const KINDS = [
  ["waits", "waits for a person"],
  ["failed", "fails"],
  ["done", "finishes"],
  ["stalled", "stalls"],
  ["budget", "reaches a budget"],
  ["refused", "is refused to a trigger"],
];

export function Notifications() {
  const endpoints = useLive(ENDPOINTS, { pause: LOOK });
  const [made, setMade] = useState(null);
  return html`
    <${PageTitle} title="Notifications" lead="Send a webhook, an e-mail or a command when a run waits, fails, finishes, stalls or reaches a budget." />
    <${Fault} error=${endpoints.error} retry=${endpoints.refresh} />
    ${made?.signing_secret && html`<${Secret} title=${`The signing secret of ${made.name}`} text=${made.signing_secret} onKept=${() => setMade(null)}>The receiver checks signatures with it. It is shown this once.<//>`}
    ${made?.warning && html`<p class="wrong-text">Not delivered now: ${made.warning}</p>`}
    ${endpoints.data?.length === 0 && html`<p class="muted">No notifications are set up yet.</p>`}
    ${each(endpoints.data, (endpoint) => html`<${Endpoint} key=${endpoint.endpoint_id} of=${endpoint} onDone=${endpoints.refresh} />`)}
    ${endpoints.data && html`<${NewEndpoint} onMade=${(/** @type {any} */ answer) => (setMade(answer), endpoints.refresh())} />`}`;
}

/** @param {Props} props */
function Secret({ title, text, onKept, children }) {
  return html`<section class="card" role="status"><h2>${title}</h2><p>${children}</p><${Command} text=${text} />
    <div class="actions"><button onClick=${onKept}>I have kept it</button></div></section>`;
}

/** @param {Props} props */
function Endpoint({ of: endpoint, onDone }) {
  const path = `${ENDPOINTS}/${endpoint.endpoint_id}`;
  const [dead, setDead] = useState(null);
  const [act, error] = useAct(async (call) => (announce(await call()), onDone()));
  const test = () => act(async () => {
    const found = await post(`${path}/test`);
    if (!found.delivered) throw new Error(`The test was not delivered. ${found.detail}`);
    return "The test was delivered";
  });
  const show = () => act(async () => (setDead(await get(`${path}/dead`)), "These were given up"));
  const replay = () => act(async () => (await post(`${path}/replay`), setDead(null), "They are sent again"));
  const giveUp = () => act(async () => (await post(`${path}/give-up`), "They are not tried again"));
  return html`<${Section} title=${endpoint.name} actions=${html`<button onClick=${test}>Send a test</button>
      <${AskButton} word="Remove" title=${`Remove ${endpoint.name}?`} kind="quiet danger" danger onConfirm=${() => remove(path).then(onDone)}><p>It receives nothing more, including messages that wait to be sent.</p><//>`}>
    <div class="card"><p><strong>${endpoint.channel}</strong> <code>${endpoint.url || endpoint.to.join(", ") || endpoint.argv.join(" ")}</code></p>
      <p class="muted">${told(endpoint)}${endpoint.waiting > 0 ? `; ${format.plural(endpoint.waiting, "message")} to be sent` : ""}</p>
      ${endpoint.failing > 0 && html`<p><${Status} of="warning" word=${`${format.plural(endpoint.failing, "message")} not delivered yet: ${endpoint.last_error}.`} /> Tried ${format.plural(endpoint.attempts, "time")}, next try <${Ago} at=${endpoint.next_try_at} />${endpoint.behind > 0 ? `, ${endpoint.behind} behind` : ""}. <button class="small" onClick=${giveUp}>Give up</button></p>`}
      ${endpoint.dead > 0 && html`<p class="wrong-text">${endpoint.dead} could not be delivered. <button class="small" onClick=${show}>Show</button> <button class="small" onClick=${replay}>Send again</button></p>`}
      ${dead && html`<ul class="lines">${each(dead, ({ error: why, given_up_at, message }) => html`<li key=${message.message_id}><span class="wide">${message.text}</span><span class="muted">${why}</span><${Ago} at=${given_up_at} /></li>`)}</ul>`}
      <${Fault} error=${error} /></div><//>`;
}

/** @param {any} endpoint */
function told({ kinds, recipe_id, label }) {
  const what = kinds.length ? KINDS.filter(([kind]) => kinds.includes(kind)).map(([, word]) => word).join(", ") : "everything";
  const where = [recipe_id && `of ${recipe_id}`, label && `labelled ${format.label(label)}`].filter(Boolean).join(", ");
  return `Sent when a run: ${what}${where && `, ${where}`}`;
}

/** @param {Props} props */
function NewEndpoint({ onMade }) {
  const [{ channel, target, name }, change, set] = useFields({ channel: "url", target: "", name: "" });
  const [kinds, setKinds] = useState(/** @type {string[]} */ (["waits", "failed"]));
  const toggle = (/** @type {string} */ kind) => setKinds(toggled(kinds, kind));
  const [add, error] = useAct(async () => {
    onMade(await post(ENDPOINTS, { [channel]: target, kinds, ...(name && { name }) }));
    set({ channel, target: "", name: "" });
  });
  return html`<${Section} title="Add an endpoint"><form class="card form" onSubmit=${add}>
    <label>Send by <select onChange=${change("channel")}>${options([["url", "webhook"], ["to", "e-mail"]], channel)}</select></label>
    <label>${channel === "url" ? "Address" : "E-mail address"} <input required type=${channel === "url" ? "url" : "email"} placeholder=${channel === "url" ? "https://example.org/hook" : "ada@example.org"} value=${target} onInput=${change("target")} /></label>
    <label>Name (optional) <input maxlength="100" value=${name} onInput=${change("name")} /></label>
    <fieldset><legend>Send when a run …</legend>${KINDS.map(([kind, word]) => html`<label class="choice"><input type="checkbox" checked=${kinds.includes(kind)} onChange=${() => toggle(kind)} /> ${word}</label>`)}</fieldset>
    <p class="help">Choose none to receive everything.</p>
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary">Add</button></div>
    <p class="muted">Add a command from a terminal: <code>control-room notifications add</code></p></form><//>`;
}

export function Rules() {
  useRecipes();
  return html`<${PageTitle} title="Rules" lead="What counts for all runs: when they are removed, what they may use, and what models cost." />
    ${RULES.map((of) => html`<${Rule} of=${of} />`)}`;
}

/** @param {any[]} parts */
function joined(...parts) {
  return parts.filter(Boolean).join(", ");
}

/** @type {RuleDocument[]} */
const RULES = [
  {
    title: "Removal of old runs", path: "/api/retention", none: "No run is removed.",
    help: "Applied once an hour, to finished runs. Pinned runs, and those that unfinished runs need, are kept.",
    example: { rules: [{ older_than_seconds: 7776000, keep_bytes: null, status: ["failed", "cancelled"], recipe_id: null, labels: {} }] },
    read: ({ rules }) => rules,
    columns: [
      ["Removes runs", ({ older_than_seconds: age, keep_bytes: size }) => joined(age !== null && `that ended over ${format.duration(age)} ago`, size !== null && `beyond the newest ${format.bytes(size)}`)],
      ["State", ({ status }) => joined(...status)],
      ["Of", ({ recipe_id, labels }) => joined(recipe_id || "all recipes", ...Object.entries(labels).map((pair) => pair.join("=")))],
    ],
  },
  {
    title: "What runs may use", path: "/api/policies", none: "Runs have only the limits of their start.",
    help: "A limit counts where the start of a run gives no other. The recipe * is every recipe.",
    example: { policies: [{ recipe_id: "*", limits: { cost_usd: 5, calls: 50 }, approvals: { count: 2, not_starter: true } }] },
    read: ({ policies }) => policies,
    columns: [
      ["Recipe", ({ recipe_id: name }) => html`<${Recipe} name=${name} />`],
      ["Limits", ({ limits }) => joined(...LIMITS.map(([name, unit, written]) => typeof limits[name] === "number" && `${written(limits[name])} ${unit}`.replace(/ US dollars|seconds /, ""))) || "none"],
      ["A gate needs", ({ approvals: of }) => (of ? joined(format.plural(of.count, "approval"), of.not_starter && "none by who started the run") : "one answer")],
    ],
  },
  {
    title: "Prices", path: "/api/prices", none: "No price is known.",
    help: "US dollars for a million tokens, where a provider reports no price. * stands for any characters; the first match counts.",
    example: { models: { "claude-sonnet-*": { input_per_million_usd: 3, output_per_million_usd: 15 } } },
    read: ({ models }) => Object.entries(models),
    columns: [["Model", ([model]) => model], ["Input", ([, price]) => price.input_per_million_usd], ["Output", ([, price]) => price.output_per_million_usd]],
  },
];

/** @param {{of: RuleDocument}} props */
function Rule({ of: { title, path, none, help, example, read, columns } }) {
  const live = useLive(path, { pause: LOOK });
  const [edited, setEdited] = useState(null);
  const [removed, setRemoved] = useState(null);
  const entries = live.data && read(live.data);
  // A version that is made of the content must not outlive it.
  const edit = () => setEdited({ before: live.data, text: JSON.stringify(entries?.length ? { ...live.data, version: undefined } : example, null, 2) });
  const keep = async (/** @type {any} */ document) => {
    if (JSON.stringify(await get(path)) !== JSON.stringify(edited?.before)) throw new Error("Someone else has changed this meanwhile. Copy your text, go back and edit it again.");
    await put(path, document);
    announce("Saved");
    setEdited(null);
    live.refresh();
  };
  const [save, error] = useAct(async () => {
    const document = JSON.parse(edited?.text || "");
    if (document.rules) setRemoved({ document, reports: await Promise.all(document.rules.map((/** @type {any} */ rule) => post("/api/runs/prune", rule))) });
    else await keep(document);
  });
  return html`<${Section} title=${title} actions=${entries && !edited && html`<button onClick=${edit}>Edit</button>`}><p class="muted">${help}</p>
    <${Fault} error=${live.error} retry=${live.refresh} />
    ${entries?.length === 0 && html`<p>${none}</p>`}
    <${Table} label=${title} rows=${entries} name=${JSON.stringify} columns=${columns} />
    ${edited && html`<form class="card form" onSubmit=${save}><label>${title}, as JSON <textarea class="mono" rows="12" spellcheck=${false} value=${edited.text} onInput=${typed((text) => setEdited({ ...edited, text }))}></textarea></label>
      <${Fault} error=${error} /><div class="actions"><button type="submit" class="primary">Save</button><button onClick=${() => setEdited(null)}>Discard</button></div></form>`}
    ${removed && html`<${Confirm} title="Save these rules?" confirm="Save" danger onConfirm=${() => keep(removed.document)} onClose=${() => setRemoved(null)}>
      <ul>${each(removed.reports, (report, at) => html`<li>Rule ${at + 1} removes ${format.plural(report.matched, "run")} within the hour (${format.bytes(report.size_bytes)})${report.more ? ", and more later" : ""}.</li>`)}</ul><//>`}<//>`;
}

const KEYS = "/api/keys";

/** What each role may do; each includes those before it. @type {Words} */
const ROLES = { viewer: "can look", runner: "can also start, pause and cancel runs", approver: "can also answer questions", admin: "can change everything, including keys" };

export function Access() {
  const keys = useLive(KEYS, { pause: LOOK });
  const [secret, setSecret] = useState(null);
  const issued = async (/** @type {any} */ key) => {
    setSecret(key);
    // The first key closes the service to whoever made it, who would lose sight of the secret.
    if (keys.data?.length === 0 && !isSignedIn.value) keepSession((await post("/api/session", { token: key.secret })).session);
    keys.refresh();
  };
  const target = address.value.query.get("target");
  if (target) return html`<${PageTitle} title="History" lead=${html`Who started, ordered and answered what, of <${Id} id=${target} />`} actions=${html`<a class="button" href="/access">All changes</a>`} /><${Audit} target=${target} />`;
  return html`
    <${PageTitle} title="Access" lead="Keys for people and programs, and a log of changes." />
    <${Fault} error=${keys.error} retry=${keys.refresh} />
    ${secret && html`<${Secret} title=${`The secret of ${secret.name}`} text=${secret.secret} onKept=${() => setSecret(null)}>Copy it now: it is shown only once. Its holder signs in with it, or sends it as <code>Authorization: Bearer</code>.<//>`}
    ${keys.data && html`<${Section} title="Keys" count=${keys.data.length}>
      ${keys.data.length === 0 && html`<p class="muted">No keys yet: the service answers every caller on this machine. Once there is a key, it answers only callers with a key. Make the first key your own, with the role admin; this tab signs in with it.</p>`}
      <${Table} label="Keys" rows=${keys.data} name="name" columns=${[...COLUMNS, ["", (/** @type {any} */ key) => html`<${KeyOrders} of=${key} onIssued=${issued} onGone=${keys.refresh} />`]]} />
      <${NewKey} first=${keys.data.length === 0} onIssued=${issued} /><//>`}
    ${keys.data && html`<${Audit} />`}`;
}

/** @type {Columns} */
const COLUMNS = [
  ["Name", (key) => key.name],
  ["Role", (key) => key.role],
  ["Limited to", (key) => [...key.recipes, ...key.labels.map(format.label)].join(", ") || "all runs"],
  ["Expires", (key) => (key.expires_at ? html`<${Ago} at=${key.expires_at} />` : "never")],
];

/** @param {Props} props */
function KeyOrders({ of: key, onIssued, onGone }) {
  const path = pathOf("keys", key.name);
  const rotate = async () => (onIssued(await post(`${path}/rotate`, { grace_seconds: 3600 })), announce("The key has a new secret"));
  const revoke = async () => (await remove(path), onGone(), announce("The key is revoked"));
  return html`<${AskButton} word="Rotate" title=${`Rotate the key of ${key.name}?`} kind="small" onConfirm=${rotate}><p>It gets a new secret; the present one counts for another hour.</p><//> <${AskButton} word="Revoke" title=${`Revoke the key of ${key.name}?`} kind="small danger" danger onConfirm=${revoke}>
    <p>Its requests, sign-ins and streams end at once.</p><//>`;
}

/** @param {Props} props */
function NewKey({ first, onIssued }) {
  const [values, change, setValues] = useFields({ name: "", role: first ? "admin" : "viewer", recipes: "", labels: "", expires: "" });
  const [add, error] = useAct(async () => {
    const { name, role, expires } = values;
    const expires_at = expires ? new Date(`${expires}T24:00`).toISOString() : null;
    await onIssued(await post(KEYS, { name, role, recipes: listed(values.recipes), labels: listed(values.labels).map(format.labelled), expires_at }));
    setValues({ ...values, name: "", role: "viewer" });
  });
  return html`<form class="card form" onSubmit=${add} aria-label="New key">
    <label>Name <input required maxlength="64" placeholder="ada" value=${values.name} onInput=${change("name")} /></label>
    <label>Role <select onChange=${change("role")}>${options(Object.entries(ROLES).map(([role, does]) => [role, `${role}: ${does}`]), values.role)}</select></label>
    <label>Only these recipes, comma-separated (all, if empty) <input value=${values.recipes} onInput=${change("recipes")} /></label>
    <label>Only runs with these labels, comma-separated (all, if empty) <input placeholder="book=one" value=${values.labels} onInput=${change("labels")} /></label>
    <label>Last day (none, if empty) <input type="date" value=${values.expires} onInput=${change("expires")} /></label>
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary">Add a key</button></div></form>`;
}

/** @param {string} text */
function listed(text) {
  return text.split(",").map((each) => each.trim()).filter(Boolean);
}

/** @param {Props} props `target`: of this run or plan alone. */
function Audit({ target = "" }) {
  const [{ author, action }, change] = useFields({ author: "", action: "" });
  const lines = useList("/api/audit", { target, author, action }, { pause: LOOK });
  return html`<${Section} title="Changes" actions=${html`<label>By <input class="short" value=${author} onChange=${change("author")} /></label><label>Action <input class="short" placeholder="run.deleted" value=${action} onChange=${change("action")} /></label>`}>
    <${Fault} error=${lines.error} />
    ${lines.data?.length === 0 && html`<p class="muted">No changes yet.</p>`}
    <ul class="lines">${each(lines.data, (line) => html`<li key=${line.at + line.action + line.target}><code>${line.action}</code>${line.details?.decision && html`<strong>${line.details.decision}</strong>`}<span class="wide">${line.run_id ? html`<a href=${`/runs/${line.run_id}`}>${line.target}</a>` : line.target}</span><span>${line.author ? person(line.author) : "Control Room"}</span><${Ago} at=${line.at} /></li>`)}</ul>${lines.more}<//>`;
}
