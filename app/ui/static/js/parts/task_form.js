// @ts-check
import { useState } from "preact/hooks";

import { patch, post } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { Fault, announce } from "./basics.js";

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
  const [error, setError] = useState(/** @type {Error | null} */ (null));
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
      setError(/** @type {Error} */ (caught));
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
