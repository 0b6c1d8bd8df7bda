"""Tests of the run's folder as seen by a program that knows its path."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain import operations, records, runs, slots
from app.domain.states import RunState
from tests.unit.engine import logs, samples

RUN_ID = samples.start().run_id
FOLDER = f"/project/.control-room/runs/{RUN_ID}"


def _agent(*prompt: Any, **facts: Any) -> operations.AgentCall:
    return operations.AgentCall(agent_id="a", backend="b", prompt=prompt, **facts)


def _bench(operation: Any, *, reads_blobs: bool = False) -> tuple[logs.Bench, list[Any]]:
    """Return a run of two steps, and the files that the second step's performer saw in the run's folder."""

    async def drive(ctx: Any) -> runs.Ending:
        record = await ctx.perform("first", samples.tool("first"))
        ctx.fill("found", slots.Slot(type="pointer", sha256=record.output_sha256, summary="", key="first"))
        ctx.show(slots.Progress(finished_steps=1, total_steps=2))
        await ctx.perform("second", operation)
        return runs.Ending()

    bench, seen = logs.Bench(drive), []
    perform = bench.performers.perform

    async def look(call: Any) -> records.Result:
        if call.key == "second":
            if reads_blobs:
                await call.read_blob(records.BlobRef.from_json(operation.prompt[0]["blob"]))
            seen.append(dict(bench.disk.files))
        return await perform(call)

    watched: Any = bench.performers
    watched.perform = look
    return bench, seen


MENTIONING = {
    "prompt": _agent("Read ", f"{FOLDER}/cache.json", "."),
    "system": _agent("Go on.", system=f"Your run lies in {FOLDER}."),
}


@pytest.mark.parametrize("operation", MENTIONING.values(), ids=MENTIONING.keys())
async def test_the_folder_is_current_before_it_is_looked_at(operation: operations.Operation) -> None:
    """An operation outside that mentions the run finds current run.json and cache.json files."""
    bench, seen = _bench(operation)

    assert await bench.run() is RunState.DONE
    assert [list(files["cache.json"]) for files in seen] == [["found"]]
    assert seen[0]["run.json"]["current_step_index"] == 1


@pytest.mark.parametrize("operation", [_agent("Go on."), samples.tool("second", folder=FOLDER)])
async def test_an_operation_without_a_mention_writes_no_snapshot(operation: operations.Operation) -> None:
    """An operation that does not mention the run, or stays inside, does not write snapshots."""
    bench, seen = _bench(operation)
    await bench.run()

    assert seen == [{}]


@pytest.mark.parametrize(("content", "current"), [(f"Look into {FOLDER}.", True), ("Look around.", False)])
@pytest.mark.parametrize("text", [True, False])
async def test_a_mention_in_a_blob_counts(content: str, current: bool, text: bool) -> None:
    """A mention of the run in a blob of the prompt counts as well, as text or as JSON."""
    encoded = content.encode() if text else f'{{"note": "{content}"}}'.encode()
    blob = records.BlobRef(sha256="0" * 64, size_bytes=len(encoded), text=text)
    bench, seen = _bench(_agent({"blob": blob.to_json()}), reads_blobs=True)
    bench.disk.blobs[blob.sha256] = encoded
    await bench.run()

    assert [bool(files) for files in seen] == [current]
