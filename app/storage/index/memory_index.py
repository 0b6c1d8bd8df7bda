"""The index in memory."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from app import clock
from app.domain import issues, receipts, runs, states
from app.domain.access import Scope
from app.domain.authors import RunOrder
from app.domain.usage_sums import UsageSum
from app.engine import run_sums, spending, stores
from app.storage.index import index_port, sums
from app.storage.index import spending as run_spending
from app.storage.index.index_port import IndexedRun, ReceiptPlace

if TYPE_CHECKING:
    from app.domain import audit

_ISSUE_FILTERS = ("status", "run_id", "session_id", "kind", "severity", "recipe_id")


class MemoryIndex:
    """`Index` over dictionaries."""

    def __init__(self) -> None:
        self._runs: dict[str, IndexedRun] = {}
        self._receipts: dict[str, ReceiptPlace] = {}
        self._issues: dict[str, tuple[issues.IssueSummary, bool]] = {}
        self._orders: dict[str, dict[tuple[str, int], RunOrder]] = {}
        self._doubted: set[str] = set()
        self._new = True
        self.changes = 0
        """Grows whenever rows are written."""

    def copy(self) -> MemoryIndex:
        """Return a separate index with the same rows."""
        twin = MemoryIndex()
        twin._runs = dict(self._runs)
        twin._receipts = dict(self._receipts)
        twin._issues = dict(self._issues)
        twin._orders = {run_id: dict(found) for run_id, found in self._orders.items()}
        twin._doubted = set(self._doubted)
        twin._new = self._new
        return twin

    async def start(self) -> bool:
        new, self._new = self._new, False
        return new

    async def close(self) -> None:
        """Do nothing; this index has no open files."""

    async def put_run(self, run: IndexedRun) -> None:
        self.changes += 1
        known = self._runs.get(run.summary.run_id)
        sums = known.sums if run.sums is None and known is not None else run.sums
        self._runs[run.summary.run_id] = dataclasses.replace(run, sums=sums, orders=())
        await self.add_orders(run.orders)

    async def apply(
        self, rows: Iterable[IndexedRun], moves: Iterable[runs.Transition], places: Iterable[ReceiptPlace]
    ) -> None:
        for row in rows:
            await self.put_run(row)
        for move in moves:
            await self.move(move)
        await self.add_receipts(places)

    async def flush(self) -> None:
        """Do nothing; no other process sees this index."""

    async def add_missing(self, found: Iterable[IndexedRun]) -> None:
        for run in found:
            if run.summary.run_id not in self._runs:
                await self.put_run(run)

    async def remove_run(self, run_id: str) -> None:
        self.changes += 1
        self._runs.pop(run_id, None)
        self._orders.pop(run_id, None)

    async def move(self, transition: runs.Transition) -> bool:
        run = self._runs.get(transition.run_id)
        if run is None or states.RunState(run.summary.status) not in transition.since:
            return False
        self.changes += 1
        self._runs[transition.run_id] = index_port.moved(run, transition)
        return True

    async def move_soon(self, transition: runs.Transition) -> None:
        await self.move(transition)

    async def set_owner(self, run_id: str, owner: str) -> None:
        if run := self._runs.get(run_id):
            self._runs[run_id] = dataclasses.replace(run, summary=dataclasses.replace(run.summary, owner=owner))

    async def doubt(self, run_id: str) -> None:
        self._doubted.add(run_id)

    async def relabel(self, run_id: str, labels: Mapping[str, str], *, pinned: bool) -> None:
        self.changes += 1
        if run := self._runs.get(run_id):
            summary = dataclasses.replace(run.summary, labels=dict(labels), pinned=pinned)
            self._runs[run_id] = dataclasses.replace(run, summary=summary)
        self._doubted.discard(run_id)

    async def get_run(self, run_id: str) -> IndexedRun | None:
        return self._runs.get(run_id)

    async def find_key(self, idempotency_key: str) -> IndexedRun | None:
        return next((run for run in self._runs.values() if run.idempotency_key == idempotency_key), None)

    async def find_busy(self, recipe_id: str) -> str | None:
        busy = self._matching(
            lambda run: not index_port.is_finished(run) and run.recipe_id == recipe_id and run.owner != "foreign"
        )
        return min(busy, key=index_port.age).run_id if busy else None

    async def uncounted(self, behind: tuple[str, str] | None, limit: int) -> list[tuple[str, str]]:
        # No earlier release writes to memory.
        doubted = (index_port.age(self._runs[run_id].summary) for run_id in self._doubted & self._runs.keys())
        return sorted((age for age in doubted if behind is None or age < behind), reverse=True)[:limit]

    async def count_again(self, found: Iterable[IndexedRun]) -> None:
        for run in found:
            if run.summary.run_id in self._doubted:
                await self.relabel(run.summary.run_id, run.summary.labels, pinned=run.summary.pinned)
                await self.add_orders(run.orders)

    async def run_ids(self) -> set[str]:
        return set(self._runs)

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        return sorted(self._matching(lambda run: index_port.fits(run, query)), key=index_port.age, reverse=True)[
            : query.limit
        ]

    async def list_unfinished(self, key_prefix: str = "") -> list[stores.RunSummary]:
        unfinished = (run.summary for run in self._runs.values() if index_port.is_unfinished(run, key_prefix))
        return sorted(unfinished, key=index_port.age)

    async def count_by_status(self) -> dict[str, int]:
        shown = (run.summary for run in self._runs.values() if not clock.is_internal(run.summary.run_id))
        return dict(Counter(summary.status for summary in shown))

    async def totals(self, since: run_sums.Since, aside: Sequence[str]) -> run_sums.Totals:
        shown = self._matching(lambda run: not clock.is_internal(run.run_id) and _covered(run, since.scope))
        return run_sums.Totals(
            by_status=Counter(run.status for run in shown),
            parked=sum(run.status == states.RunState.PAUSED and run.error_code is not None for run in shown),
            failed=sum(index_port.has_failed(run, since.failed) for run in shown),
            created=sum(run.created_at >= since.today for run in shown),
            usage=sums.since((parts for run, parts in self._costs(aside) if _covered(run, since.scope)), since.today),
        )

    async def usage(
        self, query: run_sums.UsageQuery, aside: Sequence[str]
    ) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
        return sums.in_memory(self._costs(aside), query)

    async def spent(self, query: spending.SpentQuery, aside: Sequence[str] = ()) -> spending.Spent:
        return run_spending.in_memory(self._costs(aside), query)

    def _costs(self, aside: Sequence[str]) -> Iterator[tuple[stores.RunSummary, Sequence[UsageSum]]]:
        return ((run.summary, run.sums or ()) for run_id, run in self._runs.items() if run_id not in aside)

    async def add_receipts(self, places: Iterable[ReceiptPlace]) -> None:
        self._receipts.update({place.receipt_id: place for place in places})

    async def find_receipt(self, receipt_id: str) -> ReceiptPlace | None:
        return self._receipts.get(receipt_id)

    async def list_receipts(self, query: receipts.ReceiptQuery) -> list[ReceiptPlace]:
        found = [
            place for place in self._receipts.values() if place.fits(query) and self._covers(query.scope, place.run_id)
        ]
        return sorted(found, key=lambda place: place.position)[: query.limit]

    async def put_issues(self, found: Iterable[issues.IssueSummary], *, doubtful: bool = False) -> None:
        for summary in found:
            if not doubtful or self._issues.get(summary.issue_id, (summary, True))[1]:
                self._issues[summary.issue_id] = (summary, False)

    async def mark_issue(self, issue_id: str) -> None:
        if issue_id in self._issues:
            self._issues[issue_id] = (self._issues[issue_id][0], True)

    async def remove_issues(self, issue_ids: Iterable[str]) -> None:
        for issue_id in issue_ids:
            self._issues.pop(issue_id, None)

    async def issue_rows(self) -> dict[str, bool]:
        return {issue_id: marked for issue_id, (_, marked) in self._issues.items()}

    async def list_issues(self, query: issues.IssueQuery) -> list[issues.IssueSummary]:
        found = [
            summary
            for summary, _ in self._issues.values()
            if _is_asked_for(summary, query) and self._covers(query.scope, summary.run_id)
        ]
        return sorted(found, key=_age_of_issue, reverse=True)[: query.limit]

    async def add_orders(self, found: Iterable[RunOrder]) -> None:
        for order in found:
            self._orders.setdefault(order.run_id, {})[order.file, order.line] = order

    async def list_orders(self, query: audit.AuditQuery) -> list[RunOrder]:
        found = (order for orders in self._orders.values() for order in orders.values() if query.covers(order))
        return sorted(found, key=lambda order: order.place, reverse=True)[: query.limit]

    async def has_session(self, session_id: str) -> bool:
        return any(run.summary.session_id == session_id for run in self._runs.values())

    async def clear(self) -> None:
        self._runs.clear()
        self._receipts.clear()
        self._issues.clear()
        self._orders.clear()

    def _covers(self, scope: Scope | None, run_id: str | None) -> bool:
        run = self._runs.get(run_id or "")
        return scope is None or (run is not None and _covered(run.summary, scope))

    def _matching(self, fits: Callable[[stores.RunSummary], bool]) -> list[stores.RunSummary]:
        return [run.summary for run in self._runs.values() if fits(run.summary)]


def _covered(run: stores.RunSummary, scope: Scope | None) -> bool:
    return scope is None or scope.covers(run.recipe_id, run.labels)


def _is_asked_for(issue: issues.IssueSummary, query: issues.IssueQuery) -> bool:
    wanted = {name: getattr(query, name) for name in _ISSUE_FILTERS}
    behind = query.cursor is None or _age_of_issue(issue) < query.cursor
    return behind and all(value is None or getattr(issue, name) == value for name, value in wanted.items())


def _age_of_issue(issue: issues.IssueSummary) -> tuple[str, str]:
    return issue.created_at, issue.issue_id
