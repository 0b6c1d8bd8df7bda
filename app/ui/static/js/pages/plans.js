import { useEffect, useRef, useState } from "preact/hooks";

import { html, navigate } from "../lib/base.js";
import * as format from "../lib/format.js";
import { newKey, patch, pathOf, post, remove, useLive, withQuery } from "../lib/live.js";
import { Ago, AskButton, Empty, Fault, Id, Missing, PageTitle, Section, Status, Table, announce, each, options, typed, useAct, useDraft, useFields, useList } from "../parts/basics.js";
import { Graph } from "../parts/graph.js";
import { GateCard } from "../parts/rows.js";

export function Plans() {
  const plans = useList("/api/sessions", {}, { every: 5000 });
  return html`
    <${PageTitle} title="Plans" lead="Work of several tasks. Each task becomes a run when the tasks that it depends on are done." />
    <${NewPlan} />
    <${Fault} error=${plans.error} retry=${plans.refresh} />
    ${plans.data?.length === 0 && html`<${Empty} title="No plans yet." command=${'control-room plan create "Write scenes 21 and 22"'}>
      <p class="offer">Describe the work above, or from a terminal:</p><//>`}
    <${Table} label="Plans" rows=${plans.data} name="session_id" columns=${PLANS} />${plans.more}`;
}

/** @type {Columns} */
const PLANS = [
  ["Status", (plan) => html`<${Status} of=${plan.status} note=${plan.error?.message} />`],
  ["Plan", (plan) => html`<a class="row-link" dir="auto" href=${`/plans/${plan.session_id}`}>${format.short(plan.intent || plan.session_id)}</a>`, "wide"],
  ["Tasks", (plan) => Object.entries(plan.tasks).map(([state, count]) => `${count} ${state.replace("_", " ")}`).join(", ") || "none yet"],
  ["Changed", (plan) => html`<${Ago} at=${plan.updated_at} />`, "right"],
];

function NewPlan() {
  const [intent, setIntent] = useDraft("plan");
  const [key] = useState(newKey);
  const [make, error] = useAct(async () => {
    navigate(`/plans/${(await post("/api/sessions", { intent }, { "Idempotency-Key": key })).session_id}`);
    setIntent("");
  });
  return html`<form class="card" onSubmit=${make}>
    <label>What is to be done? The chief splits it into tasks; nothing begins before you approve.
      <textarea rows="2" required value=${intent} onInput=${typed(setIntent)}></textarea></label>
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary">Make a plan</button></div>
  </form>`;
}

/** @type {Record<string, string[][]>} */
const ORDERS = {
  draft: [["approve", "Approve"]],
  approved: [["start", "Start"]],
  running: [["pause", "Pause"]],
  paused: [["resume", "Resume"]],
  failed: [["start", "Resume"]],
  done: [],
};

/** @param {Props} props */
export function Plan({ id }) {
  const path = pathOf("sessions", id);
  const live = useLive(path, { long: true });
  const [adding, setAdding] = useState(false);
  const plan = live.data;
  const runs = useLive(plan?.status === "running" ? withQuery("/api/runs", { session_id: id, status: ["paused", "waiting"], limit: 100 }) : null);
  if (!plan) return html`<${Missing} title="Plan" id=${id} live=${live} />`;
  const begun = plan.tasks.some((/** @type {any} */ task) => task.run_id);
  const orders = plan.awaits_chief ? [] : plan.status === "failed" && !begun ? (plan.tasks.length ? [["start", "Start"]] : []) : ORDERS[String(plan.status)] || [];
  const order = async (/** @type {string} */ verb, /** @type {string} */ word) => {
    live.refresh(await (verb === "delete" ? remove(path) : post(`${path}/${verb}`)));
    announce(`${word}: accepted`);
    if (verb === "delete") navigate("/plans");
  };
  return html`
    <${PageTitle} title=${plan.intent || "Plan"} lead=${html`<${Status} of=${plan.status} note=${planSentence(plan)} />`}
      actions=${[...orders, ["delete", "Delete"]].map(([verb, word]) => html`<${AskButton} key=${verb} word=${word} title=${`${word} this plan?`} kind=${{ pause: "", delete: "quiet danger" }[verb] ?? "primary"} danger=${verb === "delete"} onConfirm=${() => order(verb, word)}>
        <p>${plan.status === "failed" && verb === "start" ? (begun ? WHAT.again : WHAT.unapproved) : WHAT[verb]}</p><//>`)} />
    <${Fault} error=${live.error} />
    ${plan.error && html`<p class="fault"><strong>Why it failed</strong> ${plan.error.message} <code>${plan.error.code}</code></p>`}
    <dl class="facts card"><dt>Plan</dt><dd><${Id} id=${plan.session_id} /></dd><dt>Created</dt><dd><${Ago} at=${plan.created_at} /></dd>
      <dt>Runs</dt><dd><a href=${`/runs?session_id=${plan.session_id}`}>all runs of this plan</a></dd><dt>History</dt><dd><a href=${`/access?target=${plan.session_id}`}>who did what</a></dd><${Reviewer} plan=${plan} /></dl>
    <${Proposals} plan=${plan} path=${path} onDone=${live.refresh} />
    ${plan.tasks.length > 1 && html`<${Section} title="Dependencies"><${Graph} graph=${taskGraph(plan)} onChoose=${jump} /><//>`}
    <${Section} title="Tasks" count=${plan.tasks.length} actions=${html`<button onClick=${() => setAdding(true)}>Add a task</button>`}><ol class="tasks">${plan.tasks.map(
      (/** @type {any} */ task, /** @type {number} */ index) => html`<${Task} key=${task.id} plan=${plan} task=${task} run=${runs.data?.find((/** @type {any} */ run) => run.run_id === task.run_id)} index=${index} path=${path} onDone=${live.refresh} />`,
    )}</ol>${adding && html`<${TaskForm} plan=${plan} task=${null} path=${path} onClose=${() => setAdding(false)} onDone=${live.refresh} />`}<//>`;
}

