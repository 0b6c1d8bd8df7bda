"""The index port: rows about runs, receipts and issues, all of them rebuildable from the folders."""

# Why: docs/decisions/0032.

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from app import clock
from app.domain import issues, receipts, runs, states
from app.domain.authors import RunOrder
from app.domain.records import Usage
from app.domain.usage_sums import RunFacts, UsageSum
from app.engine import run_sums, spending, stores
from app.storage import layout

if TYPE_CHECKING:
    from app.domain import audit

OWNERS = ("service", "process", "foreign")
"""Owner that continues a run; a foreign run continues only on request."""

_INSTANT_CHARACTERS = 24
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedRun:
    """A run's row."""

    summary: stores.RunSummary  # What lists show.
    idempotency_key: str | None = None
    """Key under which a repeated request finds it; foreign runs have only those of children."""
    request_sha256: str | None = None  # Hash of the request that made it.
    sums: tuple[UsageSum, ...] | None = field(default=None, compare=False)
    """Its usage in parts; None: unknown here, and left unchanged when the row is written."""
    orders: tuple[RunOrder, ...] = field(default=(), compare=False)
    """Known orders in its journal, to be stored with the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptPlace:
    """Position of a receipt."""

    receipt_id: str  # The receipt.
    session_id: str  # Work session whose file holds it.
    run_id: str  # Run that it proves a step of.
    offset_bytes: int  # Where its line begins in that file.

    @property
    def position(self) -> tuple[str, int]:
        """Return its place in lists."""
        return self.session_id, self.offset_bytes

    def fits(self, query: receipts.ReceiptQuery) -> bool:
        """Return whether it matches a query, ignoring the limit."""
        wanted = query.run_id in (None, self.run_id) and query.session_id in (None, self.session_id)
        return wanted and (query.cursor is None or self.position > query.cursor)


class Index(Protocol):
    """Rows about runs, receipts and issues."""

    async def start(self) -> bool:
        """Bring the tables up to date; return whether they are new, so that everything must be read again."""

    async def close(self) -> None:
        """Close the database."""

    async def put_run(self, run: IndexedRun) -> None:
        """Write a run's row, replacing one of the same id."""

    async def apply(
        self, rows: Iterable[IndexedRun], moves: Iterable[runs.Transition], places: Iterable[ReceiptPlace]
    ) -> None:
        """Write rows, moves and receipts in one transaction; no move leaves a finished state."""

    async def flush(self) -> None:
        """Make sure that other processes see what was written."""

    async def add_missing(self, found: Iterable[IndexedRun]) -> None:
        """Write the rows of runs that have none."""

    async def remove_run(self, run_id: str) -> None:
        """Remove a run's row."""

    async def move(self, transition: runs.Transition) -> bool:
        """Apply a move if the run is in a state that it may move from; return whether it was.

        A move out of a finished state is durable when this returns: the row may err towards unfinished only.
        """

    async def move_soon(self, transition: runs.Transition) -> None:
        """Apply a move, perhaps a moment later, if the run is in a state that it may move from; none of these is
        finished.
        """

    async def set_owner(self, run_id: str, owner: str) -> None:
        """Note who continues a run from now on."""

    async def doubt(self, run_id: str) -> None:
        """Note durably that a run's labels or pin are about to change; the next service reads its folder."""

    async def relabel(self, run_id: str, labels: Mapping[str, str], *, pinned: bool) -> None:
        """Replace a run's labels and pin in its row, which is no longer in doubt."""

    async def get_run(self, run_id: str) -> IndexedRun | None:
        """Return a run's row."""

    async def find_key(self, idempotency_key: str) -> IndexedRun | None:
        """Return the run that was made under a key."""

    async def find_busy(self, recipe_id: str) -> str | None:
        """Return an unfinished run of a recipe, foreign ones aside."""

    async def uncounted(self, behind: tuple[str, str] | None, limit: int) -> list[tuple[str, str]]:
        """Return creation and id of runs whose rows an earlier release has written, newest first.

        Args:
            behind: Creation and id of the last run of the page before.
        """

    async def count_again(self, found: Iterable[IndexedRun]) -> None:
        """Complete rows of an earlier release with the sums of the journals; all others are unchanged."""

    async def run_ids(self) -> set[str]:
        """Return the ids of all rows."""

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        """Return runs, newest first."""

    async def list_unfinished(self, key_prefix: str = "") -> list[stores.RunSummary]:
        """Return every unfinished run of any owner, oldest first.

        Args:
            key_prefix: Beginning of the idempotency keys of those that are meant; empty: all.
        """

    async def count_by_status(self) -> dict[str, int]:
        """Return how many runs are in each state that occurs."""

    @property
    def changes(self) -> int:
        """Return a number that rises whenever this process writes rows of runs."""

    async def totals(self, since: run_sums.Since, aside: Sequence[str]) -> run_sums.Totals:
        """Count runs, and add up usage, except that of the runs in `aside`."""

    async def usage(
        self, query: run_sums.UsageQuery, aside: Sequence[str]
    ) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
        """Return sums of usage by name, and the total, except those of the runs in `aside`."""

    async def spent(self, query: spending.SpentQuery, aside: Sequence[str] = ()) -> spending.Spent:
        """Return what runs spent at one moment, except the runs in `aside`."""

    async def add_receipts(self, places: Iterable[ReceiptPlace]) -> None:
        """Store the positions of receipts."""

    async def find_receipt(self, receipt_id: str) -> ReceiptPlace | None:
        """Return the position of a receipt."""

    async def list_receipts(self, query: receipts.ReceiptQuery) -> list[ReceiptPlace]:
        """Return the positions of a page of receipts, in the order of sessions and files."""

    async def put_issues(self, found: Iterable[issues.IssueSummary], *, doubtful: bool = False) -> None:
        """Write rows of issues, replacing those of the same ids, and remove their marks.

        Args:
            doubtful: Whether rows that are not marked are newer than these, and stay.
        """

    async def mark_issue(self, issue_id: str) -> None:
        """Mark durably that an issue's file is about to change."""

    async def remove_issues(self, issue_ids: Iterable[str]) -> None:
        """Remove rows of issues."""

    async def issue_rows(self) -> dict[str, bool]:
        """Return the ids of all issues with rows, and which of these are marked."""

    async def list_issues(self, query: issues.IssueQuery) -> list[issues.IssueSummary]:
        """Return issues, newest first."""

    async def add_orders(self, found: Iterable[RunOrder]) -> None:
        """Store orders to runs, perhaps a moment later; known ones are ignored."""

    async def list_orders(self, query: audit.AuditQuery) -> list[RunOrder]:
        """Return orders to runs after the cursor of a query, newest first."""

    async def has_session(self, session_id: str) -> bool:
        """Return whether a run belongs to a work session."""

    async def clear(self) -> None:
        """Remove every row."""


