// @ts-check
import { useState } from "preact/hooks";

import { isSignedIn, keepSession, post, remove } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { Ago, Command, Confirm, Fault, PageTitle, Section, announce, useFault } from "../parts/basics.js";

const PATH = "/api/keys";

/** What each role may do; each includes those before it. @type {Record<string, string>} */
const ROLES = { viewer: "looks", runner: "starts, pauses and cancels runs", approver: "answers questions", admin: "changes everything, keys too" };

/** Milliseconds between two looks: nobody is told of keys and orders. */
const LOOK = 10_000;

/** Access: who may do what, and who did what. */
export function Access() {
  const keys = useLive(PATH, { pause: LOOK });
  const [secret, setSecret] = useState(/** @type {any} */ (null));
  const issued = async (/** @type {any} */ key) => {
    setSecret(key);
    // The first key closes the service to whoever made it, who would lose sight of the secret.
    if (keys.data?.length === 0 && !isSignedIn.value) keepSession((await post("/api/session", { token: key.secret })).session);
    keys.refresh();
  };
  return html`
    <${PageTitle} title="Access" lead="Keys for people and programs, and a log of changes." />
    <${Fault} error=${keys.error} retry=${keys.refresh} />
    ${secret && html`<section class="card" role="status"><h2>The secret of ${secret.name}</h2>
      <p>Hand it over now: it is shown this once. Its holder signs in with it, or sends it as <code>Authorization: Bearer</code>.</p><${Command} text=${secret.secret} />
      <div class="actions"><button type="button" onClick=${() => setSecret(null)}>I have kept it</button></div></section>`}
    ${keys.data && html`<${Section} title="Keys" count=${keys.data.length}>
      ${keys.data.length === 0 && html`<p class="muted">No keys yet. The first key closes the service to callers without one, so make it your own, with the role admin; this tab signs in with it.</p>`}
      ${keys.data.length > 0 && html`<div class="table-frame" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>Name</th><th>Role</th><th>Limited to</th><th>Expires</th><th><span class="hidden">Orders</span></th></tr></thead><tbody>
        ${keys.data.map((/** @type {any} */ key) => html`<${Key} key=${key.name} of=${key} onIssued=${issued} onGone=${keys.refresh} />`)}</tbody></table></div>`}
      <${NewKey} first=${keys.data.length === 0} onIssued=${issued} /></${Section}>`}
    <${Audit} />`;
}

/** @param {{of: any, onIssued: (key: any) => void, onGone: () => void}} props */
function Key({ of: key, onIssued, onGone }) {
  const [asked, setAsked] = useState("");
  const path = `${PATH}/${encodeURIComponent(key.name)}`;
  const act = async () => {
    if (asked === "rotate") onIssued(await post(`${path}/rotate`, { grace_seconds: 3600 }));
    else await remove(path).then(onGone);
    announce(asked === "rotate" ? "The key has a new secret" : "The key is revoked");
  };
  return html`<tr data-row><td>${key.name}</td><td>${key.role}</td><td class="wide">${[...key.recipes, ...key.labels].join(", ") || "all runs"}</td><td>${key.expires_at ? html`<${Ago} at=${key.expires_at} />` : "never"}</td>
    <td><button type="button" class="small" onClick=${() => setAsked("rotate")}>Rotate</button> <button type="button" class="small danger" onClick=${() => setAsked("revoke")}>Revoke</button>
      ${asked && html`<${Confirm} title=${`${asked === "rotate" ? "Rotate" : "Revoke"} the key of ${key.name}?`} confirm=${asked === "rotate" ? "Rotate" : "Revoke"} danger=${asked === "revoke"} onConfirm=${act} onClose=${() => setAsked("")}>
        <p>${asked === "rotate" ? "It gets a new secret; the present one counts for another hour." : "Its requests, sign-ins and streams end at once."}</p></${Confirm}>`}</td></tr>`;
}

/** @param {{first: boolean, onIssued: (key: any) => void}} props */
function NewKey({ first, onIssued }) {
  const [values, setValues] = useState({ name: "", role: first ? "admin" : "viewer", recipes: "", labels: "", expires: "" });
  const [error, setError] = useFault();
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => setValues({ ...values, [name]: event.target.value });
  const add = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const { name, role, expires } = values;
    try {
      const expires_at = expires ? new Date(expires).toISOString() : null;
      await onIssued(await post(PATH, { name, role, recipes: listed(values.recipes), labels: listed(values.labels), expires_at }));
      setValues({ ...values, name: "" });
      setError(null);
    } catch (caught) {
      setError(caught);
    }
  };
  return html`<form class="card form" onSubmit=${add} aria-label="New key">
    <label>Name <input required maxlength="64" placeholder="ada" value=${values.name} onInput=${change("name")} /></label>
    <label>Role <select onChange=${change("role")}>${Object.entries(ROLES).map(([role, does]) => html`<option value=${role} selected=${role === values.role}>${role}: ${does}</option>`)}</select></label>
    <label>Only these recipes (comma-separated; none: all) <input value=${values.recipes} onInput=${change("recipes")} /></label>
    <label>Only runs with these labels, key:value (none: all) <input value=${values.labels} onInput=${change("labels")} /></label>
    <label>Expires (never, if empty) <input type="date" value=${values.expires} onInput=${change("expires")} /></label>
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary">Add a key</button></div></form>`;
}

/** @param {string} text */
function listed(text) {
  return text.split(",").map((each) => each.trim()).filter(Boolean);
}

/** Who has changed what, newest first; orders of runs stand with the runs. */
function Audit() {
  const lines = useLive("/api/audit?limit=100", { pause: LOOK });
  if (!lines.data) return html`<${Fault} error=${lines.error} />`;
  return html`<${Section} title="Changes" count=${lines.data.length}>
    ${lines.data.length === 0 && html`<p class="muted">No changes yet. Orders and answers are on the pages of their runs.</p>`}
    <ul class="lines">${lines.data.map((/** @type {any} */ line) => html`<li key=${line.number}><code>${line.action}</code><span class="wide">${line.target}</span><span>${line.author?.name || (line.author ? "on this machine" : "Control Room")}</span><${Ago} at=${line.at} /></li>`)}</ul></${Section}>`;
}
