"""Sums: rows contain the number of runs and their usage, as the journals add up."""

from __future__ import annotations

from typing import Any, get_args

from app.domain.decisions import DecisionKind
from app.domain.runs import Transition
from app.domain.states import RunState
from app.domain.usage_sums import UsageSum
from app.engine import run_sums
from app.engine.run_sums import UsageAmounts, UsageQuery
from app.engine.stores import RunQuery
from tests.conformance import store_harness
from tests.conformance.store_harness import StoreHarness

CALLS = (
    ("r1", "2026-02-10T23:50:00.000Z", "writer-1", "haiku", 0.5),
    ("r1", "2026-02-11T00:05:00.000Z", "editor-1", None, None),
    ("r2", "2026-02-11T00:20:00.000Z", "writer-1", "haiku", 0.25),
    ("r3", "2026-02-12T12:00:00.000Z", "writer-1", "opus", None),
)
"""Run, end, agent, model and price of calls that each read 10 tokens and wrote 5."""

ENDINGS = (
    ("failed", "2026-02-11T00:00:00.000Z", None),
    ("failed", "2026-02-10T23:59:59.000Z", None),
    ("failed", "2026-02-11T00:01:00.000Z", "denied"),
    ("failed", "2026-02-11T00:02:00.000Z", "step_failed"),
    ("done", "2026-02-11T00:03:00.000Z", None),
)
"""State, instant and reason of the ends of runs."""


async def paid(harness: StoreHarness) -> None:
    """Create three runs with agent calls, and rebuild the index from their folders."""
    store = await harness.open()
    for run_id, book in (("r1", "one"), ("r2", "two"), ("r3", None)):
        labels = {"book": book} if book else {}
        await store.create(store_harness.start(run_id, recipe_id="draft" if run_id != "r3" else "edit", labels=labels))
        log = await store.open(run_id)
        await log.decide(DecisionKind.TAKEN, {})
        for number, (_, at, agent_id, model, cost) in enumerate(call for call in CALLS if call[0] == run_id):
            usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": cost}
            facts: dict[str, Any] = {"completed_at": at, "agent_id": agent_id, "model": model, "usage": usage}
            await log.append_step(store_harness.step(f"s{number}", **facts))
        await store_harness.end(log)
        await log.close()
    await store.rebuild_index()


def figures_by_name(sums: run_sums.Sums) -> dict[str | None, tuple[int, int, float | None, int]]:
    """Return runs, calls, price and calls without a price, by name."""
    return {name: (one.runs, one.calls, one.cost_usd, one.calls_without_price) for name, one in sums.items()}


ADDED_UP: list[tuple[dict[str, Any], dict[str | None, tuple[int, int, float | None, int]]]] = [
    ({"by": "recipe"}, {"draft": (2, 3, 0.75, 1), "edit": (1, 1, None, 1)}),
    ({"by": "agent"}, {"writer-1": (3, 3, 0.75, 1), "editor-1": (1, 1, None, 1)}),
    ({"by": "model"}, {"haiku": (2, 2, 0.75, 0), None: (1, 1, None, 1), "opus": (1, 1, None, 1)}),
    (
        {"by": "label", "label_key": "book"},
        {"one": (1, 2, 0.5, 1), "two": (1, 1, 0.25, 0), None: (1, 1, None, 1)},
    ),
    (
        {"by": "day"},
        {"2026-02-10": (1, 1, 0.5, 0), "2026-02-11": (2, 2, 0.25, 1), "2026-02-12": (1, 1, None, 1)},
    ),
    ({"by": "day", "offset_minutes": 15}, {"2026-02-11": (2, 3, 0.75, 1), "2026-02-12": (1, 1, None, 1)}),
    (
        {"by": "day", "offset_minutes": -60},
        {"2026-02-10": (2, 3, 0.75, 1), "2026-02-12": (1, 1, None, 1)},
    ),
    ({"by": "recipe", "runs": RunQuery(label=("book", "two"))}, {"draft": (1, 1, 0.25, 0)}),
    ({"by": "recipe", "runs": RunQuery(q="EDIT", status=("done", "failed"))}, {"edit": (1, 1, None, 1)}),
    ({"by": "recipe", "runs": RunQuery(status="failed")}, {}),
]
"""Queries, with their runs, calls, price and calls without a price, by name."""


async def test_usage_is_added_up(harness: StoreHarness) -> None:
    """Sums by each name contain runs, calls and prices, and count calls without a price separately."""
    await paid(harness)
    found = [(query, await harness.store.sum_usage(UsageQuery(**query), {})) for query, _ in ADDED_UP]

    assert [(query, figures_by_name(sums)) for query, (sums, _) in found] == ADDED_UP
    assert [total.calls for _, (_, total) in found] == [sum(one[1] for one in each.values()) for _, each in ADDED_UP]


