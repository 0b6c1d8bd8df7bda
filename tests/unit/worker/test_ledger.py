"""The ledger: it counts each agent call once, and forgets none that may have been paid, wherever a process dies."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from typing import Any, cast

import pytest

from app.domain import budgets, limits, operations, records, states
from app.engine import ports, spending, stores
from app.storage import memory_store
from app.worker import ledger
from tests.unit.engine import samples
from tests.unit.worker import pools, toys

PROGRAM = ({"agent": "one"}, {"agent": "two"})
COST = 0.25
RESERVED = 0.3
ALL = budgets.Budget(name="all", limits=limits.RunLimits(cost_usd=100))


class Paid:
    """A performer of agent calls that have a cost."""

    def __init__(self, toolbox: toys.Toolbox) -> None:
        self._toolbox = toolbox

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform a call."""
        result = await self._toolbox.perform(call)
        return dataclasses.replace(result, usage=records.Usage(input_tokens=10, output_tokens=2, cost_usd=COST))


def quote(_: operations.Operation) -> spending.Quote:
    """Return the highest cost of any call."""
    return spending.Quote(tokens=20, cost_usd=RESERVED)


async def bench(**facts: Any) -> pools.Bench:
    """Return a pool with a ledger over a store."""
    made = pools.Bench(**facts)
    made.performers = {operations.AgentCall.kind: Paid(made.toolbox)}
    made.spending = lambda store: ledger.Ledger(store, quote, made.clock)
    made.take_store(made.store)
    return await made.open()


def kept_within(bench: pools.Bench) -> spending.Spending:
    """Return the ledger of the present pool."""
    assert bench.pool.spending is not None
    return bench.pool.spending


async def counted(bench: pools.Bench, run_id: str) -> tuple[budgets.BudgetState, budgets.BudgetState]:
    """Return the state of the run's limits and of a budget of everything, from a new ledger."""
    fresh = ledger.Ledger(bench.store, quote, bench.clock)
    fresh.set_budgets([ALL])
    in_force = (await bench.store.read(run_id)).limits
    return await fresh.counted(run_id, in_force), await fresh.standing(ALL)


async def passed_points() -> list[tuple[str, int]]:
    """Return every passing of a point while a run executes."""
    undisturbed = await bench()
    run_id = await undisturbed.create(*PROGRAM, limits=limits.RunLimits(calls=10, cost_usd=9))
    undisturbed.probes.passed_points.clear()
    await undisturbed.pool.submit(run_id)
    await undisturbed.ended(run_id)
    passed = list(undisturbed.probes.passed_points)
    await undisturbed.close()
    seen: Counter[str] = Counter()
    found = []
    for point in passed:
        seen[point] += 1
        found.append((point, seen[point]))
    return found


async def dies_at(point: str, nth: int, *, lose_unsynced: bool) -> None:
    """Let a process die at a point, continue the run in another, and compare the ledger with the payments."""
    dying = await bench()
    run_id = await dying.create(*PROGRAM, limits=limits.RunLimits(calls=10, cost_usd=9))
    given = dying.crash_when(point, nth, lose_unsynced=lose_unsynced)
    await dying.pool.submit(run_id)
    await dying.take_over(given)
    await dying.restart()
    if await dying.ended(run_id) != [states.RunState.DONE]:
        raise AssertionError(point)
    loaded = await dying.store.read(run_id)
    lines = len(loaded.records)
    begun = sum(loaded.decisions.highest_attempt.values())
    of_run, of_all = await counted(dying, run_id)
    await dying.close()

    assert of_run.used.calls == begun >= len(dying.toolbox.executed)
    assert of_run.used.cost_usd == lines * COST
    assert of_run.reserved.cost_usd == pytest.approx((begun - lines) * RESERVED)
    assert (of_all.used, of_all.reserved) == (of_run.used, of_run.reserved)


