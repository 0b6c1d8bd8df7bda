// @ts-check
import { useState } from "preact/hooks";

import { post } from "../lib/api.js";
import * as format from "../lib/format.js";
import { html } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { Fault, Section, Status, announce } from "./basics.js";
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
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const decide = (/** @type {string} */ verb) => async () => {
    try {
      await post(`${path}/proposals/${proposal.id}/${verb}`);
      announce(`Proposal ${verb === "accept" ? "accepted" : "dismissed"}`);
      onDone();
    } catch (caught) {
      setError(/** @type {Error} */ (caught));
    }
  };
  const kind = proposal.kind.replace("_", " ");
  return html`<article class="card" data-row tabindex="-1"><header><strong>${kind}${proposal.task ? ` ${proposal.task}` : ""}</strong><span class="muted">after task ${proposal.after_task}</span></header>
    <p>${proposal.why}</p>
    <dl class="facts">${Object.entries(proposal.fields || {}).map(([name, value]) => html`<dt>${name}</dt><dd>${typeof value === "string" ? value : JSON.stringify(value)}</dd>`)}</dl>
    <${Fault} error=${error} />
    <div class="actions"><button type="button" class="primary" onClick=${decide("accept")}>Accept</button><button type="button" onClick=${decide("dismiss")}>Dismiss</button></div></article>`;
}
