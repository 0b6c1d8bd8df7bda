"""Queries: filters, cursors and revisions that requests name outside of their bodies."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request

from app import clock, errors
from app.api import polling
from app.domain import issues, plans, receipts, states
from app.engine import stores
from app.services import gate_inbox

DEFAULT_LIMIT = 100
"""Items of a page where none are asked for."""

MAX_LIMIT = 1000
"""Most items of a page."""


def _instant(text: object) -> datetime:
    # A bare number is no instant here, though pydantic would read it as seconds since 1970.
    return clock.instant(str(text))


# What no name holds, and no database takes: NUL, and halves of surrogate pairs.
_WORDS = re.compile(r"[^\x00\ud800-\udfff]*")
_Instant = Annotated[datetime, BeforeValidator(_instant)]
_Label = Annotated[str, Field(max_length=400, pattern=r"^[^\x00:]+:[^\x00]*$")]
_Cursor = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"^[^\x00]*$")]
_Plain = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]


class _ListQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Page size.")
    cursor: _Cursor | None = Field(None, description="Start of the page, from the previous `Link` header.")
    wait: float | None = Field(
        None,
        ge=0,
        le=polling.MOST_WAIT_SECONDS,
        description="Answer when the list differs from `If-None-Match`, or from the present one, after this many "
        "seconds at the latest; it is checked twice a second.",
    )

    def _fields(self) -> dict[str, Any]:
        """Return the fields of the question to the store.

        Raises:
            errors.RequestInvalid: the cursor does not belong to this list.
        """
        fields = {name: _as_asked(value) for name, value in self if name != "wait"}
        fields["cursor"] = None if self.cursor is None else self._position(self.cursor)
        if "label" in fields and fields["label"] is not None:
            fields["label"] = tuple(fields["label"].split(":", 1))
        return fields

    def _position(self, cursor: str) -> tuple[str | int, ...]:
        return _read(cursor, 2)


class RunsQuery(_ListQuery):
    """Filters of the list of runs."""

    status: states.RunState | None = Field(None, description="Only runs in this state.")
    recipe_id: _Plain | None = Field(None, description="Only runs of this recipe.")
    label: _Label | None = Field(None, description="Only runs with this label, `name:value`.", examples=["book:one"])
    created_after: _Instant | None = Field(None, description="Only runs created at or after this instant.")
    created_before: _Instant | None = Field(None, description="Only runs created before this instant.")
    parent_run_id: _Plain | None = Field(None, description="Only runs that this run started.")
    session_id: _Plain | None = Field(None, description="Only runs of this work session, or of the plan of this id.")
    cursor: _Plain | None = Field(None, description="Start of the page, from the previous `Link` header.")

    def query(self) -> stores.RunQuery:
        """Return the question to the store."""
        return stores.RunQuery(**self._fields())


class GatesQuery(_ListQuery):
    """Filters of the list of open gates."""

    run_id: _Plain | None = Field(None, description="Only gates of this run.")
    recipe_id: _Plain | None = Field(None, description="Only gates of runs of this recipe.")
    label: _Label | None = Field(
        None, description="Only gates of runs with this label, `name:value`.", examples=["book:one"]
    )
    session_id: _Plain | None = Field(None, description="Only gates of runs of this work session, or session plan.")
    cursor: Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00]*$")] | None = Field(
        None, description="Start of the page, from the previous `Link` header."
    )

    def query(self) -> gate_inbox.GateQuery:
        """Return the question to the inbox."""
        return gate_inbox.GateQuery(**self._fields())

    def _position(self, cursor: str) -> tuple[str | int, ...]:
        return _read(cursor, 4)


class IssuesQuery(_ListQuery):
    """Filters of the list of issues."""

    status: issues.Status | None = Field(None, description="Only issues with this status.")
    run_id: _Plain | None = Field(None, description="Only issues of this run.")
    session_id: _Plain | None = Field(None, description="Only issues of this work session.")
    kind: _Plain | None = Field(None, description="Only issues of this kind.", examples=["dod"])
    severity: issues.Severity | None = Field(None, description="Only issues of this severity.")
    recipe_id: _Plain | None = Field(None, description="Only issues that checks of this recipe found.")

    def query(self) -> issues.IssueQuery:
        """Return the question to the store."""
        return issues.IssueQuery(**self._fields())


class ReceiptsQuery(_ListQuery):
    """Filters of the list of receipts."""

    run_id: _Plain | None = Field(None, description="Only receipts of this run.")
    session_id: _Plain | None = Field(None, description="Only receipts of this work session.")

    def query(self) -> receipts.ReceiptQuery:
        """Return the question to the store."""
        return receipts.ReceiptQuery(**self._fields())

    def _position(self, cursor: str) -> tuple[str | int, ...]:
        session_id, offset = _parts(cursor, 2)
        return session_id, position(offset)


class PlansQuery(_ListQuery):
    """Filters of the list of session plans."""

    status: plans.PlanState | None = Field(None, description="Only plans in this state.")

    def query(self) -> plans.PlanQuery:
        """Return the question to the use cases."""
        return plans.PlanQuery(**self._fields())


def cursor(place: Sequence[str | int]) -> str:
    """Return the cursor of the page that begins after a place in a list."""
    return base64.urlsafe_b64encode(json.dumps([str(part) for part in place]).encode()).decode().rstrip("=")


def next_link(request: Request, cursor: str | None) -> Mapping[str, str]:
    """Return the `Link` header that names the next page, or no header after the last."""
    if cursor is None:
        return {}
    others = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {"Link": f'<{request.url.path}?{urlencode([*others, ("cursor", cursor)])}>; rel="next"'}


def position(cursor: str | None) -> int:
    """Return the position that a cursor of a step list means, -1 without one.

    Raises:
        errors.RequestInvalid: the cursor is not one of ours.
    """
    if cursor is None:
        return -1
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
        raise _bad_cursor()
    return int(cursor)


def revision(etag: str | None) -> int | None:
    """Return the revision that an `If-Match` asks for; None for any.

    Raises:
        errors.RequestInvalid: it is no ETag of something that has revisions.
    """
    if etag is None or etag.strip() == "*":
        return None
    known = re.fullmatch(r'\s*"([1-9][0-9]{0,8})"\s*', etag)
    if known is None:
        flaw = errors.Flaw(path="header.If-Match", message="is not an ETag of this service")
        raise errors.RequestInvalid("If-Match is not an ETag of this service", flaws=[flaw])
    return int(known[1])


def _as_asked(value: Any) -> Any:
    match value:
        case datetime():
            return clock.stamp(value)
        case StrEnum():
            return value.value
    return value


def _read(cursor: str, parts: int) -> tuple[str, ...]:
    place = _parts(cursor, parts)
    try:
        clock.instant(place[0])
    except ValueError as error:
        raise _bad_cursor() from error
    return tuple(place)


def _parts(cursor: str, parts: int) -> list[str]:
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        formed = isinstance(place, list) and len(place) == parts and all(isinstance(part, str) for part in place)
        if formed and _WORDS.fullmatch("".join(place)):
            return list(place)
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise _bad_cursor() from error
    raise _bad_cursor()


def _bad_cursor() -> errors.RequestInvalid:
    flaw = errors.Flaw(path="query.cursor", message="is not a cursor of this list")
    return errors.RequestInvalid(
        "the cursor does not belong to this list; take it from a `Link` header", code="bad_cursor", flaws=[flaw]
    )
