import { useEffect, useRef, useState } from "preact/hooks";

import { html, setQuery, useNow, useValue } from "../lib/base.js";
import * as format from "../lib/format.js";
import { Problem, reachable, request, useLive, withQuery } from "../lib/live.js";

/** Words of states that share another state's icon and colour. @type {Words} */
const LIKE = {
  approved: "open", blocked: "pending", executing: "running", idle: "open", closed: "done", decided: "done", in_progress: "running",
  needs_scoping: "waiting", processing: "running", interrupted: "warning", invalid: "failed", queued: "pending", valid: "done", denied: "failed",
};

/** @param {Props} props */
export function Icon({ name }) {
  const like = LIKE[name] || name;
  return html`<svg class="icon icon-${like}" aria-hidden="true"><use href=${`#icon-${document.getElementById(`icon-${like}`) ? like : "open"}`} /></svg>`;
}

/** A state as an icon and a word, never colour alone. @param {Props} props */
export function Status({ of, note, word = of.replaceAll("_", " ") }) {
  return html`<span class="status status-${LIKE[of] || of}">
    <${Icon} name=${of} /><span>${word}</span>${note && html`<span class="muted"> · ${note}</span>`}
  </span>`;
}

/** @param {Props} props */
export function Ago({ at }) {
  const now = useNow();
  if (!at) return html`<span class="muted">–</span>`;
  return html`<time datetime=${at} title=${format.exact(at)}>${format.relative(at, now)}</time>`;
}

/** @param {Props} props */
export function Took({ from, to }) {
  const now = useNow(Boolean(from && !to));
  return html`<span class="number">${format.duration(format.seconds(from, to, now))}</span>`;
}

/** @param {Props} props */
export function Id({ id }) {
  return html`<span class="id">${id} <${CopyButton} text=${id} /></span>`;
}

/** @type {UseFault} */
export function useFault() {
  return useState(/** @type {Error | null} */ (null));
}

/** Whether an order was carried out is not known then; it stays on the page when the service is back. */
const UNANSWERED = new Problem(0, { title: "The service did not answer", detail: "See whether it was done; if not, try again.", code: "no_answer" });

/** @type {UseAct} */
export function useAct(act) {
  const [error, setError] = useFault();
  const busy = useRef(false);
  const go = async (/** @type {any} */ event) => {
    event?.preventDefault?.();
    // The second click of a double click is no second order.
    if (busy.current) return;
    busy.current = true;
    try {
      await act(event);
      setError(null);
    } catch (caught) {
      setError(caught instanceof TypeError ? UNANSWERED : caught);
    }
    busy.current = false;
  };
  return [go, error, () => setError(null)];
}

/** @type {Words} */
const drafts = {};

/** A text that outlives the end of a sign-in. @type {UseDraft} */
export function useDraft(of) {
  const [text, setText] = useState(drafts[of] || "");
  return [text, (next) => setText((drafts[of] = next))];
}

/** @type {Typed} */
export function typed(set) {
  return (event) => set(event.target.value);
}

/** @param {string[]} chosen @param {string} id */
export function toggled(chosen, id) {
  return chosen.includes(id) ? chosen.filter((other) => other !== id) : [...chosen, id];
}

/** @param {string} name */
export function toQuery(name) {
  return typed((value) => setQuery({ [name]: value }));
}

