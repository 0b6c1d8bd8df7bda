// @ts-check
/** Labels as people write them: one `key=value` to a line; a line `key-` removes one. Pure. */

/** @param {Record<string, string>} labels */
export function written(labels) {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join("\n");
}

/**
 * Return the changes that a text asks for.
 * @param {string} text
 * @param {Record<string, string>} [before] Labels that the text began with: one whose line is gone is removed.
 * @returns {Record<string, string | null>}
 * @throws {SyntaxError} A line has neither form.
 */
export function changes(text, before = {}) {
  /** @type {Record<string, string | null>} */
  const found = {};
  const named = new Set();
  for (const line of text.split("\n").map((each) => each.trim())) {
    if (!line) continue;
    const [, key, value] = /^([^=]+?)(?:=(.*)|-)$/.exec(line) || [];
    if (!key) throw new SyntaxError(`“${line}” is not a label: write key=value, or key- to remove one.`);
    named.add(key);
    if (value === undefined || value !== before[key]) found[key] = value ?? null;
  }
  for (const key of Object.keys(before)) if (!named.has(key)) found[key] = null;
  return found;
}
