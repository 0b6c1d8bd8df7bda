// @ts-check
import { useEffect, useRef } from "preact/hooks";

import { html, navigate, signal, useValue } from "../lib/base.js";

/** Whether the help is open. */
const helpOpen = signal(false);

/** Keys and what they do, as the help lists them. */
const KEYS = /** @type {const} */ ([
  ["/", "Search; Enter goes to the first row"],
  ["j k", "Next and previous row"],
  ["Enter", "Open the row"],
  ["g h", "Home"],
  ["g r", "Runs"],
  ["g i", "Inbox"],
  ["g p", "Plans"],
  ["g c", "Cost"],
  ["g s", "Start a run"],
  ["a d", "Approve or deny the chosen question"],
  ["?", "This help"],
]);

const PLACES = { h: "/", r: "/runs", i: "/inbox", p: "/plans", c: "/cost", s: "/start" };

let going = false;

/** Listen to the keys of the UI, wherever the person is not writing. */
export function installShortcuts() {
  document.addEventListener("keydown", (event) => {
    if (leavesSearch(event)) return;
    if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
    if (press(event.key)) event.preventDefault();
  });
}

/** From the search to the rows that it found, or back to the page. @param {KeyboardEvent} event */
function leavesSearch(event) {
  if (!(event.target instanceof HTMLElement) || event.target.id !== "search") return false;
  if (event.key === "Escape") event.target.blur();
  return ["Enter", "ArrowDown"].includes(event.key) && move(1);
}

/** @param {EventTarget | null} target */
function isWriting(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT|DIALOG)$/.test(target.tagName) || Boolean(target.closest("dialog")));
}

/** @param {string} key @returns {boolean} Whether the key meant something. */
function press(key) {
  if (going) {
    going = false;
    if (key in PLACES) navigate(PLACES[/** @type {keyof typeof PLACES} */ (key)]);
    return key in PLACES;
  }
  switch (key) {
    case "g":
      return (going = true);
    case "?":
      return (helpOpen.value = true);
    case "/":
      document.getElementById("search")?.focus();
      return true;
    case "j":
    case "k":
      return move(key === "j" ? 1 : -1);
    case "a":
      return decide(0);
    case "d":
      return decide(1);
    default:
      return false;
  }
}

function rows() {
  return /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-row]")]);
}

/** @param {number} by */
function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  if (at < 0) return focus(all.find((row) => row.getBoundingClientRect().top >= 0));
  return focus(all[Math.min(all.length - 1, Math.max(0, at + by))]);
}

/** @param {HTMLElement | undefined} row */
function focus(row) {
  const link = row?.querySelector(".row-link");
  (link instanceof HTMLElement ? link : row)?.focus();
  return Boolean(row);
}

/** Press a decision's button of the question that has the focus, or of the first; it is confirmed there. @param {number} index */
function decide(index) {
  const gates = [...document.querySelectorAll("[data-gate]")];
  const gate = gates.find((each) => each.contains(document.activeElement)) || gates[0];
  const button = gate?.querySelectorAll("[data-decision]")[index];
  if (button instanceof HTMLElement) button.click();
  return Boolean(button);
}

/** The keys of the UI. */
export function Help() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const open = useValue(helpOpen);
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  if (!open) return null;
  const close = () => (helpOpen.value = false);
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="help-title"><h2 id="help-title">Keys</h2>
    <dl class="facts">${KEYS.map(([key, meaning]) => html`<dt><kbd>${key}</kbd></dt><dd>${meaning}</dd>`)}</dl>
    <div class="actions"><button type="button" onClick=${close}>Close</button></div></dialog>`;
}
