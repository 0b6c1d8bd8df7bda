"""The ledger: reserves and settles calls of agents in the accounts of runs and budgets, made anew from the journals."""

# Nothing here survives a crash. The truth is in the journals: the `started` line of a call holds its reserved amounts,
# its record the usage, and a call without a record counts with the reserved amounts. Accounts are made at their first
# use: of ended runs from their rows, of the others from their journals, which rows may lag behind.

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from app import clock, errors
from app.domain import budgets, operations, plain, records, runs
from app.domain.limits import RunLimits
from app.domain.usage_sums import Reserved
from app.engine import aio, equipment, spending, stores
from app.worker import reserving
from app.worker.accounts import Account, Call, Need

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
    """Keep the calls of agents within the limits of runs and the budgets of the project: `spending.Spending`."""

    def __init__(
        self, store: spending.SpendingStore, quote: Callable[[operations.AgentCall], spending.Quote], time: clock.Clock
    ) -> None:
        """Args:
        quote: Returns what a call may take, as far as it is known before.
        """
        self._store = store
        self._quote = quote
        self._clock = time
        self._known: dict[str, _Known] = {}
        self._runs: dict[str, Account] = {}
        self._budgets: dict[str, tuple[budgets.Budget, Account]] = {}
        self._waiting: dict[tuple[str, str], spending.Ahead] = {}
        self._counting = aio.KeyedLock()
        self._changed = aio.LightEvent()

    # -- what limits

    def forget(self, run_id: str) -> None:
        """Drop a run that has ended."""
        self._known.pop(run_id, None)
        self._runs.pop(run_id, None)

    def limit(self, run_id: str, in_force: RunLimits) -> None:
        """Put other limits of a run in force."""
        if (known := self._known.get(run_id)) is not None:
            self._known[run_id] = dataclasses.replace(known, limits=in_force)
        if (account := self._runs.get(run_id)) is not None:
            account.limits = in_force
        self.settled()

    def set_budgets(self, given: Iterable[budgets.Budget]) -> None:
        """Put budgets in force, in place of all others."""
        wanted = {budget.name: budget for budget in given}
        kept = {}
        for name, budget in wanted.items():
            before, account = self._budgets.get(name, (None, None))
            same = before is not None and dataclasses.replace(before, limits=budget.limits) == budget
            if account is None or not same:
                account = Account({"kind": "budget", "name": name}, budget.limits, budget)
            account.limits = budget.limits
            kept[name] = budget, account
        self._budgets = kept
        self.settled()

    # -- reserve

    async def reserve(self, loaded: stores.Loaded, key: str, operation: operations.AgentCall) -> Reservation:
        """Wait until a call fits beside those under way, and reserve; `Parked` is raised if it never will."""
        start, quote = loaded.start, self._quote(operation)
        if not self._is_limited(loaded):
            return self._unlimited(start.run_id, key, quote)
        chain = await self._chain(start.run_id)
        while not (verdict := await self._verdict(chain, key, quote)).fits:
            if not verdict.may_fit_later:
                raise verdict.exhausted(key, self._clock)
            self._changed.take_back()
            with self._shown_behind(verdict.ahead(chain, key), start.run_id, key):
                await self._changed.given()
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
        self._known[start.run_id] = _Known.of(start, loaded.limits)
        return bool(self._budgets or start.parent_run_id is not None or budgets.limits_money(loaded.limits))

    def _unlimited(self, run_id: str, key: str, quote: spending.Quote) -> Reservation:
        return Reservation(self, (run_id, key, 0), cap_usd=quote.cost_usd if quote.is_capped else None)

    async def _verdict(self, chain: list[str], key: str, quote: spending.Quote) -> Verdict:
        accounts = await self._counted(chain)
        need, cap = reserving.need_of(quote, accounts, self._clock)
        return Verdict.of(chain, key, accounts, need, self._clock, cap)

    async def _chain(self, run_id: str) -> list[str]:
        """Return a run and those above it, as far as they can be read."""
        chain = [run_id]
        while (parent := self._known[chain[-1]].parent_run_id) is not None and parent not in chain:
            if parent not in self._known:
                try:
                    loaded = await self._store.read(parent)
                except (errors.ControlRoomError, errors.StorageFault) as error:
                    _log.warning("limits above not read: %s", error.message, extra={"run_id": parent})
                    break
                self._known[parent] = _Known.of(loaded.start, loaded.limits)
            chain.append(parent)
        return chain

    async def _counted(self, chain: list[str]) -> list[Account]:
        found = self._limiting(chain)
        for account, query in found:
            await self._make_sure(account, query)
        return [account for account, _ in found]

    async def _make_sure(self, account: Account, query: spending.SpentQuery) -> None:
        if not account.is_counted:
            async with self._counting.of(id(account)):
                if not account.is_counted:
                    await self._count(account, query)

    def _limiting(self, chain: list[str]) -> list[tuple[Account, spending.SpentQuery]]:
        found = []
        for run_id in chain:
            in_force = self._known[run_id].limits
            if run_id not in self._runs and budgets.limits_money(in_force):
                self._runs[run_id] = reserving.account_of(run_id, in_force)
            if run_id in self._runs:
                found.append((self._runs[run_id], reserving.below(run_id)))
        for budget, account in self._budgets.values():
            if any(self._is_covered(budget, run_id) for run_id in chain):
                found.append((account, reserving.query_of(budget, self._clock)))
        return found

    def _is_covered(self, budget: budgets.Budget, run_id: str) -> bool:
        known = self._known.get(run_id)
        return known is not None and budget.covers(known.recipe_id, known.labels, known.session_id)

    async def _count(self, account: Account, query: spending.SpentQuery) -> None:
        found = await self._store.spent(query)
        account.add(found.finished)
        unfinished = dict(found.unfinished)
        if (run_id := account.name.get("run_id")) is not None:
            unfinished.setdefault(run_id, ())
        for run_id, parts in unfinished.items():
            loaded = await self._loaded(run_id)
            account.add(parts) if loaded is None else account.add_journal(run_id, loaded)
        account.count()

    async def _loaded(self, run_id: str) -> stores.Loaded | None:
        try:
            return await self._store.read(run_id)
        except (errors.ControlRoomError, errors.StorageFault) as error:
            _log.warning("spending taken from its row: %s", error.message, extra={"run_id": run_id})
            return None

    # -- settle

    def accounts(self, run_id: str) -> Iterator[Account]:
        """Yield the accounts that calls of a run count in, as far as they exist."""
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

    def settled(self) -> None:
        """Let calls that wait for room look again."""
        self._changed.give()

    # -- show

    def ahead(self, run_id: str, key: str) -> spending.Ahead | None:
        """Return the oldest call under way that the call of a step waits for, as far as it is known here."""
        return self._waiting.get((run_id, key))

    def shown(self, run_id: str) -> budgets.BudgetState | None:
        """Return how a run stands with its limits, as far as that is in memory."""
        account = self._runs.get(run_id)
        return account.state(self._clock.now()) if account is not None and account.is_counted else None

    async def counted(self, run_id: str, in_force: RunLimits) -> budgets.BudgetState:
        """Return how a run stands with its limits."""
        if (known := self.shown(run_id)) is not None:
            return known
        account = reserving.account_of(run_id, in_force)
        await self._count(account, reserving.below(run_id))
        return account.state(self._clock.now())

    async def standing(self, budget: budgets.Budget) -> budgets.BudgetState:
        """Return how a budget stands."""
        _, account = self._budgets[budget.name]
        await self._make_sure(account, reserving.query_of(budget, self._clock))
        return account.state(self._clock.now())

    async def has_room(self, loaded: stores.Loaded) -> bool:
        """Return whether the call that a parked run waits for fits by now."""
        verdict = await self._verdict_of_parked(loaded)
        return verdict is None or verdict.lacking is None

    async def _verdict_of_parked(self, loaded: stores.Loaded) -> Verdict | None:
        error = loaded.decisions.pause_error or {}
        detail = error.get("detail")
        needed = detail.get("needed") if isinstance(detail, dict) else None
        if not isinstance(needed, dict):
            return None
        need = Need(tokens=reserving.needed(needed.get("tokens")), cost_usd=reserving.needed(needed.get("cost_usd")))
        self._known[loaded.start.run_id] = _Known.of(loaded.start, loaded.limits)
        chain = await self._chain(loaded.start.run_id)
        return Verdict.of(chain, str(error.get("key")), await self._counted(chain), need, self._clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a call fits into what limits it, beside the calls under way."""

    accounts: list[Account]  # What limits it.
    need: Need  # Amounts to reserve.
    cap: float | None  # The most that it may cost; None: no limit.
    lacking: tuple[Account, str] | None  # Account and limit that it does not fit into; None: it fits.
    behind: tuple[Account, str] | None
    """Account and limit because of which it waits for another call with an unknown amount; None: it need not."""
    may_fit_later: bool  # Whether a call under way may leave room for it.

    @classmethod
    def of(
        cls,
        chain: list[str],
        key: str,
        accounts: list[Account],
        need: Need,
        time: clock.Clock,
        cap: float | None = None,
    ) -> Verdict:
        """Decide on the call of a step.

        Args:
            chain: Its run and those above.
        """
        now, but = time.now(), (chain[0], key)
        # A call of a run above may itself wait for this one.
        above = chain[1:]
        lacking = next(((each, lack) for each in accounts if (lack := each.lacks(need, now))), None)
        waits = ((each, limit) for each in accounts if (limit := each.must_wait(need, above, but)))
        return cls(
            accounts=accounts,
            need=need,
            cap=cap,
            lacking=lacking,
            behind=next(waits, None),
            may_fit_later=lacking is None or bool(lacking[0].under_way(above, but)),
        )

    @property
    def fits(self) -> bool:
        """Return whether the call may begin."""
        return self.lacking is None and self.behind is None

    def ahead(self, chain: list[str], key: str) -> spending.Ahead | None:
        """Return the oldest call under way because of which a call does not fit now.

        Args:
            chain: Its run and those above.
        """
        found = self.lacking or self.behind
        assert found is not None
        account, limit = found
        calls = account.under_way(chain[1:], (chain[0], key))
        is_unknown = self.lacking is None
        meant = [each for each in calls if not is_unknown or getattr(each[1], limit) is None]
        if not meant:
            return None
        (run_id, step, _), reserved = min(meant, key=lambda each: each[1].at)
        of = reserving.named(account)
        return spending.Ahead(run_id=run_id, key=step, since=reserved.at, limit=limit, of=of, is_unknown=is_unknown)

    def exhausted(self, key: str, time: clock.Clock) -> equipment.Parked:
        """Return what parks the run of a call that does not fit."""
        found = self.lacking or self.behind
        assert found is not None
        return reserving.exhausted(key, *found, self.need, time, waits=self.lacking is None)

    def reservation(
        self, ledger: Ledger, run_id: str, key: str, quote: spending.Quote, release: Callable[[], None] | None = None
    ) -> Reservation:
        """Return the reservation of a call that fits."""
        is_rest = self.cap is not None and (quote.cost_usd is None or self.cap < quote.cost_usd)
        need = self.need if self.accounts else None
        return Reservation(ledger, (run_id, key, 0), need, self.cap, is_rest=is_rest, release=release)


class Reservation:
    """The amounts reserved for one call of an agent: `spending.Reservation`."""

    __slots__ = ("_is_over", "_is_rest", "_ledger", "_need", "call", "cap_usd", "release")

    def __init__(
        self,
        ledger: Ledger,
        call: Call,
        need: Need | None = None,
        cap_usd: float | None = None,
        *,
        is_rest: bool = False,
        release: Callable[[], None] | None = None,
    ) -> None:
        """Args:
        need: Amounts to reserve; None: nothing limits the call.
        is_rest: Whether the cap is the remainder, and not that of each call.
        """
        self._ledger = ledger
        self._need = need
        self._is_rest = is_rest
        self._is_over = False
        self.release = release
        """Lets other processes reserve, once the `started` line is durable."""
        self.call = call
        """The call."""
        self.cap_usd = cap_usd
        """The most that it may cost; None: no limit."""

    def ended_by_limit(self, result: records.Result) -> bool:
        """Return whether a program ended the call because it cost all that was left."""
        ended = result.error is not None and result.error.code == operations.COST_CAP_REACHED
        return ended and self._is_rest

    def begin(self, attempt: int) -> Mapping[str, plain.Json]:
        """Count until the call leaves a line, and return what its `started` line is to hold."""
        before, self.call = self.call, (*self.call[:2], attempt)
        for account in self._ledger.accounts(self.call[0]):
            account.rename(before, self.call)
        if self._need is None:
            return {}
        amounts = {"tokens": self._need.tokens, "cost_usd": self._need.cost_usd}
        return {"reserved": {name: amount for name, amount in amounts.items() if amount is not None}}

    def settle(self, record: records.Record) -> None:
        """Put what the call took in the place of what was reserved for it."""
        self._is_over = True
        for account in self._ledger.accounts(self.call[0]):
            account.settle(self.call, record)
        self._ledger.settled()

    def close(self) -> None:
        """Note that nothing of the call is under way any more; without a line it keeps counting what was reserved."""
        if self.release is not None:
            self.release()
        if self._is_over:
            return
        self._is_over = True
        for account in self._ledger.accounts(self.call[0]):
            account.close(self.call) if self.call[2] else account.drop(self.call)
        self._ledger.settled()
