"""A run's log on lists, and a runner's dependencies, for tests of the engine alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from app import clock, errors
from app.domain import decisions, events, plain, records, runs
from app.domain.states import RunState
from app.engine import journal_lines, ports, probes, runner, stores
from app.engine.run_equipment import Equipment
from tests.unit.engine import samples


class Disk:
    """Contents that survive the end of a process: lines, events, snapshots, state."""

    def __init__(self, start: runs.RunStart) -> None:
        self.start = start
        self.steps: list[bytes] = []
        self.control: list[bytes] = []
        self.events: list[events.Event] = []
        self.blobs: dict[str, bytes] = {}
        self.receipts: list[str] = []
        self.logs: dict[str, str] = {}
        self.files: dict[str, Any] = {}
        self.row = RunState.PENDING
        self.broken = False
        """Whether writes fail."""

    def kinds(self) -> list[str]:
        """Return the kinds of the control lines."""
        return [json.loads(line)["kind"] for line in self.control]

    def recorded(self) -> list[str]:
        """Return the keys of the journal lines."""
        return [json.loads(line)["key"] for line in self.steps]


class ListLog:
    """`stores.RunLog` over a disk of lists; each append takes a turn of the loop."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        lines = [records.read(number, json.loads(line)) for number, line in enumerate(disk.steps)]
        folded = decisions.fold(json.loads(line) for line in disk.control)
        self.loaded = stores.Loaded(
            start=disk.start.overridden(folded.overrides),
            records=lines,
            decisions=folded,
            emitted=frozenset(event.key or "" for event in disk.events if event.type == events.EventType.RECIPE_NOTE),
        )
        self._maker: Callable[[], Mapping[str, Any]] = dict

    async def append_step(self, line: Mapping[str, Any]) -> records.Record:
        self._write()
        position = len(self._disk.steps)
        self._disk.steps.append(plain.encode(dict(line)))
        await asyncio.sleep(0)
        record = records.read(position, json.loads(self._disk.steps[position]))
        self._add_events(journal_lines.events(self._disk.start.run_id, record, 0))
        return record

    async def decide(
        self, kind: decisions.DecisionKind, facts: Mapping[str, Any], *, sync: bool = True, at: str | None = None
    ) -> bool:
        self._write()
        folded = self.loaded.decisions
        if kind is decisions.DecisionKind.CANCEL_REQUESTED and folded.ended:
            return False
        if kind is decisions.DecisionKind.ENDED and folded.cancel_requested_at and facts["status"] != "cancelled":
            return False
        line = {"kind": kind.value, "at": samples.AT, **facts}
        if kind is decisions.DecisionKind.ENDED:
            line |= {"lines": len(self._disk.steps), "head": ""}
        self._disk.control.append(plain.encode(line))
        folded.apply(line)
        await asyncio.sleep(0)
        if kind in decisions.EVENTS and facts.get("reason") != decisions.PAUSED_BY_PERSON:
            self._add_events([decisions.event(self._disk.start.run_id, line, folded.taken, 0)])
        return True

    async def put_blob(self, content: bytes, *, text: bool) -> records.BlobRef:
        self._write()
        digest = plain.sha256(content)
        self._disk.blobs[digest] = content
        return records.BlobRef(sha256=digest, size_bytes=len(content), text=text)

    async def get_blob(self, blob: records.BlobRef) -> Any:
        await asyncio.sleep(0)
        content = self._disk.blobs[blob.sha256].decode()
        return content if blob.text else json.loads(content)

    async def add_receipt(self, record: records.Record) -> None:
        self._disk.receipts.append(record.receipt_id or "")

    async def write_log(self, name: str, text: str) -> None:
        self._disk.logs[name] = text

    async def append_log(self, name: str, text: str) -> None:
        self._disk.logs[name] = self._disk.logs.get(name, "") + text

    def add_event(
        self, type: events.EventType, key: str | None = None, data: Any = None, at: str | None = None
    ) -> events.Event:
        event = events.Event(
            seq=len(self._disk.events) + 1,
            at=samples.AT,
            type=type,
            run_id=self._disk.start.run_id,
            key=key,
            data=data or {},
        )
        self._disk.events.append(event)
        return event

    def refresh(self, files: Callable[[], Mapping[str, Any]]) -> None:
        self._maker = files

    async def flush(self) -> None:
        self._write()
        self._disk.files = json.loads(json.dumps(dict(self._maker())))

    async def move(self, transition: runs.Transition) -> bool:
        if self._disk.row not in transition.since:
            return False
        self._disk.row = transition.to
        return True

    async def heal(self) -> None:
        self._write()

    async def close(self) -> None:
        return None

    def _add_events(self, told: list[events.Event]) -> None:
        for event in told:
            self.add_event(events.EventType(event.type), event.key, event.data)

    def _write(self) -> None:
        if self._disk.broken:
            raise errors.StorageFault("no room")


class Performers:
    """Performers of every kind of operation, which record their calls and wait where the test holds them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.results: dict[str, list[Any]] = {}
        self.holds: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}
        self.cut: list[str] = []

    def hold(self, key: str) -> asyncio.Event:
        """Make the step wait until the returned event is set."""
        self.holds[key], self.reached[key] = asyncio.Event(), asyncio.Event()
        return self.holds[key]

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try."""
        self.calls.append((call.key, call.attempt))
        if call.key in self.holds:
            self.reached[call.key].set()
            try:
                await self.holds[call.key].wait()
            except asyncio.CancelledError:
                self.cut.append(call.key)
                raise
        planned = self.results.get(call.key)
        result = planned.pop(0) if planned else records.Result(output=f"{call.key} done")
        if isinstance(result, BaseException):
            raise result
        return result

    def equipment(self, time: clock.Clock | None = None, secrets: tuple[str, ...] = ()) -> Equipment:
        """Return equipment in which this object performs all operations."""
        kinds = ("tool_call", "agent_call", "check", "commit_file", "open_issue", "timer", "gate", "child_run")
        return Equipment(
            performers=dict.fromkeys(kinds, self),
            clock=time or clock.FakeClock(),
            masker=plain.Masker(secrets),
            probes=probes.NoProbes(),
        )


class Sample:
    """A dialect made of one driver function."""

    name = "sample"
    driver_version = 1
    file_suffixes = (".sample",)

    def __init__(self, drive: Callable[[Any], Awaitable[Any]]) -> None:
        self.drive: Any = drive


class CountedSlots:
    """Capacity that is always free, and the story of its use."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.holders: frozenset[str] = frozenset()

    async def enter(self) -> None:
        if self.story[-1:] != ["enter"]:
            self.story.append("enter")

    def leave(self) -> None:
        if self.story[-1:] == ["enter"]:
            self.story.append("leave")


class Bench:
    """One run that can be executed repeatedly."""

    def __init__(self, drive: Callable[[Any], Awaitable[Any]], **facts: Any) -> None:
        self.disk = Disk(samples.start(**facts))
        self.performers = Performers()
        self.clock = clock.FakeClock()
        self.slots = CountedSlots()
        self.secrets: tuple[str, ...] = ()
        self._dialect: Any = Sample(drive)
        self.log: Any = None

    def runner(self) -> runner.Runner:
        """Load the run, as a new process would."""
        self.log = ListLog(self.disk)
        equipment = self.performers.equipment(self.clock, self.secrets)
        return runner.Runner(self.log, self._dialect, equipment, self.slots, lambda: None)

    async def run(self) -> RunState:
        """Execute the run until it rests."""
        return await asyncio.wait_for(self.runner().run(), 60)
