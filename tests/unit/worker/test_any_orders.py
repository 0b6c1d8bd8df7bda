"""Any orders at any time: whatever people and crashes do to runs, the promises of the pool hold."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from app import errors
from app.domain import states
from app.worker import eviction
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState

LIMIT = 2
RUNS = 5
ACTIONS = 40


class Turmoil:
    """Some runs, and a random source of orders and crashes."""

    def __init__(self, seed: int, kept_loaded: int) -> None:
        self.chance = random.Random(seed)
        self.dozes = kept_loaded == 0
        self.bench = Bench(limit=LIMIT, grace_seconds=0, kept_loaded=kept_loaded)
        self.run_ids: list[str] = []
        self.cancelled: set[str] = set()
        """Runs whose cancel was answered, and that were not resumed since."""
        self.resumed: set[str] = set()

    async def happen(self) -> None:
        """Make random moves, then help every run to its end."""
        await self.bench.open()
        for number in range(RUNS):
            program = self.program(number)
            exclusive = self.chance.random() < 0.3
            self.run_ids.append(await self.bench.submit(*program, exclusive_workspace=exclusive))
        for _ in range(ACTIONS):
            await self.act()
        await self.come_to_rest()

    def program(self, number: int) -> tuple[toys.Step, ...]:
        """Invent a program with unique keys."""
        steps: list[toys.Step] = []
        for position in range(self.chance.randint(1, 4)):
            key = f"r{number}s{position}"
            kind = self.chance.choice(["tool", "agent", "timer", "gather"])
            if self.chance.random() < 0.4:
                self.bench.toolbox.hold(key)
            if kind == "timer":
                steps.append({"timer": key, "seconds": self.chance.randint(0, 3)})
            elif kind == "gather":
                steps.append({"gather": {"a": toys.tools(key), "b": [{"agent": f"{key}b"}]}})
            else:
                steps.append({kind: key})
        return tuple(steps)

    async def act(self) -> None:
        """Give a random order to a random run."""
        run_id = self.chance.choice(self.run_ids)
        action = self.chance.choice([self.cancel, self.pause, self.pause, self.unpause, self.resume, self.advance])
        if self.chance.random() < 0.1:
            await self.restart()
        elif self.chance.random() < 0.3:
            # Two at a time, so that orders race with one another.
            other = self.chance.choice([self.cancel, self.pause, self.unpause, self.resume])
            await pools.soon(asyncio.gather(action(run_id), other(run_id)))
        else:
            await pools.soon(action(run_id))
        if self.dozes and self.chance.random() < 0.5:
            await self.doze()
        for _ in range(self.chance.randint(0, 12)):
            await asyncio.sleep(0)

    async def cancel(self, run_id: str) -> None:
        """Cancel."""
        with contextlib.suppress(errors.WrongState):
            await self.bench.pool.cancel(run_id)
            self.cancelled.add(run_id)

    async def pause(self, run_id: str) -> None:
        """Pause."""
        with contextlib.suppress(errors.WrongState):
            await self.bench.pool.pause(run_id)

    async def unpause(self, run_id: str) -> None:
        """Unpause."""
        with contextlib.suppress(errors.WrongState):
            await self.bench.pool.unpause(run_id)

    async def resume(self, run_id: str) -> None:
        """Resume."""
        with contextlib.suppress(errors.WrongState):
            await self.bench.resumed(run_id)
            self.cancelled.discard(run_id)
            self.resumed.add(run_id)

    async def advance(self, run_id: str) -> None:
        """Advance the time, and release a held step."""
        self.bench.advance(1)
        held = [event for event in self.bench.toolbox.held() if not event.is_set()]
        if held:
            self.chance.choice(held).set()

    async def doze(self) -> None:
        """Advance the time until quiet runs are evicted, or only begin to be."""
        for _ in range(self.chance.randint(1, 3)):
            self.bench.advance(eviction.BUSY_PAUSE_SECONDS)
            for _ in range(self.chance.choice([0, 1, 2, 3, 5, 8, 30])):
                await asyncio.sleep(0)

    async def restart(self) -> None:
        """Stop or crash, and start again."""
        if self.chance.random() < 0.5:
            await pools.soon(self.bench.pool.stop())
        await self.bench.crash()
        await self.bench.restart()

    async def come_to_rest(self) -> None:
        """Release all steps, and wait until every run has ended."""
        for event in self.bench.toolbox.held():
            event.set()
        for _ in range(200):
            self.bench.advance(10)
            await pools.idle()
            unfinished = [run_id for run_id in self.run_ids if not await self.has_ended(run_id)]
            if not unfinished:
                return
            for run_id in unfinished:
                await self.unpause(run_id)
        raise AssertionError(f"{unfinished} did not end")

    async def has_ended(self, run_id: str) -> bool:
        """Return whether a run has ended and was released."""
        return RunState(await self.bench.status(run_id)).finished and run_id not in self.bench.active.active_runs


@pytest.mark.parametrize("kept_loaded", [eviction.KEPT_LOADED, 0], ids=["loaded", "evicted"])
@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.slow if n % 4 else ()) for n in range(40)])
async def test_the_promises_hold(seed: int, kept_loaded: int) -> None:
    """A cancelled run is never done, no attempt is made twice, no recorded step again, and all capacity is returned."""
    turmoil = Turmoil(seed, kept_loaded)
    await turmoil.happen()
    bench = turmoil.bench
    ended = {run_id: await bench.status(run_id) for run_id in turmoil.run_ids}

    assert {run_id for run_id in turmoil.cancelled if ended[run_id] != "cancelled"} == set()
    assert set(ended.values()) <= {"done", "cancelled"}
    assert len(bench.toolbox.executed) == len(set(bench.toolbox.executed))
    for run_id in turmoil.run_ids:
        loaded = await bench.store.read(run_id)

        assert loaded.decisions.status == ended[run_id]

        for record in loaded.records if run_id not in turmoil.resumed else ():
            later = [tried for tried in bench.toolbox.executed if tried.startswith(f"{record.key}/")]

            assert all(int(tried.rpartition("/")[2]) <= record.attempt for tried in later)

    status = bench.pool.status()

    assert (status.running, status.queued, status.idle) == (0, 0, 0)
    assert bench.active.capacity._workspaces._holders == {}

    await bench.close()
