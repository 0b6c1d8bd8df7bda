"""A pool over a store in memory, and the actions of a test on it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from app import clock
from app.domain import operations, plain, runs, states, views
from app.engine import ports, run_engine, stores
from app.engine import spending as ports_of_spending
from app.engine.run_equipment import Equipment
from app.storage import memory_store
from app.worker import active_run, active_runs, eviction, pool
from tests.unit.worker import recording, toys

T = TypeVar("T")

Left = tuple[memory_store.MemoryStore, list[str]]
"""The store that a crash left, and the steps executed before it."""

AT = "2026-02-10T14:30:00.000Z"


class Bench:
    """A pool that runs toys and can be killed and restarted."""

    def __init__(
        self,
        *,
        limit: int = 8,
        time: clock.Clock | None = None,
        grace_seconds: float = 10.0,
        kept_loaded: int = eviction.KEPT_LOADED,
        stalled_after_seconds: float | None = None,
        fair_label: str | None = None,
    ) -> None:
        self.clock: clock.Clock = time or clock.FakeClock()
        self.probes = recording.RecordingProbes()
        self.toolbox = toys.Toolbox()
        self.store = memory_store.MemoryStore(clock=self.clock, probes=self.probes)
        self.points_before_crash: list[str] = []
        """Points passed before the last crash."""
        self.dialects: dict[str, ports.Dialect] = {"toy": toys.TOY}
        self.performers: dict[str, ports.Performer] = {}
        """Further performers, for every pool from the next start on."""
        self.spending: Callable[[memory_store.MemoryStore], ports_of_spending.Spending] | None = None
        """Make the object that limits agent calls, for every pool from the next start on."""
        self._limit = limit
        self._grace_seconds = grace_seconds
        self._kept_loaded = kept_loaded
        self._stalled_after_seconds = stalled_after_seconds
        self._fair_label = fair_label
        self._numbers = itertools.count(1)
        self.pool = self._new_pool()

    @property
    def active(self) -> active_runs.ActiveRuns:
        """The runs inside the pool, which its users do not see."""
        return self.pool._active

    async def open(self, *, recover: bool = True) -> Bench:
        """Start the store and the pool."""
        await self.store.start()
        self.pool.start(recover=recover)
        await self.pool.recovered()
        return self

    async def close(self) -> None:
        """Stop both."""
        await soon(self.pool.stop())
        await self.store.close()

    async def crash(self, *, lose_unsynced: bool = False) -> None:
        """Lose everything but the disk at once."""
        store = self.store.crashed(lose_unsynced=lose_unsynced)
        await abandon()
        self.store = store

    async def crash_at(self, point: str, nth: int, order: Coroutine[Any, Any, Any]) -> None:
        """Give an order and crash when it passes a point."""
        left = self.crash_when(point, nth)
        given = asyncio.create_task(order)
        await self.take_over(left)
        await asyncio.gather(given, return_exceptions=True)

    def crash_when(self, point: str, nth: int, *, lose_unsynced: bool = False) -> asyncio.Future[Left]:
        """Let the store die at the nth passing of a point from now on; `take_over` takes what is left of it."""
        left: asyncio.Future[Left] = asyncio.get_running_loop().create_future()

        def die() -> None:
            self.points_before_crash = list(self.probes.passed_points)
            left.set_result((self.store.crashed(lose_unsynced=lose_unsynced), list(self.toolbox.executed)))

        self.probes.at(point, self.probes.count(point) + nth, die)
        return left

    async def take_over(self, left: asyncio.Future[Left]) -> None:
        """Wait for a crash and end the tasks that survived it; their work after the crash is not counted."""
        self.store, executed = await soon(left)
        await abandon()
        self.toolbox.executed[:] = executed

    async def restart(self, *, recover: bool = True) -> Bench:
        """Start again from the disk's content."""
        self.probes = recording.RecordingProbes()
        left = self.store
        store = memory_store.MemoryStore(clock=self.clock, probes=self.probes, disk=left.disk, index=left.index)
        self.take_store(store)
        return await self.open(recover=recover)

    def take_store(self, store: memory_store.MemoryStore) -> None:
        """Use another store; call this before opening."""
        self.store = store
        self.pool = self._new_pool()

    def damage(self, run_id: str, name: str) -> None:
        """Change a byte in the first line of a file of a run."""
        disk, path = self.store.disk, f"runs/{run_id}/{name}"
        content = bytearray(disk.read(path))
        content[20] ^= 1
        disk.write(path, bytes(content), sync=True)

    def remove(self, run_id: str) -> None:
        """Remove a run's folder without the store."""
        self.store.disk.remove_tree(f"runs/{run_id}")

    async def advance_until(self, holds: Callable[[], bool]) -> None:
        """Advance the time, second by second, until a condition holds."""
        for _ in range(100):
            if holds():
                return
            self.advance(1)
            await idle()
        raise AssertionError("it did not come to hold")

    async def create(self, *program: toys.Step, **facts: Any) -> str:
        """Create a run of a program, without submitting it."""
        run_id = facts.pop("run_id", f"20260210T143000Z-{next(self._numbers):06d}")
        created = await self.store.create(start(run_id, program, **facts))
        return created.run_id

    async def submit(self, *program: toys.Step, **facts: Any) -> str:
        """Create a run of a program and submit it."""
        run_id = await self.create(*program, **facts)
        await self.pool.submit(run_id)
        return run_id

    async def ended(self, *run_ids: str) -> list[states.RunState]:
        """Wait until runs have ended."""
        return await soon(asyncio.gather(*(self.pool.ended(run_id) for run_id in run_ids)))

    async def shown(self, run_id: str, status: states.RunState) -> views.RunView:
        """Wait until a loaded run shows a state; load a run that has rested since the start."""
        return await soon(self._shown(run_id, status))

    async def at_rest(self, run_id: str) -> None:
        """Wait until the pool has released a run."""
        await self.until(lambda: run_id not in self.active.active_runs)

    async def executed(self, tried: str) -> None:
        """Wait until an attempt, `key/attempt`, has begun."""
        await self.until(lambda: tried in self.toolbox.executed)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Yield to the loop until a condition holds."""
        await soon(_until(holds))

    async def keep_busy(self, capacity: int) -> asyncio.Event:
        """Occupy capacity until the returned event is set."""
        kept = self.toolbox.hold("busy")
        for _ in range(capacity):
            await self.submit(*toys.tools("busy"))
        await self.until(lambda: self.toolbox.busy == capacity)
        return kept

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        assert isinstance(self.clock, clock.FakeClock)
        self.clock.advance(seconds)

    async def status(self, run_id: str) -> str:
        """Return a run's state in the index."""
        return (await self.store.summary(run_id)).status

    async def run_ids(self) -> list[str]:
        """Return every run."""
        return [summary.run_id for summary in await self.store.list_runs(stores.RunQuery(limit=1000))]

    async def every_status(self) -> list[str]:
        """Return the state of every run."""
        return [summary.status for summary in await self.store.list_runs(stores.RunQuery(limit=1000))]

    async def evicted(self, run_id: str) -> None:
        """Advance the time until a run is evicted."""
        await self.advance_until(lambda: self.is_evicted(run_id))

    def is_evicted(self, run_id: str) -> bool:
        """Return whether a run was evicted while its open steps are under way."""
        loaded = self.active.active_runs.get(run_id)
        return loaded is not None and loaded.evicted is not None and loaded.task is None

    def rests_unread(self, run_id: str) -> bool:
        """Return whether a run rests that this process has only read."""
        found = self.active.active_runs.get(run_id)
        return found is not None and found.evicted is not None and not found.evicted.taken

    def active_runs(self, run_ids: list[str]) -> list[active_run.ActiveRun]:
        """Return the active runs with these ids."""
        return [self.active.active_runs[run_id] for run_id in run_ids]

    async def kinds(self, run_id: str) -> list[str]:
        """Return the types of a run's events."""
        return [event.type for event in await self.store.read_events(run_id)]

    async def resumed(self, run_id: str, **how: Any) -> states.RunState:
        """Resume a run."""
        return await self.pool.resume(run_id, run_engine.Resume(**how))

    async def _shown(self, run_id: str, status: states.RunState) -> views.RunView:
        while True:
            number = self.pool.change_number(run_id)
            view = self.pool.view(run_id)
            if view is not None and view.status is status:
                return view
            if view is None and self.rests_unread(run_id):
                await self.pool.reload(run_id)
            else:
                await self.pool.changed(run_id, number)

    def _new_pool(self) -> pool.Pool:
        equipment = Equipment(
            performers={
                operations.ToolCall.kind: self.toolbox,
                operations.AgentCall.kind: self.toolbox,
                **self.performers,
            },
            clock=self.clock,
            masker=plain.Masker(),
            probes=self.probes,
            stalled_after_seconds=self._stalled_after_seconds,
            spending=None if self.spending is None else self.spending(self.store),
            fair_label=self._fair_label,
        )
        return pool.Pool(
            store=self.store,
            drivers=self.dialects,
            equipment=equipment,
            start_child=self._start_child,
            limit=self._limit,
            stop_grace_seconds=self._grace_seconds,
            kept_loaded=self._kept_loaded,
        )

    async def _start_child(self, call: ports.Call) -> str:
        assert isinstance(call.operation, operations.ChildRun)
        run_id = f"20260210T143000Z-c{next(self._numbers):05d}"
        facts = start(
            run_id,
            call.operation.args["program"],
            parent_run_id=call.run.run_id,
            idempotency_key=f"{call.run.run_id}:{call.key}",
            working_dir=call.run.working_dir,
            exclusive_workspace=call.run.exclusive_workspace,
        )
        created = await self.store.create(facts)
        await self.pool.submit(created.run_id)
        return created.run_id


def start(run_id: str, program: Sequence[toys.Step], **facts: Any) -> runs.RunStart:
    """Return the facts of a toy run."""
    given: dict[str, Any] = {
        "run_id": run_id,
        "recipe_id": "toy",
        "dialect": "toy",
        "driver_version": 1,
        "created_at": AT,
        "recipe": {"program": list(program)},
        "recipe_sha256": "",
        "request_sha256": "same",
        "working_dir": "/work",
    }
    return runs.RunStart(**(given | facts))


def ending(loaded: stores.Loaded) -> dict[str, tuple[str, Any]]:
    """Return the outputs of a run's living lines by key, whichever attempt made them."""
    return {
        record.key: (record.status.value, record.output)
        for record in loaded.records
        if record.final and record.position not in loaded.decisions.dead
    }


async def soon(awaited: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Wait for a result that must come soon."""
    return await asyncio.wait_for(awaited, 60)


async def idle() -> None:
    """Let every ready task of the loop run for a while."""
    for _ in range(50):
        await asyncio.sleep(0)


async def abandon() -> None:
    """Drop every other task of the loop, like the end of its process."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - one turn of the loop at a time, no time passes
        await asyncio.sleep(0)
