// @ts-check
import { useEffect, useRef, useState } from "preact/hooks";

import { newKey, patch, post, remove, withQuery } from "../lib/api.js";
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { navigate } from "../lib/router.js";
import { Ago, Confirm, Empty, Fault, Id, PageTitle, Section, Status, announce, useFault } from "../parts/basics.js";
import { Graph } from "../parts/graph.js";
import { Proposals, Review, Reviewer, TaskForm } from "../parts/tasks.js";

/** All plans, and a new one from an intent. */
export function Plans() {
  const plans = useLive("/api/sessions?limit=100", { every: 5000 });
  return html`
    <${PageTitle} title="Plans" lead="Work of several tasks. Each task becomes a run when the tasks that it depends on are done." />
    <${NewPlan} />
    <${Fault} error=${plans.error} retry=${plans.refresh} />
    ${plans.data?.length === 0 && html`<${Empty} title="There is no plan." command=${'control-room plan create "Write scenes 21 and 22"'}>
      <p>Describe the work above, or from a terminal:</p></${Empty}>`}
    ${plans.data?.length > 0 && html`<div class="table-frame" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>Status</th><th>Plan</th><th>Tasks</th><th class="right">Changed</th></tr></thead>
      <tbody>${plans.data.map((/** @type {any} */ plan) => html`<tr key=${plan.session_id} data-row>
        <td><${Status} of=${plan.status} /></td>
        <td class="wide"><a class="row-link" href=${`/plans/${plan.session_id}`}>${plan.intent || plan.session_id}</a></td>
        <td>${Object.entries(plan.tasks).map(([state, count]) => `${count} ${state.replace("_", " ")}`).join(", ") || "none yet"}</td>
        <td class="right"><${Ago} at=${plan.updated_at} /></td></tr>`)}</tbody></table></div>`}`;
}

/** The box in which an intent is described. */
function NewPlan() {
  const [intent, setIntent] = useState("");
  const [error, setError] = useFault();
  const [key] = useState(newKey);
  const make = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const plan = await post("/api/sessions", { intent }, { "Idempotency-Key": key });
      navigate(`/plans/${plan.session_id}`);
    } catch (caught) {
      setError(caught);
    }
  };
  return html`<form class="card" onSubmit=${make}>
    <label>What is to be done? The chief splits it into tasks; nothing begins before you approve.
      <textarea rows="2" required value=${intent} onInput=${(/** @type {any} */ event) => setIntent(event.target.value)}></textarea></label>
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary">Make a plan</button></div>
  </form>`;
}

/** What can be ordered of a plan in each of its states. @type {Record<string, string[][]>} */
const ORDERS = {
  draft: [["approve", "Approve"]],
  approved: [["start", "Start"]],
  running: [["pause", "Pause"]],
  paused: [["resume", "Continue"]],
  failed: [["start", "Start again"]],
  done: [],
};

