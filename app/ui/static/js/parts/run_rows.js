// @ts-check
import { html } from "../lib/html.js";
import { Ago, Progress, Status, Took } from "./basics.js";

/**
 * A table of runs.
 * @param {{runs: any[], chosen?: Set<string>, onChoose?: (id: string, on: boolean) => void}} props
 */
export function RunTable({ runs, chosen, onChoose }) {
  return html`<div class="table-frame"><table class="runs">
    <thead><tr>
      ${onChoose && html`<th><span class="hidden">Select</span></th>`}
      <th>Status</th><th>Run</th><th>Recipe</th><th>Progress</th><th class="right">Duration</th><th class="right">Changed</th>
    </tr></thead>
    <tbody>${runs.map((run) => html`<${RunRow} key=${run.run_id} run=${run} chosen=${chosen} onChoose=${onChoose} />`)}</tbody>
  </table></div>`;
}

/** @param {{run: any, chosen?: Set<string>, onChoose?: (id: string, on: boolean) => void}} props */
function RunRow({ run, chosen, onChoose }) {
  const title = run.description || run.recipe_id;
  return html`<tr data-row>
    ${onChoose && html`<td><input type="checkbox" aria-label=${`Select ${title}`} checked=${chosen?.has(run.run_id)}
      onChange=${(/** @type {any} */ event) => onChoose(run.run_id, event.target.checked)} /></td>`}
    <td><${Status} of=${run.status} note=${run.unreadable ? "unreadable" : run.error_code} /></td>
    <td class="wide"><a class="row-link" href=${`/runs/${run.run_id}`}>${title}</a><div class="muted mono">${run.run_id}</div></td>
    <td><a href=${`/runs?recipe_id=${encodeURIComponent(run.recipe_id)}`}>${run.recipe_id}</a></td>
    <td><${Progress} done=${run.current_step_index} total=${run.total_steps} /></td>
    <td class="right"><${Took} from=${run.created_at} to=${run.completed_at} /></td>
    <td class="right"><${Ago} at=${run.updated_at} /></td>
  </tr>`;
}

/** Runs as short lines, for the home page. @param {{runs: any[]}} props */
export function RunLines({ runs }) {
  return html`<ul class="lines">${runs.map(
    (run) => html`<li key=${run.run_id}>
      <${Status} of=${run.status} note=${run.error_code} />
      <a class="wide" href=${`/runs/${run.run_id}`}>${run.description || run.recipe_id}</a>
      <span class="muted">${run.recipe_id}</span>
      <${Progress} done=${run.current_step_index} total=${run.total_steps} />
      <${Ago} at=${run.updated_at} />
    </li>`,
  )}</ul>`;
}
