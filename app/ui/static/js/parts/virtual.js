// @ts-check
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { html } from "../lib/html.js";

/** Rows beyond each edge of what is visible, and the step in which the first one moves. */
const SPARE = 12;
const STEP = 6;

/** Pixels of a row before one has been measured. */
const GUESS = 56;

/**
 * Rows of equal height, of which only those near the view are in the page. A row whose item is the same object is not
 * rendered again; a missing item is a placeholder, and is asked for when it comes near.
 * @param {{items: any[], row: (item: any, index: number) => any, name: (item: any) => string, depends?: any[], onNear?: (first: number, last: number) => void}} props
 */
export function Virtual({ items, row, name, depends = [], onNear }) {
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const height = useRef(GUESS);
  const kept = useRef({ depends, rows: new WeakMap() });
  const [[first, last], setRange] = useState([0, 40]);
  if (depends.some((each, index) => each !== kept.current.depends[index])) kept.current = { depends, rows: new WeakMap() };

  const look = () => {
    if (!frame.current) return;
    const [from, to] = near(frame.current, height.current, items.length);
    setRange((before) => (before[0] === from && before[1] === to ? before : [from, to]));
  };
  useLayoutEffect(() => {
    const shown = frame.current?.querySelector(".row");
    height.current = (shown instanceof HTMLElement && shown.offsetHeight) || height.current;
    look();
  });
  useEffect(() => {
    const listen = { capture: true, passive: true };
    document.addEventListener("scroll", look, listen);
    window.addEventListener("resize", look);
    return () => {
      document.removeEventListener("scroll", look, listen);
      window.removeEventListener("resize", look);
    };
  }, [items.length]);
  useEffect(() => onNear?.(first, last), [first, last, items.length]);

  const { rows } = kept.current;
  const shown = [];
  for (let index = first; index < Math.min(last, items.length); index += 1) shown.push(one(items[index], index, rows, row, name));
  return html`<div ref=${frame} class="virtual" role="rowgroup" style=${{ height: `${items.length * height.current}px` }}>
    <div style=${{ transform: `translateY(${first * height.current}px)` }}>${shown}</div></div>`;
}

/**
 * @param {any} item @param {number} index @param {WeakMap<object, {index: number, node: any}>} rows
 * @param {(item: any, index: number) => any} row @param {(item: any) => string} name
 */
function one(item, index, rows, row, name) {
  if (item === undefined) return html`<div key=${`missing-${index}`} class="row missing" role="row"><span role="cell" class="muted">…</span></div>`;
  const before = rows.get(item);
  if (before && before.index === index) return before.node;
  const node = html`<div key=${name(item)} class="row" role="row" data-row aria-rowindex=${index + 2}>${row(item, index)}</div>`;
  rows.set(item, { index, node });
  return node;
}

/** The rows near the view, in whole steps. @param {HTMLElement} frame @param {number} height @param {number} count */
function near(frame, height, count) {
  const scroller = frame.closest(".scrolls");
  const view = scroller ? scroller.getBoundingClientRect() : { top: 0, bottom: window.innerHeight };
  const from = frame.getBoundingClientRect().top;
  const top = Math.max(view.top, 0) - from;
  const bottom = Math.min(view.bottom, window.innerHeight) - from;
  const first = Math.max(0, Math.floor((top / height - SPARE) / STEP) * STEP);
  const last = Math.min(count, Math.ceil((bottom / height + SPARE) / STEP) * STEP);
  return [Math.min(first, Math.max(0, count - 1)), Math.max(last, Math.min(count, first + STEP))];
}
