/** Places for the nodes of a directed graph in layers, and ways for its edges (docs/decisions/0281). Pure. */

/** Rounds in which rows are ordered, and in which cells are moved to their neighbours. */
const ROUNDS = 12;
const MOVES = 60;

const GAP = 20;
const MARGIN = 8;

/** @type {Do.folded} */
export function folded({ nodes, edges }) {
  const isInside = nodes.map(({ id, status }, at) => {
    const ends = edges.filter(({ source, target }) => source === id || target === id).flatMap(({ source, target }) => [source, target]);
    return ends.length === 4 && [nodes[at - 1], nodes[at + 1]].every((each) => each?.status === status && ends.includes(each.id));
  });
  /** @type {Record<string, any[]>} */
  const drawn = {};
  nodes.forEach((node, at) => (drawn[node.id] = isInside[at] && isInside[at - 1] ? drawn[nodes[at - 1].id] : []).push(node));
  return {
    nodes: [...new Set(Object.values(drawn))].map((all) => (all[1] ? { ...all[0], title: "", label: `${all.length} steps: ${all[0].id} … ${all[all.length - 1].id}` } : all[0])),
    edges: edges.filter(({ source, target }) => source === target || drawn[source] !== drawn[target]).map((edge) => ({ ...edge, source: drawn[edge.source][0].id, target: drawn[edge.target][0].id })),
  };
}

/** @type {Do.layered} */
export function layered(ids, edges, node) {
  const cells = new Map(ids.map((id) => [id, cell(0, node.width, id)]));
  const order = ordered(ids, edges);
  const place = new Map(order.map((id, index) => [id, index]));
  const forward = edges.map(({ source, target }) => (Number(place.get(source)) <= Number(place.get(target)) ? [source, target] : [target, source]));
  // Even rows hold nodes, odd ones only edges.
  for (const id of order) for (const [from, to] of forward) if (from === id && to !== id) at(cells, to).row = Math.max(at(cells, to).row, at(cells, id).row + 2);
  /** @type {Cell[][]} */
  const rows = [];
  const put = (/** @type {Cell} */ each) => (rows[each.row] ||= []).push(each);
  order.forEach((id) => put(at(cells, id)));
  const chains = forward.map(([from, to], index) => chain(at(cells, from), at(cells, to), edges[index].width, put));
  const filled = Array.from(rows, (row) => row || []);
  arrange(filled);
  settle(filled);
  const left = Math.min(...filled.flat().map((each) => each.x - each.width / 2)) - MARGIN;
  filled.flat().forEach((each) => (each.x -= left));
  const top = (/** @type {Cell} */ each) => MARGIN + Math.floor(each.row / 2) * (node.height + node.between);
  return {
    width: Math.ceil(Math.max(...filled.flat().map((each) => each.x + each.width / 2)) + MARGIN),
    height: Math.ceil(Math.max(...[...cells.values()].map(top)) + node.height + MARGIN),
    nodes: new Map(ids.map((id) => [id, { x: at(cells, id).x - node.width / 2, y: top(at(cells, id)) }])),
    edges: chains.map((crossed, index) => way(crossed, edges[index].source !== forward[index][0], node, top)),
  };
}

/** @type {Do.cell} */
function cell(row, width, id) {
  return { row, width, id, x: 0, up: [], down: [] };
}

/** @type {Do.at} */
function at(cells, id) {
  return /** @type {Cell} */ (cells.get(id));
}

/** @type {Do.ordered} */
function ordered(ids, edges) {
  /** @type {string[]} */
  const found = [];
  const seen = new Set();
  const visit = (/** @type {string} */ id) => {
    if (seen.has(id)) return;
    seen.add(id);
    edges.filter((edge) => edge.source === id).reverse().forEach((edge) => visit(edge.target));
    found.push(id);
  };
  const entered = new Set(edges.filter((edge) => edge.source !== edge.target).map((edge) => edge.target));
  [...ids.filter((id) => !entered.has(id)), ...ids].forEach(visit);
  return found.reverse();
}

