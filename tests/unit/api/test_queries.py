"""Queries: only cursors that this service can have made are accepted."""

from __future__ import annotations

import base64
import json
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import clock, errors
from app.api import polling, queries
from app.domain import gates, operations
from app.services import gate_inbox
from tests.unit.engine import samples


@given(st.datetimes(), st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_a_cursor_leads_back_to_its_run(at: object, run_id: str) -> None:
    """The cursor of a page identifies its last run, for any id and time."""
    created_at = clock.stamp(clock.instant(f"{at}+00:00"))
    cursor = queries.cursor("runs", (created_at, run_id))

    assert queries.RunsQuery.model_validate({"cursor": cursor}).query().cursor == (created_at, run_id)
    assert cursor.isascii()
    assert not set(cursor) & set("=&?#+/% ")


@given(
    st.datetimes(),
    st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True),
    st.text(
        st.characters(exclude_characters="".join(map(chr, [*range(32), 127])), codec="utf-8"), min_size=1, max_size=300
    ),
)
def test_a_cursor_leads_back_to_its_gate(at: object, run_id: str, key: str) -> None:
    """The cursor of a page of the inbox identifies its last gate, for any name of its step."""
    instant = clock.stamp(clock.instant(f"{at}+00:00"))
    started = samples.start(run_id=run_id, created_at=instant)
    question = operations.Gate(prompt="go on?")
    asked = gates.OpenGate(start=started, key=key, attempt=1, gate=question, asked_at=instant, expires_at=None)
    cursor = queries.cursor("gates", gate_inbox.position(asked))

    assert queries.GatesQuery.model_validate({"cursor": cursor}).query().cursor == (instant, run_id, instant, key)
    assert not set(cursor) & set("=&?#+/% ")


@given(st.text(min_size=1, max_size=60).filter(lambda text: "\x00" not in text))
def test_anything_else_is_refused(text: str) -> None:
    """Any other text is refused as a cursor, without a failure."""
    try:
        cursor = queries.RunsQuery.model_validate({"cursor": text}).query().cursor
    except errors.RequestInvalid as error:
        told = error.code
    else:
        told = "bad_cursor" if cursor is None else "read"

    assert told in ("bad_cursor", "read")


@pytest.mark.parametrize(
    "place",
    [
        ["0001-01-01T00:00:00+23:59", "a"],
        ["2026-02-10T14:30:00.000Z", "\ud800"],
        ["2026-02-10T14:30:00.000Z", "a\x00"],
        ["2026-02-10T14:30:00.000Z", 1],
        ["2026-02-10T14:30:00.000Z"],
    ],
)
@pytest.mark.parametrize("query", [queries.RunsQuery, queries.IssuesQuery, queries.PlansQuery])
def test_a_cursor_with_impossible_parts_is_refused(query: Any, place: list[object]) -> None:
    """A handmade cursor with impossible values is refused before a store is asked."""
    cursor = base64.urlsafe_b64encode(json.dumps([query.of, *place]).encode()).decode().rstrip("=")
    with pytest.raises(errors.RequestInvalid) as refused:
        query.model_validate({"cursor": cursor}).query()

    assert refused.value.code == "bad_cursor"


LISTS: list[tuple[Any, tuple[str, ...]]] = [
    (queries.RunsQuery, ("2026-02-10T14:30:00.000Z", "a")),
    (queries.IssuesQuery, ("2026-02-10T14:30:00.000Z", "a")),
    (queries.PlansQuery, ("2026-02-10T14:30:00.000Z", "a")),
    (queries.GatesQuery, ("2026-02-10T14:30:00.000Z", "a", "2026-02-10T14:30:00.000Z", "b")),
    (queries.ReceiptsQuery, ("a", "7")),
]


@pytest.mark.parametrize(("query", "place"), LISTS)
@pytest.mark.parametrize("other", [*(query for query, _ in LISTS), queries.AuditQuery])
def test_a_cursor_of_another_list_is_refused(query: Any, place: tuple[str, ...], other: Any) -> None:
    """A cursor leads back into the list that it was made for, and every other list refuses it."""
    asked = other.model_validate({"cursor": queries.cursor(query.of, place)})
    if other is query:
        assert [str(part) for part in asked.query().cursor] == list(place)
        return
    with pytest.raises(errors.RequestInvalid) as refused:
        asked.query()

    assert refused.value.code == "bad_cursor"


def test_an_instant_outside_of_the_calendar_is_refused() -> None:
    """An instant that has no form in UTC is refused like any other invalid text."""
    with pytest.raises(pydantic.ValidationError):
        queries.RunsQuery.model_validate({"created_after": "0001-01-01T00:00:00+23:59"})


@pytest.mark.parametrize("cursor", ["", "-1", "1.5", "x", "１", "9" * 16])
def test_a_step_cursor_is_a_position(cursor: str) -> None:
    """The cursor of a step list is a plain number."""
    with pytest.raises(errors.RequestInvalid):
        queries.position(cursor)

    assert (queries.position(None), queries.position("7")) == (-1, 7)


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        (None, set()),
        ('"a"', {'"a"'}),
        ('W/"a", "b"', {'"a"', '"b"'}),
        ("*", {"*"}),
        ("", {""}),
    ],
)
def test_entity_tags_are_read(header: str | None, tags: set[str]) -> None:
    """Every tag of a header is read, weak ones like strong ones."""
    assert polling.entity_tags(header) == tags
