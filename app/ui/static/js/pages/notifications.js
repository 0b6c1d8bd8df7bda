// @ts-check
import { useState } from "preact/hooks";

import { get, post, remove } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { Ago, Command, Confirm, Fault, PageTitle, Section, announce, useFault } from "../parts/basics.js";

const PATH = "/api/notifications/endpoints";

/** Occasions for a message. @type {[string, string][]} */
const KINDS = [
  ["waits", "waits for a person"],
  ["failed", "fails"],
  ["done", "finishes"],
  ["stalled", "stalls"],
  ["budget", "reaches a budget"],
];

/** Milliseconds between two looks. */
const LOOK = 5000;

/** Notifications: who receives which messages, and what could not be delivered. */
export function Notifications() {
  const endpoints = useLive(PATH, { pause: LOOK });
  const [made, setMade] = useState(/** @type {any} */ (null));
  return html`
    <${PageTitle} title="Notifications" lead="Send a webhook, an e-mail or a command when a run waits, fails, finishes, stalls or reaches a budget." />
    <${Fault} error=${endpoints.error} retry=${endpoints.refresh} />
    ${made?.signing_secret && html`<section class="card" role="status"><h2>The signing secret of ${made.name}</h2>
      <p>The receiver checks signatures with it. It is shown this once.</p><${Command} text=${made.signing_secret} />
      <div class="actions"><button type="button" onClick=${() => setMade(null)}>I have kept it</button></div></section>`}
    ${endpoints.data?.length === 0 && html`<p class="muted">No notifications are set up yet.</p>`}
    ${endpoints.data?.map((/** @type {any} */ each) => html`<${Endpoint} key=${each.endpoint_id} of=${each} onDone=${endpoints.refresh} />`)}
    <${NewEndpoint} onMade=${(/** @type {any} */ answer) => (setMade(answer), endpoints.refresh())} />`;
}

/** @param {{of: any, onDone: () => void}} props */
function Endpoint({ of: endpoint, onDone }) {
  const path = `${PATH}/${endpoint.endpoint_id}`;
  const [asked, setAsked] = useState(false);
  const [error, setError] = useFault();
  const [dead, setDead] = useState(/** @type {any[] | null} */ (null));
  const act = (/** @type {() => Promise<string>} */ call) => async () => {
    try {
      announce(await call());
      setError(null);
      onDone();
    } catch (caught) {
      setError(caught);
    }
  };
  const test = act(async () => {
    const found = await post(`${path}/test`);
    if (!found.delivered) throw new Error(found.detail);
    return "The test was delivered";
  });
  const show = act(async () => (setDead(await get(`${path}/dead`)), "These were given up"));
  const replay = act(async () => (await post(`${path}/replay`), setDead(null), "They are sent again"));
  return html`<${Section} title=${endpoint.name} actions=${html`<button type="button" onClick=${test}>Send a test</button>
      <button type="button" class="quiet danger" onClick=${() => setAsked(true)}>Remove</button>`}>
    <div class="card"><p><strong>${endpoint.channel}</strong> <code>${endpoint.url || endpoint.to || (endpoint.argv || []).join(" ")}</code></p>
      <p class="muted">${told(endpoint)}${endpoint.waiting > 0 ? `; ${endpoint.waiting} to be sent` : ""}</p>
      ${endpoint.dead > 0 && html`<p class="wrong-text">${endpoint.dead} could not be delivered. <button type="button" class="small" onClick=${show}>Show</button> <button type="button" class="small" onClick=${replay}>Send again</button></p>`}
      ${dead && html`<ul class="lines">${dead.map((each) => html`<li key=${each.message.message_id}><span class="wide">${each.message.text}</span><span class="muted">${each.error}</span><${Ago} at=${each.given_up_at} /></li>`)}</ul>`}
      <${Fault} error=${error} /></div>
    ${asked && html`<${Confirm} title=${`Remove ${endpoint.name}?`} confirm="Remove" danger onConfirm=${() => remove(path).then(onDone)} onClose=${() => setAsked(false)}><p>It receives nothing more, including messages that wait to be sent.</p></${Confirm}>`}</${Section}>`;
}

/** @param {any} endpoint */
function told({ kinds, recipe_id, label }) {
  const what = kinds.length ? KINDS.filter(([kind]) => kinds.includes(kind)).map(([, word]) => word).join(", ") : "everything";
  const where = [recipe_id && `of ${recipe_id}`, label && `labelled ${label}`].filter(Boolean).join(", ");
  return `Sent when a run: ${what}${where && `, ${where}`}`;
}

/** @param {{onMade: (answer: any) => void}} props */
function NewEndpoint({ onMade }) {
  const [channel, setChannel] = useState("url");
  const [target, setTarget] = useState("");
  const [name, setName] = useState("");
  const [kinds, setKinds] = useState(/** @type {string[]} */ (["waits", "failed"]));
  const [error, setError] = useFault();
  const toggle = (/** @type {string} */ kind) => setKinds(kinds.includes(kind) ? kinds.filter((each) => each !== kind) : [...kinds, kind]);
  const add = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      onMade(await post(PATH, { [channel]: target, kinds, ...(name && { name }) }));
      setTarget("");
      setError(null);
    } catch (caught) {
      setError(caught);
    }
  };
  return html`<${Section} title="Add an endpoint"><form class="card form" onSubmit=${add}>
    <label>By <select onChange=${(/** @type {any} */ event) => setChannel(event.target.value)}>${[["url", "webhook"], ["to", "e-mail"]].map(([value, word]) => html`<option value=${value} selected=${value === channel}>${word}</option>`)}</select></label>
    <label>${channel === "url" ? "Address" : "E-mail address"} <input required type=${channel === "url" ? "url" : "email"} placeholder=${channel === "url" ? "https://example.org/hook" : "ada@example.org"} value=${target} onInput=${(/** @type {any} */ event) => setTarget(event.target.value)} /></label>
    <label>Name (optional) <input maxlength="100" value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} /></label>
    <fieldset><legend>When a run (everything, if none is chosen)</legend>${KINDS.map(([kind, word]) => html`<label class="choice"><input type="checkbox" checked=${kinds.includes(kind)} onChange=${() => toggle(kind)} /> ${word}</label>`)}</fieldset>
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary">Add</button></div>
    <p class="muted">Add a command from a terminal: <code>control-room notifications add</code></p></form></${Section}>`;
}