/** @type {Do.chain} */
function chain(from, to, width, put) {
  const crossed = [from];
  for (let row = from.row + 1; row < to.row; row += 1) crossed.push(cell(row, row === from.row + 1 ? Math.max(width, 4) : 4));
  crossed.slice(1).forEach(put);
  crossed.push(to);
  for (let index = 1; from !== to && index < crossed.length; index += 1) {
    crossed[index - 1].down.push(crossed[index]);
    crossed[index].up.push(crossed[index - 1]);
  }
  return crossed;
}

/** @type {Do.arrange} */
function arrange(rows) {
  let best = rows.map((row) => [...row]);
  let fewest = crossings(rows);
  for (let round = 0; round < ROUNDS && fewest; round += 1) {
    const side = round % 2 ? "down" : "up";
    for (const row of round % 2 ? [...rows].reverse() : rows) {
      const wanted = new Map(row.map((each, index) => [each, mean(each[side].map((other) => rows[other.row].indexOf(other))) ?? index]));
      // Cells that want one place change sides in every other pair of rounds.
      if (round % 4 > 1) row.reverse();
      row.sort((one, other) => Number(wanted.get(one)) - Number(wanted.get(other)));
    }
    const count = crossings(rows);
    if (count < fewest) [fewest, best] = [count, rows.map((row) => [...row])];
  }
  rows.forEach((row, index) => row.splice(0, row.length, ...best[index]));
}

/** @type {Do.crossings} */
function crossings(rows) {
  let count = 0;
  for (const [index, row] of rows.entries()) {
    const ends = row.flatMap((each) => each.down.map((other) => rows[index + 1].indexOf(other)).sort((one, other) => one - other));
    ends.forEach((end, position) => (count += ends.slice(position + 1).filter((later) => later < end).length));
  }
  return count;
}

/** @type {Do.settle} */
function settle(rows) {
  rows.forEach((row) => spread(row, row.map(() => 0)));
  for (let round = 0; round < MOVES; round += 1) {
    for (const row of round % 2 ? [...rows].reverse() : rows) {
      spread(row, row.map((each) => mean([...each.up, ...each.down].map((other) => other.x)) ?? each.x));
    }
  }
}

/** @type {Do.spread} */
function spread(row, wanted) {
  /** @type {Together[]} */
  const runs = [];
  const offsets = [0];
  row.forEach((each, index) => {
    if (index) offsets.push(offsets[index - 1] + (row[index - 1].width + each.width) / 2 + GAP);
    // An edge that passes stays straight before a node moves.
    const weight = each.id === undefined && each.up[0]?.id === undefined ? 4 : 1;
    runs.push({ sum: weight * (wanted[index] - offsets[index]), weight, count: 1 });
    for (let last = runs.length - 1; last > 0 && runs[last - 1].sum / runs[last - 1].weight > runs[last].sum / runs[last].weight; last -= 1) {
      const { sum, weight: more, count } = /** @type {Together} */ (runs.pop());
      runs[last - 1] = { sum: runs[last - 1].sum + sum, weight: runs[last - 1].weight + more, count: runs[last - 1].count + count };
    }
  });
  let index = 0;
  for (const { sum, weight, count } of runs) for (let last = index + count; index < last; index += 1) row[index].x = sum / weight + offsets[index];
}

/** @type {Do.mean} */
function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : undefined;
}

/** @type {Do.way} */
function way(crossed, backward, node, top) {
  const [from, to] = [crossed[0], crossed[crossed.length - 1]];
  if (from === to) {
    const [x, y] = [from.x + node.width / 2, top(from) + node.height / 2];
    return { points: [{ x, y: y - 8 }, { x: x + 14, y: y - 8 }, { x: x + 14, y: y + 8 }, { x, y: y + 8 }], label: { x: x + 14, y } };
  }
  const points = [{ x: from.x, y: top(from) + node.height }];
  for (const each of crossed.slice(1, -1)) {
    const y = top(each);
    if (each.row % 2) points.push({ x: each.x, y: y + node.height + node.between / 2 });
    else points.push({ x: each.x, y }, { x: each.x, y: y + node.height });
  }
  points.push({ x: to.x, y: top(to) });
  const label = points[1];
  return { points: backward ? points.reverse() : points, label };
}
