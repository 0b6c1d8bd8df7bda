"""One property of every driver: a run whose journal is cut anywhere ends the same, with the same records."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import hypothesis
from hypothesis import strategies as st

from app import errors
from app.domain import operations, records, runs
from app.domain.states import RunState
from app.engine import step_rules
from tests.examples import examples
from tests.unit.engine import logs, samples

_outcomes = st.sampled_from(["done", "done", "done", "failed", "retried", "large"])
_programs = st.recursive(
    st.tuples(st.just("step"), _outcomes),
    lambda inner: st.tuples(
        st.sampled_from(["sequence", "gather", "patient", "limited", "loop", "caught"]),
        st.lists(inner, min_size=0, max_size=4),
    ),
    max_leaves=12,
)


async def _execute(ctx: Any, program: Any, key: str) -> Any:
    kind, body = program
    if kind == "step":
        return await _step(ctx, key, body)
    branches = {str(number): _execute(ctx, part, f"{key}.{number}") for number, part in enumerate(body)}
    match kind:
        case "gather":
            return list((await ctx.gather(branches)).values())
        case "patient":
            results = await ctx.gather(branches, fail_fast=False)
            return [str(result) for result in results.values()]
        case "limited":
            return list((await ctx.gather(branches, limit=1)).values())
        case "caught":
            return await _caught(ctx, branches, key)
    return await _in_order(ctx, branches, key)


async def _in_order(ctx: Any, branches: dict[str, Any], key: str) -> list[Any]:
    results: list[Any] = []
    try:
        for branch in branches.values():
            results.append(await branch)
    finally:
        for branch in branches.values():
            branch.close()
    return results


async def _caught(ctx: Any, branches: dict[str, Any], key: str) -> Any:
    try:
        return list((await ctx.gather(branches)).values())
    except errors.StepError as error:
        return (await ctx.perform(f"{key}.rescue", samples.tool("done", why=str(error)))).output


async def _step(ctx: Any, key: str, outcome: str) -> Any:
    retry = operations.RetryPolicy(max_attempts=2, initial_seconds=0)
    record = await ctx.perform(key, operations.ToolCall(tool=outcome, args={}, retry=retry))
    if not record.done:
        raise errors.StepError(f"{key} failed")
    return len(await ctx.read(record.blob)) if record.blob else record.output


class _Performers(logs.Performers):
    async def perform(self, call: Any) -> records.Result:
        self.calls.append((call.key, call.attempt))
        match call.operation.tool:
            case "failed":
                return step_rules.failed("broken", "broken")
            case "retried" if call.attempt == 1:
                return step_rules.failed("busy", "busy")
            case "large":
                return records.Result(output="x" * 70_000)
        return records.Result(output=f"{call.key} done")


def _bench(program: Any) -> logs.Bench:
    async def drive(ctx: Any) -> runs.Ending:
        try:
            result = await _execute(ctx, program, "r")
        except errors.StepError as error:
            raise errors.RunFailed(str(error)) from error
        return runs.Ending(reason=json.dumps(result))

    bench = logs.Bench(drive)
    bench.performers = _Performers()
    return bench


def _failures(program: Any) -> int:
    kind, body = program
    return int(body == "failed") if kind == "step" else sum(map(_failures, body))


def _story(bench: logs.Bench, program: Any) -> tuple[Any, ...]:
    """Return the comparable outcome; the progress of branches before a sibling's failure depends on timing."""
    lines = map(json.loads, bench.disk.steps)
    told = sorted((line["key"], line["attempt"], line["status"], line["output_hash"]) for line in lines)
    manifest = bench.disk.files["run.json"]
    return [] if _failures(program) else told, manifest["status"], manifest["ending"], manifest["error"]


async def _check_every_prefix(program: Any) -> None:
    whole = _bench(program)
    ended = await whole.run()

    assert ended in (RunState.DONE, RunState.FAILED)

    for length in range(len(whole.disk.steps)):
        bench = _bench(program)
        bench.disk.steps = whole.disk.steps[:length]
        bench.disk.blobs = whole.disk.blobs
        recorded = {(json.loads(line)["key"], json.loads(line)["attempt"]) for line in bench.disk.steps}

        assert await bench.run() is ended
        assert recorded.isdisjoint(bench.performers.calls)
        assert bench.disk.steps[:length] == whole.disk.steps[:length]
        assert _story(bench, program) == _story(whole, program)


@hypothesis.settings(max_examples=examples(30), deadline=None)
@hypothesis.given(_programs.filter(lambda program: _failures(program) <= 1))
def test_a_run_cut_anywhere_ends_the_same(program):
    """A run with any part of its journal performs no recorded step again, and has the same records and ending."""
    asyncio.run(_check_every_prefix(program))
