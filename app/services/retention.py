"""Retention: removes finished runs by age, state, label and size; pinned and needed runs are kept."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app import clock, errors, printable
from app.domain import authors, retention, shapes, states
from app.engine import aio, document_folders, stores
from app.services import faults
from app.services.runs import Runs

MOST_RUNS = 1000  # Most runs that one order removes, oldest first.
PAUSE_SECONDS = 3600.0  # Time between two applications of the policy.
MOST_RULES = 100  # Most rules of a policy.
FOLDER = "retention"  # Folder of the policy in the data directory.

POLICY = authors.Author(name="retention policy", claimed=False, via="local")
"""Author of removals by the policy."""

_POLICY = "policy"
_SIZED_AT_ONCE = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPruned(shapes.Shape):
    """A run that a rule removes."""

    run_id: shapes.RunId  # The run.
    status: states.RunState  # Its state.
    completed_at: shapes.Instant | None  # Time at which the run ended.
    size_bytes: int  # Size of its folder.
    why: str  # Reason for its removal.


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport(shapes.Shape):
    """Runs that a rule removes, or has removed."""

    dry_run: bool  # Whether the runs were only listed.
    matched: int  # Runs that the rule removes, at most the 1,000 oldest at a time.
    more: bool  # Whether further runs remain for another order.
    size_bytes: int  # Total size of their folders.
    runs: Sequence[RunPruned]  # The runs, oldest first.
    kept: Mapping[str, int]
    """Runs that the rule would remove except for a reason: `pinned`, `needed` by an unfinished run, `damaged`, or
    `copied` here, by an import or by hand.
    """
    removed: int  # Runs that were removed.
    refused: Mapping[str, str]  # Why a run could not be removed, by its id.


class Retention:
    """Removes finished runs."""

    def __init__(
        self, runs: Runs, store: stores.RunStore, kept: document_folders.Documents, clock: clock.Clock
    ) -> None:
        self._runs = runs
        self._store = store
        self._documents = kept
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    async def prune(
        self,
        rule: retention.Rule,
        *,
        dry_run: bool,
        expected: int | None = None,
        author: authors.Author | None = None,
    ) -> PruneReport:
        """Remove the runs that match a rule, or only list them.

        Args:
            expected: Number of runs that the caller has seen; None: any number.

        Raises:
            errors.Conflict: `bulk_count_differs`, another number matches; no run was removed.
        """
        with faults.as_errors():
            found, kept, more = await self._examined(rule)
        if expected is not None and expected != len(found):
            message = f"{printable.counted(len(found), 'run')} found, not {expected} as expected; nothing was removed"
            facts = {"matched": len(found), "expected": expected}
            raise errors.Conflict(message, code="bulk_count_differs", detail=facts)
        refused = {} if dry_run else await self._removed(found, author)
        return PruneReport(
            dry_run=dry_run,
            matched=len(found),
            more=more,
            size_bytes=sum(run.size_bytes for run in found),
            runs=found,
            kept=kept,
            removed=0 if dry_run else len(found) - len(refused),
            refused=refused,
        )

    async def policy(self) -> retention.Policy:
        """Return the policy.

        Raises:
            errors.Conflict: `retention_damaged`, its file contains none.
        """
        with faults.as_errors():
            found = await self._documents.read_all()
        document = None if _POLICY in found.damaged else found.documents.get(_POLICY, {"rules": []})
        try:
            return retention.Policy.of(document)
        except errors.RequestInvalid as error:
            why = "it is not a JSON object" if document is None else error.message
            message = (
                f"{FOLDER}/{_POLICY}.json is not a retention policy ({why}); set the policy anew, or remove the file"
            )
            raise errors.Conflict(message, code="retention_damaged") from error

    async def set_policy(self, policy: retention.Policy, author: authors.Author | None = None) -> retention.Policy:
        """Replace the policy.

        Raises:
            errors.WriteFailed: it cannot be written.
        """
        with faults.as_errors():
            # The audit line first: after a crash in between, the list shows a change without an effect. The other order
            # could leave a change without an author.
            await self._store.audit.append(author, "retention.changed", _POLICY, {"rules": len(policy.rules)})
            await self._documents.put(_POLICY, policy.to_json())
        return policy

    async def apply(self) -> int:
        """Remove the runs that match the policy's rules now, and return their number."""
        removed = 0
        for rule in (await self.policy()).rules:
            removed += (await self.prune(rule, dry_run=False, author=POLICY)).removed
        return removed

    def start(self) -> None:
        """Apply the policy once an hour from now on, unless that is already started."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="retention")

    async def stop(self) -> None:
        """Stop, and wait for the end."""
        task, self._task = self._task, None
        if task is not None:
            await aio.end(task)

    async def _work(self) -> None:
        while True:
            await self._clock.sleep(PAUSE_SECONDS)
            try:
                if removed := await self.apply():
                    _log.info("retention removed %s runs", removed)
            except (errors.ControlRoomError, errors.Fault) as error:
                _log.error("retention was not applied: %s", error.message, extra={"code": error.code})

    async def _examined(self, rule: retention.Rule) -> tuple[list[RunPruned], dict[str, int], bool]:
        reasons = await self._meant(rule)
        needed, kept = await self._needed(), Counter[str]()
        found: list[RunPruned] = []
        # The oldest are removed first.
        for row, why in reversed(reasons):
            if len(found) == MOST_RUNS:
                return await self._sized(found), dict(kept), True
            reason = "needed" if _is_needed(row, needed) else await self._spared(row)
            if reason is not None:
                kept[reason] += 1
                continue
            status = states.RunState(row.status)
            found.append(
                RunPruned(run_id=row.run_id, status=status, completed_at=row.completed_at, size_bytes=0, why=why)
            )
        return await self._sized(found), dict(kept), False

    async def _meant(self, rule: retention.Rule) -> list[tuple[stores.RunSummary, str]]:
        """Return the runs that are too old or too many, newest first, each with the reason."""
        rows = await self._matching(rule)
        found = []
        room = rule.keep_bytes
        for begin in range(0, len(rows), _SIZED_AT_ONCE):
            portion = rows[begin : begin + _SIZED_AT_ONCE]
            sizes = {} if room is None else await self._sizes([row.run_id for row in portion])
            for row in portion:
                # Newer runs use the allowed size up, so the older ones exceed it.
                used = 0 if row.owner == "foreign" else sizes.get(row.run_id, 0)
                room = None if room is None else room - used
                if (why := self._why(rule, row, room)) is not None:
                    found.append((row, why))
        return found

    async def _matching(self, rule: retention.Rule) -> list[stores.RunSummary]:
        label = next(iter(rule.labels.items()), None)
        query = stores.RunQuery(status=rule.status, recipe_id=rule.recipe_id, label=label)
        rows = [
            row
            async for row in stores.every_run(self._store, query)
            if row.unreadable is None and rule.labels.items() <= dict(row.labels).items()
        ]
        return sorted(rows, key=lambda row: (row.completed_at or "", row.run_id), reverse=True)

    def _why(self, rule: retention.Rule, row: stores.RunSummary, room: int | None) -> str | None:
        if rule.older_than_seconds is not None and row.completed_at is not None:
            age = self._clock.now() - clock.instant(row.completed_at)
            if age.total_seconds() >= rule.older_than_seconds:
                return f"it ended {age.days} days ago" if age.days else "it is older than the rule allows"
        if room is not None and room < 0:
            return f"newer runs fill {rule.keep_bytes} bytes"
        return None

    async def _needed(self) -> frozenset[str]:
        """Return the ids of unfinished runs, of their parents, and of the sessions of unfinished plans."""
        # The replay of a parent requests the results of its children, and a plan those of its tasks: these must be kept
        # until the parent or plan has ended.
        waiting = tuple(state.value for state in states.RunState if not state.finished)
        names: set[str] = set()
        # Plans are runs, too, which ordinary lists do not show.
        for internal in (False, True):
            query = stores.RunQuery(status=waiting, internal=internal)
            async for row in stores.every_run(self._store, query):
                names |= {row.run_id, row.parent_run_id or row.run_id} | ({row.session_id} if internal else set())
        return frozenset(names)

    async def _spared(self, row: stores.RunSummary) -> str | None:
        if row.owner == "foreign":
            return "copied"
        try:
            return "pinned" if (await self._store.read(row.run_id)).start.pinned else None
        except errors.NotFound:
            return "needed"
        except (errors.JournalCorrupt, errors.Unreadable):
            # A damaged run may be worth a repair, and its pin is unreadable.
            return "damaged"

    async def _sized(self, found: list[RunPruned]) -> list[RunPruned]:
        sizes: dict[str, int] = {}
        for begin in range(0, len(found), _SIZED_AT_ONCE):
            sizes |= await self._sizes([run.run_id for run in found[begin : begin + _SIZED_AT_ONCE]])
        return [
            RunPruned(
                run_id=run.run_id,
                status=run.status,
                completed_at=run.completed_at,
                size_bytes=sizes.get(run.run_id, 0),
                why=run.why,
            )
            for run in found
        ]

    async def _sizes(self, run_ids: Sequence[str]) -> dict[str, int]:
        return await self._store.maintenance.sizes(run_ids)

    async def _removed(self, found: Sequence[RunPruned], author: authors.Author | None) -> dict[str, str]:
        refused: dict[str, str] = {}
        for run in found:
            try:
                # The deletion checks the pin again: a person may have pinned the run since it was examined.
                await self._runs.delete(run.run_id, author, spare_pinned=True)
            except errors.NotFound:
                continue
            except (errors.ControlRoomError, errors.Fault) as error:
                refused[run.run_id] = error.message
        return refused


def _is_needed(row: stores.RunSummary, needed: frozenset[str]) -> bool:
    return bool({row.run_id, row.parent_run_id or row.run_id, row.session_id} & needed)
