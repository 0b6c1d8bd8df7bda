// @ts-check
import { useState } from "preact/hooks";

import { patch } from "../lib/api.js";
import { html } from "../lib/html.js";
import { changes, written } from "../lib/labels.js";
import { Confirm, announce } from "./basics.js";

/**
 * Ask for labels.
 * @param {{title: string, before?: Record<string, string>, onLabel: (labels: Record<string, string | null>) => any, onClose: () => void}} props
 *   `before`: labels that are there; without them lines only add and remove.
 */
export function LabelDialog({ title, before, onLabel, onClose }) {
  const [text, setText] = useState(written(before || {}));
  const save = async () => {
    const labels = changes(text, before);
    if (Object.keys(labels).length) await onLabel(labels);
  };
  return html`<${Confirm} title=${title} confirm="Label" onConfirm=${save} onClose=${onClose}>
    <label><span>One <code>key=value</code> per line${before ? "" : html`; <code>key-</code> removes one`}</span>
      <textarea rows="5" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea></label></${Confirm}>`;
}

/** Buttons that label a run, and keep retention from it. @param {{run: any, onDone: () => void}} props */
export function Marks({ run, onDone }) {
  const [asked, setAsked] = useState(false);
  const mark = async (/** @type {any} */ body) => {
    await patch(`/api/runs/${encodeURIComponent(run.run_id)}`, body);
    announce("Saved");
    onDone();
  };
  return html`<button type="button" class="small" onClick=${() => setAsked(true)}>${Object.keys(run.labels).length ? "Change" : "Add"} labels</button>
    <button type="button" class="small" aria-pressed=${Boolean(run.pinned)} title="A pinned run is never pruned" onClick=${() => mark({ pinned: !run.pinned })}>${run.pinned ? "Unpin" : "Pin"}</button>
    ${asked && html`<${LabelDialog} title="Labels of this run" before=${run.labels} onLabel=${(/** @type {any} */ labels) => mark({ labels })} onClose=${() => setAsked(false)} />`}`;
}
