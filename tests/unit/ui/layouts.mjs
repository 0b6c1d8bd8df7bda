// Reads graphs from standard input, and answers where the pages put their nodes and edges.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { layered } = await import(pathToFileURL(process.argv[2]).href);

const NODE = { width: 176, height: 40, between: 40 };
const found = JSON.parse(readFileSync(0, "utf8")).map(({ ids, edges }) => {
  const { width, height, nodes, edges: ways } = layered(ids, edges, NODE);
  return { width, height, nodes: Object.fromEntries(nodes), edges: ways };
});
process.stdout.write(JSON.stringify(found));
