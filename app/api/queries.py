"""Queries: filters and pages of lists."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request

from app import clock, errors
from app.api import polling
from app.domain import gates, issues, plans, receipts, states
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

    wait: float | None = Field(
        None,
        ge=0,
        le=polling.MOST_WAIT_SECONDS,
        description="Answer when the list differs from `If-None-Match`, or from the present one, after so many seconds "
        "at the latest; it is looked at twice a second.",
    )

    def _fields(self) -> dict[str, Any]:
        return {name: value for name, value in self if name != "wait"}


class RunsQuery(_ListQuery):
    """Which runs a list shows."""

    status: states.RunState | None = Field(None, description="Only runs in this state.")
    recipe_id: _Plain | None = Field(None, description="Only runs of this recipe.")
    label: _Label | None = Field(None, description="Only runs with this label, `name:value`.", examples=["book:one"])
    created_after: _Instant | None = Field(None, description="Only runs created at or after this instant.")
    created_before: _Instant | None = Field(None, description="Only runs created before this instant.")
    parent_run_id: _Plain | None = Field(None, description="Only runs that this run started.")
    session_id: _Plain | None = Field(None, description="Only runs of this work session, or of the plan of this id.")
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Most runs of a page.")
    cursor: _Plain | None = Field(None, description="Start of the page, from the previous `Link` header.")

    def query(self) -> stores.RunQuery:
        """Return the question to the store.

        Raises:
            errors.RequestInvalid: the cursor is not one of ours.
        """
        return stores.RunQuery(
            status=self.status.value if self.status else None,
            recipe_id=self.recipe_id,
            label=_label(self.label),
            created_after=_stamp(self.created_after),
            created_before=_stamp(self.created_before),
            parent_run_id=self.parent_run_id,
            session_id=self.session_id,
            limit=self.limit,
            cursor=_read_cursor(self.cursor),
        )


class GatesQuery(_ListQuery):
    """Which gates the inbox shows."""

    run_id: _Plain | None = Field(None, description="Only gates of this run.")
    recipe_id: _Plain | None = Field(None, description="Only gates of runs of this recipe.")
    label: _Label | None = Field(
        None, description="Only gates of runs with this label, `name:value`.", examples=["book:one"]
    )
    session_id: _Plain | None = Field(None, description="Only gates of runs of this work session, or session plan.")
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Most gates of a page.")
    cursor: Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00]*$")] | None = Field(
        None, description="Start of the page, from the previous `Link` header."
    )

    def query(self) -> gate_inbox.GateQuery:
        """Return the question to the inbox.

        Raises:
            errors.RequestInvalid: the cursor is not one of ours.
        """
        return gate_inbox.GateQuery(
            run_id=self.run_id,
            recipe_id=self.recipe_id,
            label=_label(self.label),
            session_id=self.session_id,
            limit=self.limit,
            cursor=_read_place(self.cursor),
        )


class IssuesQuery(_ListQuery):
    """Which issues a list shows."""

    status: issues.Status | None = Field(None, description="Only issues with this status.")
    run_id: _Plain | None = Field(None, description="Only issues of this run.")
    session_id: _Plain | None = Field(None, description="Only issues of this work session.")
    kind: _Plain | None = Field(None, description="Only issues of this kind.", examples=["dod"])
    severity: issues.Severity | None = Field(None, description="Only issues of this severity.")
    recipe_id: _Plain | None = Field(None, description="Only issues that checks of this recipe found.")
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Most issues of a page.")
    cursor: _Cursor | None = Field(None, description="Start of the page, from the previous `Link` header.")

    def query(self) -> issues.IssueQuery:
        """Return the question to the store.

        Raises:
            errors.RequestInvalid: the cursor is not one of ours.
        """
        return issues.IssueQuery(**(self._fields() | {"cursor": _read_cursor(self.cursor)}))


class ReceiptsQuery(_ListQuery):
    """Which receipts a list shows."""

    run_id: _Plain | None = Field(None, description="Only receipts of this run.")
    session_id: _Plain | None = Field(None, description="Only receipts of this work session.")
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Most receipts of a page.")
    cursor: _Cursor | None = Field(None, description="Start of the page, from the previous `Link` header.")

    def query(self) -> receipts.ReceiptQuery:
        """Return the question to the store.

        Raises:
            errors.RequestInvalid: the cursor is not one of ours.
        """
        return receipts.ReceiptQuery(**(self._fields() | {"cursor": _read_receipt(self.cursor)}))


class PlansQuery(_ListQuery):
    """Which session plans a list shows."""

    status: plans.PlanState | None = Field(None, description="Only plans in this state.")
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Most plans of a page.")
    cursor: _Cursor | None = Field(None, description="Start of the page, from the previous `Link` header.")

    def query(self) -> plans.PlanQuery:
        """Return the question to the use cases.

        Raises:
            errors.RequestInvalid: the cursor is not one of ours.
        """
        return plans.PlanQuery(**(self._fields() | {"cursor": _read_cursor(self.cursor)}))


def receipts_cursor(last: receipts.ListedReceipt) -> str:
    """Return the cursor of the page behind a receipt."""
    session_id, offset = last.position
    return _written((session_id, str(offset)))


def plans_cursor(last: plans.PlanSummary) -> str:
    """Return the cursor of the page behind a plan."""
    return _written((last.created_at, last.session_id))


def issues_cursor(last: issues.IssueSummary) -> str:
    """Return the cursor of the page behind an issue."""
    return _written((last.created_at, last.issue_id))


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


def gates_cursor(last: gates.OpenGate) -> str:
    """Return the cursor of the page behind a gate."""
    return _written(gate_inbox.position(last))


def runs_cursor(last: stores.RunSummary) -> str:
    """Return the cursor of the page behind a run."""
    return _written((last.created_at, last.run_id))


def next_link(request: Request, cursor: str | None) -> Mapping[str, str]:
    """Return the `Link` header that names the next page, or no header after the last."""
    if cursor is None:
        return {}
    others = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {"Link": f'<{request.url.path}?{urlencode([*others, ("cursor", cursor)])}>; rel="next"'}


def position(cursor: str | None) -> int:
    """Return the position that a cursor of a step list stands for, -1 without one.

    Raises:
        errors.RequestInvalid: the cursor is not one of ours.
    """
    if cursor is None:
        return -1
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
        raise _bad_cursor()
    return int(cursor)


def _label(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, _, value = text.partition(":")
    return name, value


def _stamp(at: datetime | None) -> str | None:
    return clock.stamp(at) if at else None


def _read_cursor(cursor: str | None) -> tuple[str, str] | None:
    if cursor is None:
        return None
    created_at, run_id = _read(cursor, 2)
    return created_at, run_id


def _read_place(cursor: str | None) -> gate_inbox.Position | None:
    if cursor is None:
        return None
    created_at, run_id, asked_at, key = _read(cursor, 4)
    return created_at, run_id, asked_at, key


def _written(place: Sequence[str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def _read_receipt(cursor: str | None) -> tuple[str, int] | None:
    if cursor is None:
        return None
    session_id, offset = _parts(cursor, 2)
    return session_id, position(offset)


def _read(cursor: str, parts: int) -> list[str]:
    place = _parts(cursor, parts)
    try:
        clock.instant(place[0])
    except ValueError as error:
        raise _bad_cursor() from error
    return place


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
