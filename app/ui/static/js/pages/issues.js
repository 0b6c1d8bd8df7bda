// @ts-check
import { useState } from "preact/hooks";

import { patch, withQuery } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { address, setQuery } from "../lib/router.js";
import { Ago, Empty, Fault, Id, PageTitle, Status, useFault } from "../parts/basics.js";

/** Issues: what checks, agents and people have found. */
export function Issues() {
  const status = address.value.query.get("status") || "open";
  const issues = useLive(withQuery("/api/issues", { status: status === "all" ? "" : status, limit: 200 }));
  return html`
    <${PageTitle} title="Issues" lead="Findings of checks and agents, failed definitions of done, and notes of people."
      actions=${html`<label>Show <select onChange=${(/** @type {any} */ event) => setQuery({ status: event.target.value })}>
        ${["open", "closed", "all"].map((each) => html`<option value=${each} selected=${each === status}>${each}</option>`)}</select></label>`} />
    <${Fault} error=${issues.error} retry=${issues.refresh} />
    ${issues.data?.length === 0 && html`<${Empty} title=${status === "open" ? "No issue is open." : "No issue matches."} />`}
    ${issues.data?.length > 0 && html`<div class="table-frame" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>Status</th><th>Issue</th><th>Kind</th><th>Severity</th><th class="right">Changed</th></tr></thead><tbody>
      ${issues.data.map((/** @type {any} */ issue) => html`<tr key=${issue.issue_id} data-row><td><${Status} of=${issue.status} /></td>
        <td class="wide"><a class="row-link" href=${`/issues/${issue.issue_id}`}>${issue.title}</a></td><td>${issue.kind}</td><td>${issue.severity || "–"}</td>
        <td class="right"><${Ago} at=${issue.updated_at} /></td></tr>`)}</tbody></table></div>`}`;
}

/** An issue with its trail. @param {{id: string}} props */
export function Issue({ id }) {
  const path = `/api/issues/${encodeURIComponent(id)}`;
  const live = useLive(path, { pause: 4000 });
  const [note, setNote] = useState("");
  const [error, setError] = useFault();
  const issue = live.data;
  if (!issue) return html`<${PageTitle} title="Issue" lead=${id} /><${Fault} error=${live.error} retry=${live.refresh} />`;
  const change = async (/** @type {any} */ fields) => {
    try {
      await patch(path, { ...fields, revision: issue.revision });
      setNote("");
      live.refresh();
    } catch (caught) {
      setError(caught);
    }
  };
  const other = issue.status === "open" ? "closed" : "open";
  return html`
    <${PageTitle} title=${issue.title} lead=${html`<${Status} of=${issue.status} /> ${issue.kind}${issue.severity && `, ${issue.severity}`}`}
      actions=${html`<button type="button" onClick=${() => change({ status: other, note: note || undefined })}>${other === "closed" ? "Close" : "Reopen"}</button>`} />
    <dl class="facts card"><dt>Issue</dt><dd><${Id} id=${issue.issue_id} /></dd>
      ${issue.run_id && html`<dt>Run</dt><dd><a href=${`/runs/${issue.run_id}`}>${issue.run_id}</a></dd>`}<dt>Made</dt><dd><${Ago} at=${issue.created_at} /></dd></dl>
    <pre class="shown">${issue.body}</pre>
    <h2>Notes</h2>
    <ul class="lines">${(issue.notes || []).map((/** @type {any} */ each) => html`<li><${Ago} at=${each.at} /> <span class="wide">${each.text || each.note}</span></li>`)}</ul>
    <${Fault} error=${error} />
    <form onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), change({ note }))}>
      <label>Add a note <textarea rows="2" required value=${note} onInput=${(/** @type {any} */ event) => setNote(event.target.value)}></textarea></label>
      <div class="actions"><button type="submit">Add</button></div></form>`;
}
