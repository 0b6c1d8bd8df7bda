// Reads cases of a run from standard input, and answers what the page's reducer makes of each.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { answered, happened, rows, sentence, ticks, worked } = await import(pathToFileURL(process.argv[2]).href);

/** What a list of steps shows. */
const shown = (state) => rows(state).map((step) => [step.key, step.attempt || 1, step.status, step.error?.code ?? null]);

const found = JSON.parse(readFileSync(0, "utf8")).map(({ answers, events }) => {
  const begun = answers.reduce((before, run) => answered(before, run), null);
  const state = events.reduce(happened, begun);
  return {
    rows: shown(state),
    status: state.run.status,
    sentence: sentence(state.run, state.open),
    total: state.run.steps_total,
    worked: worked(state.run),
    ticks: ticks(state.run.length || 1),
    // A second time the same: whatever comes twice changes nothing.
    again: shown(events.reduce(happened, state)),
    kept: state.finished.filter((step) => begun.finished.includes(step)).length,
  };
});
process.stdout.write(JSON.stringify(found));
