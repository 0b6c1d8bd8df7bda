import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { html, signal, useValue } from "../lib/base.js";
import * as format from "../lib/format.js";
import { get, newKey, pathOf, post } from "../lib/live.js";
import { Ago, Confirm, Content, Fault, Progress, Section, Status, Took, announce, each, typed, useDraft, useFault } from "./basics.js";

/** @param {RunTableProps} props */
export function RunTable({ runs, chosen, onChoose, onNear, to = "/runs/" }) {
  return html`<div class=${`table runs ${onChoose ? "selectable" : ""}`} role="table" aria-label="Runs" aria-rowcount=${runs.length + 1}>
    <div class="row head" role="row" aria-rowindex="1">
      ${onChoose && html`<span role="columnheader"><span class="hidden">Select</span></span>`}
      <span role="columnheader">Status</span><span role="columnheader">Run</span><span role="columnheader" class="recipe">Recipe</span><span role="columnheader" class="progress-cell">Steps</span>
      <span role="columnheader" class="right tokens">Tokens</span><span role="columnheader" class="right">Cost</span><span role="columnheader" class="right" title=${format.ELAPSED}>Duration</span><span role="columnheader" class="right">Created</span>
    </div>
    <${Virtual} items=${runs} name=${(/** @type {any} */ run) => run.run_id} depends=${[chosen]} onNear=${onNear}
      row=${(/** @type {any} */ run) => html`<${RunRow} run=${run} to=${to} chosen=${chosen} onChoose=${onChoose} />`} />
  </div>`;
}

/** @param {Props} props */
function RunRow({ run, to, chosen, onChoose }) {
  const title = format.short(run.description || run.recipe_id);
  return html`${onChoose && html`<span role="cell" class="check"><label><input type="checkbox" aria-label=${`Select ${title}`} checked=${chosen?.has(run.run_id)}
      onChange=${(/** @type {any} */ event) => onChoose(run.run_id, event.target.checked)} /></label></span>`}
    <span role="cell"><${Standing} run=${run} note=${run.unreadable ? "unreadable" : run.pinned && "pinned"} /></span>
    <span role="cell" class="name"><a class="row-link cut" href=${to + run.run_id} title=${title}>${title}</a>
      <span class="cut muted">${standing(run, html`<span class="mono">${run.run_id}</span>`)}</span></span>
    <span role="cell" class="recipe cut"><a href=${`/runs?recipe_id=${encodeURIComponent(run.recipe_id)}`}>${run.recipe_id}</a></span>
    <span role="cell" class="progress-cell"><${Progress} of=${run} /></span>
    <span role="cell" class="right number tokens">${format.number(format.tokens(run.usage))}</span>
    <span role="cell" class="right number cost">${format.spent(run.usage)}</span>
    <span role="cell" class="right took"><${Took} from=${run.started_at} to=${run.completed_at} /></span>
    <span role="cell" class="right when"><${Ago} at=${run.created_at} /></span>`;
}

/** @param {Props} props */
function Standing({ run, note }) {
  return html`<${Status} of=${run.reason === "denied" ? run.reason : run.status} note=${run.reason === "partial" ? "in part" : note} />`;
}

/** @param {any} run @param {any} otherwise */
function standing({ error_code: code, live_step: step }, otherwise) {
  if (code) return html`<span class="wrong-text" title=${code}>${format.words(code)}</span>`;
  return step ? html`${step.key}${step.output_at && html` · last output <${Ago} at=${step.output_at} />`}` : otherwise;
}

/** @param {Props} props */
export function RunLines({ runs }) {
  return html`<ul class="lines of-runs">${runs.map(
    (run) => html`<li key=${run.run_id} data-row>
      <${Standing} run=${run} />
      <a class="wide row-link" dir="auto" href=${`/runs/${run.run_id}`}>${format.short(run.description || run.recipe_id)}</a>
      <span class="muted">${standing(run, run.recipe_id)}</span>
      <${Progress} of=${run} />
      <span class="number muted right" title="Cost">${format.spent(run.usage)}</span>
      ${run.status === "running" ? html`<span class="when muted right" title=${`Duration ${format.ELAPSED}`}><${Took} from=${run.started_at} /></span>` : html`<span class="when right"><${Ago} at=${run.updated_at} /></span>`}
    </li>`,
  )}</ul>`;
}

