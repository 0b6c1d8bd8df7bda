// @ts-check
import { useEffect, useMemo, useRef } from "preact/hooks";
import { Graph as Layout, layout } from "dagre";

import { html } from "../lib/html.js";

/** Pixels of a node. */
const NODE = { width: 176, height: 40 };

/** Nodes above which a graph is only shown as its table. */
const MOST_NODES = 400;

/**
 * A recipe's graph with the state of each node, and the same as a table for those who cannot see it.
 * @param {{graph: {nodes: any[], edges: any[]}, states: Map<string, {status: string, count: number}>, onChoose: (id: string) => void}} props
 */
export function Graph({ graph, states, onChoose }) {
  const placed = useMemo(() => (graph.nodes.length > MOST_NODES ? null : place(graph)), [graph]);
  const shown = useRef(/** @type {HTMLElement | null} */ (null));
  const live = [...states].find(([, state]) => ["running", "waiting", "failed"].includes(state.status))?.[0];
  useEffect(() => {
    const node = placed?.nodes.find((each) => each.id === live);
    if (node && shown.current) shown.current.scrollTop = node.y - shown.current.clientHeight / 2;
  }, [live, placed]);
  if (!placed) return html`<p class="muted">The graph has ${graph.nodes.length} nodes; see the list of steps.</p>`;
  return html`<div class="graph" ref=${shown} tabindex="0" role="group" aria-label="Graph of the recipe; the list of steps below has the same content">
    <svg width=${placed.width} height=${placed.height} viewBox=${`0 0 ${placed.width} ${placed.height}`} role="presentation">
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
        <path d="M0 0 8 4 0 8z" class="arrow" /></marker></defs>
      ${placed.edges.map((edge) => html`<g><path class="edge" d=${edge.path} marker-end="url(#arrow)" />
        ${edge.label && html`<text class="edge-label" x=${edge.x} y=${edge.y}>${edge.label}</text>`}</g>`)}
      ${placed.nodes.map((node) => html`<${Node} node=${node} state=${states.get(node.id)} onChoose=${onChoose} />`)}
    </svg></div>`;
}

/** @param {{node: any, state: {status: string, count: number} | undefined, onChoose: (id: string) => void}} props */
function Node({ node, state, onChoose }) {
  const status = state?.status || "pending";
  const again = state && state.count > 1 ? ` ×${state.count}` : "";
  return html`<g class=${`node node-${status} kind-${node.kind}`} transform=${`translate(${node.x} ${node.y})`}
    onClick=${() => onChoose(node.id)}>
    <title>${node.label}: ${status}${again}</title>
    <rect width=${NODE.width} height=${NODE.height} rx="8" />
    <text x="12" y="17" class="node-name">${shortened(node.name || node.id, 22)}</text>
    <text x="12" y="32" class="node-state">${shortened(`${status.replace("_", " ")}${again} · ${node.kind || "step"}`, 27)}</text>
  </g>`;
}

/** @param {{nodes: any[], edges: any[]}} graph */
function place(graph) {
  const drawn = new Layout({ multigraph: true });
  drawn.setGraph({ rankdir: "TB", nodesep: 24, ranksep: 28, marginx: 8, marginy: 8 });
  drawn.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) drawn.setNode(node.id, { ...NODE });
  const flow = graph.edges.filter((edge) => isFlow(edge));
  flow.forEach((edge, index) => {
    if (drawn.hasNode(edge.source) && drawn.hasNode(edge.target)) drawn.setEdge(edge.source, edge.target, { label: edge.label }, String(index));
  });
  layout(drawn);
  const size = drawn.graph();
  return {
    width: Math.ceil(size.width || 0),
    height: Math.ceil(size.height || 0),
    nodes: graph.nodes.map((node) => {
      const at = drawn.node(node.id);
      return { ...node, x: at.x - NODE.width / 2, y: at.y - NODE.height / 2 };
    }),
    edges: drawn.edges().map((/** @type {any} */ name) => line(drawn.edge(name))),
  };
}

/** Whether an edge is a way that a run takes; one that names a slot shows what flows. @param {any} edge */
function isFlow(edge) {
  return edge.kind !== "data";
}

/** @param {{points: {x: number, y: number}[], label?: string}} edge */
function line(edge) {
  const [first, ...rest] = edge.points;
  const middle = edge.points[Math.floor(edge.points.length / 2)];
  return { path: `M${first.x} ${first.y}${rest.map((point) => `L${point.x} ${point.y}`).join("")}`, label: edge.label, x: middle.x, y: middle.y };
}

/** @param {string} text @param {number} length */
function shortened(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
