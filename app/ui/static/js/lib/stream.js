// @ts-check
/** Server-Sent Events by `fetch`, which can send the header of a sign-in where `EventSource` cannot. */

import { request } from "./api.js";

/** Milliseconds without a byte after which a connection counts as lost; the service sends something far more often. */
const SILENCE = 60_000;

/** @typedef {{type: string, id: string, data: string}} Item */

/**
 * Follow a stream until it ends.
 * @param {string} path @param {string} last Id of the last item seen. @param {AbortController} ended
 * @param {(item: Item) => void} take @param {() => void} [opened]
 */
export async function followStream(path, last, ended, take, opened = () => undefined) {
  const reply = await request("GET", path, { headers: last ? { "Last-Event-ID": last } : {}, signal: ended.signal });
  if (!reply.body) return;
  opened();
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silence = setTimeout(() => ended.abort(), SILENCE);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const [items, after] = parsed(rest + value);
    rest = after;
    items.forEach(take);
  }
}

/**
 * Return the whole items of a stream's text, and what is left of it. Pure.
 * @param {string} text
 * @returns {[Item[], string]}
 */
export function parsed(text) {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() || "";
  const items = blocks.map((block) => {
    const item = { type: "", id: "", data: "" };
    for (const line of block.split("\n")) {
      const [, name, value] = /^(event|id|data): ?(.*)$/s.exec(line) || [];
      if (name === "event") item.type = value;
      else if (name === "id") item.id = value;
      else if (name === "data") item.data += value;
    }
    return item;
  });
  return [items.filter((item) => item.type || item.data || item.id), rest];
}