/** @param {Props} props */
export function PlanLines({ plans }) {
  if (!plans.length) return null;
  return html`<ul class="lines">${plans.map((plan) => html`<li key=${plan.session_id} data-row>
    <${Status} of=${plan.tasks.needs_scoping ? "needs_scoping" : plan.status} />
    <a class="wide row-link" href=${`/plans/${plan.session_id}`}>${format.short(plan.intent || plan.session_id)}</a>
    <span class="muted">${plan.tasks.needs_scoping ? format.plural(plan.tasks.needs_scoping, "question") : "to approve"}</span>
  </li>`)}</ul>`;
}

/** Rows beyond each edge of what is visible, and the step in which the first one moves. */
const SPARE = 12;
const STEP = 6;

// Pixels.
const GUESS = 56;

/** Rows of equal height, of which only those near the view are in the page; one whose item is the same object is not drawn again. @param {VirtualProps} props */
export function Virtual({ items, row, name, depends = [], onNear }) {
  const frame = useRef(null);
  const height = useRef(GUESS);
  const kept = useRef({ depends, rows: new WeakMap() });
  const [[first, last], setRange] = useState([0, 40]);
  if (depends.some((each, index) => each !== kept.current.depends[index])) kept.current = { depends, rows: new WeakMap() };

  const look = () => {
    if (!frame.current) return;
    const [from, to] = near(frame.current, height.current, items.length);
    setRange((before) => (before[0] === from && before[1] === to ? before : [from, to]));
  };
  useLayoutEffect(() => {
    const shown = frame.current?.querySelector(".row");
    height.current = shown?.getBoundingClientRect().height || height.current;
    look();
  });
  useEffect(() => {
    const listen = { capture: true, passive: true };
    document.addEventListener("scroll", look, listen);
    window.addEventListener("resize", look);
    return () => {
      document.removeEventListener("scroll", look, listen);
      window.removeEventListener("resize", look);
    };
  }, [items.length]);
  useEffect(() => onNear?.(first, last), [first, last, items.length]);

  const { rows } = kept.current;
  const shown = [];
  for (let index = first; index < Math.min(last, items.length); index += 1) shown.push(one(items[index], index, rows, row, name));
  return html`<div ref=${frame} class="virtual" role="rowgroup" style=${{ height: `${items.length * height.current}px` }}>
    <div style=${{ transform: `translateY(${first * height.current}px)` }}>${shown}</div></div>`;
}

/** @type {DrawRow} */
function one(item, index, rows, row, name) {
  if (item === undefined) return html`<div key=${`missing-${index}`} class="row missing" role="row"><span role="cell" class="muted">…</span></div>`;
  const before = rows.get(item);
  if (before && before.index === index) return before.node;
  const node = html`<div key=${name(item)} class="row" role="row" data-row aria-rowindex=${index + 2}>${row(item, index)}</div>`;
  rows.set(item, { index, node });
  return node;
}

/** @type {Near} */
function near(frame, height, count) {
  const scroller = frame.closest(".scrolls");
  const view = scroller ? scroller.getBoundingClientRect() : { top: 0, bottom: window.innerHeight };
  const from = frame.getBoundingClientRect().top;
  const top = Math.max(view.top, 0) - from;
  const bottom = Math.min(view.bottom, window.innerHeight) - from;
  const first = Math.max(0, Math.floor((top / height - SPARE) / STEP) * STEP);
  const last = Math.min(count, Math.ceil((bottom / height + SPARE) / STEP) * STEP);
  return [Math.min(first, Math.max(0, count - 1)), Math.max(last, Math.min(count, first + STEP))];
}

