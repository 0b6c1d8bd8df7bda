// @ts-check
/** Fields of a form from the JSON Schema of a recipe's arguments. Pure. */

/** @typedef {{name: string, kind: "text" | "long" | "number" | "boolean" | "choice" | "list" | "json" | "any", label: string, help: string,
 *   required: boolean, initial: string | boolean, options: string[], path: boolean}} Field */

/**
 * Return the fields of an arguments' schema, the required ones first.
 * @param {any} schema
 * @returns {Field[]}
 */
export function fields(schema) {
  const required = new Set(schema?.required || []);
  const found = Object.entries(schema?.properties || {}).map(([name, each]) => field(name, each, required.has(name)));
  return [...found.filter((each) => each.required), ...found.filter((each) => !each.required)];
}

/** @param {string} name @param {any} schema @param {boolean} required @returns {Field} */
function field(name, schema, required) {
  const kind = kindOf(schema);
  const initial = kind === "boolean" ? Boolean(schema.default) : shown(schema.default, kind);
  const options = (schema.enum || []).map(String);
  const path = (kind === "text" || kind === "list") && /(^|_)(path|file|folder|director(y|ie))s?$/.test(name);
  return { name, kind, label: name.replaceAll("_", " "), help: schema.description || "", required, initial, options, path };
}

/** @param {any} schema @returns {Field["kind"]} */
function kindOf(schema) {
  if (schema.enum) return "choice";
  if (schema.type === "boolean") return "boolean";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "array" && schema.items?.type === "string") return "list";
  if (schema.type === "string") return (schema.maxLength || 0) > 2000 ? "long" : "text";
  return schema.type === undefined ? "any" : "json";
}

/**
 * Return the folders and files that an argument can name, each folder before what is in it.
 * @param {string[]} files Paths.
 */
export function places(files) {
  const found = new Set();
  for (const file of files) {
    const parts = file.split("/");
    for (let end = 1; end <= parts.length; end += 1) found.add(parts.slice(0, end).join("/"));
  }
  return [...found];
}

/** @param {any} value @param {Field["kind"]} kind */
function shown(value, kind) {
  if (value === undefined || value === null) return "";
  if (kind === "list") return value.join("\n");
  return kind === "json" ? JSON.stringify(value) : String(value);
}

/**
 * Return the arguments that a filled form means, and what cannot be read.
 * @param {Field[]} all
 * @param {Record<string, string | boolean>} values
 * @returns {{args: Record<string, any>, faults: Record<string, string>}}
 */
export function read(all, values) {
  /** @type {Record<string, any>} */
  const args = {};
  /** @type {Record<string, string>} */
  const faults = {};
  for (const each of all) {
    const value = values[each.name] ?? each.initial;
    if (value === "" && each.required) faults[each.name] = "This argument is required.";
    if (value === "" || value === each.initial) {
      if (value !== "" && each.required) args[each.name] = parsed(each, value);
      continue;
    }
    try {
      args[each.name] = parsed(each, value);
    } catch {
      faults[each.name] = each.kind === "number" ? "This is not a number." : "This is not valid JSON.";
    }
  }
  return { args, faults };
}

/** @param {Field} each @param {string | boolean} value */
function parsed(each, value) {
  if (typeof value === "boolean") return value;
  if (each.kind === "list") return value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (each.kind === "json") return JSON.parse(value);
  if (each.kind === "any") return jsonOrText(value);
  if (each.kind !== "number") return value;
  const number = Number(value);
  if (!Number.isFinite(number)) throw new RangeError(value);
  return number;
}

/** @param {string} value A value of no known type: JSON if it reads so, else a text. */
function jsonOrText(value) {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
