"""The runs behind plans: made from a plan's file, continued in a further run, and ended with the plan."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import re
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from app import clock, errors
from app.domain import inputs, operations, plain, plan_events, plans, runs, states
from app.engine import aio, dry_replay, run_engine, stores
from app.flows.session_plan import driver

_LONGEST = 50
_DIGITS = 24
_PAGE = 1_000
_UNFINISHED = tuple(state.value for state in states.RunState if not state.finished)
_BEGUN = re.compile(r"task(\d+)\.(\d+)")  # Keys of the steps that start the runs of tasks.


class PlanRuns:
    """Makes and finds the runs of plans."""

    def __init__(self, *, store: stores.RunStore, engine: run_engine.RunEngine, clock: clock.Clock) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._known: dict[str, str] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def run_id(self, session_id: str) -> str:
        """Return the id of a plan's present run, as far as it is known."""
        return self._known.get(session_id) or _run_id(session_id, 1)

    async def make(self, plan: plans.Plan) -> None:
        """Make the run of a new plan, which writes the plan's file; a run that an earlier request made is kept.

        Raises:
            errors.WriteFailed: the disk is full or failing.
        """
        await self._ensured(plan, adopted=False)

    async def ensure(self, plan: plans.Plan) -> None:
        """Let the run of a plan wait for its inputs; a plan without a run that can continue gets one from its file.

        Raises:
            errors.WriteFailed: the disk is full or failing.
        """
        await self._ensured(plan, adopted=True)

    async def has_run(self, session_id: str) -> bool:
        """Return whether a plan has an unfinished run; a plan written by hand has none at first."""
        return (await self._find(session_id))[1]

    async def has_taken(self, plan: plans.Plan) -> bool:
        """Return whether the run of a plan, in any process, has written or taken the content of the plan's file."""
        run_id, exists = await self._find(plan.session_id)
        if not exists:
            return False
        loaded = await self._store.read(run_id)
        asks = await dry_replay.open_asks(
            loaded, driver.SessionPlan(), functools.partial(self._store.read_blob, run_id)
        )
        waiting = [ask.operation for ask in asks.values() if isinstance(ask.operation, operations.Input)]
        written = [plan_events.Shown.from_json(operation.shown) for operation in waiting]
        return all(shown.plan == plan or shown.on_file == driver.sha256(plan) for shown in written)

    async def unfinished(self) -> set[str]:
        """Return the plans whose runs have not ended, with or without a file."""
        query = stores.RunQuery(recipe_id=driver.NAME, internal=True, status=_UNFINISHED)
        return {row.session_id async for row in stores.every_run(self._store, query)}

    async def wake(self, session_id: str) -> None:
        """Load the unfinished run of a plan; a loaded run repeats its failed writes and reads now.

        Raises:
            errors.StorageFault, errors.Conflict: the run cannot be loaded now.
        """
        run_id, exists = await self._find(session_id)
        if exists:
            await self._engine.wake(run_id)

    async def renew(self, plan: plans.Plan) -> None:
        """Continue a plan in a further run from its file, since its present run cannot continue."""
        run_id = self.run_id(plan.session_id)
        with contextlib.suppress(errors.WrongState):
            await self._engine.cancel(run_id)
        if self._engine.obstacle(run_id) is None:
            # The run ends on its own unless a fault of the data directory prevents that, which would last forever.
            await aio.wait_first(self._engine.ended(run_id), self._hindered(run_id))
        if (fault := self._engine.obstacle(run_id)) is not None:
            raise fault
        await self.ensure(plan)

    async def ended(self, session_id: str) -> None:
        """Wait until the present run of a plan has ended."""
        await self._engine.ended(self.run_id(session_id))

    def obstacle(self, session_id: str) -> errors.StorageFault | None:
        """Return the fault of the data directory that the run of a plan waits for now."""
        return self._engine.obstacle(self.run_id(session_id))

    def is_away(self, session_id: str) -> bool:
        """Return whether the engine lacks the run of a plan: it was not loaded, or has ended."""
        run_id = self.run_id(session_id)
        return self._engine.view(run_id) is None and self._engine.standing(run_id) is None

    async def deliver(self, session_id: str, key: str, delivery: inputs.Delivery) -> None:
        """Deliver an input to the present run of a plan."""
        await self._engine.deliver(self.run_id(session_id), key, delivery)

    async def _hindered(self, run_id: str) -> None:
        number = self._engine.change_number(run_id)
        while self._engine.obstacle(run_id) is None:
            number = await self._engine.changed(run_id, number)

    async def _ensured(self, plan: plans.Plan, *, adopted: bool) -> None:
        async with self._locks.setdefault(plan.session_id, asyncio.Lock()):
            run_id, exists = await self._find(plan.session_id)
            if not exists:
                await self._make(plan, run_id, adopted=adopted)
            await self._engine.wake(run_id)

    async def _make(self, plan: plans.Plan, run_id: str, *, adopted: bool) -> None:
        known = await self._carried(plan.session_id, run_id)
        start = self._start(plan.session_id, run_id, {"plan": plan.to_json(), "adopted": adopted, **known})
        # Before it is on disk, where a concurrent recovery would find the run and continue it, too.
        self._engine.expect(run_id)
        await self._store.create(start)
        self._known[plan.session_id] = run_id

    async def _carried(self, session_id: str, run_id: str) -> dict[str, plain.Json]:
        """Return arguments that the next run of a plan needs from the previous one.

        These are the plan that it passed on, hashes of earlier versions of the file, and the highest attempt of each
        task.
        """
        number = _number(session_id, run_id) - 1
        try:
            before = await self._store.read(_run_id(session_id, number)) if number else None
            passed = await self._passed_on(before) if before is not None else {}
        except (errors.NotFound, errors.JournalCorrupt):
            before = None
        if before is None:
            return {"earlier": [], "attempts": {}}
        args: Mapping[str, Any] = before.start.args
        attempts: dict[str, plain.Json] = dict(args.get("attempts", {}))
        for record in before.records:
            if begun := _BEGUN.fullmatch(record.key):
                attempts[begun[1]] = max(int(begun[2]), attempts.get(begun[1], 0))
        return {"earlier": [], "attempts": attempts, **passed}

    async def _passed_on(self, before: stores.Loaded) -> Mapping[str, plain.Json]:
        if not before.records:
            return {}
        record = before.records[-1]
        output: Any = record.output
        if record.blob is not None:
            output = await self._store.read_blob(before.start.run_id, record.blob)
        value: Any = output.get("value") if isinstance(output, dict) else None
        # Only this event is read: another one may be of a form that its driver alone still accepts.
        is_continued = isinstance(value, dict) and value.get("kind") == "continue"
        event = plan_events.from_json(value) if is_continued else None
        return event.passed_on() if isinstance(event, plan_events.Continued) else {}

    def _start(self, session_id: str, run_id: str, args: dict[str, plain.Json]) -> runs.RunStart:
        return runs.RunStart(
            run_id=run_id,
            recipe_id=driver.NAME,
            dialect=driver.NAME,
            driver_version=driver.SessionPlan.driver_version,
            created_at=clock.stamp(self._clock.now()),
            recipe={},
            recipe_sha256="",
            args=args,
            session_id=session_id,
        )

    async def _find(self, session_id: str) -> tuple[str, bool]:
        """Return the unfinished run of a plan and True, or the id of the next run and False."""
        last = None
        for number in itertools.count(1):
            run_id = _run_id(session_id, number)
            try:
                row = await self._store.summary(run_id)
            except errors.NotFound:
                # The newest number on disk, too, since a run with a folder may lack its row.
                last = await self._last_number(session_id) if last is None else last
                if number > last:
                    return run_id, False
                continue
            if not states.RunState(row.status).finished:
                self._known[session_id] = run_id
                return run_id, True
        raise AssertionError("there is always another number")

    async def _last_number(self, session_id: str) -> int:
        """Return the number of a plan's newest run, since earlier ones may have been deleted; 0 without a run."""
        query = stores.RunQuery(recipe_id=driver.NAME, session_id=session_id, internal=True, limit=_PAGE)
        return max((_number(session_id, row.run_id) for row in await self._store.list_runs(query)), default=0)


def _number(session_id: str, run_id: str) -> int:
    return int(run_id.removeprefix(_run_id(session_id, 1))[1:] or "1")


def _run_id(session_id: str, number: int) -> str:
    named = re.fullmatch(r"sp_[A-Za-z0-9_]+", session_id) and len(session_id) <= _LONGEST
    stem = session_id if named else f"{clock.INTERNAL_PREFIX}h_{plain.sha256(session_id.encode())[:_DIGITS]}"
    return stem if number == 1 else f"{stem}-{number}"