@pytest.mark.parametrize("lose_unsynced", [False, True])
async def test_calls_count_once_wherever_a_process_dies(lose_unsynced: bool) -> None:
    """After a death at any write around two calls, each begun call counts once, by its line or its reservation."""
    points = await passed_points()
    for point, nth in points:
        await dies_at(point, nth, lose_unsynced=lose_unsynced)

    assert {"step.after_started", "step.performed", "step.before_append", "step.after_append"} <= {
        point for point, _ in points
    }


async def test_parallel_calls_wait_for_room() -> None:
    """Of two calls that do not fit together, the second begins once the first took less than its reservation."""
    made = await bench()
    gate = made.toolbox.hold("one")
    both = {"gather": {"a": [{"agent": "one"}], "b": [{"agent": "two"}]}}
    run_id = await made.submit(both, limits=limits.RunLimits(cost_usd=2 * COST + 0.05))
    await pools.soon(made.toolbox.begun("one"))
    await pools.idle()
    before = list(made.toolbox.executed)
    gate.set()
    ended = await made.ended(run_id)
    await made.close()

    assert before == ["one/1"]
    assert (ended, made.toolbox.executed) == ([states.RunState.DONE], ["one/1", "two/1"])


async def test_calls_of_children_count_for_their_parent() -> None:
    """A child's call that does not fit into its parent's limit parks the child, which continues once it is raised."""
    made = await bench()
    child = {"child": "below", "program": [{"agent": "one"}, {"agent": "two"}]}
    run_id = await made.submit({"agent": "zero"}, child, limits=limits.RunLimits(calls=2))
    await made.until(lambda: "one/1" in made.toolbox.executed)
    (child_id,) = [each for each in await made.run_ids() if each != run_id]
    await made.at_rest(child_id)
    parked = await made.store.read(child_id)
    await made.pool.limit(run_id, limits.RunLimits(calls=3))
    room = await kept_within(made).has_room(parked)
    await made.pool.unpause(child_id)
    ended = await made.ended(run_id, child_id)
    shown, _ = await counted(made, run_id)
    await made.close()

    error: Any = parked.decisions.pause_error
    assert (parked.decisions.paused, error["detail"]["budget"]["run_id"]) == (
        "budget_exhausted",
        run_id,
    )
    assert room
    assert (ended, shown.used.calls) == ([states.RunState.DONE] * 2, 3)


async def test_a_budget_that_is_set_while_calls_are_under_way_counts_them_once() -> None:
    """A call that began before a budget was set counts in the budget once it has ended."""
    made = await bench()
    gate = made.toolbox.hold("one")
    run_id = await made.submit({"agent": "one"}, {"agent": "two"})
    await pools.soon(made.toolbox.begun("one"))
    kept_within(made).set_budgets([ALL])
    before = await kept_within(made).standing(ALL)
    gate.set()
    await made.ended(run_id)
    after = await kept_within(made).standing(ALL)
    await made.close()

    assert (before.used.calls, after.used.calls, after.used.cost_usd) == (0, 2, 2 * COST)


@pytest.mark.parametrize("covered", ["everything", "only the run above"])
async def test_a_run_above_that_has_ended_counts_on(covered: str) -> None:
    """The end of a parent while its child waits for room, or calls, neither breaks the call nor leaves it reserved."""
    made = await bench()
    above, other = await made.create(*PROGRAM, labels={"team": "a"}), await made.create(*PROGRAM, labels={"team": "a"})
    below = await made.create(*PROGRAM, parent_run_id=above)
    label = None if covered == "everything" else "team:a"
    budget = budgets.Budget(name="one", label=label, limits=limits.RunLimits(cost_usd=COST + RESERVED + 0.01))
    kept = ledger.Ledger(made.store, quote, made.clock)
    kept.set_budgets([budget])
    call = operations.AgentCall(agent_id="a", backend="b", prompt=("Go on.",))
    paid = samples.record("one", call, usage={"cost_usd": COST})
    first = await kept.reserve(await made.store.read(other), "one", call)
    first.begin(1)
    waiting = asyncio.create_task(kept.reserve(await made.store.read(below), "one", call))
    await pools.idle()
    kept.forget(above)
    waited = not waiting.done()
    first.charge(paid)
    second = await waiting
    second.begin(1)
    second.charge(paid)
    kept.forget(below)
    state = await kept.standing(budget)
    await made.close()

    assert waited
    assert (state.used.cost_usd, state.reserved.cost_usd) == (2 * COST, 0)
    assert (list(kept._known), len(kept._below), len(kept._ended)) == ([other], 0, 0)


