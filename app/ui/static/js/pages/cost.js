import { address, html, present } from "../lib/base.js";
import * as format from "../lib/format.js";
import { aboutRuns, useLive, withQuery } from "../lib/live.js";
import { Empty, Fault, Filters, PageTitle, Section, Table, options, toQuery } from "../parts/basics.js";
import { Budgets } from "../parts/orders.js";

const GROUPS = [
  ["recipe", "Recipe"],
  ["agent", "Agent"],
  ["model", "Model"],
  ["label", "Label"],
  ["day", "Day"],
];

const PERIODS = [
  ["1", "the last day"],
  ["7", "the last 7 days"],
  ["30", "the last 30 days"],
  ["all", "all time"],
];

const DAY = 24 * 3600 * 1000;

export function Cost() {
  const query = address.value.query;
  const by = query.get("by") || "recipe";
  const days = query.get("days") || "30";
  const shows = query.get("show") === "tokens" ? "tokens" : "cost";
  const key = query.get("key") || "";
  const asks = by !== "label" || key;
  const path = withQuery("/api/usage", { by, label_key: by === "label" ? key : "", created_after: since(days), session_id: query.get("session_id"), utc_offset: offset() });
  const usage = useLive(asks ? path : null, { on: aboutRuns, every: 10_000 });
  return html`
    <${PageTitle} title="Cost" lead=${html`Tokens and money of runs, as providers reported them. ≈ marks an estimate from the <a href="/rules">prices</a> of the project. A call with neither is shown as unknown.`} />
    <${Choices} by=${by} days=${days} shows=${shows} label=${key} />
    <${Fault} error=${usage.error} retry=${usage.refresh} />
    ${!asks && html`<${Empty} title="Which label?"><p>Enter the name of a label above, such as <code>book</code>.</p><//>`}
    ${usage.data && html`<${Total} total=${usage.data.total} /><${Sums} by=${by} rows=${usage.data.rows} shows=${shows} />`}
    <${Budgets} />`;
}

/** Midnight that many days ago, so that polls of a day have one address. @param {string} days */
function since(days) {
  if (!Number(days)) return "";
  const today = new Date(present());
  today.setHours(0, 0, 0, 0);
  return new Date(today.getTime() - (Number(days) - 1) * DAY).toISOString();
}

/** Minutes from UTC as an interface writes them: days are those of the person who looks. */
function offset() {
  const minutes = -new Date().getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `${minutes < 0 ? "-" : "+"}${String(hours).padStart(2, "0")}:${String(rest).padStart(2, "0")}`;
}

/** @param {Props} props */
function Choices({ by, days, shows, label }) {
  return html`<${Filters}>
    <label>By <select onChange=${toQuery("by")}>${options(GROUPS, by)}</select></label>
    ${by === "label" && html`<label>Label <input id="search" placeholder="book" value=${label} onChange=${toQuery("key")} /></label>`}
    <label>Runs of <select onChange=${toQuery("days")}>${options(PERIODS, days)}</select></label>
    <label>Charts show <select onChange=${toQuery("show")}>${options([["cost", "money"], ["tokens", "tokens"]], shows)}</select></label>
  <//>`;
}

/** @param {Props} props */
function Total({ total }) {
  return html`<dl class="figures">
    <div><dt>Cost</dt><dd>${format.spent(total, "nothing")}</dd>${format.unpriced(total)[0] && html`<dd class="muted">${format.unpriced(total).join(", ")}${guessed(total) && `, ${format.estimate(total.cost_estimated_usd)}`}</dd>`}</div>
    <div><dt>Input tokens</dt><dd>${reported(total, "input_tokens")}</dd></div>
    <div><dt>Output tokens</dt><dd>${reported(total, "output_tokens")}</dd></div>
    <div><dt>Calls</dt><dd>${format.number(total.calls + total.calls_silent)}</dd></div>
    <div><dt>Runs</dt><dd>${format.number(total.runs)}</dd></div>
  </dl>`;
}

/** @param {Props} props */
function Sums({ by, rows, shows }) {
  const word = GROUPS.find(([name]) => name === by)?.[1] || by;
  const ordered = [...rows].sort((one, other) => (by === "day" ? one.name.localeCompare(other.name) : weight(other, shows) - weight(one, shows)));
  const bars = ordered.map((row) => ({
    name: row.name || NAMELESS[by] || "none",
    parts: shows === "tokens" ? [row.input_tokens || 0, row.output_tokens || 0] : [row.cost_usd || 0, row.cost_estimated_usd || 0],
    text: shows === "tokens" ? format.number((row.input_tokens || 0) + (row.output_tokens || 0)) : format.price(row),
    unknown: shows === "cost" && format.unpriced(row).length > 0 && !guessed(row),
  }));
  const guesses = rows.some(guessed);
  const columns = guesses ? NUMBERS : NUMBERS.filter(([name]) => name !== "Estimated");
  const label = `${shows === "tokens" ? "Tokens" : "Cost"} by ${word.toLowerCase()}`;
  if (!rows.length) return html`<${Empty} title="No agent was called in this time."><p>Choose a longer time above<span class="offer">, or <a href="/start">start a run</a></span>.</p><//>`;
  return html`<${Section} title=${label}><div class="halves">
    <div class="card">${by === "day" ? html`<${Columns} bars=${bars} label=${label} />` : html`<${Bars} bars=${bars} label=${label} />`}
      ${(shows === "tokens" || guesses) && html`<p class="legend"><span class="chart-key-0"></span> ${shows === "tokens" ? "input" : "reported"} <span class="chart-key-1"></span> ${shows === "tokens" ? "output" : "estimated"}</p>`}
      ${bars.some((bar) => bar.unknown) && html`<p class="legend"><span class="chart-unknown"></span> Calls without a price.${rows.some((/** @type {any} */ row) => row.calls_without_price) && html` To estimate them, set prices: <code>control-room prices set FILE</code>`}</p>`}</div>
    <${Table} label=${label} rows=${ordered} name="name" columns=${[[word, (/** @type {any} */ row) => named(by, row.name)], ...columns]} />
  </div><p class="muted">“Per run” counts every run that called an agent: failed, denied and cancelled runs too, and forks with only the calls that they made themselves. Failed tries count as calls. Deleted runs are not included.</p><//>`;
}

