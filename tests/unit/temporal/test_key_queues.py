"""Concurrency keys on Temporal: a key never has more runs under way than allowed, whichever process dies."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

pytest.importorskip("temporalio")

from hypothesis import given
from hypothesis import strategies as st

from app.clock import FakeClock
from app.domain import access, concurrency, decisions, runs, states
from app.engine import stores
from app.storage.memory_store import MemoryStore
from app.temporal import claims, obstacles, run_commands, run_placement, slices, time_limits
from app.temporal import runs as workflow_runs
from tests import examples
from tests.unit.engine import samples
from tests.unit.temporal import offline
from tests.unit.worker import recording

RUNS = [f"20260210T14300{number}Z-abcdef" for number in range(6)]


class Unknown:
    """A server without registered search attributes."""

    async def are_known(self) -> bool:
        return False


class Process:
    """A worker on a store, with the workflows under the control of the test."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, time = store, FakeClock()
        self.signalled: list[str] = []
        self.woken: list[str] = []
        carrying = offline.carrying(store, time)
        client: Any = None
        unknown: Any = Unknown()
        places = run_placement.RunPlacement(store, carrying.leases, None)
        self.orders = run_commands.RunCommands(store, carrying, time, self._signal)
        held = claims.Claims(store, client, "runs", places)
        self.obstacles = obstacles.Obstacles(store, held, self.orders, self._look)
        self.runs = workflow_runs.WorkflowRuns(
            steps=carrying,
            placement=places,
            obstacles=self.obstacles,
            contents=slices.Contents(store),
            registration=unknown,
            times=time_limits.TimeLimits(store, carrying, self._signal),
            rested=self.obstacles.rested,
        )

    async def ask(self, number: int) -> str | None:
        """Let a run ask whether it may begin; return the run that it waits for."""
        busy = (await self.runs.load(RUNS[number], again=False)).facts.get("busy")
        return None if busy is None else str(busy)

    async def end(self, number: int, status: states.RunState = states.RunState.DONE) -> list[str]:
        """End a run, and return the runs that are woken."""
        log, at = await self.store.open(RUNS[number]), samples.AT
        await log.decide(decisions.DecisionKind.ENDED, {"status": status.value})
        await log.move(runs.Transition.end(RUNS[number], status, at))
        start = log.loaded.start
        await log.close()
        self.woken.clear()
        await self.obstacles.rested(start, status)
        return list(self.woken)

    async def order(self, number: int, kind: decisions.DecisionKind, **facts: Any) -> None:
        """Write an order into a run's journal."""
        log = await self.store.open(RUNS[number])
        await log.decide(kind, facts)
        await log.close()

    async def _signal(self, run_id: str, signal: str, arguments: list[Any]) -> None:
        self.signalled.append(run_id)

    async def _look(self, run_id: str) -> None:
        self.woken.append(run_id)


async def made(store: stores.RunStore, number: int, **facts: Any) -> None:
    """Create a run with the key of these tests."""
    asked = {name: facts.pop(name) for name in ("limit", "policy", "within") if name in facts}
    key = concurrency.Concurrency(key="deploy", **asked)
    at = f"2026-02-10T14:30:0{number}.000Z"
    await store.create(samples.start(run_id=RUNS[number], created_at=at, concurrency=key, **facts))


async def test_runs_of_a_key_begin_in_their_order() -> None:
    """Runs begin by priority and age, each by its own limit; only the next one is woken."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        here = Process(store)
        asked: list[dict[str, Any]] = [{}, {}, {"priority": 5}, {"limit": 2}, {"parent_run_id": RUNS[0]}]
        for number, facts in enumerate(asked):
            await made(store, number, **facts)
        await here.order(1, decisions.DecisionKind.PLACED, worker="here")

        assert [await here.ask(number) for number in (0, 1, 2)] == [None, RUNS[0], RUNS[0]]
        row = await store.summary(RUNS[1])
        assert (row.status, row.reason) == ("pending", "concurrency")
        assert await here.ask(4) is None
        assert await here.ask(3) == RUNS[0]
        assert await here.ask(0) is None
        standing = await here.obstacles.standing(RUNS[2])
        assert standing is not None
        assert (standing.status, standing.reason, standing.holder) == ("pending", "concurrency", RUNS[0])

        assert await here.end(4) == [RUNS[3]]
        assert await here.ask(3) is None
        assert await here.end(3) == []
        assert await here.end(0) == [RUNS[2]]
        assert await here.ask(1) == RUNS[2]
        assert await here.ask(2) is None
        assert (await store.summary(RUNS[2])).reason is None


async def test_a_key_is_kept_over_pauses_and_given_back_by_an_ending() -> None:
    """A paused holder keeps the key and the others wait; a run that ended and is resumed asks again."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        here = Process(store)
        for number in (0, 1):
            await made(store, number)
        await here.ask(0)
        await here.order(0, decisions.DecisionKind.PAUSED, reason="paused_by_person")
        assert await here.ask(1) == RUNS[0]
        await here.order(0, decisions.DecisionKind.UNPAUSED)
        assert await here.ask(0) is None

        assert await here.end(0, states.RunState.FAILED) == [RUNS[1]]
        assert await here.ask(1) is None
        await here.order(0, decisions.DecisionKind.RESUMED, dead=[], overrides={})
        log = await store.open(RUNS[0])
        await log.move(runs.Transition.queue(RUNS[0], samples.AT))
        await log.close()
        assert await here.ask(0) == RUNS[1]