/** A plan: its tasks, their graph, questions answered in place. @param {{id: string}} props */
export function Plan({ id }) {
  const path = `/api/sessions/${encodeURIComponent(id)}`;
  const live = useLive(path, { long: true });
  const [asked, setAsked] = useState("");
  const [adding, setAdding] = useState(false);
  const plan = live.data;
  if (!plan) return html`<${PageTitle} title="Plan" lead=${id} /><${Fault} error=${live.error} retry=${live.refresh} />`;
  const order = async (/** @type {string} */ verb) => {
    await (verb === "delete" ? remove(path) : post(`${path}/${verb}`));
    announce(`${verb}: accepted`);
    live.refresh();
    if (verb === "delete") navigate("/plans");
  };
  return html`
    <${PageTitle} title=${plan.intent || "Plan"} lead=${html`<${Status} of=${plan.status} /> ${planSentence(plan)}`}
      actions=${html`${(ORDERS[String(plan.status)] || []).map(([verb, label]) => html`<button type="button" class="primary" onClick=${() => setAsked(verb)}>${label}</button>`)}
        <button type="button" class="quiet danger" onClick=${() => setAsked("delete")}>Delete</button>`} />
    <${Fault} error=${live.error} />
    ${plan.error && html`<p class="fault"><strong>${plan.error.code}</strong> ${plan.error.message}</p>`}
    <dl class="facts card"><dt>Plan</dt><dd><${Id} id=${plan.session_id} /></dd><dt>Made</dt><dd><${Ago} at=${plan.created_at} /> by ${plan.created_by}</dd>
      <dt>Runs</dt><dd><a href=${`/runs?session_id=${plan.session_id}`}>all runs of this plan</a></dd><${Reviewer} plan=${plan} /></dl>
    <${Proposals} plan=${plan} path=${path} onDone=${live.refresh} />
    ${plan.tasks.length > 1 && html`<${Section} title="Dependencies"><${Graph} graph=${taskGraph(plan)} onChoose=${jump} /></${Section}>`}
    <${Section} title="Tasks" count=${plan.tasks.length} actions=${html`<button type="button" onClick=${() => setAdding(true)}>Add a task</button>`}><ol class="tasks">${plan.tasks.map(
      (/** @type {any} */ task, /** @type {number} */ index) => html`<${Task} key=${task.id} plan=${plan} task=${task} index=${index} path=${path} onDone=${live.refresh} />`,
    )}</ol>${adding && html`<${TaskForm} plan=${plan} task=${null} path=${path} onClose=${() => setAdding(false)} onDone=${live.refresh} />`}</${Section}>
    ${asked && html`<${Confirm} title=${`${asked} this plan?`} confirm=${asked} danger=${asked === "delete"} onConfirm=${() => order(asked)} onClose=${() => setAsked("")}>
      <p>${WHAT[asked]}</p></${Confirm}>`}`;
}

/** What an order does. @type {Record<string, string>} */
const WHAT = {
  approve: "An approved plan can be started.",
  start: "Tasks begin as soon as their dependencies are done.",
  pause: "No further task begins. Running tasks continue to their end.",
  resume: "Tasks begin again as soon as they can.",
  delete: "The plan is removed. Its runs, receipts and issues are kept.",
};

/** The task that a button has just moved: the button keeps the focus where the task goes. */
const moving = { task: 0, by: 0 };

/** States of a task that has not begun, and can be edited. */
const EDITABLE = ["pending", "blocked", "needs_scoping", "failed"];