/** @type {Columns} */
const NUMBERS = /** @type {[string, (row: any) => any][]} */ ([
  ["Runs", (row) => format.number(row.runs)],
  ["Calls", (row) => format.number(row.calls + row.calls_silent)],
  ["Input", (row) => reported(row, "input_tokens")],
  ["Output", (row) => reported(row, "output_tokens")],
  ["Cost", (row) => format.spent({ ...row, cost_estimated_usd: null })],
  ["Estimated", (row) => (guessed(row) ? format.estimate(row.cost_estimated_usd) : "–")],
  ["Per run", (row) => (format.unpriced(row)[0] && !guessed(row) ? "unknown" : format.price({ ...row, cost_usd: perRun(row, "cost_usd"), cost_estimated_usd: perRun(row, "cost_estimated_usd") }))],
  ["Unpriced", (row) => row.calls_without_price + row.calls_silent || ""],
]).map(([name, cell]) => [name, cell, "right number"]);

/** @param {any} row @param {string} name */
function reported(row, name) {
  return format.number(row.calls ? row[name] : null);
}

/** @param {any} row */
function guessed(row) {
  return typeof row.cost_estimated_usd === "number";
}

/** @param {any} row @param {string} name */
function perRun(row, name) {
  return row.runs && typeof row[name] === "number" ? row[name] / row.runs : null;
}

/** @type {Words} */
const NAMELESS = { model: "default of the backend" };

/** @param {string} by @param {string | null} name */
function named(by, name) {
  if (name === null || name === "") return html`<span class="muted">${NAMELESS[by] || "none"}</span>`;
  return by === "recipe" ? html`<a class="row-link" href=${withQuery("/runs", { recipe_id: name })}>${name}</a>` : name;
}

/** @param {any} row @param {string} shows */
function weight(row, shows) {
  return shows === "tokens" ? (row.input_tokens || 0) + (row.output_tokens || 0) : (row.cost_usd || 0) + (row.cost_estimated_usd || 0) || (row.calls ? Number.MIN_VALUE : 0);
}

const ROW = 40;
const HEIGHT = 160;

/** Rows that a chart shows; the table beside it shows all. */
const MOST = 20;

/** @param {Props} props */
function Bars({ bars, label }) {
  const shown = bars.slice(0, MOST);
  const most = longest(shown);
  return html`<svg class="chart" width="100%" height=${shown.length * ROW} role="img" aria-label=${`${label}; the table has the same numbers`}>
    ${shown.map((bar, index) => html`<g transform=${`translate(0 ${index * ROW})`}>
      <text class="chart-name" x="0" y="13">${bar.name}</text><text class="chart-value" x="100%" y="13" text-anchor="end">${bar.text}</text>
      <rect class="chart-track" y="19" width="100%" height="10" rx="3" />
      ${segments(bar, most).map((each) => html`<rect class=${each.kind} x=${`${each.from}%`} y="19" width=${`${each.size}%`} height="10" rx="3" />`)}
    </g>`)}</svg>`;
}

/** @param {Props} props */
function Columns({ bars, label }) {
  const most = longest(bars);
  const each = 100 / Math.max(bars.length, 7);
  return html`<svg class="chart" width="100%" height=${HEIGHT + 22} role="img" aria-label=${`${label}; the table has the same numbers`}>
    <line class="chart-base" x1="0" x2="100%" y1=${HEIGHT} y2=${HEIGHT} />
    ${bars.map((bar, index) => html`<g><title>${bar.name}: ${bar.text}</title>
      ${segments(bar, most).map((part) => html`<rect class=${part.kind} x=${`${index * each + each * 0.15}%`} width=${`${each * 0.7}%`}
        y=${HEIGHT - ((part.from + part.size) / 100) * (HEIGHT - 8)} height=${Math.max(0, (part.size / 100) * (HEIGHT - 8))} rx="2" />`)}</g>`)}
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
  // What is unknown has room at the end of the longest bar, too.
  const room = bar.unknown ? 97 : 100;
  for (const [index, part] of bar.parts.entries()) {
    const size = (room * part) / most;
    if (size > 0) found.push({ from, size, kind: `chart-part-${index}` });
    from += size;
  }
  if (bar.unknown) found.push({ from, size: 3, kind: "chart-unknown" });
  return found;
}
