"""Reservations: decide whether a call of an agent fits into its limits, and hold the amounts reserved for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from app import clock, errors, printable
from app.domain import operations, plain, records, stop_reasons
from app.domain.decisions import BUDGET_EXHAUSTED
from app.engine import run_equipment, spending
from app.worker.accounts import Account, Call, Need


class Accounts(Protocol):
    """The ledger, as far as a reservation uses it."""

    def accounts(self, run_id: str) -> Iterable[Account]:
        """Yield the accounts in which calls of a run count."""

    def wake_waiting(self) -> None:
        """Wake calls that wait for room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationVerdict:
    """The decision whether a call fits into its limits, beside the calls under way."""

    accounts: list[Account]  # Accounts that limit the call.
    need: Need  # Amounts to reserve.
    cap: float | None  # The most that the call may cost; None: no limit.
    lacking: tuple[Account, str] | None  # Account and limit into which the call does not fit; None: it fits.
    behind: tuple[Account, str] | None
    """Account and limit that make the call wait for another one with an unknown amount; None: it need not wait."""
    may_fit_later: bool  # Whether the end of a call under way may leave room for it.

    @classmethod
    def of(
        cls,
        chain: list[str],
        key: str,
        accounts: list[Account],
        need: Need,
        time: clock.Clock,
        cap: float | None = None,
    ) -> ReservationVerdict:
        """Decide on the call of a step.

        Args:
            chain: Run of the step, followed by the run's ancestors.
        """
        now, but = time.now(), (chain[0], key)
        # A call of an ancestor may itself wait for this call.
        above = chain[1:]
        lacking = next(((each, lack) for each in accounts if (lack := each.lacks(need, now))), None)
        waits = ((each, limit) for each in accounts if (limit := each.must_wait(need, above, but)))
        return cls(
            accounts=accounts,
            need=need,
            cap=cap,
            lacking=lacking,
            behind=next(waits, None),
            # Calls under way return the reserved amounts that they do not use.
            may_fit_later=lacking is None or bool(lacking[0].under_way(above, but)),
        )

    @property
    def fits(self) -> bool:
        """Return whether the call may begin."""
        return self.lacking is None and self.behind is None

    def ahead(self, chain: list[str], key: str) -> spending.Ahead | None:
        """Return the oldest call under way that keeps a call from fitting now.

        Args:
            chain: Run of the call, followed by the run's ancestors.
        """
        limit_hit = self.lacking or self.behind
        assert limit_hit is not None
        account, limit = limit_hit
        calls = account.under_way(chain[1:], (chain[0], key))
        is_unknown = self.lacking is None
        meant = [each for each in calls if not is_unknown or getattr(each[1], limit) is None]
        if not meant:
            return None
        # As a rule, the oldest call ends first.
        (run_id, step, _), reserved = min(meant, key=lambda each: each[1].at)
        of = account.title
        return spending.Ahead(run_id=run_id, key=step, since=reserved.at, limit=limit, of=of, is_unknown=is_unknown)

    def exhausted(self, key: str, time: clock.Clock) -> run_equipment.Parked:
        """Return the exception that parks the run of a call that does not fit."""
        limit_hit = self.lacking or self.behind
        assert limit_hit is not None
        return exhausted(key, *limit_hit, self.need, time, waits=self.lacking is None)

    def reservation(
        self, ledger: Accounts, run_id: str, key: str, quote: spending.Quote, release: Callable[[], None] | None = None
    ) -> Reservation:
        """Return the reservation of a call that fits."""
        is_rest = self.cap is not None and (quote.cost_usd is None or self.cap < quote.cost_usd)
        need = self.need if self.accounts else None
        return Reservation(ledger, (run_id, key, 0), need, self.cap, is_rest=is_rest, release=release)