/** @type {UseGate} */
function useGate(id, version) {
  const [gate, setGate] = useState(null);
  const [error, setError] = useFault();
  useEffect(() => {
    get(pathOf("gates", id)).then(setGate, setError);
  }, [id, version]);
  return [gate, error];
}

/** Answers of this page by their gates; one may have come too late. @type {Signal<Record<string, Given>>} */
const given = signal({});

/** @param {Props} props */
export function GateCard({ gate, gone, own, onDecided }) {
  const [decision, setDecision] = useState("");
  const [message, setMessage] = useDraft(gate.gate_id);
  const [key] = useState(newKey);
  const [detail, error] = useGate(gate.gate_id, gate.shown_sha256);
  const by = detail?.asked_by;
  const decide = async () => {
    // What stands on the page is what is answered.
    const body = { decision, message: message || undefined, shown_sha256: (detail || gate).shown_sha256 || undefined };
    const note = (/** @type {boolean} */ counts) => (given.value = { ...given.value, [gate.gate_id]: { decision, message, counts } });
    await post(pathOf("gates", gate.gate_id), body, { "Idempotency-Key": `${key}-${decision}` }).catch((error) => {
      if (error.code === "gate_decided") note(false);
      throw error;
    });
    note(true);
    announce(`${decision}: recorded`);
    onDecided?.();
  };
  return html`<article class=${`card gate ${gone ? "gone" : ""}`} data-row data-gate=${gate.gate_id}>
    <header><${Status} of="waiting" /> ${own ? html`<code>${gate.key}</code>` : html`<a class="row-link" href=${`/runs/${gate.run_id}`}>${format.short(by?.description || gate.recipe_id)}</a>`}
      <span class="push muted" title=${gate.asked_at}>for <${Took} from=${gate.asked_at} /></span></header>
    ${!own && html`<${Asked} gate=${gate} />`}${by?.session_plan_task_id && html`<p class="muted">Task ${by.session_plan_task_id} of <a href=${`/plans/${by.session_id}`}>its plan</a></p>`}
    <${Question} gate=${detail || gate} />
    <${Fault} error=${error} />
    ${gate.expires_at && html`<p class="muted">Without an answer, the default <strong>${gate.default}</strong> applies <${Ago} at=${gate.expires_at} />.</p>`}
    ${gate.approvals && html`<p class="muted">${format.plural(gate.approvals.needed, "key")} must agree${gate.approvals.not_starter ? ", other than that of the run's starter" : ""}; so far: ${each(gate.approvals.given, (vote) => `${vote.decision} (${vote.author?.name || "?"})`).join(", ") || "none"}.</p>`}
    <label>Message (optional) <input value=${message} maxlength="4000" onInput=${typed(setMessage)} /></label>
    <div class="actions">${gate.options.map((/** @type {string} */ option, /** @type {number} */ index) => html`
      <button data-decision=${option} class=${index === 0 ? "primary" : ""} onClick=${() => setDecision(option)}>${option}</button>`)}</div>
    ${decision && html`<${Confirm} title=${`Answer “${decision}”?`} confirm=${decision} danger=${decision === "deny"}
      onConfirm=${decide} onClose=${() => setDecision("")}>
      <p class="cut">${gate.prompt.trim().split("\n")[0]}</p><${Asked} gate=${gate} />${message && html`<p>Your message: ${message}</p>`}
      <p>${gate.approvals ? `It counts once ${format.plural(gate.approvals.needed, "key agrees", "keys agree")}; one denial decides` : "The first answer counts"}${decision === "deny" ? ", and a denial is final: the run ends, or takes the way that its recipe has for it" : ""}.</p><//>`}
  </article>`;
}

/** @param {Props} props */
function Asked({ gate }) {
  return html`<p class="muted">Step <code>${gate.key}</code> of ${gate.recipe_id}, run <span class="mono">${gate.run_id}</span>, asked <time datetime=${gate.asked_at}>${new Date(gate.asked_at).toLocaleString()}</time></p>`;
}

/** Exactly what is decided on: in its parts, or, while those are not known or are cut, as a whole. @param {Props} props */
function Question({ gate }) {
  const parts = gate.shown?.some((/** @type {any} */ part) => part.truncated) ? null : gate.shown;
  if (!parts?.length) return html`<${Content} text=${gate.prompt} kind="question" />`;
  return each(parts, (part) => html`<${Content} key=${part.name} text=${part.text} kind=${part.kind === "text" ? "question" : part.kind} />`);
}

/** @param {Props} props */
export function Decided({ id, asks = false }) {
  const [gate, error] = useGate(id);
  const mine = useValue(given)[id];
  if (!gate?.decision) return html`<${Fault} error=${error} />`;
  return html`<div>${asks && html`<a href=${`/runs/${gate.run_id}`}>${format.short(gate.asked_by.description || gate.recipe_id)}</a>: `}
    <strong>${gate.decision}</strong>${gate.message && html` “${gate.message}”`} <span class="muted">${mine?.counts ? "by you" : author(gate)}, <${Ago} at=${gate.decided_at} /></span>
    ${mine && !mine.counts && html`<p class="wrong-text">Your answer “${mine.decision}” came too late and was not recorded.${mine.message && ` Your message was: ${mine.message}`}</p>`}</div>`;
}

/** @param {any} gate */
function author({ by_default, decided_by: by }) {
  if (by_default) return "nobody answered in time";
  return by ? `by ${person(by)}` : "by a person";
}

/** @param {any} by */
export function person({ claimed, name, via }) {
  return `${name || "a person"}${name && claimed ? " (as claimed)" : ""}, ${VIA[via] || via}`;
}

/** @type {Words} */
const VIA = { local: "on this machine", token: "with the token", browser: "in a browser", key: "with a key", trigger: "a trigger" };

/**
 * Open questions in the order in which the page learnt of them: a new one moves none, and one that is answered elsewhere
 * keeps its place while a person is among them. @param {Props} props
 */
export function Questions({ gates, title, count, more, own, onDecided }) {
  const [, tidy] = useState({});
  const frame = useRef(null);
  const kept = useRef(/** @type {any[]} */ ([]));
  const mine = useValue(given);
  const open = (/** @type {any} */ { gate_id: id }) => gates?.some((gate) => gate.gate_id === id);
  const stays = kept.current.filter((gate) => open(gate) || (frame.current?.matches(":is(:hover, :focus-within)") && !mine[gate.gate_id]));
  kept.current = [...new Map([...stays, ...[...(gates || [])].sort((one, other) => Date.parse(one.asked_at) - Date.parse(other.asked_at))].map((gate) => [gate.gate_id, gate])).values()];
  const cards = html`<div class="questions" ref=${frame} onPointerLeave=${() => tidy({})}>
    ${each(kept.current, (gate) => html`<${GateCard} key=${gate.gate_id} gate=${gate} gone=${!open(gate)} own=${own} onDecided=${onDecided} />`)}</div>`;
  return html`${kept.current.length > 0 && (title ? html`<${Section} title=${title} count=${count}>${cards}${more}<//>` : cards)}<${Answered} gates=${gates} />`;
}

/** @param {Props} props */
function Answered({ gates }) {
  const [seen, setSeen] = useState(/** @type {string[]} */ ([]));
  useEffect(() => {
    const fresh = (gates || []).map((gate) => gate.gate_id).filter((id) => !seen.includes(id));
    if (fresh.length) setSeen([...seen, ...fresh]);
  }, [gates]);
  const gone = gates ? seen.filter((id) => !gates.some((gate) => gate.gate_id === id)).slice(-20) : [];
  if (!gone.length) return null;
  return html`<${Section} title="Just answered"><ul class="lines">${gone.reverse().map((id) => html`<li key=${id}><${Decided} id=${id} asks /></li>`)}</ul><//>`;
}
