const UNITS = /** @type {const} */ ([
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
]);

/** @type {OfNumber} */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  let rest = Math.round(seconds);
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count || parts.length) parts.push(count ? `${count} ${unit}` : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ");
}

export const ELAPSED = "from the start to the end, pauses and waiting included";

/** @type {Elapsed} */
export function seconds(from, to, now) {
  if (!from) return NaN;
  return Math.max(0, ((to ? Date.parse(to) : now) - Date.parse(from)) / 1000);
}

/** @type {Relative} */
export function relative(instant, now) {
  const age = (now - Date.parse(instant)) / 1000;
  if (!Number.isFinite(age)) return "–";
  if (Math.abs(age) < 5) return "now";
  const [unit, size] = UNITS.find(([, each]) => Math.abs(age) >= each) || UNITS[3];
  const count = `${Math.floor(Math.abs(age) / size)} ${unit}`;
  return age > 0 ? `${count} ago` : `in ${count}`;
}

/** @type {OfText} */
export function exact(instant) {
  const date = new Date(instant);
  return Number.isNaN(date.getTime()) ? instant : `${date.toLocaleString()} (${instant})`;
}

/** @type {OfAmount} */
export function number(count) {
  return count === null || count === undefined ? "–" : count.toLocaleString("en");
}

/** US dollars; none was reported: a dash, never zero. @type {OfAmount} */
export function money(amount) {
  if (amount === null || amount === undefined) return "–";
  const small = Math.abs(amount);
  return `$${small === 0 || small >= 0.1 ? amount.toFixed(2) : small >= 0.0001 ? amount.toFixed(4) : amount.toPrecision(2)}`;
}

/** What was spent, in short: ≥ where there is more than was reported, ≈ an estimate by the price file. @type {Spent} */
export function spent(sums, none = "–") {
  const { cost_usd: told = null, cost_estimated_usd: guess = null, calls_without_price, calls_silent } = sums || {};
  const open = calls_without_price || calls_silent;
  if (told !== null) return `${open || guess !== null ? "≥ " : ""}${money(told)}`;
  return guess !== null ? estimate(guess) : open || tokens(sums) ? "unknown" : none;
}

/** The calls of a sum whose cost nobody reported. @param {any} sums @returns {string[]} */
export function unpriced(sums) {
  const found = [[sums.calls_without_price, "without a price"], [sums.calls_silent, "reported nothing"]];
  return found.flatMap(([count, what]) => (count ? `${plural(count, "call")} ${what}` : []));
}

/** What a usage cost, and the estimate beside it; the two are never added up. @type {Spent} */
export function price(usage) {
  const { cost_usd: told = null, cost_estimated_usd: guess = null } = usage || {};
  return told === null || guess === null ? spent(usage) : `${money(told)} + ${estimate(guess)}`;
}

/** @type {OfNumber} */
export function estimate(amount) {
  return `≈ ${money(amount)}`;
}

/** The sum of tokens of a usage, or null where none were reported: no call takes no token. @param {any} usage */
export function tokens(usage) {
  if (!usage) return null;
  const known = [usage.input_tokens, usage.output_tokens].filter((count) => typeof count === "number");
  return known.reduce((sum, count) => (sum ?? 0) + (count ?? 0), 0) || null;
}

/** @type {Plural} */
export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/** @type {OfText} */
export function short(text) {
  return text.length > 160 ? `${text.slice(0, 159)}…` : text;
}

/** @type {OfAmount} */
export function bytes(count) {
  if (count === null || count === undefined) return "unknown";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, count)) / 10));
  const amount = count / 1024 ** power;
  return `${amount < 10 && power ? amount.toFixed(1) : Math.round(amount)} ${units[power]}`;
}

/** @type {OfText} */
export function words(code) {
  return (code[0].toUpperCase() + code.slice(1)).replaceAll("_", " ").replace(/^Dod\b/, "Definition of done");
}

/** @type {OfText} */
export function label(written) {
  return written.replace(/^([^:=]+):/, "$1=");
}

/** @type {OfText} */
export function labelled(written) {
  return written.replace(/^([^:=]+)=/, "$1:");
}
