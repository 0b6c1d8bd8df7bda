"""The reducer behind a run's page, without a browser: on recorded runs and on possible streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain import records, views
from app.engine import journal_lines
from tests.replay import golden
from tests.unit.ui import node


def reduce(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the reducer's result for answers and the events after them."""
    return node.run("run_states.mjs", "run_state.js", cases)


def answer(counted: Sequence[records.Record], status: str = "running", opened: Sequence[dict[str, Any]] = ()) -> Any:
    """Return the answer for a run after some of its steps."""
    steps = [*views.finished_steps(counted), *opened][-views.NEWEST_STEPS :]
    return {
        "run_id": "20260210T143000Z-k3x9af",
        "status": status,
        "updated_at": counted[-1].completed_at if counted else "2026-02-10T14:30:00.000Z",
        "steps": steps,
        "steps_total": len(counted) + len(opened),
    }


def happened(record: records.Record) -> list[dict[str, Any]]:
    """Return the events of a step."""
    told = journal_lines.events("r", record, 0)[-1]
    begun = {"step_id": record.line.get("step_id"), "phase": record.line.get("phase"), "attempt": record.attempt}
    return [
        {"type": "step.started", "at": record.started_at, "key": record.key, "data": begun},
        {"type": told.type, "at": record.completed_at, "key": record.key, "data": told.data},
    ]


def living(name: str) -> list[records.Record]:
    """Return the records of a recorded run that are still valid."""
    return [record for record in golden.load(name).records() if record.final]