/** @param {{plan: any, task: any, index: number, path: string, onDone: () => void}} props */
function Task({ plan, task, index, path, onDone }) {
  const [error, setError] = useFault();
  const [mode, setMode] = useState("");
  const card = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (moving.task !== task.id) return;
    const wanted = [...(card.current?.querySelectorAll("[data-move]") || [])].filter((each) => each instanceof HTMLButtonElement && !each.disabled);
    const button = wanted.find((each) => each.getAttribute("data-move") === String(moving.by)) || wanted[0];
    if (button instanceof HTMLElement) button.focus();
    moving.task = 0;
  }, [index]);
  const act = (/** @type {() => Promise<unknown>} */ order) => async () => {
    try {
      await order();
      setError(null);
      onDone();
    } catch (caught) {
      setError(caught);
    }
  };
  const move = (/** @type {number} */ by) =>
    act(async () => {
      // Before the order: its answer may be overtaken by the page's own poll.
      Object.assign(moving, { task: task.id, by });
      await patch(path, { order: moved(plan.tasks, index, by), revision: plan.revision });
      announce(`Task ${task.id} is now number ${index + by + 1}`);
    });
  if (mode === "edit") return html`<li><${TaskForm} plan=${plan} task=${task} path=${path} onClose=${() => setMode("")} onDone=${onDone} /></li>`;
  const steps = [[-1, "up", "↑", index === 0], [1, "down", "↓", index === plan.tasks.length - 1]];
  return html`<li class="card task" id=${`task-${task.id}`} data-row tabindex="-1" ref=${card}>
    <header><${Status} of=${task.status} /> <strong>${task.id}. ${task.description}</strong>
      <span class="push">${steps.map(([by, word, sign, off]) => html`<button type="button" class="quiet small" data-move=${by} aria-label=${`Move task ${task.id} ${word}`} onClick=${move(Number(by))} disabled=${off}>${sign}</button>`)}</span></header>
    <p class="muted">${task.recipe_id || "no recipe yet"}${task.deps.length > 0 && ` · after ${task.deps.join(", ")}`}
      ${task.run_id && html` · <a href=${`/runs/${task.run_id}`}>run</a>`}</p>
    ${task.error && html`<p class="fault"><strong>${task.error.code}</strong> ${task.error.message}</p>`}
    ${task.status === "needs_scoping" && html`<${Question} task=${task} path=${path} />`}
    <${Review} review=${task.review} onDecided=${onDone} />
    <${Fault} error=${error} />
    <div class="actions">
      ${task.status === "failed" && html`<button type="button" onClick=${act(() => post(`${path}/tasks/${task.id}/retry`))}>Retry</button>`}
      ${task.status === "blocked" && plan.status === "running" && html`<button type="button" onClick=${act(() => post(`${path}/tasks/${task.id}/force-start`))}>Start now</button>`}
      ${EDITABLE.includes(task.status) && html`<button type="button" class="quiet" onClick=${() => setMode("edit")}>Edit</button>
        <button type="button" class="quiet danger" onClick=${() => setMode("delete")}>Remove</button>`}
    </div>
    ${mode === "delete" && html`<${Confirm} title=${`Remove task ${task.id}?`} confirm="Remove" danger=${true} onClose=${() => setMode("")}
      onConfirm=${async () => (await remove(withQuery(`${path}/tasks/${task.id}`, { revision: plan.revision })), onDone())}><p>A task that others come after cannot be removed.</p></${Confirm}>`}
  </li>`;
}

/** @param {{task: any, path: string}} props */
function Question({ task, path }) {
  const [answer, setAnswer] = useState("");
  const [error, setError] = useFault();
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await post(`${path}/tasks/${task.id}/answer`, { answer });
      announce("Answered");
    } catch (caught) {
      setError(caught);
    }
  };
  return html`<form onSubmit=${send}><label>${task.scoping_question}
    <input required maxlength="4000" value=${answer} onInput=${(/** @type {any} */ event) => setAnswer(event.target.value)} /></label>
    <${Fault} error=${error} /><div class="actions"><button type="submit" class="primary">Answer</button></div></form>`;
}

/** @param {any} plan */
function planSentence(plan) {
  if (plan.awaits_chief) return "The chief is splitting the intent into tasks.";
  const done = plan.tasks.filter((/** @type {any} */ task) => task.status === "done").length;
  return `${done} of ${format.plural(plan.tasks.length, "task")} done.`;
}

/** @param {any} plan */
function taskGraph(plan) {
  return {
    nodes: plan.tasks.map((/** @type {any} */ task) => ({ id: String(task.id), label: `${task.id}. ${task.description}`, kind: task.recipe_id || "task", status: task.status })),
    edges: plan.tasks.flatMap((/** @type {any} */ task) => task.deps.map((/** @type {number} */ dep) => ({ source: String(dep), target: String(task.id), kind: "next" }))),
  };
}

/** @param {any[]} tasks @param {number} index @param {number} by */
function moved(tasks, index, by) {
  const ids = tasks.map((task) => task.id);
  const [id] = ids.splice(index, 1);
  ids.splice(index + by, 0, id);
  return ids;
}

/** @param {any} node */
function jump(node) {
  document.getElementById(`task-${node.id}`)?.focus();
}
