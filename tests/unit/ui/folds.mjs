// Reads graphs from standard input, and answers what the pages draw of long ones.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { folded } = await import(pathToFileURL(process.argv[2]).href);

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(folded)));
