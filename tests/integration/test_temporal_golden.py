"""Golden journals on Temporal: every recorded run requests the recorded operations as activities of its workflow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.integration import temporal_server

temporal_server.require()

from temporalio import activity  # noqa: E402
from temporalio.client import Client  # noqa: E402
from temporalio.common import RawValue  # noqa: E402
from temporalio.worker import Worker  # noqa: E402

from app.domain import capabilities, plain, records  # noqa: E402
from app.temporal import codec, messages, slices, worker  # noqa: E402
from app.temporal.workflow import RunWorkflow  # noqa: E402
from tests.replay import golden  # noqa: E402

QUEUE = messages.queue("golden")


class Playback:
    """One recorded run, whose lines are returned on request."""

    def __init__(self, run: golden.Golden) -> None:
        self.run = run
        self.lines = run.records()
        self.asked: set[int] = set()
        self.differing: list[str] = []

    def next(self, order: messages.StepOrder) -> records.Record | None:
        """Return the next line of a step; None: the record ends before the step has one."""
        found = (line for line in self.lines if line.key == order.key and line.position not in self.asked)
        line = next(found, None)
        if line is not None:
            self.asked.add(line.position)
            if line.operation != order.operation:
                self.differing.append(order.key)
        return line

    def ready(self, after: int) -> int:
        """Return how many lines from a position on were requested without a gap."""
        count = 0
        while after + count in self.asked:
            count += 1
        return count


class Harness:
    """Activities that replay recorded runs; the id of a run is the name of its file."""

    def __init__(self) -> None:
        self.plays: dict[str, Playback] = {}
        self.contents = slices.Contents(_Blobs(self.plays), kept_bytes=2**30)  # type: ignore[arg-type]

    def all(self) -> list[Any]:
        """Return all plays."""
        return [self.take, self.look, self.read, self.perform, self.announce, self.finish, self.settle]

    @activity.defn
    async def take(self, name: str, again: bool) -> RawValue:
        """Return a journal without lines."""
        facts = {"cancelled": False, "paused": False, "ended": False, "dead": []}
        return self._slice(name, slices.Slice(run_id=name, facts=facts, whole=True))

    @activity.defn
    async def look(self, name: str, after: int) -> RawValue:
        """Return the requested lines."""
        facts = {"cancelled": False, "paused": False, "ended": False}
        count = self.plays[name].ready(after)
        return self._slice(name, slices.Slice(run_id=name, first=after, count=count, facts=facts))

    @activity.defn
    async def read(self, name: str, blob: dict[str, Any]) -> RawValue:
        """Return a blob."""
        return codec.reference(await self.contents.blob(name, records.BlobRef.from_json(blob)))

    @activity.defn
    async def perform(self, order: messages.StepOrder) -> RawValue:
        """Return the next line of a step."""
        line = self.plays[order.run_id].next(order)
        while line is None:
            activity.heartbeat()
            await asyncio.sleep(0.1)
        return self._slice(order.run_id, slices.Slice(run_id=order.run_id, first=line.position, count=1))

    @activity.defn
    async def announce(self, order: messages.StepOrder) -> messages.Announced:
        """Announce that a step is recorded, once every line before it was requested."""
        play = self.plays[order.run_id]
        line = play.next(order)
        while line is None or play.ready(0) <= line.position:
            activity.heartbeat()
            await asyncio.sleep(0.05)
        return messages.Announced(due_at=None, recorded=True)

    @activity.defn
    async def finish(self, order: messages.StepOrder) -> None:
        """Let a child continue."""

    @activity.defn
    async def settle(self, order: messages.CompletionOrder) -> str:
        """Return the recorded ending, if the driver has finished."""
        play = self.plays[order.run_id]
        return str(play.run.ended["status"]) if len(play.asked) == len(play.lines) else "paused"

    def _slice(self, name: str, wanted: slices.Slice) -> RawValue:
        play = self.plays[name]
        lines = play.lines[wanted.first : wanted.first + wanted.count]
        return codec.reference(self.contents.of_lines(play.run.start, lines, wanted))


class _Blobs:
    def __init__(self, plays: dict[str, Playback]) -> None:
        self._plays = plays

    async def read_blob(self, name: str, blob: records.BlobRef) -> plain.Json:
        content = self._plays[name].run.blobs[blob.sha256]
        return content if blob.text else json.loads(content)


def _backends(run: golden.Golden) -> set[str]:
    # The line of a large operation contains only its hash; the frozen part names all backends that a recipe may call.
    asked = [line.line["operation"] for line in run.records()]
    return {capabilities.of_backend(name) for name in _named([each.get("body") for each in asked] + [run.start.frozen])}


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(name := value.get("backend"), str):
            yield name
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _named(each)


def _first_of_each_driver() -> list[str]:
    firsts: dict[str, str] = {}
    for name in sorted(golden.names()):
        firsts.setdefault(name.partition("/")[0], name)
    return list(firsts.values())


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(_first_of_each_driver(), id="one of each driver"),
        pytest.param(golden.names(), id="all", marks=pytest.mark.slow),
    ],
)
async def test_golden_journals_ask_for_their_operations_and_replay(
    temporal: temporal_server.DevServer, names: list[str]
):
    """Each driver requests the recorded operations through activities and ends as recorded; its history replays."""
    await temporal_server.connected(temporal.address)
    harness = Harness()
    client = await Client.connect(temporal.address, data_converter=codec.converter(harness.contents))
    short = [each for each in harness.all() if each != harness.perform]
    runs, steps = [golden.load(name) for name in names], messages.steps_queue(QUEUE)
    needed = {capabilities.TOOLS, capabilities.COMMANDS}.union(*map(_backends, runs))
    queues = [*(messages.capability_queue(steps, each) for each in needed), messages.idle_queue(steps)]
    drives = Worker(
        client,
        task_queue=QUEUE,
        workflows=[RunWorkflow],
        activities=short,
        workflow_runner=worker.runner(),
        max_heartbeat_throttle_interval=worker.BEAT,
        default_heartbeat_throttle_interval=worker.BEAT,
    )
    async with AsyncExitStack() as working:
        for queue in queues:
            performs = Worker(
                client,
                task_queue=queue,
                activities=[harness.perform],
                max_heartbeat_throttle_interval=worker.BEAT,
                default_heartbeat_throttle_interval=worker.BEAT,
            )
            await working.enter_async_context(performs)
        await working.enter_async_context(drives)
        for name, run in zip(names, runs, strict=True):
            playing = harness.plays[name] = Playback(run)
            handle = await client.start_workflow(
                messages.WORKFLOW, name, id=f"golden-{name}", task_queue=QUEUE, result_type=str
            )
            assert await handle.result() == playing.run.ended["status"], name
            assert playing.differing == [], name
            await worker.replayer(harness.contents).replay_workflow(await handle.fetch_history())
