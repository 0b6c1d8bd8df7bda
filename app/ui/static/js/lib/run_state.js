// @ts-check
/**
 * What the page of a run shows, computed from the run's answer, its journal and its recipe's graph. Pure: no clock, no
 * network, no page.
 */

/** @typedef {{key: string, status: string, attempt: number, started_at: string, completed_at?: string, step_id?: string,
 *   phase?: string, tool?: string, agent_archetype?: string, agent_id?: string, gate_id?: string, output_slot?: string,
 *   output_preview?: string, error?: {code: string, message: string}, usage?: any, final?: boolean}} Step */

/** States in which nothing of a run happens any more. */
export const FINISHED = ["done", "failed", "cancelled"];

/**
 * Return one sentence that says how a run stands and what it waits for.
 * @param {any} run
 * @returns {string}
 */
export function sentence(run) {
  const open = run.steps.filter((/** @type {Step} */ step) => step.status === "running");
  const names = open.map((/** @type {Step} */ step) => step.key).join(", ");
  switch (run.status) {
    case "pending":
      return run.holder ? `It waits for the workspace, which run ${run.holder} holds.` : "It waits for a free worker.";
    case "running":
      if (run.reason === "cancelling") return "It is being cancelled.";
      if (run.reason === "pausing") return `It pauses after ${names || "the step in progress"}.`;
      return names ? `It works on ${names}.` : "It prepares its next step.";
    case "waiting":
      return `It waits for an answer to ${names}, and uses no worker meanwhile.`;
    case "paused":
      return run.error ? `It is parked: ${run.error.message}` : "A person paused it; it continues on request.";
    case "done":
      return run.ending?.partial ? `It is done in part: ${run.ending.reason || "some steps failed"}.` : "It is done.";
    case "cancelled":
      return "A person cancelled it. It can be resumed.";
    default:
      return run.error ? `It failed: ${run.error.message}` : "It failed.";
  }
}

/**
 * Return the latest try of each step, in the order in which steps began.
 * @param {Step[]} steps
 * @returns {Step[]}
 */
export function latest(steps) {
  /** @type {Map<string, Step>} */
  const found = new Map();
  for (const step of steps) {
    const before = found.get(step.key);
    if (!before || step.attempt >= before.attempt) found.set(step.key, step);
  }
  return [...found.values()];
}

/** States by how much they say of a node that several steps belong to. */
const WEIGHT = ["pending", "skipped", "done", "cancelled", "interrupted", "waiting", "running", "failed"];

/**
 * Return the state of each node of a graph: the weightiest of the steps whose key is the node's id, or begins with it.
 * @param {{nodes: {id: string}[]}} graph
 * @param {Step[]} steps
 * @returns {Map<string, {status: string, count: number}>}
 */
export function nodeStates(graph, steps) {
  /** @type {Map<string, {status: string, count: number}>} */
  const states = new Map(graph.nodes.map((node) => [node.id, { status: "pending", count: 0 }]));
  for (const step of latest(steps)) {
    const node = nodeOf(states, step);
    const before = node && states.get(node);
    if (!node || !before) continue;
    const visits = node === step.key || step.key.includes("#") || step.key.includes("[") ? 1 : 0;
    const status = WEIGHT.indexOf(step.status) >= WEIGHT.indexOf(before.status) ? step.status : before.status;
    states.set(node, { status, count: before.count + visits });
  }
  return states;
}

/** @param {Map<string, unknown>} nodes @param {Step} step */
function nodeOf(nodes, step) {
  const candidates = [step.key, step.key.replace(/#\d+$/, ""), step.step_id || "", step.key.replace(/\[\d+\]/g, "")];
  const shorter = candidates[1].split(/[.:[#]/)[0];
  return [...candidates, shorter].find((id) => nodes.has(id));
}

/**
 * Return the beginning and the end of a run's timeline in milliseconds.
 * @param {Step[]} steps
 * @param {string} createdAt
 * @param {string | null | undefined} completedAt
 * @param {number} now
 */
export function span(steps, createdAt, completedAt, now) {
  const ends = steps.map((step) => (step.completed_at ? Date.parse(step.completed_at) : now));
  const from = Date.parse(createdAt);
  return { from, to: Math.max(from + 1, completedAt ? Date.parse(completedAt) : now, ...ends) };
}

/**
 * Return where a step's bar begins and how long it is, in per cent of the timeline.
 * @param {Step} step
 * @param {{from: number, to: number}} range
 * @param {number} now
 */
export function bar(step, range, now) {
  const whole = range.to - range.from;
  const begin = Math.max(range.from, Date.parse(step.started_at));
  const end = step.completed_at ? Date.parse(step.completed_at) : Math.max(now, begin);
  return { left: (100 * (begin - range.from)) / whole, width: Math.max(0.4, (100 * (end - begin)) / whole) };
}
