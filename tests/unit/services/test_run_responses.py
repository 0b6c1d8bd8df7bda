"""Run responses: the consolidated answer has the same bytes whether it grew or was encoded at once."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import allowed_orders, plain, records, shapes, slots, states, views
from app.services import run_reader
from tests.unit.engine import samples


def record(position: int, **fields: Any) -> records.Record:
    """Return the record of a step."""
    return samples.record(f"step-{position}", samples.tool("x"), position, **fields)


def open_step(number: int) -> views.OpenStep:
    """Return an open step."""
    return views.OpenStep(
        key=f"open-{number}",
        attempt=1,
        kind="tool_call",
        place=records.Place(step_id=f"open-{number}", phase="a", output_slot="s" if number else None),
        facts={"tool": "x", "agent_id": None},
        started_at=samples.AT,
    )


def slot(text: str) -> slots.Slot:
    """Return an artifact."""
    return slots.Slot(type="artifact", sha256="", summary=text, key="k", text=text)


def view(
    lines: Sequence[records.Record], opened: int = 0, filled: Mapping[str, slots.Slot] | None = None, **facts: Any
) -> views.RunView:
    """Return a run with these lines."""
    return views.RunView(
        start=samples.start(labels={"ö": '"'}),
        status=states.RunState.RUNNING,
        records=lines,
        open=[open_step(number) for number in range(opened)],
        board=slots.Board(progress=slots.Progress(finished_steps=len(lines)), slots=filled or {}),
        updated_at=samples.AT,
        **facts,
    )


def plainly(shown: views.RunView, holder: str | None) -> bytes:
    """Return the answer encoded at once."""
    living = shown.living()
    steps = [*views.finished_steps(living), *(views.open_step(step, shown.start.run_id) for step in shown.open)]
    answer = views.manifest(shown) | {
        "started_at": shown.started_at,
        "duration_ms": views.duration_ms(shown.started_at, shown.completed_at),
        "steps": steps[-views.NEWEST_STEPS :],
        "steps_total": len(steps),
        "cache_summary": {
            name: {"type": filled.type, "preview": filled.summary} for name, filled in shown.board.slots.items()
        },
    }
    orders = allowed_orders.refusals(shown)
    return plain.encode(answer | {"orders": orders, "holder": holder, "unreadable": None})


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(1, 150)),
        st.tuples(st.just("retry"), st.just(1)),
        st.tuples(st.just("open"), st.sampled_from([0, 1, 2, 199, 200, 201])),
        st.tuples(st.just("fill"), st.text(max_size=4)),
        st.tuples(st.just("anew"), st.integers(0, 3)),
    ),
    max_size=8,
)


@given(CHANGES)
def test_an_answer_that_grew_is_the_answer_written_at_once(changes: list[tuple[str, Any]]) -> None:
    """After any changes of a run, the bytes equal those of the whole value encoded at once."""
    run_response, lines, opened, filled = (
        run_reader.RunResponseCache(),
        list[records.Record](),
        0,
        dict[str, slots.Slot](),
    )
    for kind, amount in changes:
        if kind == "step":
            lines += [record(len(lines) + number, output_preview='ü"\n') for number in range(amount)]
        elif kind == "retry":
            lines.append(record(len(lines), final=False, status="failed", error=_error()))
        elif kind == "open":
            opened = amount
        elif kind == "fill":
            filled[amount] = slot(amount)
        else:
            lines = [record(number, output_preview="anew") for number in range(max(0, len(lines) - amount))]
        shown = view(lines, opened, filled)

        assert run_response.encoded(shown, "other") == plainly(shown, "other")


def _error() -> dict[str, Any]:
    return {"code": "x", "message": "y", "key": None, "detail": {}}


def test_the_newest_steps_are_listed_and_all_are_counted() -> None:
    """A poll of a long run has the newest steps and the count of all steps."""
    answer = json.loads(run_reader.RunResponseCache().encoded(view([record(number) for number in range(250)]), None))

    assert answer["steps_total"] == 250
    assert len(answer["steps"]) == views.NEWEST_STEPS
    assert answer["steps"][-1]["step_id"] == "step-249"
    assert (list(answer)[-2:], answer["holder"]) == (["holder", "unreadable"], None)


def test_the_answer_has_the_fields_of_its_shape() -> None:
    """The encoded answer has each required field of `RunDetail`, and no unknown field."""
    answer = json.loads(run_reader.RunResponseCache().encoded(view([record(0)], 1), None))
    fields = {field.name: shapes.is_omitted(field) for field in dataclasses.fields(views.RunDetail)}

    assert set(answer) <= set(fields)
    assert {name for name, may_be_omitted in fields.items() if not may_be_omitted} <= set(answer)


def test_a_step_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next answer of a run encodes only its new steps and slots."""
    asked: list[plain.Json] = []
    encode = plain.encode

    def noted(value: plain.Json) -> bytes:
        asked.append(value)
        return encode(value)

    monkeypatch.setattr(plain, "encode", noted)
    run_response, lines, filled = (
        run_reader.RunResponseCache(),
        [record(number) for number in range(1000)],
        {"a": slot("first")},
    )
    run_response.encoded(view(lines, counted=lines, filled=filled), None)
    asked.clear()
    lines.append(record(1000))
    filled |= {"b": slot("second")}
    run_response.encoded(view(lines, counted=lines, filled=filled), None)

    encoded = [value for value in asked if isinstance(value, dict) and ("key" in value or "b" in value or "a" in value)]
    assert [value.get("key") for value in encoded] == ["step-1000", None]
    assert encoded[1]["b"]["preview"] == "second"
