"""Concurrency keys: no more runs of a key are under way than allowed, for any policy, order and crash."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.domain import access, concurrency, states
from app.worker import fair_rounds
from tests import examples
from tests.unit.worker import pools

Bench = pools.Bench

DONE, CANCELLED = states.RunState.DONE, states.RunState.CANCELLED


def keyed(limit: int = 1, policy: concurrency.Policy = "queue", **facts: Any) -> dict[str, Any]:
    """Return the facts of a run with the key of these tests."""
    return {"concurrency": concurrency.Concurrency(key="deploy", limit=limit, policy=policy), **facts}


async def test_runs_of_a_key_wait_for_one_another() -> None:
    """The second run of a key waits while the first waits for a person, and names it; runs without the key continue."""
    bench = await Bench().open()
    first = await bench.submit({"gate": "go"}, **keyed())
    await bench.shown(first, states.RunState.WAITING)
    second = await bench.submit({"tool": "look"}, **keyed())
    other = await bench.submit({"tool": "other"})

    assert await bench.ended(other) == [DONE]
    standing = bench.pool.standing(second)
    assert standing is not None
    assert (standing.status, standing.reason, standing.holder) == (states.RunState.PENDING, "concurrency", first)

    await bench.pool.cancel(first)
    assert await bench.ended(first, second) == [CANCELLED, DONE]
    await bench.close()


async def test_each_run_waits_by_its_own_limit() -> None:
    """A run with a limit of two begins beside one run; a run with a limit of one waits for both."""
    bench = await Bench().open()
    held = bench.toolbox.hold("work")
    await bench.submit({"tool": "work"}, **keyed())
    await bench.submit({"tool": "work"}, **keyed(limit=2))
    await bench.until(lambda: bench.toolbox.busy == 2)
    alone = await bench.submit({"tool": "look"}, **keyed())
    await pools.idle()
    assert bench.pool.standing(alone) is not None
    held.set()

    assert await bench.ended(alone) == [DONE]
    await bench.close()


async def test_a_key_is_held_through_a_restart() -> None:
    """A run that had begun holds its key after a restart, also while it is paused."""
    bench = await Bench().open()
    first = await bench.submit({"gate": "go"}, **keyed())
    await bench.shown(first, states.RunState.WAITING)
    await bench.pool.pause(first)
    await bench.at_rest(first)
    second = await bench.submit({"tool": "look"}, **keyed())
    await bench.crash()
    await bench.restart()
    await pools.idle()
    standing = bench.pool.standing(second)

    assert standing is not None
    assert (standing.reason, standing.holder) == ("concurrency", first)
    await bench.pool.cancel(first)
    assert await bench.ended(second) == [DONE]
    await bench.close()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("cancel_waiting", [DONE, CANCELLED, DONE]), ("cancel_running", [CANCELLED, CANCELLED, DONE])],
)
async def test_a_new_run_cancels_earlier_ones(policy: concurrency.Policy, expected: list[states.RunState]) -> None:
    """`cancel_waiting` cancels runs that have not begun, `cancel_running` all earlier ones; then the new run begins."""
    bench = await Bench().open()
    held = bench.toolbox.hold("work")
    first = await bench.submit({"tool": "work"}, **keyed())
    await bench.executed("work/1")
    second = await bench.submit({"tool": "second"}, **keyed())
    third = await bench.submit({"tool": "third"}, **keyed(policy=policy))
    await bench.ended(second)
    if policy == "cancel_waiting":
        held.set()

    assert await bench.ended(first, second, third) == expected
    assert "second/1" not in bench.toolbox.executed
    await bench.close()


@pytest.mark.parametrize("crashes", [False, True])
async def test_no_earlier_run_outside_of_a_scope_is_cancelled(crashes: bool) -> None:
    """A new run cancels earlier runs within the caller's scope, and waits for those outside of it."""
    bench = await Bench().open()
    scope = access.Scope(recipes=("r",), labels=(("book", "one"), ("book", "two")))
    key = concurrency.Concurrency(key="deploy", policy="cancel_running", within=scope)
    others = [
        await bench.submit({"gate": "go"}, **keyed(limit=3), labels={"book": book}, recipe_id=recipe_id)
        for book, recipe_id in (("two", "r"), ("three", "r"), ("one", "other"))
    ]
    for other in others:
        await bench.shown(other, states.RunState.WAITING)
    await bench.pool.pause(others[0])
    await bench.at_rest(others[0])
    new = await bench.create({"tool": "look"}, concurrency=key, labels={"book": "one"}, recipe_id="r")
    if crashes:
        await bench.crash()
        await bench.restart()
    else:
        await bench.pool.submit(new)

    assert await bench.ended(others[0]) == [CANCELLED]
    ended = (await bench.store.read(others[0])).decisions.ended
    assert ended is not None
    assert (ended.ending or {})["superseded_by"] == {"run_id": new, "key": "deploy"}
    for other in others[1:]:
        assert bench.pool.standing(new) is not None
        await bench.pool.cancel(other)
    assert await bench.ended(new) == [DONE]
    await bench.close()


# A process that dies drops the orders that it had not begun.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine 'RunCommands._cancel' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("policy", ["cancel_waiting", "cancel_running"])
async def test_wherever_a_process_dies_the_earlier_ones_are_cancelled(policy: concurrency.Policy) -> None:
    """A process may die at any point between start and end: the restart leads to the same outcome."""
    passed_points, expected = await _superseding(policy, None)
    for kill in examples.passings(passed_points):
        _, found = await _superseding(policy, kill)
        assert found == expected, kill


