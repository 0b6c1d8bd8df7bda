// @ts-check
import { useState } from "preact/hooks";

import { get } from "../lib/api.js";
import { html } from "../lib/html.js";
import { Fault, Status, announce } from "./basics.js";

/** Whether a run's files are what was written: checked on request, as it reads the whole journal. @param {{id: string, ended: boolean}} props */
export function Verified({ id, ended }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const check = async () => {
    try {
      setFound(await get(`/api/runs/${encodeURIComponent(id)}/verification`));
      setError(null);
      announce("The journal is checked");
    } catch (caught) {
      setError(/** @type {Error} */ (caught));
    }
  };
  const broken = found?.files.filter((/** @type {any} */ each) => each.reason) || [];
  return html`${found && html`<${Status} of=${found.ok ? "valid" : "invalid"} note=${found.ok && !ended ? "so far" : ""} /> `}
    ${!found && html`<button type="button" class="small" onClick=${check}>Verify</button>`}
    ${broken.map((/** @type {any} */ each) => html`<div class="wrong-text">${each.file}${each.line ? `:${each.line}` : ""} ${each.reason}</div>`)}
    ${found?.advice && !found.ok && html`<div>${found.advice}</div>`}<${Fault} error=${error} />`;
}
