"""Accounts: add up the amounts spent under one limit or budget, and those reserved for calls under way."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from app import clock
from app.domain import budgets, records, usage_sums
from app.domain.limits import RunLimits
from app.domain.usage_sums import Reserved, UsageSum, UsageTally
from app.engine import spending, stores

Call: TypeAlias = tuple[str, str, int]  # A call of an agent: run, step and attempt; attempt 0 before it begins.


@dataclass(slots=True, kw_only=True)
class _Held:
    reserved: Reserved
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The amounts that a call may take."""

    calls: int = 1  # Number of calls: itself.
    tokens: int | None = None  # Tokens; None: unknown.
    cost_usd: float | None = None  # Price; None: unknown.


class Account:
    """Adds up the calls under one limit or budget; a call counts once, however often it is reported."""

    def __init__(self, name: Mapping[str, str], limits: RunLimits, budget: budgets.Budget | None = None) -> None:
        self.name = name
        """Owner of the account: `{kind: run, run_id}` or `{kind: budget, name}`."""
        self.limits = limits
        """The limits in force."""
        self._budget = budget
        self._charged: dict[str, UsageSum] = {}
        self._held: dict[Call, _Held] = {}
        self._late: list[tuple[Call, records.Record, bool]] = []
        self._read: dict[str, set[tuple[str, int]]] | None = {}
        self._is_summed = False
        self.is_counted = False
        """Whether the sums of the rows have been added; until then, calls that end are kept for later."""

    @classmethod
    def of_run(cls, run_id: str, limits: RunLimits) -> Account:
        """Return a new account of a run."""
        return cls({"kind": "run", "run_id": run_id}, limits)

    @classmethod
    def of_budget(cls, budget: budgets.Budget) -> Account:
        """Return a new account of a budget."""
        return cls({"kind": "budget", "name": budget.name}, budget.limits, budget)

    @property
    def title(self) -> str:
        """Return the name of the owner, for messages."""
        return f"run {self.name['run_id']}" if self._budget is None else f"budget {self._budget.name}"

    def turns_at(self, now: datetime) -> str | None:
        """Return when the next period of the budget begins; None: never."""
        turn = None if self._budget is None else self._budget.next_turn(now)
        return None if turn is None else clock.stamp(turn)

    # -- earlier spending

    def query(self, now: datetime) -> spending.SpentQuery:
        """Return which runs count in the account: those started by its run, or those that its budget covers."""
        if (budget := self._budget) is None:
            return spending.SpentQuery(runs=stores.RunQuery(parent_run_id=self.name["run_id"]))
        name, _, value = (budget.label or "").partition(":")
        label = None if budget.label is None else (name, value)
        runs = stores.RunQuery(recipe_id=budget.recipe_id, session_id=budget.session_id, label=label)
        return spending.SpentQuery(runs=runs, since=budget.since(now) or None)

    def begin(self) -> None:
        """Discard a count that was interrupted; call this before adding any amounts."""
        self._charged, self._held, self._read, self._is_summed = {}, {}, {}, False
        # Calls that ended during that count ended before the rows are read now, so the rows contain them.
        self._late = [(call, record, False) for call, record, _ in self._late]

    def add(self, parts: Iterable[UsageSum]) -> None:
        """Add sums from the rows of runs; calls that ended earlier are in these rows, or in the journals read next."""
        self._is_summed = True
        for part in parts:
            self._put(part)

    def add_journal(self, run_id: str, loaded: stores.Loaded) -> None:
        """Add the sums from the journal of a run."""
        assert self._read is not None
        self._read[run_id] = {(record.key, record.attempt) for record in loaded.records}
        tally = UsageTally(loaded.records, loaded.decisions.reserved)
        self.add(tally.sums())
        for (key, attempt), reserved in usage_sums.uncharged(loaded.decisions.reserved, loaded.records).items():
            self._held.setdefault((run_id, key, attempt), _Held(reserved=reserved, is_open=False))

    def count(self) -> None:
        """Record that all earlier calls have been added, and add those that have ended meanwhile."""
        late, attempts_by_run = self._late, self._read or {}
        self._late, self._read, self.is_counted = [], None, True
        for call, record, after in late:
            run_id, key, attempt = call
            attempts = attempts_by_run.get(run_id)
            # If the run's journal was read, it shows which calls are new; if only rows were, later endings are new.
            is_new = after if attempts is None else (key, attempt) not in attempts
            if is_new:
                self.charge(call, record)

    # -- calls

    def hold(self, call: Call, reserved: Reserved, *, is_open: bool = True) -> None:
        """Reserve amounts for a call."""
        self._held[call] = _Held(reserved=reserved, is_open=is_open)

    def rename(self, call: Call, numbered: Call) -> None:
        """Give a call the number of its attempt."""
        if (reservation := self._held.pop(call, None)) is not None:
            self._held[numbered] = reservation

    def drop(self, call: Call) -> None:
        """Forget a call that never began."""
        self._held.pop(call, None)

    def close(self, call: Call) -> None:
        """Note that a call was cut off; its reservation continues to count."""
        if (reservation := self._held.get(call)) is not None:
            reservation.is_open = False

    def charge(self, call: Call, record: records.Record) -> None:
        """Replace the reservation of a call by its reported usage."""
        if not self.is_counted:
            self._late.append((call, record, self._is_summed))
            return
        reservation = self._held.pop(call, None)
        # A later line of the step, e.g. after a resume, can include an attempt that left no line.
        if record.covers is not None:
            self._held.pop((call[0], call[1], record.covers), None)
        tally = UsageTally()
        tally.add(record, None if reservation is None else reservation.reserved)
        for part in tally.sums():
            self._put(part)

    # -- verdicts

    def lacks(self, need: Need, now: datetime) -> str | None:
        """Return the limit into which a call does not fit; None if it fits."""
        remaining = self.state(now).left
        for name in budgets.MONEY:
            amount, needed = getattr(remaining, name), getattr(need, name)
            if amount is not None and (amount <= 0 or (needed or 0) > amount):
                return name
        return None

    def must_wait(self, need: Need, aside: Container[str], but: tuple[str, str]) -> str | None:
        """Return the limit that makes a call with an unknown amount wait for another call; None if it need not wait.

        Only one call with an unknown amount is under way at a time, so that at most one exceeds a limit.

        Args:
            aside: Runs whose calls are ignored.
            but: Run and step whose earlier attempts are ignored.
        """
        unknown = [name for name in ("tokens", "cost_usd") if getattr(need, name) is None]
        # Only a limited amount can be overdrawn by a call whose amount is unknown.
        limited = [name for name in unknown if getattr(self.limits, name) is not None]
        others = self.under_way(aside, but) if limited else []
        return next((name for name in limited for _, other in others if getattr(other, name) is None), None)

    def under_way(self, aside: Container[str], but: tuple[str, str]) -> list[tuple[Call, Reserved]]:
        """Return the calls under way with the amounts reserved for them; they may take less.

        Args:
            aside: Runs whose calls are ignored.
            but: Run and step whose earlier attempts are ignored.
        """
        under_way = ((call, reservation.reserved) for call, reservation in self._held.items() if reservation.is_open)
        return [(call, reserved) for call, reserved in under_way if call[0] not in aside and call[:2] != but]

    def state(self, now: datetime) -> budgets.BudgetState:
        """Return the account's state."""
        since = "" if self._budget is None else self._budget.since(now)
        # Past periods are dropped here, where the present one is known; otherwise their sums would accumulate.
        for quarter in [quarter for quarter in self._charged if quarter < since]:
            del self._charged[quarter]
        reserved_sums = [(each.is_open, each.reserved.as_sum()) for each in self._held.values()]
        cut_off = [part for is_open, part in reserved_sums if not is_open and part.quarter >= since]
        under_way = [part for is_open, part in reserved_sums if is_open]
        return budgets.BudgetState.of(self.limits, [*self._charged.values(), *cut_off], under_way)

    def _put(self, part: UsageSum) -> None:
        quarter = part.quarter if self._budget is not None and self._budget.per else ""
        earlier = self._charged.get(quarter)
        self._charged[quarter] = part.alone(quarter) if earlier is None else earlier.plus(part)