async def _superseding(policy: concurrency.Policy, kill: tuple[str, int] | None) -> tuple[list[str], list[str]]:
    bench = await Bench().open()
    held = bench.toolbox.hold("work")
    first = await bench.submit({"tool": "work"}, **keyed())
    await bench.executed("work/1")
    second = await bench.submit({"tool": "second"}, **keyed())
    third = await bench.create({"tool": "third"}, **keyed(policy=policy))
    begun = len(bench.probes.passed_points)
    if kill is None:
        await bench.pool.submit(third)
    else:
        left = bench.crash_when(*kill)
        order = asyncio.create_task(bench.pool.submit(third))
        if policy == "cancel_waiting":
            order.add_done_callback(lambda _: held.set())
        await bench.take_over(left)
        await asyncio.gather(order, return_exceptions=True)
        await bench.restart()
    await bench.ended(second)
    passed_points = bench.probes.passed_points[begun:]
    held.set()
    ended = await bench.ended(first, second, third)
    executed = sorted({tried.partition("/")[0] for tried in bench.toolbox.executed})
    await bench.close()
    return passed_points, [*(state.value for state in ended), *executed]


async def test_a_restart_does_not_cancel_a_run_resumed_since() -> None:
    """An earlier run that a person resumes waits for the run that cancelled it, also after a restart."""
    bench = await Bench().open()
    first = await bench.submit({"gate": "go"}, **keyed())
    await bench.shown(first, states.RunState.WAITING)
    second = await bench.submit({"gate": "on"}, **keyed(policy="cancel_running"))
    assert await bench.ended(first) == [CANCELLED]
    await bench.shown(second, states.RunState.WAITING)
    bench.advance(1)
    await bench.resumed(first)
    await bench.crash()
    await bench.restart()
    await pools.idle()
    standing = bench.pool.standing(first)

    assert standing is not None
    assert (standing.reason, standing.holder) == ("concurrency", second)
    await bench.pool.cancel(second)
    await bench.shown(first, states.RunState.WAITING)
    await bench.close()


async def test_of_two_starts_that_race_one_is_refused() -> None:
    """`reject` counts and creates in one critical section; the refusal names the holder, and a free key is granted."""
    bench = await Bench().open()
    rejecting = keyed(policy="reject")
    answers = await asyncio.gather(
        *(bench.create({"gate": "go"}, **rejecting) for _ in range(5)), return_exceptions=True
    )
    made = [answer for answer in answers if isinstance(answer, str)]
    refused = [answer for answer in answers if isinstance(answer, errors.Conflict)]

    assert (len(made), len(refused)) == (1, 4)
    assert {error.code for error in refused} == {"concurrency_limit"}
    assert refused[0].detail == {"key": "deploy", "limit": 1, "run_id": made[0], "run_ids": made}

    await bench.pool.submit(made[0])
    await bench.pool.cancel(made[0])
    await bench.ended(made[0])
    assert await bench.create({"tool": "look"}, **rejecting)
    await bench.close()


async def test_no_label_starves() -> None:
    """A run of another label gets every second turn among many queued runs of one label, however late it comes."""
    bench = await Bench(limit=1, fair_label="book").open()
    kept = await bench.keep_busy(1)
    many = [await bench.submit({"tool": f"a{number}"}, labels={"book": "one"}) for number in range(50)]
    late = [await bench.submit({"tool": f"b{number}"}, labels={"book": "two"}) for number in range(3)]
    urgent = await bench.submit({"tool": "urgent"}, labels={"book": "one"}, priority=5)
    kept.set()
    await bench.ended(*many, *late, urgent)
    order = [tried.partition("/")[0] for tried in bench.toolbox.executed if not tried.startswith("busy")]

    assert order[0] == "urgent"
    assert [order.index(f"b{number}") for number in range(3)] == [2, 4, 6]
    await bench.close()


@given(st.lists(st.sampled_from(["join a", "join b", "join c", "grant"]), max_size=60))
def test_rounds_never_let_a_label_wait_for_two_of_another(moves: list[str]) -> None:
    """While a label waits, no other label is granted more than two turns."""
    rounds, line, waited = fair_rounds.FairRounds(), list[tuple[int, int, str]](), dict[str, dict[str, int]]()
    for number, move in enumerate(moves):
        if move != "grant":
            label = move[-1]
            line.append((rounds.join(label), number, label))
            waited.setdefault(label, {})
        elif line:
            line.sort()
            turn, _, label = line.pop(0)
            rounds.grant(turn, bool(line))
            waiting = {each for _, _, each in line}
            waited = {each: waited[each] for each in waited if each in waiting and each != label}
            for each in waited:
                waited[each][label] = waited[each].get(label, 0) + 1
                assert waited[each][label] <= 2
            if label in waiting:
                waited[label] = {}


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"key": ""},
        {"key": "a", "limit": 0},
        {"key": "a", "limit": True},
        {"key": "a", "policy": "x"},
        {"key": "a", "within": {"recipes": []}},
        {"key": "a", "within": {"recipes": [], "labels": ["x"]}},
        {"key": "a", "within": []},
    ],
)
def test_an_invalid_key_in_start_json_is_not_accepted(value: Any) -> None:
    """A key of the wrong form in start.json is not accepted."""
    with pytest.raises(TypeError):
        concurrency.Concurrency.from_json(value)
