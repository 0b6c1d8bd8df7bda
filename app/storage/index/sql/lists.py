"""Lists: pages of runs, each read from the index that is in its order."""

# Each index that can lead a list ends with `created_at, run_id`, and the cursor is compared as one pair, so that a
# page is read where it begins and nothing is sorted. States are literals in statements: with bound values SQLite
# does not see that the partial index of unfinished runs applies, and reads every row.

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, bindparam, func, select, tuple_

from app.domain import states
from app.engine import stores
from app.storage.index import index_port
from app.storage.index.sql.rows import LABELS, ROW, RUNS, SHOWN, UNFINISHED, summaries
from app.storage.index.sql.sessions import ReadSession

_UNFINISHED_STATES = frozenset(state.value for state in states.RunState if not state.finished)
_ALIKE = ("session_id", "status", "recipe_id", "parent_run_id")


def list_runs(session: ReadSession, query: stores.RunQuery) -> list[stores.RunSummary]:
    """Return a page, newest first.

    It begins behind the last run of the page before, not at an offset, so that runs which come in meanwhile shift
    nothing and a late page costs what the first does. Each filter has an index in the order of the list, so that no
    page sorts anything. Which leads where several are asked for tells `_leader`.
    """
    asked = dict(_asked(query))
    return summaries(session, session.rows(_page(frozenset(asked), _leader(query)), asked))


def list_unfinished(session: ReadSession) -> list[stores.RunSummary]:
    """Return every unfinished run, oldest first; the partial index holds just these."""
    found = session.rows(ROW.where(UNFINISHED).order_by(RUNS.c.created_at, RUNS.c.run_id))
    return summaries(session, found)


def _leader(query: stores.RunQuery) -> str | None:
    # Few runs are unfinished, few are of one session, and a label may be on any; the rest is left to the database.
    if query.session_id is None and (query.label is None or query.status in _UNFINISHED_STATES):
        return None
    if query.status in _UNFINISHED_STATES:
        return "status"
    return "label" if query.session_id is None else "session_id"


def _asked(query: stores.RunQuery) -> Iterator[tuple[str, Any]]:
    for name in _ALIKE:
        if (value := getattr(query, name)) is not None:
            yield name, value
    if query.label is not None:
        yield from zip(("label_name", "label_value"), query.label, strict=True)
    if query.cursor is not None:
        yield from zip(("cursor_at", "cursor_id"), query.cursor, strict=True)
    if query.created_after is not None:
        yield "after", index_port.instant(query.created_after)
    before = index_port.instant(query.created_before) if query.created_before is not None else None
    # Behind a cursor of its own list the second limit says nothing new, and a database might begin there.
    if before is not None and (query.cursor is None or query.cursor[0] >= before):
        yield "before", before
    yield "most", query.limit


@functools.cache
def _page(asked: frozenset[str], leader: str | None) -> Select[Any]:
    # There are some hundred kinds of pages, and building one costs more than executing it.
    leading = LABELS if leader == "label" else RUNS
    found = ROW.where(*_filters(asked, leader), *_span(asked, leading), SHOWN)
    if leader == "label":
        found = found.select_from(LABELS.join(RUNS, RUNS.c.run_id == LABELS.c.run_id))
    return found.order_by(leading.c.created_at.desc(), leading.c.run_id.desc()).limit(bindparam("most"))


def _filters(asked: frozenset[str], leader: str | None) -> Iterator[ColumnElement[bool]]:
    for name in _ALIKE:
        if name in asked:
            # Compared as an expression, a column leaves the lead to another one.
            aside = leader in _ALIKE and name != leader
            yield (func.coalesce(RUNS.c[name], "") if aside else RUNS.c[name]) == bindparam(name)
    if "label_name" in asked:
        carries = (LABELS.c.name == bindparam("label_name"), LABELS.c.value == bindparam("label_value"))
        if leader == "label":
            yield from carries
        else:
            yield select(LABELS.c.run_id).where(LABELS.c.run_id == RUNS.c.run_id, *carries).exists()


def _span(asked: frozenset[str], leading: Table) -> Iterator[ColumnElement[bool]]:
    if "after" in asked:
        yield leading.c.created_at >= bindparam("after")
    if "cursor_at" in asked:
        yield tuple_(leading.c.created_at, leading.c.run_id) < tuple_(bindparam("cursor_at"), bindparam("cursor_id"))
    if "before" in asked:
        yield leading.c.created_at < bindparam("before")