async def test_calls_that_reported_nothing_are_counted(harness: StoreHarness) -> None:
    """They count apart, by every name, in rows as in memory, and their run is one that called an agent."""
    store = await harness.open()
    await store.create(store_harness.start("r1", recipe_id="draft", labels={"book": "one"}))
    log = await store.open("r1")
    await log.decide(DecisionKind.TAKEN, {})
    facts: dict[str, Any] = {"completed_at": "2026-02-11T00:20:00.000Z", "agent_id": "writer-1", "model": "haiku"}
    facts |= {"operation": {"hash": "sha256:s1", "body": {"kind": "agent_call"}}}
    await log.append_step(store_harness.step("s1", **facts))
    await store_harness.end(log)
    await log.close()
    await store.rebuild_index()
    queries = [UsageQuery(by=by, label_key="book" if by == "label" else None) for by in get_args(run_sums.By)]
    found = [await store.sum_usage(query, {}) for query in queries]
    live = UsageSum(
        quarter="2026-02-11T00:15:00.000Z",
        agent_id="writer-1",
        model="haiku",
        calls=0,
        input_tokens=0,
        output_tokens=0,
        cost_usd=None,
        calls_without_price=0,
        calls_silent=1,
    )
    in_memory = [await store.sum_usage(query, {"r1": (live,)}) for query in queries]
    since = run_sums.Since(failed="2026-02-11T00:00:00.000Z", today="2026-02-11T00:00:00.000Z")

    silent = UsageAmounts(runs=1, calls_silent=1)
    assert found == [({name: silent}, silent) for name in ("draft", "writer-1", "haiku", "one", "2026-02-11")]
    assert in_memory == found
    assert (await store.totals(since, [])).usage == silent


async def test_sums_in_memory_replace_those_of_the_row(harness: StoreHarness) -> None:
    """Sums in memory replace those of the run's row, and the filters of the run apply to them."""
    await paid(harness)
    live = UsageSum(
        quarter="2026-02-11T00:15:00.000Z",
        agent_id="writer-1",
        model="haiku",
        calls=7,
        input_tokens=70,
        output_tokens=35,
        cost_usd=None,
        calls_without_price=7,
    )
    sums, total = await harness.store.sum_usage(UsageQuery(by="recipe"), {"r2": (live,), "gone": (live,)})
    others, _ = await harness.store.sum_usage(
        UsageQuery(by="recipe", runs=RunQuery(label=("book", "one"))), {"r2": (live,)}
    )

    assert figures_by_name(sums)["draft"] == (2, 9, 0.5, 8)
    assert (total.runs, total.input_tokens) == (3, 100)
    assert figures_by_name(others) == {"draft": (1, 2, 0.5, 1)}


async def test_runs_are_counted_since_an_instant(harness: StoreHarness) -> None:
    """Failures, new runs and usage count from their instants; usage of runs in `aside` does not count."""
    await paid(harness)
    store = harness.store
    since = run_sums.Since(failed="2026-02-10T00:00:00.000Z", today="2026-02-11T00:00:00.000Z")
    found = await store.totals(since, [])
    aside = await store.totals(since, ["r2"])
    early = await store.totals(run_sums.Since(failed=since.failed, today="2026-02-10T00:00:00.000Z"), [])

    assert (dict(found.by_status), found.parked, found.failed, found.created) == ({"done": 3}, 0, 0, 0)
    assert (found.usage.calls, found.usage.cost_usd, found.usage.calls_without_price) == (3, 0.25, 2)
    assert (aside.usage.calls, early.usage.calls, early.created) == (2, 4, 3)


async def test_the_list_of_failures_has_as_many_runs_as_the_count(harness: StoreHarness) -> None:
    """Both select runs by the instant of their failure, and leave out runs that a person's denial ended."""
    store = await harness.open()
    for number, (status, at, reason) in enumerate(ENDINGS):
        run_id = f"r{number}"
        await store.create(store_harness.start(run_id, created_at=f"2026-02-10T14:3{number}:00Z"))
        log = await store.open(run_id)
        await log.decide(DecisionKind.ENDED, {"status": status, "causes": [], "error": None, "ending": None})
        await log.move(Transition.begin(run_id, at))
        await log.move(Transition.end(run_id, RunState(status), at, reason=reason))
        await log.close()
    await harness.settle()
    since = "2026-02-11T00:00:00.000Z"
    listed = await store.list_runs(RunQuery(failed_after=since))
    totals = await store.totals(run_sums.Since(failed=since, today=since), [])

    assert [run.run_id for run in listed] == ["r3", "r0"]
    assert totals.failed == 2


async def test_a_deleted_run_costs_nothing_any_more(harness: StoreHarness) -> None:
    """The usage of a deleted run is gone, both before and after a rebuild of the index."""
    await paid(harness)
    await harness.store.delete("r1")
    _, before = await harness.store.sum_usage(UsageQuery(), {})
    await harness.store.rebuild_index()
    _, after = await harness.store.sum_usage(UsageQuery(), {})

    assert (
        before
        == after
        == UsageAmounts(runs=2, calls=2, input_tokens=20, output_tokens=10, cost_usd=0.25, calls_without_price=1)
    )
