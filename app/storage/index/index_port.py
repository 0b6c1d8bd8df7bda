"""The index port: rows about runs, receipts and issues, all of them rebuildable from the folders."""

# Why: docs/decisions/0032.

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from app import clock
from app.domain import gates, issues, receipts, runs, states
from app.domain.authors import RunOrder
from app.domain.records import Usage
from app.domain.usage_sums import RunFacts, UsageSum
from app.engine import run_sums, spending, stores
from app.storage import layout

if TYPE_CHECKING:
    from app.domain import audit

OWNERS = ("service", "process", "foreign")
"""Owners that continue a run; a foreign run continues only on request."""

_INSTANT_CHARACTERS = 24
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedRun:
    """A run's row."""

    summary: stores.RunSummary  # What lists show.
    idempotency_key: str | None = None
    """Key that finds the run of a repeated request; of foreign runs, only children have one."""
    request_sha256: str | None = None  # Hash of the request that started the run.
    sums: tuple[UsageSum, ...] | None = field(default=None, compare=False)
    """Usage in parts; None: unknown here, and writing the row leaves it unchanged."""
    orders: tuple[RunOrder, ...] = field(default=(), compare=False)
    """Known orders in the run's journal, to be stored with the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptPlace:
    """Position of a receipt."""

    receipt_id: str  # The receipt.
    session_id: str  # Work session whose file contains the receipt.
    run_id: str  # Run whose step the receipt proves.
    offset_bytes: int  # Offset of its line in that file.

    @property
    def position(self) -> tuple[str, int]:
        """Return the receipt's position in lists."""
        return self.session_id, self.offset_bytes

    def fits(self, query: receipts.ReceiptQuery) -> bool:
        """Return whether the receipt matches a query, ignoring the limit."""
        wanted = query.run_id in (None, self.run_id) and query.session_id in (None, self.session_id)
        return wanted and (query.cursor is None or self.position > query.cursor)


