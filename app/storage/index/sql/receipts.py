"""Rows of receipts. None of these queries commits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, delete, insert, select, tuple_

from app.domain import receipts
from app.storage.index.index_port import ReceiptPlace
from app.storage.index.sql.rows import RECEIPTS
from app.storage.index.sql.sessions import ReadSession, WriteSession

_FILTERS = ("run_id", "session_id")
_ADD = insert(RECEIPTS)
_REMOVE = delete(RECEIPTS).where(RECEIPTS.c.receipt_id == bindparam("of_receipt"))


def add_receipts(session: WriteSession, places: list[ReceiptPlace]) -> None:
    """Note where new receipts lie; fails as a whole if one is known."""
    session.execute(_ADD, [dataclasses.asdict(place) for place in places])


def replace_receipts(session: WriteSession, places: list[ReceiptPlace]) -> None:
    """Note where receipts lie, known ones among them."""
    session.execute(_REMOVE, [{"of_receipt": place.receipt_id} for place in places])
    add_receipts(session, places)


def find_receipt(session: ReadSession, receipt_id: str) -> ReceiptPlace | None:
    """Return where a receipt lies."""
    row = session.row(select(RECEIPTS).where(RECEIPTS.c.receipt_id == receipt_id))
    return None if row is None else ReceiptPlace(**row._mapping)


def list_receipts(session: ReadSession, query: receipts.ReceiptQuery) -> list[ReceiptPlace]:
    """Return where the receipts of a page lie; each filter has an index in the order of the list."""
    asked = dict(_asked(query))
    return [ReceiptPlace(**row._mapping) for row in session.rows(_page(frozenset(asked)), asked)]


def _asked(query: receipts.ReceiptQuery) -> Iterator[tuple[str, Any]]:
    for name in _FILTERS:
        if (value := getattr(query, name)) is not None:
            yield name, value
    if query.cursor is not None:
        yield from zip(("cursor_session", "cursor_offset"), query.cursor, strict=True)
    yield "most", query.limit


@functools.cache
def _page(asked: frozenset[str]) -> Select[Any]:
    order = (RECEIPTS.c.session_id, RECEIPTS.c.offset_bytes)
    return select(RECEIPTS).where(*_conditions(asked)).order_by(*order).limit(bindparam("most"))


def _conditions(asked: frozenset[str]) -> Iterator[ColumnElement[bool]]:
    for name in _FILTERS:
        if name in asked:
            yield RECEIPTS.c[name] == bindparam(name)
    if "cursor_session" in asked:
        place = tuple_(RECEIPTS.c.session_id, RECEIPTS.c.offset_bytes)
        yield place > tuple_(bindparam("cursor_session"), bindparam("cursor_offset"))