def instant(text: str) -> str:
    """Return an instant in the form whose texts sort like times; any other text is returned unchanged."""
    if _STAMP.fullmatch(text):
        return text
    try:
        return clock.stamp(clock.instant(text))
    except ValueError:
        return text[:_INSTANT_CHARACTERS]


def row_of(
    start: runs.RunStart,
    status: states.RunState,
    at: str,
    *,
    name: str,
    owner: str,
    error_code: str | None = None,
    reason: str | None = None,
    facts: RunFacts | None = None,
    keyed: bool = True,
) -> IndexedRun:
    """Make the row of a run.

    Args:
        at: When it last moved.
        name: Its folder, under which it is found.
        owner: Who continues it.
        facts: What its journals add up to; None: of a run that has none.
        keyed: Whether its idempotency key counts here; that of a copy does not.
    """
    facts = facts or RunFacts(usage=Usage())
    summary = stores.RunSummary(
        run_id=name,
        recipe_id=start.recipe_id,
        dialect=start.dialect,
        status=status.value,
        created_at=instant(start.created_at),
        updated_at=instant(at),
        completed_at=instant(at) if status.finished else None,
        description=start.description,
        labels=dict(start.labels),
        priority=max(-100, min(start.priority, 100)),
        session_id=start.session_id,
        parent_run_id=start.parent_run_id,
        error_code=error_code,
        owner=owner,
        working_dir=start.working_dir,
        exclusive_workspace=start.exclusive_workspace,
        concurrency_key=start.concurrency.key if start.concurrency else None,
        concurrency_limit=start.concurrency.limit if start.concurrency else None,
        concurrency_policy=start.concurrency.policy if start.concurrency else None,
        started_at=instant(facts.started_at) if facts.started_at is not None else None,
        reason=reason,
        usage=facts.usage,
        pinned=start.pinned,
        started_by=start.started_by if isinstance(start.started_by, Mapping) else None,
    )
    return IndexedRun(
        summary=summary,
        # A key belongs to the run that took it first.
        idempotency_key=start.idempotency_key if keyed else None,
        request_sha256=start.request_sha256 if keyed else None,
        sums=facts.sums,
        orders=tuple(_starting(start, name)),
    )


