"""Steps that write outside their run's folder while the disk is full."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app import errors
from app.domain import decisions, operations, records, runs
from app.domain.states import RunState
from tests.unit.engine import logs

ISSUE = operations.OpenIssue(title="Look here", body="", facts={})
AGENT = operations.AgentCall(agent_id="a", backend="b", prompt=("Go on.",))


class Full:
    """A performer whose first tries find no disk space."""

    def __init__(self, refusals: int) -> None:
        self.tries: list[int] = []
        self._refusals = refusals

    async def perform(self, call: Any) -> records.Result:
        """Perform one try."""
        self.tries.append(call.attempt)
        if len(self.tries) <= self._refusals:
            raise errors.StorageFault("no room for it")
        return records.Result(output="kept")


def asking(operation: operations.Operation, refusals: int) -> tuple[logs.Bench, Full]:
    """Return a run of one step, and its performer."""

    async def drive(ctx: Any) -> runs.Ending:
        await ctx.perform("step", operation)
        return runs.Ending()

    bench, full = logs.Bench(drive), Full(refusals)
    bench.performers.perform = full.perform  # type: ignore[method-assign]
    return bench, full


async def until(condition: Any) -> None:
    """Let other tasks run until a condition holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


async def test_an_issue_waits_for_room_and_is_made_unasked() -> None:
    """A step that opens an issue repeats the same try until there is disk space, and the run shows the fault."""
    bench, full = asking(ISSUE, 2)
    runner = bench.runner()
    running = asyncio.create_task(runner.run())
    for tries in (1, 2):
        await until(lambda tries=tries: len(full.tries) == tries and bench.clock.next_wake_seconds() is not None)
        assert runner.view().status is RunState.PAUSED
        assert (runner.view().error or {})["code"] == "storage_error"
        bench.clock.advance(60)

    assert await asyncio.wait_for(running, 60) is RunState.DONE
    assert full.tries == [1, 1, 1]
    assert bench.disk.recorded() == ["step"]


async def test_a_stop_does_not_wait_for_room() -> None:
    """A service that stops meanwhile leaves the step to the next process."""
    bench, full = asking(ISSUE, 1)
    runner = bench.runner()
    running = asyncio.create_task(runner.run())
    await until(lambda: bench.clock.next_wake_seconds() is not None and full.tries)
    runner.stop()
    runner.interrupt()
    await asyncio.wait_for(running, 60)

    assert bench.disk.recorded() == []
    assert await bench.run() is RunState.DONE
    assert bench.disk.recorded() == ["step"]


async def test_a_cancelled_wait_for_disk_space_shows_no_fault() -> None:
    """A run cancelled while a step waits for disk space is shown as cancelled, without the fault."""
    bench, full = asking(ISSUE, 1)
    runner = bench.runner()
    running = asyncio.create_task(runner.run())
    await until(lambda: full.tries and bench.clock.next_wake_seconds() is not None)
    shown = (runner.view().error or {})["code"]
    await bench.log.decide(decisions.DecisionKind.CANCEL_REQUESTED, {})
    runner.cancel()

    assert await asyncio.wait_for(running, 60) is RunState.CANCELLED
    assert shown == "storage_error"
    assert runner.view().status is RunState.CANCELLED
    assert (bench.disk.files["run.json"]["status"], bench.disk.files["run.json"]["error"]) == ("cancelled", None)


@pytest.mark.parametrize("operation", [AGENT])
async def test_an_agent_call_without_a_stored_result_is_not_repeated(operation: operations.Operation) -> None:
    """An agent call whose result cannot be stored is not repeated, and parks the run."""
    bench, full = asking(operation, 1)

    assert await bench.run() is RunState.PAUSED
    assert full.tries == [1]
