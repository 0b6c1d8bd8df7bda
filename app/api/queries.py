"""Queries: filters, cursors and revisions outside of the bodies of requests."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar
from urllib.parse import urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.requests import Request

from app import clock, errors
from app.api import polling, request_flaws, request_models
from app.domain import audit, events, issues, plans, receipts, states
from app.engine import run_sums, stores
from app.services import event_feeds, gate_inbox

DEFAULT_LIMIT = 100  # Default page size.
MAX_LIMIT = 1000  # Largest page size.

_CHANGES = "changes"  # Name of the list of changes, which its cursors carry.


def _instant(text: object) -> datetime:
    # A bare number is not an instant here, although pydantic would read it as seconds since 1970.
    return clock.instant(str(text))


def _listed(given: object) -> object:
    return [given] if isinstance(given, str) else given


# Characters that no name contains and no database accepts: NUL, and halves of surrogate pairs.
_WORDS = re.compile(r"[^\x00\ud800-\udfff]*")
_Instant = Annotated[datetime, BeforeValidator(_instant)]
_Label = Annotated[
    str, BeforeValidator(request_models.label_text), Field(max_length=400, pattern=request_flaws.LABEL_PATTERN)
]
_Cursor = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"^[^\x00]*$")]
_States = Annotated[list[states.RunState], BeforeValidator(_listed), Field(max_length=len(states.RunState))]
_Types = Annotated[list[events.EventType], BeforeValidator(_listed), Field(max_length=len(events.EventType))]
_Plain = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]


_Offset = Annotated[str, Field(pattern=r"^[+-](0\d|1[0-3]):(00|15|30|45)$|^[+-]14:00$")]
_WAIT: Any = Field(
    None,
    ge=0,
    le=polling.MOST_WAIT_SECONDS,
    description="Long poll: return when the list differs from `If-None-Match`, or by default from the current "
    "list, or after this many seconds. The list is checked twice a second.",
)


class _ListQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    of: ClassVar[str]
    """Name of the list, which its cursors carry."""

    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Page size.")
    cursor: _Cursor | None = Field(None, description="Start of the page, from the previous `Link` header.")
    wait: float | None = _WAIT

    def _fields(self) -> dict[str, Any]:
        """Return the fields of the query for the store.

        Raises:
            errors.RequestInvalid: the cursor does not belong to this list.
        """
        fields = {name: _as_asked(value) for name, value in self if name != "wait"}
        fields["cursor"] = None if self.cursor is None else self._position(self.cursor)
        if "label" in fields and fields["label"] is not None:
            fields["label"] = tuple(fields["label"].split(":", 1))
        return fields

    def _position(self, cursor: str) -> tuple[str | int, ...]:
        return _read(self.of, cursor, 2)


class RunFilters(BaseModel):
    """Filters of runs."""

    model_config = ConfigDict(extra="forbid")

    status: _States | None = Field(
        None, description="Only runs in this state; repeat the parameter for several states."
    )
    recipe_id: _Plain | None = Field(None, description="Only runs of this recipe.")
    label: _Label | None = Field(None, description="Only runs with this label, `name:value`.", examples=["book:one"])
    created_after: _Instant | None = Field(None, description="Only runs created at or after this instant.")
    created_before: _Instant | None = Field(None, description="Only runs created before this instant.")
    parent_run_id: _Plain | None = Field(None, description="Only runs that this run started.")
    session_id: _Plain | None = Field(None, description="Only runs of the work session or plan with this id.")
    started_by: _Plain | None = Field(
        None,
        description="Only runs started by the author with this name, or without a name in this way (`local`, `token`).",
        examples=["trigger trg_5h2m9q0x7c1v8b3n"],
    )
    q: _Plain | None = Field(
        None,
        description="Only runs whose id, recipe, description, session or label value contains this text, "
        "ignoring case; no character is a wildcard.",
        examples=["SCN-the-arrival"],
    )

    def runs(self) -> stores.RunQuery:
        """Return the query for the store."""
        fields = {name: _as_asked(getattr(self, name)) for name in RunFilters.model_fields}
        if fields["label"] is not None:
            fields["label"] = tuple(fields["label"].split(":", 1))
        return stores.RunQuery(**fields)


class RunsQuery(RunFilters, _ListQuery):
    """Filters of the list of runs."""

    of = "runs"

    failed_after: _Instant | None = Field(
        None,
        description="Only runs that failed at or after this instant, which `GET /api/stats` counts; a run that a "
        "person's denial ended is not one.",
    )
    cursor: _Plain | None = Field(None, description="Start of the page, from the previous `Link` header.")

    def query(self) -> stores.RunQuery:
        """Return the query for the store."""
        return stores.RunQuery(**self._fields())


class StatsQuery(BaseModel):
    """Instants from which runs are counted."""

    model_config = ConfigDict(extra="forbid")

    since: _Instant | None = Field(
        None, description="Instant from which failed runs are counted; 24 hours ago by default."
    )
    today: _Instant | None = Field(
        None,
        description="Local midnight, from which runs and spend are counted; midnight in UTC by default.",
        examples=["2026-02-10T00:00:00+01:00"],
    )
    wait: float | None = _WAIT

    def failed_since(self) -> str | None:
        """Return the instant from which failed runs are counted."""
        return None if self.since is None else clock.stamp(self.since)

    def midnight(self) -> str | None:
        """Return the instant from which runs and spending are counted."""
        return None if self.today is None else clock.stamp(self.today)


class UsageQuery(RunFilters):
    """Grouping of sums of usage, and the runs that they cover."""

    by: run_sums.By = Field("recipe", description="Criterion by which the sums are grouped.")
    label_key: _Plain | None = Field(
        None, description="Label whose values group the sums; required with `by=label`.", examples=["book"]
    )
    utc_offset: _Offset = Field("+00:00", description="UTC offset of local days.", examples=["+02:00"])

    @model_validator(mode="after")
    def _label_is_named(self) -> UsageQuery:
        if (self.by == "label") != (self.label_key is not None):
            raise ValueError("`label_key` belongs to `by=label`: name the label, or leave both out")
        return self

    def query(self) -> run_sums.UsageQuery:
        """Return the query for the store."""
        sign, hours, minutes = self.utc_offset[0], int(self.utc_offset[1:3]), int(self.utc_offset[4:])
        offset = (hours * 60 + minutes) * (-1 if sign == "-" else 1)
        return run_sums.UsageQuery(by=self.by, label_key=self.label_key, offset_minutes=offset, runs=self.runs())


class FeedQuery(BaseModel):
    """Filter of the events that a client wants."""

    model_config = ConfigDict(extra="forbid")

    type: _Types | None = Field(None, description="Only events of this type; repeat the parameter for several types.")
    run_id: _Plain | None = Field(None, description="Only events of this run.")
    recipe_id: _Plain | None = Field(None, description="Only events of runs of this recipe.")
    session_id: _Plain | None = Field(None, description="Only events of runs of this work session.")
    label: _Label | None = Field(None, description="Only events of runs with this label, `name:value`.")
    after: _Plain | None = Field(None, description="Same as `Last-Event-ID`, for clients that cannot set headers.")

    def filter(self) -> event_feeds.FeedFilter:
        """Return the filter for the feed."""
        name, _, value = (self.label or "").partition(":")
        return event_feeds.FeedFilter(
            types=frozenset(wanted.value for wanted in self.type or ()),
            run_id=self.run_id,
            recipe_id=self.recipe_id,
            session_id=self.session_id,
            label=(name, value) if self.label is not None else None,
        )


class GatesQuery(_ListQuery):
    """Filters of the list of open gates."""

    of = "gates"

    run_id: _Plain | None = Field(None, description="Only gates of this run.")
    recipe_id: _Plain | None = Field(None, description="Only gates of runs of this recipe.")
    label: _Label | None = Field(
        None, description="Only gates of runs with this label, `name:value`.", examples=["book:one"]
    )
    session_id: _Plain | None = Field(None, description="Only gates of runs of this work session or session plan.")
    cursor: Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00]*$")] | None = Field(
        None, description="Start of the page, from the previous `Link` header."
    )

    def query(self) -> gate_inbox.GateQuery:
        """Return the query for the inbox."""
        return gate_inbox.GateQuery(**self._fields())

    def _position(self, cursor: str) -> tuple[str | int, ...]:
        return _read(self.of, cursor, 4)


class IssuesQuery(_ListQuery):
    """Filters of the list of issues."""

    of = "issues"

    status: issues.Status | None = Field(None, description="Only issues with this status.")
    run_id: _Plain | None = Field(None, description="Only issues of this run.")
    session_id: _Plain | None = Field(None, description="Only issues of this work session.")
    kind: _Plain | None = Field(None, description="Only issues of this kind.", examples=["dod"])
    severity: issues.Severity | None = Field(None, description="Only issues of this severity.")
    recipe_id: _Plain | None = Field(None, description="Only issues that checks of this recipe found.")

    def query(self) -> issues.IssueQuery:
        """Return the query for the store."""
        return issues.IssueQuery(**self._fields())


class ReceiptsQuery(_ListQuery):
    """Filters of the list of receipts."""

    of = "receipts"

    run_id: _Plain | None = Field(None, description="Only receipts of this run.")
    session_id: _Plain | None = Field(None, description="Only receipts of this work session.")

    def query(self) -> receipts.ReceiptQuery:
        """Return the query for the store."""
        return receipts.ReceiptQuery(**self._fields())

    def _position(self, cursor: str) -> tuple[str | int, ...]:
        session_id, offset = _parts(self.of, cursor, 2)
        return session_id, position(offset)


class AuditQuery(BaseModel):
    """Filters of the list of changes."""

    model_config = ConfigDict(extra="forbid")

    author: _Plain | None = Field(None, description="Only changes by the author with this name.")
    action: _Plain | None = Field(
        None, description="Only this action, e.g. `run.cancelled`; a noun selects all of its actions.", examples=["run"]
    )
    target: _Plain | None = Field(None, description="Only changes to the object with this id or name.")
    created_after: _Instant | None = Field(None, description="Only changes at or after this instant.")
    created_before: _Instant | None = Field(None, description="Only changes before this instant.")
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Page size.")
    cursor: _Cursor | None = Field(None, description="Start of the page, from the previous `Link` header.")

    def query(self) -> audit.AuditQuery:
        """Return the query for the log.

        Raises:
            errors.RequestInvalid: the cursor does not belong to this list.
        """
        fields = {name: _as_asked(value) for name, value in self if name != "cursor"}
        return audit.AuditQuery(**fields, cursor=None if self.cursor is None else _audit_cursor(self.cursor))


class PlansQuery(_ListQuery):
    """Filters of the list of session plans."""

    of = "plans"

    status: plans.PlanState | None = Field(None, description="Only plans in this state.")
    waits: bool = Field(
        False, description="Only plans that wait for a person: drafts, and those with a task whose question is open."
    )

    def query(self) -> plans.PlanQuery:
        """Return the query for the use cases."""
        return plans.PlanQuery(**self._fields())


def cursor(of: str, place: Sequence[str | int]) -> str:
    """Return the cursor for the page after a position in a list.

    Args:
        of: Name of the list, because positions in several lists have the same form.
    """
    return base64.urlsafe_b64encode(json.dumps([of, *map(str, place)]).encode()).decode().rstrip("=")


def audit_cursor(place: audit.AuditCursor) -> str:
    """Return the cursor for the page of changes after a position."""
    return cursor(_CHANGES, (place.offset, *(place.order or ("", "", "", ""))))


def _audit_cursor(text: str) -> audit.AuditCursor:
    offset, at, run_id, file, line = _parts(_CHANGES, text, 5)
    order = (at, run_id, file, position(line)) if at else None
    return audit.AuditCursor(offset=position(offset), order=order)


def next_link(request: Request, cursor: str | None) -> Mapping[str, str]:
    """Return the `Link` header for the next page, or no header after the last page."""
    if cursor is None:
        return {}
    others = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {"Link": f'<{request.url.path}?{urlencode([*others, ("cursor", cursor)])}>; rel="next"'}


def position(cursor: str | None) -> int:
    """Return the position in a cursor of a step list; -1 without a cursor.

    Raises:
        errors.RequestInvalid: the cursor is not from this service.
    """
    if cursor is None:
        return -1
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
        raise _bad_cursor()
    return int(cursor)


def revision(etag: str | None) -> int | None:
    """Return the revision that an `If-Match` header requires; None for any.

    Raises:
        errors.RequestInvalid: it is not an ETag of a resource with revisions.
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
        case list():
            return tuple(_as_asked(item) for item in value)
    return value


def _read(of: str, cursor: str, parts: int) -> tuple[str, ...]:
    place = _parts(of, cursor, parts)
    try:
        clock.instant(place[0])
    except ValueError as error:
        raise _bad_cursor() from error
    return tuple(place)


def _parts(of: str, cursor: str, parts: int) -> list[str]:
    try:
        named, *place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        formed = named == of and len(place) == parts and all(isinstance(part, str) for part in place)
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
