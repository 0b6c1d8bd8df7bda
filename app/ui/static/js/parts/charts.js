// @ts-check
import { html } from "../lib/html.js";

/** Pixels of a bar's row, and of a chart of columns. */
const ROW = 40;
const HEIGHT = 160;

/** Rows that a chart shows; the table beside it shows all. */
const MOST = 20;

/** @typedef {{name: string, parts: number[], text: string, unknown?: boolean}} Bar
 *   `parts`: lengths one behind the other; `unknown`: more was used than is known. */

/** Bars one below the other, the table beside them says the same. @param {{bars: Bar[], label: string}} props */
export function Bars({ bars, label }) {
  const shown = bars.slice(0, MOST);
  const most = longest(shown);
  return html`<svg class="chart" width="100%" height=${shown.length * ROW} role="img" aria-label=${`${label}; the table has the same numbers`}>
    ${shown.map((bar, index) => html`<g transform=${`translate(0 ${index * ROW})`}>
      <text class="chart-name" x="0" y="13">${bar.name}</text><text class="chart-value" x="100%" y="13" text-anchor="end">${bar.text}</text>
      <rect class="chart-track" y="19" width="100%" height="10" rx="3" />
      ${segments(bar, most).map((each) => html`<rect class=${each.kind} x=${`${each.from}%`} y="19" width=${`${each.size}%`} height="10" rx="3" />`)}
    </g>`)}</svg>`;
}

/** Columns side by side, for days. @param {{bars: Bar[], label: string}} props */
export function Columns({ bars, label }) {
  const most = longest(bars);
  const each = 100 / Math.max(bars.length, 7);
  return html`<svg class="chart" width="100%" height=${HEIGHT + 22} role="img" aria-label=${`${label}; the table has the same numbers`}>
    <line class="chart-base" x1="0" x2="100%" y1=${HEIGHT} y2=${HEIGHT} />
    ${bars.map((bar, index) => html`<g><title>${bar.name}: ${bar.text}</title>
      ${segments(bar, most).map((part) => html`<rect class=${part.kind} x=${`${index * each + each * 0.15}%`} width=${`${each * 0.7}%`}
        y=${HEIGHT - ((part.from + part.size) / 100) * (HEIGHT - 8)} height=${(part.size / 100) * (HEIGHT - 8)} rx="2" />`)}</g>`)}
    ${bars.length > 0 && html`<text class="chart-name" x="0" y=${HEIGHT + 17}>${bars[0].name}</text>`}
    ${bars.length > 1 && html`<text class="chart-name" x=${`${bars.length * each}%`} y=${HEIGHT + 17} text-anchor="end">${bars[bars.length - 1].name}</text>`}
  </svg>`;
}

/** @param {Bar[]} bars */
function longest(bars) {
  return Math.max(...bars.map((bar) => sum(bar.parts)), 0) || 1;
}

/** @param {number[]} parts */
function sum(parts) {
  return parts.reduce((whole, part) => whole + part, 0);
}

/** @param {Bar} bar @param {number} most */
function segments(bar, most) {
  const found = [];
  let from = 0;
  for (const [index, part] of bar.parts.entries()) {
    const size = (100 * part) / most;
    if (size > 0) found.push({ from, size, kind: `chart-part-${index}` });
    from += size;
  }
  if (bar.unknown) found.push({ from, size: Math.min(2, 100 - from), kind: "chart-unknown" });
  return found;
}