@pytest.mark.parametrize("dialect", sorted({name.partition("/")[0] for name in golden.names()}))
def test_events_lead_to_the_steps_of_the_answer(dialect: str) -> None:
    """From any moment of a recorded run, its events lead to the steps of the run's final answer."""
    names = [name for name in golden.names() if name.startswith(f"{dialect}/")]
    cases, wanted = [], []
    for name in names:
        counted = living(name)
        every = max(1, len(counted) // 8)
        for begun in range(0, len(counted) + 1, every):
            later = [event for record in counted[begun:] for event in happened(record)]
            cases.append({"answers": [answer(counted[:begun])], "events": later})
            wanted.append((name, begun, len(counted)))
        cases.append({"answers": [answer(counted)], "events": []})
        wanted.append((name, len(counted), len(counted)))

    found = reduce(cases)
    whole = {name: each["rows"] for (name, begun, count), each in zip(wanted, found, strict=True) if begun == count}
    for (name, begun, count), each in zip(wanted, found, strict=True):
        assert sorted(each["rows"][-views.NEWEST_STEPS :]) == sorted(whole[name][-views.NEWEST_STEPS :]), (name, begun)
        assert each["total"] == count
        assert each["again"] == each["rows"]
        assert each["kept"] == min(begun, views.NEWEST_STEPS)


def test_a_step_that_runs_is_shown_until_it_ends() -> None:
    """A step that has begun is shown as open; its end replaces it, and a retry is its next attempt."""
    begun = {"type": "step.started", "at": "2026-02-10T14:30:01.000Z", "key": "a", "data": {"attempt": 1}}
    retried = {"type": "step.retrying", "at": "2026-02-10T14:30:02.000Z", "key": "a", "data": {"attempt": 1}}
    again = begun | {"at": "2026-02-10T14:30:03.000Z", "data": {"attempt": 2}}
    failed = {
        "type": "step.failed",
        "at": "2026-02-10T14:30:04.000Z",
        "key": "a",
        "data": {"attempt": 2, "duration_ms": 1000, "error": {"code": "agent_failed", "message": "no"}},
    }
    events = [begun, retried, again, failed]
    found = reduce([{"answers": [answer([])], "events": events[:count]} for count in range(5)])

    assert [each["rows"] for each in found] == [
        [],
        [["a", 1, "running", None]],
        [],
        [["a", 2, "running", None]],
        [["a", 2, "failed", "agent_failed"]],
    ]
    assert found[1]["sentence"] == "It works on a."


def test_a_partial_run_names_its_failed_steps_and_cut_replies() -> None:
    """The sentence of a run done in part names failed steps and cut replies, or else the reason."""
    endings: list[dict[str, Any]] = [
        {"failed_steps": ["a"], "cut_off_steps": ["b", "c"], "reason": "x"},
        {"failed_steps": [], "cut_off_steps": [], "reason": "x"},
        {"partial": False},
    ]
    cases = [
        {"answers": [answer([], "done") | {"ending": {"partial": True} | ending}], "events": []} for ending in endings
    ]

    assert [found["sentence"] for found in reduce(cases)] == [
        "It is done in part: a failed, and the length limit cut off b, c.",
        "It is done in part: x.",
        "It is done.",
    ]


def test_a_run_names_the_run_that_it_waits_for_or_yielded_to() -> None:
    """A run's sentence distinguishes a held workspace, a held concurrency key and a newer run of the same key."""
    newer = {"superseded_by": {"run_id": "r2", "key": "book"}}
    end = {"type": "run.ended", "at": "2026-02-10T14:30:09.000Z", "key": None}
    cases = [
        {"answers": [answer([], "pending") | {"holder": "r1", "reason": "workspace"}], "events": []},
        {"answers": [answer([], "pending") | {"holder": "r1", "reason": "concurrency"}], "events": []},
        {"answers": [answer([], "cancelled") | {"ending": newer}], "events": []},
        {"answers": [answer([])], "events": [end | {"data": {"status": "cancelled", "ending": newer}}]},
        {"answers": [answer([], "cancelled") | {"ending": {}}], "events": []},
    ]

    assert [found["sentence"] for found in reduce(cases)] == [
        "It waits for the workspace, which run r1 holds.",
        "It waits for run r1, which has the same concurrency key.",
        "Run r2 of the same concurrency key cancelled it. It can be resumed.",
        "Run r2 of the same concurrency key cancelled it. It can be resumed.",
        "It was cancelled. It can be resumed.",
    ]


def test_the_time_in_steps_is_shown_for_an_idle_run() -> None:
    """The time in steps counts overlaps once and adds attempts; it is shown only for an ended run that was idle."""

    def spent(*spans: tuple[str, str], **others: Any) -> dict[str, Any]:
        tries = [
            {"started_at": f"2026-02-10T14:30:{one}Z", "completed_at": f"2026-02-10T14:30:{two}Z"} for one, two in spans
        ]
        steps = [{"key": "a", "status": "done", **tries[-1], "attempts": tries[:-1]}]
        ends = {"started_at": "2026-02-10T14:30:00Z", "completed_at": "2026-02-10T14:30:50Z"}
        return {"answers": [answer([], "failed") | ends | {"steps": steps, "steps_total": 1} | others], "events": []}

    cases = [
        spent(("00", "02"), ("01", "03"), ("40", "50")),
        spent(("01", "49")),
        spent(("00", "02"), steps_total=2),
        spent(("00", "02"), status="running"),
    ]

    assert [found["worked"] for found in reduce(cases)] == [13, None, None, None]


def test_the_ticks_of_a_timeline_are_round() -> None:
    """A timeline has at most three ticks, at round numbers of milliseconds, seconds or minutes."""
    lengths = [1, 157, 5000, 48_800, 60_000, 5_400_000]
    cases = [{"answers": [answer([]) | {"length": length}], "events": []} for length in lengths]

    assert [found["ticks"] for found in reduce(cases)] == [
        [0],
        [0, 100],
        [0, 2000, 4000],
        [0, 20_000, 40_000],
        [0, 20_000, 40_000],
        [0, 1_800_000, 3_600_000],
    ]


def test_a_resumed_run_hides_its_discarded_steps() -> None:
    """After a resume the page does not show the steps that were discarded."""
    name = max(golden.names(), key=lambda each: len(living(each)))
    counted = living(name)
    (found,) = reduce([{"answers": [answer(counted, "failed"), answer(counted[:2])], "events": []}])

    assert [row[0] for row in found["rows"]] == [record.key for record in counted[:2]]


def test_the_end_of_a_run_closes_its_steps() -> None:
    """An ended run has no open step, and its sentence names the error."""
    opened = {"key": "a", "status": "running", "attempt": 1, "started_at": "2026-02-10T14:30:01.000Z"}
    end = {
        "type": "run.ended",
        "at": "2026-02-10T14:30:09.000Z",
        "key": None,
        "data": {"status": "failed", "error": {"code": "x", "message": "the disk is full"}, "ending": None},
    }
    (found,) = reduce([{"answers": [answer([], opened=[opened])], "events": [end]}])

    assert (found["status"], found["rows"]) == ("failed", [])
    assert found["sentence"] == "It failed: the disk is full"
