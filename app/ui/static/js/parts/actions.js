// @ts-check
import { useState } from "preact/hooks";

import { get, post, remove } from "../lib/api.js";
import { html } from "../lib/html.js";
import { navigate } from "../lib/router.js";
import { Fork, Preview } from "./again.js";
import { Confirm, Fault, Status, announce, useFault } from "./basics.js";

/**
 * What can be ordered of a run, by its name: when it is offered, what it asks, what it does.
 * @type {Record<string, {label: string, states: string[], title: string, text: string, danger?: boolean, next?: boolean}>}
 */
const ORDERS = {
  pause: {
    label: "Pause",
    states: ["pending", "running", "waiting"],
    title: "Pause this run?",
    text: "The step in progress is finished first; no further step begins until you continue the run.",
  },
  interrupt: {
    label: "Pause now",
    states: ["running"],
    title: "Pause this run now?",
    text: "The step in progress is ended, and begins anew when you continue the run. What its agent has done so far is paid.",
  },
  unpause: {
    label: "Continue",
    next: true,
    states: ["paused"],
    title: "Continue this run?",
    text: "It re-enters the queue and continues at the step where it stopped. Finished steps are not repeated.",
  },
  resume: {
    label: "Resume",
    next: true,
    states: ["failed", "cancelled"],
    title: "Resume this run?",
    text: "It continues from the step that ended it. Finished steps keep their results and are not paid again.",
  },
  cancel: {
    label: "Cancel",
    states: ["pending", "running", "waiting", "paused"],
    title: "Cancel this run?",
    text: "Running commands and agents are stopped. Finished steps stay in the journal, and the run can be resumed.",
    danger: true,
  },
  delete: {
    label: "Delete",
    states: ["done", "failed", "cancelled"],
    title: "Delete this run?",
    text: "Its folder with journal, logs and outputs is removed. Files in the workspace and receipts are kept.",
    danger: true,
  },
};

/**
 * Buttons for everything that can be ordered of a run now, each confirmed.
 * @param {{run: any, onDone?: () => void}} props
 */
export function RunActions({ run, onDone }) {
  const [asked, setAsked] = useState("");
  const order = ORDERS[asked];
  const act = async () => {
    await carryOut(asked, run.run_id);
    announce(`${order.label}: accepted`);
    if (asked === "delete") navigate("/runs");
    onDone?.();
  };
  return html`${Object.entries(ORDERS)
      .filter(([, each]) => each.states.includes(run.status))
      .map(([name, each]) => html`<button type="button" class=${each.danger ? "quiet danger" : each.next ? "primary" : ""}
        onClick=${() => setAsked(name)}>${each.label}</button>`)}
    ${order && html`<${Confirm} title=${order.title} confirm=${order.label} danger=${order.danger}
      onConfirm=${act} onClose=${() => setAsked("")}><p>${order.text}</p>${asked === "resume" && html`<${Preview} id=${run.run_id} body=${{ order: "resume" }} />`}</${Confirm}>`}
    <button type="button" onClick=${() => setAsked("fork")}>Fork</button>
    ${asked === "fork" && html`<${Fork} run=${run} onClose=${() => setAsked("")} />`}`;
}

/** @param {string} name @param {string} runId */
async function carryOut(name, runId) {
  const path = `/api/runs/${encodeURIComponent(runId)}`;
  if (name === "delete") await remove(path);
  else if (name === "interrupt") await post(`${path}/pause`, { interrupt: true });
  else await post(`${path}/${name}`);
}

/** Whether a run's files are what was written: checked on request, as it reads the whole journal. @param {{id: string, ended: boolean}} props */
export function Verified({ id, ended }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useFault();
  const check = async () => {
    try {
      setFound(await get(`/api/runs/${encodeURIComponent(id)}/verification`));
      setError(null);
      announce("The journal is checked");
    } catch (caught) {
      setError(caught);
    }
  };
  const broken = found?.files.filter((/** @type {any} */ each) => each.reason) || [];
  return html`${found && html`<${Status} of=${found.ok ? "valid" : "invalid"} note=${found.ok && !ended ? "so far" : ""} /> `}
    ${!found && html`<button type="button" class="small" onClick=${check}>Verify</button>`}
    ${broken.map((/** @type {any} */ each) => html`<div class="wrong-text">${each.file}${each.line ? `:${each.line}` : ""} ${each.reason}</div>`)}
    ${found?.advice && !found.ok && html`<div>${found.advice}</div>`}<${Fault} error=${error} />`;
}