/** @type {Words} */
const WHAT = {
  approve: "An approved plan can be started.",
  start: "Tasks begin as soon as their dependencies are done.",
  pause: "No further task begins. Running tasks continue to their end.",
  resume: "The plan continues: tasks begin as soon as they can. Finished tasks are kept.",
  again: "The plan continues: finished tasks are kept; failed ones stay failed until they are started again.",
  unapproved: "You approve the tasks as they are now: each begins as soon as its dependencies are done.",
  delete: "The plan is removed. Its runs, receipts and issues are kept.",
};

/** The task that a button has just moved: the button keeps the focus where the task goes. */
const moving = { task: 0, by: 0 };

/** @type {Record<string, Spending>} */
const SPENDING = {
  retry: ["Retry", "retry", { fresh: false }, "It continues with what is finished; steps that run again may call agents, which is paid for."],
  fresh: ["Start again", "retry", { fresh: true }, "A new run begins at the first step: every call of an agent is paid for again."],
  force: ["Start now", "force-start", {}, "It begins although it comes after tasks that are not done."],
};

const EDITABLE = ["pending", "blocked", "needs_scoping", "failed"];

/** @param {Props} props `run`: the task's. */
function Task({ plan, task, run, index, path, onDone }) {
  const stuck = task.status === "running" && ["paused", "waiting"].includes(run?.status) ? run : null;
  const [edits, setEdits] = useState(false);
  const card = useRef(null);
  useEffect(() => {
    if (moving.task !== task.id) return;
    const wanted = [...(card.current?.querySelectorAll("[data-move]") || [])].filter((each) => each instanceof HTMLButtonElement && !each.disabled);
    const button = wanted.find((each) => each.getAttribute("data-move") === String(moving.by)) || wanted[0];
    if (button instanceof HTMLElement) button.focus();
    moving.task = 0;
  }, [index]);
  const [does, error] = useAct(async (order) => onDone(await order()));
  const act = (/** @type {() => Promise<unknown>} */ order) => () => does(order);
  const move = (/** @type {number} */ by) =>
    act(async () => {
      // Before the order: its answer may be overtaken by the page's own poll.
      Object.assign(moving, { task: task.id, by });
      const found = await patch(path, { order: moved(plan.tasks, index, by), revision: plan.revision });
      announce(`Task ${task.id} is now number ${index + by + 1}`);
      return found;
    });
  if (edits) return html`<li><${TaskForm} plan=${plan} task=${task} path=${path} onClose=${() => setEdits(false)} onDone=${onDone} /></li>`;
  const spends = [task.status === "failed" && "retry", task.status === "failed" && task.run_id && "fresh", task.status === "blocked" && plan.status === "running" && "force"];
  const steps = [[-1, "up", "↑", index === 0], [1, "down", "↓", index === plan.tasks.length - 1]];
  return html`<li class="card task" id=${`task-${task.id}`} data-row tabindex="-1" ref=${card}>
    <header><${Status} of=${task.status} /> <strong>${task.id}. ${task.description}</strong>
      <span class="push">${steps.map(([by, word, sign, off]) => html`<button class="quiet small" data-move=${by} aria-label=${`Move task ${task.id} ${word}`} onClick=${move(Number(by))} disabled=${off}>${sign}</button>`)}</span></header>
    <p class="muted">${task.recipe_id || "no recipe yet"}${task.deps.length > 0 && ` · after ${task.deps.join(", ")}`}
      ${task.run_id && html` · <a href=${`/runs/${task.run_id}`}>run</a>`}${stuck && html` <${Status} of=${stuck.status} note=${stuck.error_code && format.words(stuck.error_code)} />`}</p>
    ${task.partial && html`<p>Done in part: <a href=${`/runs/${task.run_id}`}>its run</a> says what failed or was cut off.</p>`}
    ${task.dod && html`<p class="muted">Done when: ${typeof task.dod === "string" ? task.dod : task.dod.map((/** @type {any} */ { check, path, slot }) => `${check} ${path?.$ref || path || slot}`).join(", ")}</p>`}
    ${task.error && html`<p class="fault"><strong>Why it failed</strong> ${task.error.message} <code>${task.error.code}</code></p>`}
    ${task.status === "failed" && task.run_id && html`<p>“Retry” continues <a href=${`/runs/${task.run_id}`}>its run</a>; “Start again” makes a new one, and every call of an agent is paid for again.</p>`}
    ${task.status === "needs_scoping" && html`<${Question} task=${task} path=${path} />`}
    <${Review} review=${task.review} onDecided=${onDone} />
    <${Fault} error=${error} />
    <div class="actions">
      ${spends.map((name) => name && html`<${AskButton} word=${SPENDING[name][0]} onConfirm=${async () => onDone(await post(`${path}/tasks/${task.id}/${SPENDING[name][1]}`, SPENDING[name][2]))}>
        <p class="cut">${task.id}. ${task.description}</p><p>${SPENDING[name][3]}</p><//>`)}
      ${EDITABLE.includes(task.status) && html`<button class="quiet" onClick=${() => setEdits(true)}>Edit</button>
        <${AskButton} word="Remove" title=${`Remove task ${task.id}?`} kind="quiet danger" danger onConfirm=${() => remove(withQuery(`${path}/tasks/${task.id}`, { revision: plan.revision })).then(onDone)}><p>A task that others come after cannot be removed.</p><//>`}
    </div>
  </li>`;
}

/** @param {Props} props */
function Question({ task, path }) {
  const [answer, setAnswer] = useDraft(path + task.id);
  const [send, error] = useAct(async () => (await post(`${path}/tasks/${task.id}/answer`, { answer }), setAnswer(""), announce("Answered")));
  return html`<form onSubmit=${send}><label>${task.scoping_question} ${task.asked_by === "system" && task.recipe_id && "Arguments are set under Edit."}
    <input required maxlength="4000" value=${answer} onInput=${typed(setAnswer)} /></label>
    <${Fault} error=${error} /><div class="actions"><button type="submit" class="primary">Answer</button></div></form>`;
}

/** @param {any} plan */
function planSentence(plan) {
  if (plan.awaits_chief) return "The chief is splitting the intent into tasks.";
  if (plan.status === "draft" && plan.tasks.length) return "It waits for your approval; you can still change its tasks.";
  if (plan.error && !plan.tasks.length) return "Add tasks below, or describe the work in other words.";
  const done = plan.tasks.filter((/** @type {any} */ task) => task.status === "done").length;
  return `${done} of ${format.plural(plan.tasks.length, "task")} done.`;
}

/** @param {any} plan */
function taskGraph(plan) {
  return {
    nodes: each(plan.tasks, (task) => ({ id: String(task.id), title: `${task.id}. ${task.description}`, kind: task.recipe_id || "task", status: task.status })),
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

/** @param {Props} props */
function Reviewer({ plan }) {
  if (plan.review === "off") return html`<dt>Review</dt><dd>off: words of done are not checked</dd>`;
  const { reviewer } = plan;
  if (!reviewer) return null;
  const who = reviewer.by === "chief" ? html`<code>${reviewer.agent_id}</code> judges` : "a person is asked about";
  return html`<dt>Review</dt><dd>${who} ${reviewer.tasks[1] ? "tasks" : "task"} ${reviewer.tasks.join(", ")}${reviewer.why && html` <span class="muted">${reviewer.why}</span>`}</dd>`;
}

/** @type {Words} */
const VERDICTS = { met: "done", not_met: "failed" };

/** @param {Props} props */
function Review({ review, onDecided }) {
  if (!review) return null;
  const word = review.verdict ? review.verdict.replace("_", " ") : review.status;
  return html`<div class="review"><p><strong>Review</strong> <${Status} of=${VERDICTS[review.verdict] || review.status} word=${word} />
      ${review.by && html` <span class="muted">by the ${review.by}</span>`}${review.run_id && html` · <a href=${`/runs/${review.run_id}`}>run</a>`}
      ${review.usage && html` <span class="muted">${format.number(format.tokens(review.usage))} tokens, ${format.price(review.usage)}</span>`}</p>
    ${review.why && html`<p>${review.why}</p>`}
    ${review.evidence && html`<pre class="shown" tabindex="0">${typeof review.evidence === "string" ? review.evidence : JSON.stringify(review.evidence, null, 2)}</pre>`}
    ${review.gate_id && !review.verdict && html`<${Asked} id=${review.gate_id} onDecided=${onDecided} />`}</div>`;
}

/** @param {Props} props */
function Asked({ id, onDecided }) {
  const gate = useLive(pathOf("gates", id), { every: 5000 });
  if (gate.data?.status !== "open") return html`<${Fault} error=${gate.error} />`;
  return html`<${GateCard} gate=${gate.data} onDecided=${onDecided} />`;
}

/** @param {Props} props */
function Proposals({ plan, path, onDone }) {
  const open = (plan.proposals || []).filter((/** @type {any} */ proposal) => proposal.status === "open");
  if (!open.length) return null;
  return html`<${Section} title="Proposals" count=${open.length}>${each(open, (proposal) => html`<${Proposal} key=${proposal.id} proposal=${proposal} path=${path} onDone=${onDone} />`)}<//>`;
}

