// @ts-check
import { useState } from "preact/hooks";

import { post } from "../lib/api.js";
import { html } from "../lib/html.js";
import { navigate } from "../lib/router.js";
import { Command, Fault, useFault } from "./basics.js";

const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Ways to say when, with an example of each. */
const WAYS = /** @type {const} */ ([
  ["daily", "every day at", ""],
  ["cron", "by cron", "30 7 * * MON-FRI"],
  ["every", "every so many seconds", "3600"],
  ["at", "once, at", ""],
]);

/**
 * Let a filled form start runs by the clock.
 * @param {{recipe: string, args: () => Record<string, any> | null}} props `args`: the arguments of the form; null if it is not filled in.
 */
export function Schedule({ recipe, args }) {
  const [way, setWay] = useState("daily");
  const [text, setText] = useState("");
  const [zone, setZone] = useState(LOCAL);
  const [error, setError] = useFault();
  const create = async () => {
    const given = args();
    if (!given) return;
    try {
      const trigger = await post("/api/triggers", { recipe_id: recipe, args: given, schedule: schedule(way, text, zone) });
      navigate(`/triggers/${trigger.trigger_id}`);
    } catch (caught) {
      setError(caught);
    }
  };
  const example = WAYS.find(([name]) => name === way)?.[2];
  return html`<details class="schedule"><summary class="link">Start it on a schedule</summary>
    <label>When <select onChange=${(/** @type {any} */ event) => setWay(event.target.value)}>
        ${WAYS.map(([name, word]) => html`<option value=${name} selected=${name === way}>${word}</option>`)}</select></label>
    <label><span>${way === "cron" ? "Minute, hour, day, month, weekday" : way === "every" ? "Seconds" : "Time"}</span>
        <input type=${{ daily: "time", at: "datetime-local" }[/** @type {string} */ (way)] || "text"} placeholder=${example} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
    ${(way === "cron" || way === "daily") && html`<label>Time zone <input value=${zone} onInput=${(/** @type {any} */ event) => setZone(event.target.value)} /></label>`}
    <${Fault} error=${error} />
    <div class="actions"><button type="button" onClick=${create}>Create a trigger</button></div>
    <p class="muted">Webhooks and new files start runs as well, from a terminal:</p><${Command} text=${`control-room triggers add ${recipe} --webhook github`} />
  </details>`;
}

/** @param {string} way @param {string} text @param {string} zone */
function schedule(way, text, zone) {
  if (way === "daily") return { cron: text ? `${Number(text.slice(3))} ${Number(text.slice(0, 2))} * * *` : "", timezone: zone };
  if (way === "cron") return { cron: text, timezone: zone };
  if (way === "every") return { every_seconds: Number(text) };
  const at = new Date(text);
  return { at: Number.isNaN(at.getTime()) ? text : at.toISOString() };
}