def _starting(start: runs.RunStart, name: str) -> Iterator[RunOrder]:
    """Yield the order that made a run, or a session plan; that of a plan is in its first revision."""
    is_plan = clock.is_internal(name)
    plan = start.args.get("plan") if is_plan else None
    first = plan if isinstance(plan, dict) and plan.get("revision") == 1 else {}
    author = first.get("changed_by") if is_plan else start.started_by
    if not isinstance(author, Mapping):
        return
    yield RunOrder(
        run_id=name,
        target=start.session_id if is_plan else name,
        file=layout.START,
        line=0,
        at=start.created_at,
        action="plan.created" if is_plan else "run.started",
        author=author,
        details={"revision": 1} if is_plan else {"recipe_id": start.recipe_id},
    )


def age(run: stores.RunSummary) -> tuple[str, str]:
    """Return the sort key of runs in lists."""
    return run.created_at, run.run_id


def fits(run: stores.RunSummary, query: stores.RunQuery, *, internal: bool = False) -> bool:
    """Return whether a run matches a query, ignoring the limit.

    Args:
        internal: Whether session plans are, which no list shows.
    """
    wanted = {name: getattr(query, name) for name in ("recipe_id", "parent_run_id", "session_id", "concurrency_key")}
    if clock.is_internal(run.run_id) != query.internal and not internal:
        return False
    if query.scope is not None and not query.scope.covers(run.recipe_id, run.labels):
        return False
    if query.states and run.status not in query.states:
        return False
    if query.q is not None and query.q.casefold() not in searched(run):
        return False
    if any(value is not None and getattr(run, name) != value for name, value in wanted.items()):
        return False
    starter = run.started_by or {}
    if query.started_by is not None and query.started_by != (starter.get("name") or starter.get("via")):
        return False
    if query.label is not None and run.labels.get(query.label[0]) != query.label[1]:
        return False
    if query.created_after is not None and run.created_at < instant(query.created_after):
        return False
    if query.updated_after is not None and run.updated_at < instant(query.updated_after):
        return False
    if query.created_before is not None and run.created_at >= instant(query.created_before):
        return False
    return query.cursor is None or age(run) < query.cursor


def searched(run: stores.RunSummary) -> str:
    """Return the text of a run that searches look through, folded; no word spans two of its parts."""
    parts = (run.run_id, run.recipe_id, run.description, run.session_id, *run.labels.values())
    return "\n".join(parts).casefold()


def moved(row: IndexedRun, transition: runs.Transition) -> IndexedRun:
    """Return a row after a move."""
    at, facts = instant(transition.at), transition.facts
    changes: dict[str, Any] = {
        "status": transition.to.value,
        "updated_at": at,
        "completed_at": at if transition.to.finished else None,
        "error_code": transition.error_code,
        "reason": transition.reason,
    }
    if facts is not None:
        changes |= {"started_at": instant(facts.started_at) if facts.started_at else None, "usage": facts.usage}
    summary = dataclasses.replace(row.summary, **changes)
    return dataclasses.replace(row, summary=summary, sums=facts.sums if facts is not None else row.sums)
