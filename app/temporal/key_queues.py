"""Key queues: which unfinished runs hold a concurrency key, and in what order the others wait for it.

Only the journals show who holds a key: a run does from its `taken` line to its end. The rows only show who waits.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field

from app import errors
from app.domain import states
from app.engine import concurrency_keys, shared_turns, stores

_UNFINISHED = tuple(state.value for state in states.RunState if not state.finished)
_JOURNALS_KNOWN = 10_000

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class KeyQueue:
    """The unfinished runs of one key at one moment."""

    key: str  # The key.
    keys: concurrency_keys.ConcurrencyKeys = field(default_factory=concurrency_keys.ConcurrencyKeys)  # Its holders.
    rows: list[stores.RunSummary] = field(default_factory=list)  # The unfinished runs, oldest first.
    ancestors: dict[str, frozenset[str]] = field(default_factory=dict)  # Ancestors of each run.

    def obstacle(self, asking: stores.RunSummary) -> tuple[str | None, int]:
        """Return the run that keeps another from the key, or None; and the number of runs that wait before it."""
        before = [row for row in self._line() if row.run_id != asking.run_id and _turn(row) < _turn(asking)]
        for row in before:
            self._begins(row)
        return self._obstacle(asking), len(before)

    def next(self) -> list[str]:
        """Return the queued runs that may begin now."""
        return [row.run_id for row in self._line() if self._begins(row)]

    def superseded(self, newer: stores.RunSummary, *, running: bool) -> set[str]:
        """Return the runs that a newer one cancels."""
        age = age_of(newer)
        waiting = {row.run_id for row in self.rows if age_of(row) < age and not self.keys.holds(row.run_id)}
        return self.keys.superseded(self.key, age, waiting, running=running) - self.ancestors[newer.run_id]

    def _line(self) -> list[stores.RunSummary]:
        # Runs that have not asked yet block no other run, since it is unknown whether they will ask.
        pending = [
            row
            for row in self.rows
            if row.status == states.RunState.PENDING and row.reason == concurrency_keys.CONCURRENCY
        ]
        return sorted((row for row in pending if not self.keys.holds(row.run_id)), key=_turn)

    def _obstacle(self, row: stores.RunSummary) -> str | None:
        above = self.ancestors[row.run_id]
        return self.keys.obstacle(self.key, row.concurrency_limit or 1, row.run_id, above)

    def _begins(self, row: stores.RunSummary) -> bool:
        if begins := self._obstacle(row) is None:
            self.keys.hold(self.key, row.run_id, age_of(row))
        return begins


class KeyQueues:
    """Reads the queues of keys from the store."""

    def __init__(self, store: stores.RunStore) -> None:
        self._store = store
        self._holds: OrderedDict[str, tuple[object, bool]] = OrderedDict()
        self.turns: shared_turns.SharedTurns | None = None
        """Coordinates the processes that share the store; None: there is only one process."""

    async def of(self, key: str, asking: stores.RunSummary | None = None) -> KeyQueue:
        """Return the queue of a key.

        Args:
            asking: Run to include in the queue.

        Raises:
            errors.StorageFault: the rows cannot be read now.
        """
        query = stores.RunQuery(concurrency_key=key, status=_UNFINISHED)
        found = {row.run_id: row async for row in stores.every_run(self._store, query) if row.owner == "service"}
        found |= {} if asking is None else {asking.run_id: asking}
        line = KeyQueue(key=key, rows=sorted(found.values(), key=age_of))
        # Read before the journals, so that a kept result is never older than its version.
        versions = await self.turns.versions(list(found)) if self.turns is not None else {}
        above: dict[str | None, frozenset[str]] = {}
        for row in line.rows:
            if await self._is_holder(row.run_id, versions.get(row.run_id)):
                line.keys.hold(key, row.run_id, age_of(row))
            if (parent := row.parent_run_id) not in above:
                above[parent] = await stores.ancestors(self._store, parent)
            line.ancestors[row.run_id] = above[parent]
        return line

    async def _is_holder(self, run_id: str, version: object) -> bool:
        known = self._holds.get(run_id)
        if known is None or version is None or known[0] != version:
            try:
                decided = (await self._store.read(run_id)).decisions
            except (errors.NotFound, errors.JournalCorrupt) as error:
                # A damaged run writes nothing, so it holds nothing.
                _log.error("it holds no key: %s", error.message, extra={"run_id": run_id})
                return False
            except errors.Unreadable:
                # Whether the run holds its key is unknown, so no other run gets the key meanwhile.
                return True
            known = self._holds[run_id] = version, decided.taken_since_resume and decided.ended is None
        self._holds.move_to_end(run_id)
        if len(self._holds) > _JOURNALS_KNOWN:
            self._holds.popitem(last=False)
        return known[1]


def age_of(row: stores.RunSummary) -> concurrency_keys.Age:
    """Return the age of a run."""
    return row.created_at, row.run_id


def _turn(row: stores.RunSummary) -> tuple[int, str, str]:
    return -row.priority, *age_of(row)
