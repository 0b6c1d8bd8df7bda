// @ts-check
import { useEffect, useRef } from "preact/hooks";

import { html } from "../lib/html.js";
import { KEYS, helpOpen } from "../lib/shortcuts.js";

/** The keys of the UI. */
export function Help() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    if (helpOpen.value) dialog.current?.showModal();
  }, [helpOpen.value]);
  if (!helpOpen.value) return null;
  const close = () => (helpOpen.value = false);
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="help-title"><h2 id="help-title">Keys</h2>
    <dl class="facts">${KEYS.map(([key, meaning]) => html`<dt><kbd>${key}</kbd></dt><dd>${meaning}</dd>`)}</dl>
    <div class="actions"><button type="button" onClick=${close}>Close</button></div></dialog>`;
}