class Slow:
    """The store of a ledger, which reads no run while the test holds it."""

    def __init__(self, store: memory_store.MemoryStore) -> None:
        self._store = store
        self.reading, self.may_read = asyncio.Event(), asyncio.Event()

    async def spent(self, query: spending.SpentQuery) -> spending.Spent:
        """Return what runs have spent."""
        return await self._store.spent(query)

    async def read(self, run_id: str) -> stores.Loaded:
        """Read a run when the test allows it."""
        self.reading.set()
        await self.may_read.wait()
        return await self._store.read(run_id)


async def slow_bench() -> tuple[pools.Bench, Slow]:
    """Return a pool whose ledger can be held while it counts, and the store that holds it."""
    made = pools.Bench()
    made.performers = {operations.AgentCall.kind: Paid(made.toolbox)}
    slow = Slow(made.store)
    made.spending = lambda store: ledger.Ledger(cast(spending.SpendingStore, slow), quote, made.clock)
    made.take_store(made.store)
    return await made.open(), slow


async def test_a_count_that_is_cut_off_counts_nothing_twice() -> None:
    """The next count begins anew, with the call that ended during the first count."""
    made, slow = await slow_bench()
    await made.ended(await made.submit(*PROGRAM))
    gate = made.toolbox.hold("last")
    run_id = await made.submit({"agent": "last"})
    await pools.soon(made.toolbox.begun("last"))
    kept_within(made).set_budgets([ALL])
    cut_off = asyncio.create_task(kept_within(made).standing(ALL))
    await pools.soon(slow.reading.wait())
    gate.set()
    await made.ended(run_id)
    cut_off.cancel()
    await asyncio.wait([cut_off])
    slow.may_read.set()
    state = await kept_within(made).standing(ALL)
    await made.close()

    assert cut_off.cancelled()
    assert (state.used.calls, state.used.cost_usd, state.reserved.calls) == (3, 3 * COST, 0)


async def test_a_budget_that_is_removed_while_others_are_counted_is_shown() -> None:
    """A request that shows every budget does not fail when another one removes one of them."""
    made, slow = await slow_bench()
    await made.create(*PROGRAM)
    kept, removed = kept_within(made), dataclasses.replace(ALL, name="removed")
    kept.set_budgets([ALL, removed])

    async def shown() -> list[budgets.BudgetState]:
        return [await kept.standing(budget) for budget in (ALL, removed)]

    asked = asyncio.create_task(shown())
    await pools.soon(slow.reading.wait())
    kept.set_budgets([ALL])
    slow.may_read.set()
    states_shown = await asked
    await made.close()

    assert [state.used.calls for state in states_shown] == [0, 0]


async def test_a_parked_run_may_end_while_its_room_is_looked_for() -> None:
    """If a parked run ends while its parent is read, the search for room ends without an error."""
    made, slow = await slow_bench()
    above = await made.create(*PROGRAM, limits=limits.RunLimits(calls=9))
    below = await made.create(*PROGRAM, parent_run_id=above, limits=limits.RunLimits(calls=1))
    parked = await made.store.read(below)
    parked.decisions.pause_error = {"key": "one", "detail": {"needed": {"tokens": 1, "cost_usd": None}}}
    asked = asyncio.create_task(kept_within(made).has_room(parked))
    await pools.soon(slow.reading.wait())
    kept_within(made).forget(below)
    slow.may_read.set()

    assert await asked

    await made.close()