class Reservation:
    """The amounts reserved for one call of an agent: `spending.Reservation`.

    Args:
        need: Amounts to reserve; None: the call is not limited.
        is_rest: Whether the cap is the remainder of a limit, and not the cap of each call.
    """

    __slots__ = ("_is_over", "_is_rest", "_ledger", "_need", "call", "cap_usd", "release")

    def __init__(
        self,
        ledger: Accounts,
        call: Call,
        need: Need | None = None,
        cap_usd: float | None = None,
        *,
        is_rest: bool = False,
        release: Callable[[], None] | None = None,
    ) -> None:
        self._ledger = ledger
        self._need = need
        self._is_rest = is_rest
        self._is_over = False
        self.release = release
        """Lets other processes reserve, once the `started` line is durable."""
        self.call = call
        """The call that the amounts are reserved for."""
        self.cap_usd = cap_usd
        """The most that the call may cost; None: no limit."""

    def ended_by_limit(self, result: records.Result) -> bool:
        """Return whether a program ended the call because the call used up the remainder of a limit."""
        is_capped = result.error is not None and result.error.code == operations.COST_CAP_REACHED
        return is_capped and self._is_rest

    def begin(self, attempt: int) -> Mapping[str, plain.Json]:
        """Keep the reservation until the call leaves a line, and return the fields for its `started` line."""
        # Only at this point is the number of the attempt known.
        before, self.call = self.call, (*self.call[:2], attempt)
        for account in self._ledger.accounts(self.call[0]):
            account.rename(before, self.call)
        if self._need is None:
            return {}
        amounts = {"tokens": self._need.tokens, "cost_usd": self._need.cost_usd}
        return {"reserved": {name: amount for name, amount in amounts.items() if amount is not None}}

    def charge(self, record: records.Record) -> None:
        """Replace the reservation by the usage that the call reported."""
        self._is_over = True
        for account in self._ledger.accounts(self.call[0]):
            account.charge(self.call, record)
        self._ledger.wake_waiting()

    def close(self) -> None:
        """Note that the call is over; without a line, its reservation continues to count."""
        if self.release is not None:
            self.release()
        if self._is_over:
            return
        self._is_over = True
        for account in self._ledger.accounts(self.call[0]):
            # A call that never began has used nothing.
            account.close(self.call) if self.call[2] else account.drop(self.call)
        self._ledger.wake_waiting()


def need_of(quote: spending.Quote, accounts: list[Account], time: clock.Clock) -> tuple[Need, float | None]:
    """Return the amounts to reserve for a call, and its cap: the remainder, unless a lower cost is known."""
    remainders = (account.state(time.now()).left.cost_usd for account in accounts)
    remaining = min((amount for amount in remainders if amount is not None), default=None)
    cost, cap = quote.cost_usd, None
    if quote.is_capped and remaining is not None:
        # A program with a cap may get the whole remainder; the cost of any other call must be known in advance.
        cost = cap = max(0.0, remaining if cost is None else min(cost, remaining))
    elif quote.is_capped:
        cap = cost
    return Need(tokens=quote.tokens, cost_usd=cost), cap


def exhausted(
    key: str, account: Account, name: str, need: Need, time: clock.Clock, *, waits: bool = False
) -> run_equipment.Parked:
    """Return the exception that parks the run of a call that does not fit.

    Args:
        waits: Whether the call would fit if no other call with an unknown amount were under way.
    """
    state = account.state(time.now())
    limit, remaining = (getattr(each, name) for each in (state.limits, state.left))
    of = account.title
    rest = f", {_amount(name, remaining)} of it is left" if remaining > 0 else ", it is used up" if limit else ""
    rest = f", it is overdrawn by {_amount(name, -remaining)}" if remaining < 0 else rest
    wanted = getattr(need, name)
    message = (
        f"the limit of {of} is {_amount(name, limit)}{rest}, and the call of the step {key!r} needs"
        f" {_amount(name, wanted) if wanted else 'more'}; raise it to let the run continue:"
        f" {stop_reasons.raising(account.name, name)}"
    )
    # A call that costs more than the whole limit would wait for the new period in vain.
    turns_at = None if waits or (wanted or 0) > limit else account.turns_at(time.now())
    if turns_at is not None:
        message = f"{message}; {of} begins anew at {turns_at}"
    if waits:
        amount = "price" if name == "cost_usd" else "number of tokens"
        message = (
            f"the {amount} of the call of the step {key!r} is not known before it is made, and neither is that of"
            f" another call under way; within the limit of {of} such calls are made one after another, and the run"
            " continues once that call has ended"
        )
    detail: dict[str, plain.Json] = {
        "budget": dict(account.name),
        "limit": name,
        "needed": {"calls": need.calls, "tokens": need.tokens, "cost_usd": need.cost_usd},
        "turns_at": turns_at,
        **state.to_json(),
    }
    return run_equipment.Parked(
        BUDGET_EXHAUSTED, errors.StepError(message, code=BUDGET_EXHAUSTED, key=key, detail=detail)
    )


def _amount(name: str, amount: float) -> str:
    if name != "cost_usd":
        return f"{amount:,.0f} {name.removesuffix('s') if amount == 1 else name}"
    return printable.dollars(amount)