async def test_a_run_paused_before_its_start_does_not_hold_the_key() -> None:
    """A run paused before it began lets the next one begin; a damaged run does not hold the key."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        here = Process(store)
        for number in range(4):
            await made(store, number)
        await here.ask(0)
        await here.ask(1)
        await here.order(1, decisions.DecisionKind.PAUSED, reason="paused_by_person")
        log = await store.open(RUNS[1])
        await log.move(runs.Transition.pause(RUNS[1], samples.AT, reason="paused_by_person"))
        await log.close()
        await here.ask(2)

        assert await here.end(0) == [RUNS[2]]
        assert await here.ask(2) is None
        await offline.damage(store, RUNS[2])
        assert await here.ask(3) is None


@pytest.mark.parametrize("policy", ["cancel_waiting", "cancel_running"])
async def test_earlier_runs_are_cancelled_by_the_scope_of_the_newer_one(policy: concurrency.Policy) -> None:
    """Earlier runs in the scope of a newer one are cancelled, begun ones by `cancel_running` only.

    Runs outside of the scope, runs resumed since, the newer run's ancestor and later runs are not cancelled.
    """
    store, scope = MemoryStore(clock=FakeClock()), access.Scope(labels=(("book", "one"),))
    async with store:
        here = Process(store)
        for number in range(3):
            await made(store, number, limit=3, labels={"book": "two" if number == 1 else "one"})
        for number in (0, 1):
            await here.ask(number)
        await made(store, 3, limit=9, labels={"book": "one"})
        await here.ask(3)
        await made(store, 4, policy=policy, within=scope, parent_run_id=RUNS[3])
        await made(store, 5, labels={"book": "one"})

        assert await here.ask(4) is not None
        cancelled = [number for number in range(6) if (await store.read(RUNS[number])).decisions.cancel_requested_at]
        assert cancelled == ([0, 2] if policy == "cancel_running" else [2])
        assert sorted(set(here.signalled)) == [RUNS[number] for number in cancelled]
        found = (await store.read(RUNS[2])).decisions
        assert found.superseded_by == {"run_id": RUNS[4], "key": "deploy"}

        await here.order(2, decisions.DecisionKind.ENDED, status="cancelled")
        await here.order(2, decisions.DecisionKind.RESUMED, dead=[], overrides={}, at="2026-02-10T15:00:00.000Z")
        await here.ask(4)
        assert (await store.read(RUNS[2])).decisions.cancel_requested_at is None


@pytest.mark.parametrize("policy", ["queue", "cancel_running"])
async def test_wherever_a_process_dies_a_key_has_one_holder(policy: concurrency.Policy) -> None:
    """A process may be killed at any point while runs ask, and they ask in another order: one run holds the key."""
    passed_points = await _asked(policy, None)
    assert len(passed_points) > 4
    for kill in examples.passings(passed_points):
        await _asked(policy, kill)


async def _asked(policy: concurrency.Policy, kill: tuple[str, int] | None) -> list[str]:
    probes, clock = recording.RecordingProbes(), FakeClock()
    store = MemoryStore(clock=clock, probes=probes)
    left: list[MemoryStore] = []
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(store)
        here = Process(store)
        await made(store, 0)
        await made(store, 1, policy=policy)
        if policy != "queue":
            await here.ask(0)
        begun = len(probes.passed_points)
        if kill is not None:
            probes.at(kill[0], probes.count(kill[0]) + kill[1], lambda: left.append(store.crashed()))
        asking = asyncio.create_task(here.ask(1))
        if kill is None:
            await asking
            passed_points = probes.passed_points[begun:]
        else:
            await asyncio.gather(asking, return_exceptions=True)
            stack.pop_all()
            store, passed_points = left[0], []
    async with store:
        here = Process(store)
        found = [await here.ask(number) for number in (0, 1)]
        if policy != "queue":
            assert (await store.read(RUNS[0])).decisions.superseded_by == {"run_id": RUNS[1], "key": "deploy"}
            assert await here.end(0, states.RunState.CANCELLED) == [RUNS[1]]
            assert await here.ask(1) is None
        else:
            assert found.count(None) == 1
    return passed_points


@given(st.lists(st.tuples(st.sampled_from(["ask", "end", "pause", "die"]), st.integers(0, 4)), max_size=30))
def test_never_more_runs_of_a_key_begin_than_they_allow(moves: list[tuple[str, int]]) -> None:
    """A run that begins finds fewer holders than its limit, whatever runs ask, end, pause or die; all begin at last."""
    asyncio.run(_moved(moves))


async def _moved(moves: list[tuple[str, int]]) -> None:
    limits = [1, 2, 1, 3, 2]
    store, holders, ended, paused = MemoryStore(clock=FakeClock()), set[int](), set[int](), set[int]()
    await store.start()
    here = Process(store)
    for number, limit in enumerate(limits):
        await made(store, number, limit=limit)

    async def ask(number: int) -> None:
        if number not in ended and await here.ask(number) is None and number not in paused | holders:
            assert len(holders) < limits[number]
            holders.add(number)

    for move, number in moves:
        match move:
            case "ask":
                await ask(number)
            case "end" if number in holders:
                holders.discard(number)
                ended.add(number)
                await here.end(number)
            case "pause" if number in holders and number not in paused:
                paused.add(number)
                await here.order(number, decisions.DecisionKind.PAUSED, reason="paused_by_person")
            case "die":
                store = store.crashed()
                await store.start()
                here = Process(store)
    for _ in limits:
        for number in set(range(len(limits))) - ended - holders:
            await ask(number)
        for number in sorted(holders):
            ended.add(number)
            await here.end(number)
        holders.clear()
    assert ended == set(range(len(limits)))
    await store.close()