class Index(Protocol):
    """Rows about runs, receipts and issues."""

    async def start(self) -> bool:
        """Bring the tables up to date; return whether they are new, so that all folders must be read again."""

    async def close(self) -> None:
        """Close the database."""

    async def put_run(self, run: IndexedRun) -> None:
        """Write a run's row, replacing an existing one."""

    async def apply(
        self, rows: Iterable[IndexedRun], moves: Iterable[runs.Transition], places: Iterable[ReceiptPlace]
    ) -> None:
        """Write rows, moves and receipts in one transaction; no move leaves a finished state."""

    async def flush(self) -> None:
        """Make written rows visible to other processes."""

    async def add_missing(self, found: Iterable[IndexedRun]) -> None:
        """Write the rows of runs that have none."""

    async def remove_run(self, run_id: str) -> None:
        """Remove a run's row."""

    async def move(self, transition: runs.Transition) -> bool:
        """Apply a move if the run is in a state that it may move from; return whether it was in one.

        A move out of a finished state is durable when this returns: the row may err towards unfinished only.
        """

    async def move_soon(self, transition: runs.Transition) -> None:
        """Apply a move, perhaps a moment later, if the run is in a state that allows it; none of those is finished."""

    async def set_owner(self, run_id: str, owner: str) -> None:
        """Record who continues a run from now on."""

    async def doubt(self, run_id: str) -> None:
        """Record durably that a run's labels or pin are about to change; the next service reads its folder."""

    async def relabel(self, run_id: str, labels: Mapping[str, str], *, pinned: bool) -> None:
        """Replace a run's labels and pin in its row, and remove the doubt."""

    async def get_run(self, run_id: str) -> IndexedRun | None:
        """Return a run's row."""

    async def find_key(self, idempotency_key: str) -> IndexedRun | None:
        """Return the run that a request with this key started."""

    async def find_busy(self, recipe_id: str) -> str | None:
        """Return an unfinished run of a recipe; foreign runs are ignored."""

    async def uncounted(self, behind: tuple[str, str] | None, limit: int) -> list[tuple[str, str]]:
        """Return creation time and id of the runs whose rows an earlier release wrote, newest first.

        Args:
            behind: Creation time and id of the last run of the previous page.
        """

    async def count_again(self, found: Iterable[IndexedRun]) -> None:
        """Complete rows of an earlier release with the sums of the journals; other rows are unchanged."""

    async def run_ids(self) -> set[str]:
        """Return the ids of all rows."""

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        """Return runs, newest first."""

    async def list_unfinished(self, key_prefix: str = "") -> list[stores.RunSummary]:
        """Return every unfinished run of any owner, oldest first.

        Args:
            key_prefix: Prefix of the idempotency keys of the runs; empty: all runs.
        """

    async def count_by_status(self) -> dict[str, int]:
        """Return how many runs are in each state that occurs."""

    @property
    def changes(self) -> int:
        """Return a number that grows whenever this process writes rows of runs."""

    async def totals(self, since: run_sums.Since, aside: Sequence[str]) -> run_sums.Totals:
        """Return counts of runs and sums of usage; the usage of the runs in `aside` is left out."""

    async def usage(
        self, query: run_sums.UsageQuery, aside: Sequence[str]
    ) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
        """Return sums of usage by name, and the total, without the runs in `aside`."""

    async def spent(self, query: spending.SpentQuery, aside: Sequence[str] = ()) -> spending.Spent:
        """Return the amounts that runs spent, read at one moment, without the runs in `aside`."""

    async def add_receipts(self, places: Iterable[ReceiptPlace]) -> None:
        """Store the positions of receipts."""

    async def find_receipt(self, receipt_id: str) -> ReceiptPlace | None:
        """Return the position of a receipt."""

    async def list_receipts(self, query: receipts.ReceiptQuery) -> list[ReceiptPlace]:
        """Return the positions of a page of receipts, in the order of sessions and files."""

    async def put_issues(self, found: Iterable[issues.IssueSummary], *, doubtful: bool = False) -> None:
        """Write rows of issues, replacing those of the same ids, and remove their marks.

        Args:
            doubtful: Whether unmarked rows are newer than these, and are kept.
        """

    async def mark_issue(self, issue_id: str) -> None:
        """Record durably that an issue's file is about to change."""

    async def remove_issues(self, issue_ids: Iterable[str]) -> None:
        """Remove rows of issues."""

    async def issue_rows(self) -> dict[str, bool]:
        """Return the ids of all issues with rows, each with whether its row is marked."""

    async def list_issues(self, query: issues.IssueQuery) -> list[issues.IssueSummary]:
        """Return issues, newest first."""

    async def add_orders(self, found: Iterable[RunOrder]) -> None:
        """Store orders to runs, perhaps a moment later; known ones are ignored."""

    async def list_orders(self, query: audit.AuditQuery) -> list[RunOrder]:
        """Return orders to runs behind the cursor of a query, newest first."""

    async def has_session(self, session_id: str) -> bool:
        """Return whether a run belongs to a work session."""

    async def clear(self) -> None:
        """Remove every row."""


def instant(text: str) -> str:
    """Return an instant in a form that sorts by time as text; other text is only shortened."""
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
        at: Time of its last move.
        name: Name of its folder, which is its id in the index.
        owner: Who continues it.
        facts: Sums of its journals; None: it has no journals.
        keyed: Whether its idempotency key is valid here; the key of a copy is not.
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
        # A key belongs to the run that used it first.
        idempotency_key=start.idempotency_key if keyed else None,
        request_sha256=start.request_sha256 if keyed else None,
        sums=facts.sums,
        orders=tuple(_starting(start, name)),
    )


def _starting(start: runs.RunStart, name: str) -> Iterator[RunOrder]:
    """Yield the order that started a run or made a session plan; the author of a plan is in its first revision."""
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
        internal: Whether session plans match as well, which no list shows.
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
    if query.failed_after is not None and not has_failed(run, instant(query.failed_after)):
        return False
    return query.cursor is None or age(run) < query.cursor


def is_finished(run: stores.RunSummary) -> bool:
    """Return whether a row shows its run as ended."""
    return states.RunState(run.status).finished


def is_unfinished(row: IndexedRun, key_prefix: str = "") -> bool:
    """Return whether a row shows its run as unfinished, and its idempotency key has a prefix."""
    return not is_finished(row.summary) and (row.idempotency_key or "").startswith(key_prefix)


def has_failed(run: stores.RunSummary, since: str) -> bool:
    """Return whether a run failed at or after an instant; one that a person's denial ended did not."""
    return run.status == states.RunState.FAILED and run.reason != gates.DENIED and (run.completed_at or "") >= since


def searched(run: stores.RunSummary) -> str:
    """Return the text of a run that searches examine, case-folded; no word spans two of its parts."""
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