/** @param {Props} props */
export function Filters({ children }) {
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>${children}</form>`;
}

/** The field that the key / goes to. @param {Props} props */
export function Search({ of, value, onInput }) {
  return html`<label><span class="hidden">Search</span><input id="search" type="search" placeholder=${`Search ${of}`} value=${value} onInput=${onInput} /></label>`;
}

/** @type {UseFields} */
export function useFields(initial) {
  const [values, setValues] = useState(initial);
  return [values, (name) => typed((value) => setValues({ ...values, [name]: value })), setValues];
}

/** @type {UseList} */
export function useList(path, query, how) {
  const [limit, setLimit] = useState(100);
  const live = useLive(withQuery(path, { ...query, limit }), how);
  const more = live.next && html`<div class="actions">${limit < 1000 ? html`<button onClick=${() => setLimit(limit + 100)}>Show more</button>` : html`<p>The rest is not shown.</p>`}</div>`;
  return { ...live, count: live.data?.length + (live.next ? "+" : ""), more };
}

/** @type {Each} */
export function each(items, draw) {
  return items?.map(draw);
}

/** @type {Options} */
export function options(all, chosen) {
  return all.map(([value, word]) => html`<option value=${value} selected=${value === chosen}>${word}</option>`);
}

/** @param {Props} props */
export function Table({ label, rows, name, columns }) {
  if (!rows?.length) return null;
  return html`<div class="table-frame" tabindex="0" role="group" aria-label=${label}><table role="table"><thead role="rowgroup"><tr role="row">${columns.map(([title, , kind]) => html`<th role="columnheader" class=${kind}>${title || html`<span class="hidden">Actions</span>`}</th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map((row) => html`<tr role="row" key=${name.call ? name(row) : row[name]} data-row>${columns.map(([title, cell, kind]) => html`<td role="cell" class=${kind} data-label=${title}>${cell(row)}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** @param {Props} props */
export function Fault({ error, retry }) {
  const isBack = useValue(reachable) === "yes";
  if (!error || (error instanceof TypeError && isBack)) return null;
  const problem = error instanceof Problem ? error : null;
  return html`<div class="fault" role="alert">
    <strong><${Icon} name="warning" /> ${problem ? problem.title : error instanceof TypeError ? "The service cannot be reached" : "Check this"}</strong>
    <p>${error instanceof TypeError ? "It may be stopped or starting again." : problem?.faults.length ? "" : error.message} ${problem && html`<code>${problem.code}</code> ${problem.facts.incident_id || ""}`}</p>
    ${problem && problem.faults.length > 0 && html`<ul>
      ${problem.faults.map((fault) => html`<li><code>${fault.path || "–"}</code> ${fault.message}</li>`)}
    </ul>`}
    ${retry && problem?.status !== 404 && html`<button onClick=${retry}>Reload</button>`}
  </div>`;
}

export const EXAMPLE = `control-room run analytical_consistency --arg 'canon_paths:=["Compendium"]'`;

/** @param {Props} props */
export function LocalModel({ stats }) {
  return stats?.service.local_model && html`<p class="notice"><span>Agents speak through a small local model, which only shows the machinery. For real work, set <code>{"default_backend": "claude-code"}</code> in agents.json of the data folder.</span></p>`;
}

/** @param {Props} props */
export function Empty({ title, children, command }) {
  return html`<div class="empty"><p><strong>${title}</strong></p>${children}${command && html`<${Command} text=${command} served=${/^control-room (run|plan|gates|confer|triggers) /.test(`${command} `)} />`}</div>`;
}

/** @param {Props} props */
export function Command({ text, served = false }) {
  const whole = served ? `${text} --server ${window.location.origin}` : text;
  return html`<div class="command"><code>${whole}</code><${CopyButton} text=${whole} /></div>`;
}

/** @param {Props} props */
function CopyButton({ text }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<button class="quiet small" onClick=${copy} aria-label=${`Copy ${text}`} title="Copy"><${Icon} name=${copied ? "done" : "copy"} /></button>`;
}

/** @param {Props} props */
export function Progress({ of: { current_step_index: done, total_steps: total, status } }) {
  if (done === null || done === undefined) return html`<span class="muted">–</span>`;
  // A run that is done has not left steps out: it took another way.
  if (!total || (status === "done" && done < total)) return html`<span class="number">${format.plural(done, "step")}</span>`;
  return html`<span class="progress">
    <progress max=${total} value=${status === "done" ? total : Math.min(done, total - 0.1)} aria-label=${`${done} of ${total} steps`}></progress>
    <span class="number">${done}/${total}</span>${done >= total && status === "waiting" && html` <span class="muted">+ gate</span>`}
  </span>`;
}

/** @param {Props} props */
export function Section({ title, count, actions, children }) {
  return html`<section class="section">
    <header><h2>${title}${count !== undefined && html` <span class="count">${count.toLocaleString("en")}</span>`}</h2>
    <div class="actions">${actions}</div></header>
    ${children}
  </section>`;
}

/** @param {Props} props */
export function Missing({ title, id, live }) {
  return html`<${PageTitle} title=${title} lead=${id} actions=${live.error && html`<a class="button" href=${`/${title.toLowerCase()}s`}>All ${title.toLowerCase()}s</a>`} /><${Fault} error=${live.error} retry=${live.refresh} />`;
}

/** @param {Props} props */
export function PageTitle({ title, lead, actions }) {
  const name = format.short(title);
  useEffect(() => {
    document.title = `${title === "Home" ? "" : `${name} · `}Control Room`;
  }, [title]);
  return html`<header class="page-title">
    <div><h1 tabindex="-1">${name}</h1>${name !== title && html`<details><summary class="link">Whole text</summary><${Content} text=${title} /></details>`}${lead && html`<p class="lead">${lead}</p>`}</div>
    <div class="actions">${actions}</div>
  </header>`;
}

/** @param {ConfirmProps} props */
export function Confirm({ title, confirm, danger, blocked, children, onConfirm, onClose }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  const [act, error, forget] = useAct(async () => {
    setBusy(true);
    try {
      await onConfirm();
    } finally {
      setBusy(false);
    }
    onClose();
  });
  return html`<dialog ref=${dialog} onClose=${onClose} aria-labelledby="confirm-title">
    <form onSubmit=${act} onInput=${forget}>
      <h2 id="confirm-title">${title}</h2>
      ${children}
      <${Fault} error=${error} />
      <div class="actions">
        <button onClick=${onClose}>Back</button>
        <button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy || blocked}>${confirm}</button>
      </div>
    </form>
  </dialog>`;
}

/** @param {AskedProps} props */
export function AskButton({ word, title = `${word}?`, kind, danger, children, onConfirm }) {
  const [asked, setAsked] = useState(false);
  return html`<button class=${kind} onClick=${() => setAsked(true)}>${word}</button>
    ${asked && html`<${Confirm} title=${title} confirm=${word} danger=${danger} onConfirm=${onConfirm} onClose=${() => setAsked(false)}>${children}<//>`}`;
}

/** @param {string} text */
export function announce(text) {
  const said = document.createElement("span");
  said.textContent = text;
  document.getElementById("announcements")?.replaceChildren(said);
}

const SHOWN = 20_000;

/** @type {Words} */
const LINES = { "+": "added", "-": "removed", "@": "muted" };

/** A text as it is, never markup; a long one on request as a whole. @param {Props} props */
export function Content({ text, kind = "text" }) {
  const [whole, setWhole] = useState(false);
  const shown = whole ? text : text.slice(0, SHOWN);
  return html`<pre class=${`shown shown-${kind}`} tabindex="0">${kind === "diff" ? colored(shown) : shown}</pre>
    ${shown.length < text.length && html`<p><button onClick=${() => setWhole(true)}>Show all ${format.number(text.length)} characters</button></p>`}`;
}

/** What an address holds, read when it is opened: a link would leave the sign-in behind. @param {Props} props */
export function Opened({ path, title, children }) {
  const [text, setText] = useState("");
  const [open, error] = useAct(async (event) => {
    if (event.target.open && !text) setText(await shown(path));
  });
  return html`<details onToggle=${open}><summary><span class="link">${title}</span> ${children}</summary><${Fault} error=${error} />${text && html`<${Content} text=${text} />`}</details>`;
}

/** @param {string} path @returns {Promise<string>} */
async function shown(path) {
  const reply = await request("GET", path);
  if (!reply.headers.get("Content-Type")?.includes("json")) return reply.text();
  const found = await reply.json();
  if (found.type === "pointer") return shown(`/api/audit/receipts/${found.receipt_id}`);
  return found.text ?? JSON.stringify(found.payload ?? found, null, 2);
}

/** @param {string} text */
function colored(text) {
  return text.split(/(?<=\n)/).map((line) => (LINES[line[0]] ? html`<span class=${LINES[line[0]]}>${line}</span>` : line));
}
