// @ts-check
import { useState } from "preact/hooks";

import { patch, post, remove } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { navigate } from "../lib/router.js";
import { Ago, Confirm, Empty, Fault, Id, PageTitle, Section, Status, announce, useFault } from "../parts/basics.js";

/** Milliseconds between two looks at triggers. */
const LOOK = 5000;

/** Triggers: when each starts its next run, and what became of the last ones. */
export function Triggers() {
  const triggers = useLive("/api/triggers", { pause: LOOK });
  return html`
    <${PageTitle} title="Triggers" lead="Start runs on a schedule, on an incoming webhook, or when a file appears."
      actions=${html`<a class="button primary" href="/start">Schedule a recipe</a>`} />
    <${Fault} error=${triggers.error} retry=${triggers.refresh} />
    ${triggers.data?.length === 0 && html`<${Empty} title="There are no triggers." command="control-room triggers add RECIPE --cron '30 7 * * MON-FRI'">
      <p>Choose “Start it on a schedule” in the form of <a href="/start">a recipe</a>, or from a terminal:</p></${Empty}>`}
    ${triggers.data?.length > 0 && html`<div class="table-frame" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>State</th><th>Trigger</th><th>Starts</th><th>When</th><th>Next</th><th>Newest</th></tr></thead><tbody>
      ${triggers.data.map((/** @type {any} */ each) => html`<tr key=${each.trigger_id} data-row><td><${State} trigger=${each} /></td>
        <td class="wide"><a class="row-link" href=${`/triggers/${each.trigger_id}`}>${each.name}</a></td>
        <td><a href=${`/recipes?recipe=${encodeURIComponent(each.recipe_id)}`}>${each.recipe_id}</a></td><td>${when(each)}</td>
        <td><${Ago} at=${each.next_at[0]} /></td><td>${each.history[0] && html`<${Outcome} of=${each.history[0]} /> <${Ago} at=${each.history[0].at} />`}</td></tr>`)}
    </tbody></table></div>`}`;
}

/** A trigger with its next times and its newest occurrences. @param {{id: string}} props */
export function Trigger({ id }) {
  const path = `/api/triggers/${encodeURIComponent(id)}`;
  const live = useLive(path, { pause: LOOK });
  const [error, setError] = useFault();
  const [asked, setAsked] = useState("");
  const trigger = live.data;
  if (!trigger) return html`<${PageTitle} title="Trigger" lead=${id} /><${Fault} error=${live.error} retry=${live.refresh} />`;
  const order = (/** @type {() => Promise<any>} */ call, /** @type {string} */ said) => async () => {
    try {
      await call();
      setError(null);
      announce(said);
      live.refresh();
    } catch (caught) {
      setError(caught);
    }
  };
  const pause = order(() => patch(path, { paused: !trigger.paused, revision: trigger.revision }), trigger.paused ? "It continues" : "Paused");
  return html`
    <${PageTitle} title=${trigger.name} lead=${html`<${State} trigger=${trigger} /> starts ${trigger.recipe_id} ${when(trigger)}.`}
      actions=${html`<button type="button" class="primary" onClick=${order(() => post(`${path}/fire`), "A run is started")}>Start a run now</button>
        <button type="button" onClick=${pause}>${trigger.paused ? "Continue" : "Pause"}</button>
        <button type="button" class="quiet danger" onClick=${() => setAsked("remove")}>Remove</button>`} />
    <${Fault} error=${error} />
    <dl class="facts card"><dt>Trigger</dt><dd><${Id} id=${trigger.trigger_id} /></dd>
      <dt>Recipe</dt><dd><a href=${`/recipes?recipe=${encodeURIComponent(trigger.recipe_id)}`}>${trigger.recipe_id}</a></dd>
      <dt>Arguments</dt><dd class="mono">${JSON.stringify({ ...trigger.args, ...trigger.args_from })}</dd>
      <dt>If a run is active</dt><dd>${OVERLAP[trigger.overlap]}</dd>
      ${trigger.kind === "schedule" && html`<dt>Missed times</dt><dd>${CATCH_UP[trigger.catch_up]}</dd>`}
      ${trigger.waiting > 0 && html`<dt>Waiting</dt><dd>${trigger.waiting}</dd>`}
      <dt>Created</dt><dd><${Ago} at=${trigger.created_at} />${trigger.created_by?.name && ` by ${trigger.created_by.name}`}</dd></dl>
    ${trigger.next_at.length > 0 && html`<${Section} title="Next times"><ul class="lines">${trigger.next_at.map((/** @type {string} */ at) => html`<li><${Ago} at=${at} /><span class="muted">${new Date(at).toLocaleString()}</span></li>`)}</ul></${Section}>`}
    <${Section} title="History" count=${trigger.history.length}>
      ${trigger.history.length === 0 && html`<p class="muted">No runs yet.</p>`}
      <ul class="lines">${trigger.history.map((/** @type {any} */ each) => html`<li key=${each.occurrence}><${Outcome} of=${each} /><span class="wide">${each.subject || ""} ${each.reason || ""}</span><${Ago} at=${each.due_at} /></li>`)}</ul></${Section}>
    ${asked && html`<${Confirm} title="Remove this trigger?" confirm="Remove" danger onConfirm=${() => remove(path).then(() => navigate("/triggers"))} onClose=${() => setAsked("")}>
      <p>It starts no further run. The runs that it started stay.</p></${Confirm}>`}`;
}

/** @type {Record<string, string>} */
const OVERLAP = { allow: "another one starts", skip: "none starts", queue: "the next one waits for its end", cancel: "it is cancelled, and the next one starts" };

/** @type {Record<string, string>} */
const CATCH_UP = { none: "are not made up for", one: "are made up for by one run", all: "are all made up for" };

/** @param {{trigger: any}} props */
function State({ trigger }) {
  const over = trigger.kind === "schedule" && !trigger.next_at.length;
  return html`<${Status} of=${trigger.paused ? "paused" : over ? "done" : "pending"} word=${trigger.paused ? "paused" : over ? "over" : "active"} />`;
}

/** What came of an occurrence. @param {{of: any}} props */
function Outcome({ of }) {
  const state = { started: "done", repeated: "done", queued: "queued", refused: "failed" }[/** @type {string} */ (of.result)] || "skipped";
  return html`<${Status} of=${state} word=${of.result} /> ${of.run_id && html`<a href=${`/runs/${of.run_id}`}>run</a>`}`;
}

/** When a trigger starts runs, in words. @param {any} trigger */
function when({ schedule, webhook, files }) {
  if (webhook) return `for each delivery${webhook.scheme === "none" ? "" : ` signed as ${webhook.scheme}`}`;
  if (files) return `for each new file of ${files.pattern}`;
  if (schedule.cron) return `at ${schedule.cron} (${schedule.timezone})`;
  return schedule.every_seconds ? `every ${schedule.every_seconds} s` : `once, ${new Date(schedule.at).toLocaleString()}`;
}
