// @ts-check
import { useState } from "preact/hooks";

import { patch, post } from "../lib/api.js";
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { Fault, Section, Status, announce, useFault } from "./basics.js";
import { GateCard } from "./gate_card.js";

/** Who will judge what no check can. @param {{plan: any}} props */
export function Reviewer({ plan }) {
  if (plan.review === "off") return html`<dt>Review</dt><dd>off: words of done are not checked</dd>`;
  const { reviewer } = plan;
  if (!reviewer) return null;
  const who = reviewer.by === "chief" ? html`<code>${reviewer.agent_id}</code> judges` : "a person is asked about";
  return html`<dt>Review</dt><dd>${who} tasks ${reviewer.tasks.join(", ")}${reviewer.why && html` <span class="muted">${reviewer.why}</span>`}</dd>`;
}

/** States of a verdict. @type {Record<string, string>} */
const VERDICTS = { met: "done", not_met: "failed" };

/** What a review says of a task, or asks. @param {{review: any, onDecided: () => void}} props */
export function Review({ review, onDecided }) {
  if (!review) return null;
  const word = review.verdict ? review.verdict.replace("_", " ") : review.status;
  return html`<div class="review"><p><strong>Review</strong> <${Status} of=${VERDICTS[review.verdict] || review.status} word=${word} />
      ${review.by && html` <span class="muted">by the ${review.by}</span>`}${review.run_id && html` · <a href=${`/runs/${review.run_id}`}>run</a>`}
      ${review.usage && html` <span class="muted">${format.number(format.tokens(review.usage))} tokens, ${format.money(review.usage.cost_usd)}</span>`}</p>
    ${review.why && html`<p>${review.why}</p>`}
    ${review.evidence && html`<pre class="shown" tabindex="0">${typeof review.evidence === "string" ? review.evidence : JSON.stringify(review.evidence, null, 2)}</pre>`}
    ${review.gate_id && !review.verdict && html`<${Asked} id=${review.gate_id} onDecided=${onDecided} />`}</div>`;
}

/** @param {{id: string, onDecided: () => void}} props */
function Asked({ id, onDecided }) {
  const gate = useLive(`/api/gates/${encodeURIComponent(id)}`, { every: 5000 });
  if (gate.data?.status !== "open") return html`<${Fault} error=${gate.error} />`;
  return html`<${GateCard} gate=${gate.data} onDecided=${onDecided} />`;
}

/** Changes of the plan that the chief proposes; only a person makes them. @param {{plan: any, path: string, onDone: () => void}} props */
export function Proposals({ plan, path, onDone }) {
  const open = (plan.proposals || []).filter((/** @type {any} */ each) => each.status === "open");
  if (!open.length) return null;
  return html`<${Section} title="Proposals" count=${open.length}>${open.map((/** @type {any} */ each) => html`<${Proposal} key=${each.id} proposal=${each} path=${path} onDone=${onDone} />`)}</${Section}>`;
}

/** @param {{proposal: any, path: string, onDone: () => void}} props */
function Proposal({ proposal, path, onDone }) {
  const [error, setError] = useFault();
  const decide = (/** @type {string} */ verb) => async () => {
    try {
      await post(`${path}/proposals/${proposal.id}/${verb}`);
      announce(`Proposal ${verb === "accept" ? "accepted" : "dismissed"}`);
      onDone();
    } catch (caught) {
      setError(caught);
    }
  };
  const kind = proposal.kind.replace("_", " ");
  return html`<article class="card" data-row tabindex="-1"><header><strong>${kind}${proposal.task ? ` ${proposal.task}` : ""}</strong><span class="muted">after task ${proposal.after_task}</span></header>
    <p>${proposal.why}</p>
    <dl class="facts">${Object.entries(proposal.fields || {}).map(([name, value]) => html`<dt>${name}</dt><dd>${typeof value === "string" ? value : JSON.stringify(value)}</dd>`)}</dl>
    <${Fault} error=${error} />
    <div class="actions"><button type="button" class="primary" onClick=${decide("accept")}>Accept</button><button type="button" onClick=${decide("dismiss")}>Dismiss</button></div></article>`;
}

/**
 * A form for a task of a plan: a new one, or one that has not begun.
 * @param {{plan: any, task: any | null, path: string, onClose: () => void, onDone: () => void}} props
 */
export function TaskForm({ plan, task, path, onClose, onDone }) {
  const recipes = useLive("/api/recipes?limit=1000", { pause: 600_000 });
  const [values, setValues] = useState({
    description: task?.description || "",
    recipe_id: task?.recipe_id || "",
    deps: (task?.deps || []).join(", "),
    args: JSON.stringify(task?.args || {}),
    scoping_question: task?.scoping_question || "",
  });
  const [error, setError] = useFault();
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => setValues({ ...values, [name]: event.target.value });
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const body = { ...read(values), revision: plan.revision };
      await (task ? patch(`${path}/tasks/${task.id}`, body) : post(`${path}/tasks`, body));
      announce("Saved");
      onDone();
      onClose();
    } catch (caught) {
      setError(caught);
    }
  };
  return html`<form class="card form" onSubmit=${save} aria-label=${task ? `Edit task ${task.id}` : "New task"}>
    <label>Description <textarea rows="2" required value=${values.description} onInput=${change("description")}></textarea></label>
    <label>Recipe <select onChange=${change("recipe_id")}><option value="">let the router choose</option>
      ${(recipes.data || []).filter((/** @type {any} */ each) => each.valid).map((/** @type {any} */ each) => html`<option value=${each.recipe_id} selected=${each.recipe_id === values.recipe_id}>${each.recipe_id}</option>`)}</select></label>
    <label>After tasks <input placeholder="1, 2" value=${values.deps} onInput=${change("deps")} /></label>
    <label>Arguments, as JSON <textarea rows="2" class="mono" value=${values.args} onInput=${change("args")}></textarea></label>
    <label>Question to ask first (optional) <input value=${values.scoping_question} onInput=${change("scoping_question")} /></label>
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary">${task ? "Save" : "Add"}</button><button type="button" onClick=${onClose}>Back</button></div>
  </form>`;
}

/** @param {Record<string, string>} values */
function read(values) {
  const deps = values.deps.split(/[\s,]+/).filter(Boolean).map(Number);
  if (deps.some((each) => !Number.isInteger(each))) throw new Error("After tasks: numbers of tasks are expected, such as 1, 2.");
  let args;
  try {
    args = JSON.parse(values.args || "{}");
  } catch {
    throw new Error("Arguments: this is not valid JSON.");
  }
  return { description: values.description, recipe_id: values.recipe_id || null, deps, args, scoping_question: values.scoping_question || null };
}
