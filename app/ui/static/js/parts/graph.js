import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { html } from "../lib/base.js";
import { folded, layered } from "../lib/layout.js";

const NODE = { width: 176, height: 40, between: 40 };

/** Pixels of a graph that has room beside the list of steps. */
const COLUMN = 224;

/** Pixels in a rem. */
const ROOT = 15;

/** Below this scale no text can be read. */
const TINY = 0.4;

/** Nodes above which chains are folded, and above which a graph is only shown as its table. */
const MANY = 60;
const MOST_NODES = 400;

const LIVE = ["running", "waiting", "failed"];

/** A graph with the state of each node; the list of steps or tasks beside it says the same to those who cannot see it. @param {GraphProps} props */
export function Graph({ graph: all, plain = false, denied, over, onChoose }) {
  const { length } = all.nodes;
  const flow = { ...all, edges: all.edges.filter(({ kind }) => kind !== "data") };
  const graph = length > MANY && length <= MOST_NODES ? folded(flow) : flow;
  const form = JSON.stringify([graph.nodes.map((node) => node.id), graph.edges.map((edge) => [edge.source, edge.target, edge.label])]);
  const placed = useMemo(() => (graph.nodes.length > MOST_NODES ? null : place(graph)), [form]);
  const shown = useRef(null);
  const [isLarge, setLarge] = useState(false);
  /** 0: the whole size. */
  const [fit, setFit] = useState(0);
  const live = graph.nodes.find((node) => LIVE.includes(node.status))?.id;
  useEffect(() => {
    const node = placed?.nodes.find((each) => each.id === live);
    const { width = 0, height = 0 } = placed || {};
    const { x, y } = node || { x: (width - NODE.width) / 2, y: 0 };
    const frame = shown.current;
    const scale = width && (frame?.firstElementChild?.getBoundingClientRect().width || 0) / width;
    if (!fit) frame?.scrollTo(scale * (x + NODE.width / 2) - frame.clientWidth / 2, height && scale * y - frame.clientHeight / 2);
  }, [live, placed, fit]);
  useLayoutEffect(() => {
    const { scrollWidth = 0, clientWidth = 0, scrollHeight = 0, clientHeight = 0 } = shown.current || {};
    setLarge(scrollWidth > clientWidth || scrollHeight > clientHeight);
  }, [placed]);
  if (!placed) return html`<p class="muted">The graph has ${length} nodes; see the list of steps.</p>`;
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const change = () => {
    const { clientWidth = 0, clientHeight = 0, scrollWidth = 1, scrollHeight = 1 } = shown.current || {};
    setFit(fit ? 0 : Math.min(clientWidth / scrollWidth, clientHeight / scrollHeight) - 0.01);
  };
  const tiny = fit && fit < TINY;
  const [width, height] = tiny ? ["100%", "100%"] : [placed.width, placed.height].map((size) => `${(size * (fit || 1)) / ROOT}rem`);
  return html`${isLarge && html`<div class="actions"><button onClick=${change}>${fit ? "100 %" : "Fit"}</button></div>`}
    <div class=${`graph${placed.width > COLUMN ? " broad" : ""}${tiny ? " tiny" : ""}`} ref=${shown} tabindex="0" role="group" aria-label="Graph; the list beside it has the same content">
    <svg width=${width} height=${height} preserveAspectRatio=${tiny ? "none" : undefined} viewBox=${`0 0 ${placed.width} ${placed.height}`} aria-hidden="true">
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto-start-reverse">
        <path d="M0 0 8 4 0 8z" class="arrow" /></marker></defs>
      ${placed.edges.map((edge) => html`<g class=${`way way-${edge.kind}${graph.edges[edge.index].taken ? " taken" : ""}`}><path class="edge" d=${edge.path} marker-end="url(#arrow)" />
        ${edge.label && html`<text class="edge-label" x=${edge.x} y=${edge.y}>${edge.label}</text>`}</g>`)}
      ${placed.nodes.map((at) => html`<${Node} at=${at} node=${nodes.get(at.id)} plain=${plain} denied=${denied} over=${over} onChoose=${onChoose} />`)}
    </svg></div>`;
}

/** @param {NodeProps} props */
function Node({ at, node, plain, denied, over, onChoose }) {
  const status = node.status || (over ? "not needed" : "not reached");
  const asks = node.kind === "gate" && status === "running";
  const state = asks ? "waiting" : denied && node.key === denied ? "denied" : status.replaceAll("_", " ");
  const again = node.visits > 1 ? ` ×${node.visits}` : "";
  const [title, what = node.kind || "step"] = node.title ? [node.title] : (node.label || node.id).split(": ");
  // A check is called as in the list of steps.
  const [name, by] = node.kind === "check" ? [node.id, title] : [title, what];
  return html`<g class=${`node node-${asks ? state : node.status || "pending"} kind-${node.kind}`} transform=${`translate(${at.x} ${at.y})`} onClick=${() => onChoose(node)}>
    <title>${node.title || node.label}${plain ? "" : `: ${state}${again}`}</title>
    <rect width=${NODE.width} height=${NODE.height} rx=${ROUND.includes(node.kind) ? NODE.height / 2 : 8} />
    <text x="14" y="17" class="node-name">${shortened(name, 20)}</text>
    <text x="14" y="32" class="node-state">${shortened(plain ? by : `${state}${again} · ${by}`, 27)}</text>
  </g>`;
}

const ROUND = ["start", "end"];

/** @param {{nodes: any[], edges: any[]}} graph */
function place(graph) {
  const ids = graph.nodes.map((node) => node.id);
  const flow = graph.edges.map((edge, index) => ({ ...edge, index, width: 6 * named(edge).length })).filter((edge) => ids.includes(edge.source) && ids.includes(edge.target));
  const { width, height, nodes, edges } = layered(ids, flow, NODE);
  return { width, height, nodes: ids.map((id) => ({ id, x: 0, y: 0, ...nodes.get(id) })), edges: edges.map((edge, index) => line(edge, flow[index])) };
}

/** @param {any} edge */
function named({ label }) {
  return label && label !== "next" ? shortened(label, 22) : "";
}

/** @param {any} way @param {any} edge */
function line({ points, label }, edge) {
  const [first, ...rest] = points;
  return { path: `M${first.x} ${first.y}${rest.map((/** @type {any} */ point) => `L${point.x} ${point.y}`).join("")}`, label: named(edge), kind: edge.kind || "next", index: edge.index, x: label.x, y: label.y + 3 };
}

/** @param {string} text @param {number} length */
function shortened(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
