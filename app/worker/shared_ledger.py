"""The shared ledger: counts budgets from the journals for each call, in one process at a time."""

# A turn lasts until the call's `started` line, which contains the reservation, is durable. So a process that counts
# sees every call that other processes have begun, and two processes never reserve the same remainder.

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from app import clock
from app.domain import budgets, operations, usage_sums
from app.domain.limits import RunLimits
from app.domain.usage_sums import Reserved, UsageSum, UsageTally
from app.engine import shared_turns, spending, stores
from app.worker.accounts import Account
from app.worker.ledger import Ledger
from app.worker.reservations import Reservation

WAIT_SECONDS = 5.0  # How long a call waits for room before its run is paused; the run continues when there is room.

_POLL_SECONDS = 0.5
_JOURNALS_KNOWN = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Journal:
    version: object
    limits: RunLimits
    sums: tuple[UsageSum, ...]
    uncharged: Mapping[tuple[str, int], Reserved]
    under_way: frozenset[tuple[str, int]]

    @classmethod
    def of(cls, version: object, loaded: stores.Loaded) -> _Journal:
        decided = loaded.decisions
        # Only the newest attempt of a step is under way.
        newest = {(key, decided.highest_attempt[key]) for key in decided.attempts}
        goes_on = decided.ended is None and decided.paused is None
        return cls(
            version=version,
            limits=loaded.limits,
            sums=tuple(UsageTally(loaded.records, decided.reserved).sums()),
            uncharged=usage_sums.uncharged(decided.reserved, loaded.records),
            under_way=frozenset(newest) if goes_on else frozenset(),
        )


class SharedLedger(Ledger):
    """Keeps the calls that all processes make within the limits of runs and the budgets of the project."""

    def __init__(
        self,
        store: spending.SpendingStore,
        quote: Callable[[operations.Operation], spending.Quote],
        time: clock.Clock,
        shared: shared_turns.SharedTurns,
    ) -> None:
        super().__init__(store, quote, time)
        self._shared = shared
        self._turn = asyncio.Lock()
        self._journals: OrderedDict[str, _Journal] = OrderedDict()

    async def reserve(self, loaded: stores.Loaded, key: str, operation: operations.Operation) -> Reservation:
        """Reserve for a call that fits; `Parked` is raised if it does not for some seconds."""
        start, quote = loaded.start, self._quote(operation)
        if not self._is_limited(loaded):
            return self._unlimited(start.run_id, key, quote)
        # Bounded: another process may keep its turn, and the call must not wait without end.
        chain, until = await self._chain(start.run_id), self._clock.monotonic() + WAIT_SECONDS
        while True:
            release = await self._acquire_turn()
            try:
                verdict = await self._verdict(chain, key, quote)
                if verdict.fits:
                    return verdict.reservation(self, start.run_id, key, quote, release)
            except BaseException:
                release()
                raise
            # The turn is released before the wait, so that other processes can reserve meanwhile.
            release()
            if not verdict.may_fit_later or self._clock.monotonic() > until:
                raise verdict.exhausted(key, self._clock)
            with self._shown_behind(verdict.ahead(chain, key), start.run_id, key):
                await self._clock.sleep(_POLL_SECONDS)

    def accounts(self, run_id: str) -> Iterator[Account]:
        """Yield nothing: the accounts are created for each call."""
        return iter(())

    async def standing(self, budget: budgets.Budget) -> budgets.BudgetState:
        """Return the state of a budget."""
        self._count_anew()
        return await super().standing(budget)

    def shown(self, run_id: str) -> None:
        """Return None: the accounts in memory were counted for an earlier call."""

    async def has_room(self, loaded: stores.Loaded) -> bool:
        """Return whether the call for which a parked run waits fits now."""
        verdict = await self._verdict_of_parked(loaded)
        # A continued run waits only for some seconds, and must not be paused again and again.
        return verdict is None or verdict.fits

    async def _acquire_turn(self) -> Callable[[], None]:
        # Only one caller in a process waits for other processes.
        await self._turn.acquire()
        try:
            lock = await self._shared.turn()
        except BaseException:
            self._turn.release()
            raise
        # The list is emptied, so a second release does nothing.
        releases = [lock.release, self._turn.release]

        def release() -> None:
            while releases:
                releases.pop(0)()

        return release

    async def _counted(self, chain: list[str]) -> list[Account]:
        await self._know_limits(chain[1:])
        self._count_anew()
        return await super()._counted(chain)

    async def _know_limits(self, above: list[str]) -> None:
        # Since they were read, a person may have changed them through another process.
        versions = await self._shared.versions(above) if above else {}
        for run_id in above:
            journal, known = await self._journal(run_id, versions.get(run_id)), self._known.get(run_id)
            if journal is not None and known is not None:
                self._known[run_id] = dataclasses.replace(known, limits=journal.limits)

    def _count_anew(self) -> None:
        self._runs.clear()
        self._budgets = {name: (budget, Account.of_budget(budget)) for name, (budget, _) in self._budgets.items()}

    async def _count(self, account: Account) -> None:
        unfinished = await self._add_finished(account)
        # Read before the journals, so that a cached journal is never older than its version.
        versions = await self._shared.versions(list(unfinished))
        for run_id, parts in unfinished.items():
            journal = await self._journal(run_id, versions.get(run_id))
            if journal is None:
                account.add(parts)
                continue
            account.add(journal.sums)
            for (key, attempt), reserved in journal.uncharged.items():
                account.hold((run_id, key, attempt), reserved, is_open=(key, attempt) in journal.under_way)
        account.count()

    async def _journal(self, run_id: str, version: object) -> _Journal | None:
        journal = self._journals.get(run_id)
        # A journal that has grown has another version.
        if journal is None or journal.version != version:
            loaded = await self._loaded(run_id)
            if loaded is None:
                return None
            journal = self._journals[run_id] = _Journal.of(version, loaded)
        self._journals.move_to_end(run_id)
        if len(self._journals) > _JOURNALS_KNOWN:
            self._journals.popitem(last=False)
        return journal