/** @param {Props} props */
function Proposal({ proposal, path, onDone }) {
  const [decide, error] = useAct(async (verb) => {
    await post(`${path}/proposals/${proposal.id}/${verb}`);
    announce(`Proposal ${verb === "accept" ? "accepted" : "dismissed"}`);
    onDone();
  });
  const kind = proposal.kind.replace("_", " ");
  return html`<article class="card" data-row tabindex="-1"><header><strong>${kind}${proposal.task ? ` ${proposal.task}` : ""}</strong><span class="muted">after task ${proposal.after_task}</span></header>
    <p>${proposal.why}</p>
    <dl class="facts">${Object.entries(proposal.fields || {}).map(([name, value]) => html`<dt>${name}</dt><dd>${typeof value === "string" ? value : JSON.stringify(value)}</dd>`)}</dl>
    <${Fault} error=${error} />
    <div class="actions"><button class="primary" onClick=${() => decide("accept")}>Accept</button><button onClick=${() => decide("dismiss")}>Dismiss</button></div></article>`;
}

/** @param {Props} props */
function TaskForm({ plan, task, path, onClose, onDone }) {
  const recipes = useLive("/api/recipes?limit=1000", { pause: 600_000 });
  /** @type {Words} */
  const before = {
    description: task?.description || "",
    recipe_id: task?.recipe_id || "",
    deps: (task?.deps || []).join(", "),
    args: JSON.stringify(task?.args || {}),
    scoping_question: task?.scoping_question || "",
  };
  const [values, change] = useFields(before);
  const [save, error] = useAct(async () => {
    // What the router has found must not become what a person has said.
    const said = Object.entries(read(values)).filter(([name]) => !task || name === "description" || values[name] !== before[name]);
    const body = { ...Object.fromEntries(said), revision: plan.revision };
    onDone(await (task ? patch(`${path}/tasks/${task.id}`, body) : post(`${path}/tasks`, body)));
    announce("Saved");
    onClose();
  });
  return html`<form class="card form" onSubmit=${save} aria-label=${task ? `Edit task ${task.id}` : "New task"}>
    <label>Description <textarea rows="2" required value=${values.description} onInput=${change("description")}></textarea></label>
    <label>Recipe <select onChange=${change("recipe_id")}><option value="">let the router choose</option>
      ${options((recipes.data || []).filter((/** @type {any} */ recipe) => recipe.valid).map((/** @type {any} */ { recipe_id }) => [recipe_id, recipe_id]), values.recipe_id)}</select></label>
    <label>Starts after tasks (their numbers) <input placeholder="1, 2" value=${values.deps} onInput=${change("deps")} /></label>
    <label>Arguments, as JSON <textarea rows="2" class="mono" value=${values.args} onInput=${change("args")}></textarea></label>
    <label>Question that a person answers before it starts (optional) <input value=${values.scoping_question} onInput=${change("scoping_question")} /></label>
    <${Fault} error=${error} />
    <div class="actions"><button type="submit" class="primary">${task ? "Save" : "Add"}</button><button onClick=${onClose}>Back</button></div>
  </form>`;
}

/** @param {Words} values */
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
