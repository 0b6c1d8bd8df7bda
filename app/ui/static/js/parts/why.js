// @ts-check
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { FINISHED } from "../lib/run_state.js";
import { Ago, Command, Section, Took } from "./basics.js";

/** Milliseconds between two looks: no event tells how long an agent has been silent. */
const LOOK = 5000;

/** Causes in the run itself that its page shows anyway. */
const SHOWN = ["ended", "gate", "parked", "paused", "pausing", "cancelling", "agent", "step", "between_steps"];

/**
 * What an unfinished run waits for, link by link; nothing where its page says so already.
 * @param {{run: any, path: string, mine: (event: any) => boolean}} props
 */
export function Why({ run, path, mine }) {
  const { data } = useLive(FINISHED.includes(run.status) ? null : `${path}/why`, { on: mine, every: LOOK });
  const chain = data?.chain || [];
  if (FINISHED.includes(run.status) || chain.every((/** @type {any} */ each) => each.run_id === run.run_id && SHOWN.includes(each.kind))) return null;
  return html`<${Section} title="Why it does not move"><ol class="lines">
    ${chain.map((/** @type {any} */ each) => html`<li><span class="wide">${each.text}
        ${each.run_id !== run.run_id && html` <a href=${`/runs/${each.run_id}`}>${each.kind === "gate" ? "Answer it there" : each.run_id}</a>`}</span>
      ${each.since && html`<span class="muted">for <${Took} from=${each.since} /></span>`}
      ${each.until && html`<span class="muted">ends <${Ago} at=${each.until} /></span>`}
      ${each.act && each.kind !== "gate" && html`<${Command} text=${each.act} served />`}</li>`)}</ol></${Section}>`;
}
