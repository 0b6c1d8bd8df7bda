"""The ledger: reserves and charges calls of agents in the accounts of runs and budgets, rebuilt from the journals."""

# The ledger does not survive a crash. The journals are the authority: the `started` line of a call has its reserved
# amounts, its record the usage, and a call without a record counts with the reserved amounts. Accounts are created at
# their first use: from rows for ended runs, and for the others from journals, which may be ahead of rows.

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app import clock, errors
from app.domain import budgets, operations, runs
from app.domain.limits import RunLimits
from app.domain.usage_sums import Reserved, UsageSum
from app.engine import aio, spending, stores
from app.worker.accounts import Account, Need
from app.worker.reservations import Reservation, ReservationVerdict, need_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    parent_run_id: str | None
    recipe_id: str
    session_id: str
    labels: Mapping[str, str]
    limits: RunLimits

    @classmethod
    def of(cls, start: runs.RunStart, in_force: RunLimits) -> _Known:
        return cls(
            parent_run_id=start.parent_run_id,
            recipe_id=start.recipe_id,
            session_id=start.session_id,
            labels=start.labels,
            limits=in_force,
        )


class Ledger:
    """Keeps the calls of agents within the limits of runs and the budgets of the project: `spending.Spending`.

    Args:
        quote: Returns the expected tokens and cost of a call, as far as they are known.
    """

    def __init__(
        self, store: spending.SpendingStore, quote: Callable[[operations.Operation], spending.Quote], time: clock.Clock
    ) -> None:
        self._store = store
        self._quote = quote
        self._clock = time
        self._known: dict[str, _Known] = {}
        self._runs: dict[str, Account] = {}
        self._budgets: dict[str, tuple[budgets.Budget, Account]] = {}
        # A run that has ended stays known until all its descendants have ended: their calls count in its accounts and
        # in the budgets that cover it.
        self._below: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._waiting: dict[tuple[str, str], spending.Ahead] = {}
        self._counting = aio.KeyedLock()
        self._changed = aio.LightEvent()

    # -- what limits

    def forget(self, run_id: str) -> None:
        """Drop a run that has ended, once none of its descendants makes calls any more."""
        self._ended.add(run_id)
        above: str | None = run_id
        # Upwards, since an ended ancestor may have waited for this run alone.
        while above is not None and above in self._ended and not self._below[above]:
            self._ended.discard(above)
            self._below.pop(above, None)
            self._runs.pop(above, None)
            facts = self._known.pop(above, None)
            above = None if facts is None else facts.parent_run_id
            if above is not None:
                self._below[above] -= 1

    def _know(self, loaded: stores.Loaded) -> None:
        start = loaded.start
        if start.run_id not in self._known and start.parent_run_id is not None:
            self._below[start.parent_run_id] += 1
        self._known[start.run_id] = _Known.of(start, loaded.limits)

    def limit(self, run_id: str, in_force: RunLimits) -> None:
        if (facts := self._known.get(run_id)) is not None:
            self._known[run_id] = dataclasses.replace(facts, limits=in_force)
        if (account := self._runs.get(run_id)) is not None:
            account.limits = in_force
        self.wake_waiting()

    def set_budgets(self, new_budgets: Iterable[budgets.Budget]) -> None:
        by_name = {budget.name: budget for budget in new_budgets}
        accounts = {}
        for name, budget in by_name.items():
            before, account = self._budgets.get(name, (None, None))
            # A budget with another period or other runs is counted anew; new limits alone keep the account.
            same = before is not None and dataclasses.replace(before, limits=budget.limits) == budget
            if account is None or not same:
                account = Account.of_budget(budget)
            account.limits = budget.limits
            accounts[name] = budget, account
        self._budgets = accounts
        # A call that did not fit may fit now.
        self.wake_waiting()

    # -- reserve

    async def reserve(self, loaded: stores.Loaded, key: str, operation: operations.Operation) -> Reservation:
        start, quote = loaded.start, self._quote(operation)
        if not self._is_limited(loaded):
            return self._unlimited(start.run_id, key, quote)
        chain = await self._chain(start.run_id)
        while not (verdict := await self._verdict(chain, key, quote)).fits:
            if not verdict.may_fit_later:
                raise verdict.exhausted(key, self._clock)
            # Cleared after the verdict and before the wait, without an await between them: no change is lost.
            self._changed.clear()
            with self._shown_behind(verdict.ahead(chain, key), start.run_id, key):
                await self._changed.wait()
        reservation = verdict.reservation(self, start.run_id, key, quote)
        need = verdict.need
        reserved = Reserved(at=clock.stamp(self._clock.now()), tokens=need.tokens, cost_usd=need.cost_usd)
        for account in verdict.accounts:
            account.hold(reservation.call, reserved)
        return reservation

    @contextlib.contextmanager
    def _shown_behind(self, ahead: spending.Ahead | None, run_id: str, key: str) -> Iterator[None]:
        if ahead is not None:
            self._waiting[run_id, key] = ahead
        try:
            yield
        finally:
            self._waiting.pop((run_id, key), None)

    def _is_limited(self, loaded: stores.Loaded) -> bool:
        start = loaded.start
        self._know(loaded)
        self._ended.discard(start.run_id)
        return bool(self._budgets or start.parent_run_id is not None or budgets.limits_money(loaded.limits))

    def _unlimited(self, run_id: str, key: str, quote: spending.Quote) -> Reservation:
        return Reservation(self, (run_id, key, 0), cap_usd=quote.cost_usd if quote.is_capped else None)

    async def _verdict(self, chain: list[str], key: str, quote: spending.Quote) -> ReservationVerdict:
        accounts = await self._counted(chain)
        need, cap = need_of(quote, accounts, self._clock)
        return ReservationVerdict.of(chain, key, accounts, need, self._clock, cap)

    async def _chain(self, run_id: str) -> list[str]:
        """Return a run and its ancestors, as far as they can be read."""
        chain = [run_id]
        while (parent := self._known[chain[-1]].parent_run_id) is not None and parent not in chain:
            if parent not in self._known:
                try:
                    loaded = await self._store.read(parent)
                except (errors.ControlRoomError, errors.StorageFault) as error:
                    _log.warning("limits above not read: %s", error.message, extra={"run_id": parent})
                    # A limit that is not enforced is better than a run that cannot continue because of another folder.
                    break
                self._know(loaded)
                if loaded.decisions.ended is not None:
                    self._ended.add(parent)
            chain.append(parent)
        return chain

    async def _counted(self, chain: list[str]) -> list[Account]:
        limiting = self._limiting(chain)
        for account in limiting:
            await self._make_sure(account)
        return limiting

    async def _make_sure(self, account: Account) -> None:
        if not account.is_counted:
            async with self._counting.of(id(account)):
                if not account.is_counted:
                    account.begin()
                    await self._count(account)

    def _limiting(self, chain: list[str]) -> list[Account]:
        limiting = []
        for run_id in chain:
            # A parked run may end while its ancestors are read.
            facts = self._known.get(run_id)
            if facts is not None and run_id not in self._runs and budgets.limits_money(facts.limits):
                self._runs[run_id] = Account.of_run(run_id, facts.limits)
            if run_id in self._runs:
                limiting.append(self._runs[run_id])
        covering = self._budgets.values()
        return limiting + [each for budget, each in covering if any(self._is_covered(budget, one) for one in chain)]

    def _is_covered(self, budget: budgets.Budget, run_id: str) -> bool:
        facts = self._known.get(run_id)
        return facts is not None and budget.covers(facts.recipe_id, facts.labels, facts.session_id)

    async def _count(self, account: Account) -> None:
        for run_id, parts in (await self._add_finished(account)).items():
            loaded = await self._loaded(run_id)
            account.add(parts) if loaded is None else account.add_journal(run_id, loaded)
        account.count()

    async def _add_finished(self, account: Account) -> dict[str, tuple[UsageSum, ...]]:
        """Add the amounts that ended runs spent, and return the other runs with the sums from their rows."""
        spent = await self._store.spent(account.query(self._clock.now()))
        account.add(spent.finished)
        unfinished = dict(spent.unfinished)
        if (run_id := account.name.get("run_id")) is not None:
            unfinished.setdefault(run_id, ())
        return unfinished

    async def _loaded(self, run_id: str) -> stores.Loaded | None:
        try:
            return await self._store.read(run_id)
        except (errors.ControlRoomError, errors.StorageFault) as error:
            _log.warning("spending taken from its row: %s", error.message, extra={"run_id": run_id})
            return None

    # -- charge

    def accounts(self, run_id: str) -> Iterator[Account]:
        """Yield the accounts in which calls of a run count, as far as they exist."""
        above: str | None = run_id
        chain: list[str] = []
        while above is not None and above in self._known and above not in chain:
            chain.append(above)
            above = self._known[above].parent_run_id
        for each in chain or [run_id]:
            if each in self._runs:
                yield self._runs[each]
        for budget, account in self._budgets.values():
            if any(self._is_covered(budget, each) for each in chain):
                yield account

    def wake_waiting(self) -> None:
        self._changed.set()

    # -- show

    def ahead(self, run_id: str, key: str) -> spending.Ahead | None:
        return self._waiting.get((run_id, key))

    def shown(self, run_id: str) -> budgets.BudgetState | None:
        account = self._runs.get(run_id)
        return account.state(self._clock.now()) if account is not None and account.is_counted else None

    async def counted(self, run_id: str, in_force: RunLimits) -> budgets.BudgetState:
        if (state := self.shown(run_id)) is not None:
            return state
        account = Account.of_run(run_id, in_force)
        await self._count(account)
        return account.state(self._clock.now())

    async def standing(self, budget: budgets.Budget) -> budgets.BudgetState:
        # The budget may have been removed while the previous one was counted.
        _, account = self._budgets.get(budget.name) or (budget, Account.of_budget(budget))
        await self._make_sure(account)
        return account.state(self._clock.now())

    async def has_room(self, loaded: stores.Loaded) -> bool:
        verdict = await self._verdict_of_parked(loaded)
        return verdict is None or verdict.lacking is None

    async def _verdict_of_parked(self, loaded: stores.Loaded) -> ReservationVerdict | None:
        error = loaded.decisions.pause_error or {}
        detail = error.get("detail")
        needed = detail.get("needed") if isinstance(detail, dict) else None
        if not isinstance(needed, dict):
            return None
        need = Need(tokens=_amount(needed.get("tokens")), cost_usd=_amount(needed.get("cost_usd")))
        self._know(loaded)
        chain = await self._chain(loaded.start.run_id)
        return ReservationVerdict.of(chain, str(error.get("key")), await self._counted(chain), need, self._clock)


def _amount(value: object) -> Any:
    # The error of a parked run comes from its journal, which a person may have edited.
    return value if isinstance(value, int | float) else None
