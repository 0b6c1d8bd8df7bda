"""Reserving: what a call of an agent may take, the account of a run, and the pause of a call that does not fit."""

from __future__ import annotations

from typing import Any

from app import clock, errors
from app.domain import budgets, plain, stop_reasons
from app.domain.decisions import BUDGET_EXHAUSTED
from app.domain.limits import RunLimits
from app.engine import run_equipment, spending, stores
from app.worker.accounts import Account, Need


def query_of(budget: budgets.Budget, time: clock.Clock) -> spending.SpentQuery:
    """Return which runs a budget covers."""
    name, _, value = (budget.label or "").partition(":")
    query = stores.RunQuery(
        recipe_id=budget.recipe_id,
        session_id=budget.session_id,
        label=None if budget.label is None else (name, value),
    )
    return spending.SpentQuery(runs=query, since=budget.since(time.now()) or None)


def account_of(run_id: str, in_force: RunLimits) -> Account:
    """Return a new account of a run."""
    return Account({"kind": "run", "run_id": run_id}, in_force)


def account_of_budget(budget: budgets.Budget) -> Account:
    """Return a new account of a budget."""
    return Account({"kind": "budget", "name": budget.name}, budget.limits, budget)


def below(run_id: str) -> spending.SpentQuery:
    """Return what adds up the runs that a run has started."""
    return spending.SpentQuery(runs=stores.RunQuery(parent_run_id=run_id))


def named(account: Account) -> str:
    """Return the name of an account's owner, for messages."""
    return f"run {account.name['run_id']}" if "run_id" in account.name else f"budget {account.name['name']}"


def needed(value: object) -> Any:
    """Return an amount of a parked run\'s error; None if it is not one."""
    return value if isinstance(value, int | float) else None


def need_of(quote: spending.Quote, accounts: list[Account], time: clock.Clock) -> tuple[Need, float | None]:
    """Return the amounts to reserve for a call, and its cap: the remainder, if nothing else bounds it."""
    remainders = (account.state(time.now()).left.cost_usd for account in accounts)
    remaining = min((amount for amount in remainders if amount is not None), default=None)
    cost, cap = quote.cost_usd, None
    if quote.is_capped and remaining is not None:
        cost = cap = max(0.0, remaining if cost is None else min(cost, remaining))
    elif quote.is_capped:
        cap = cost
    return Need(tokens=quote.tokens, cost_usd=cost), cap


def exhausted(
    key: str, account: Account, name: str, need: Need, time: clock.Clock, *, waits: bool = False
) -> run_equipment.Parked:
    """Return what parks the run of a call that does not fit.

    Args:
        waits: Whether it would fit if no other call with an unknown amount were under way.
    """
    state = account.state(time.now())
    limit, remaining = (getattr(each, name) for each in (state.limits, state.left))
    of = named(account)
    rest = f"{_told(name, remaining)} of it is left" if remaining > 0 else "it is used up"
    rest = f"it is overdrawn by {_told(name, -remaining)}" if remaining < 0 else rest
    message = (
        f"the limit of {of} is {_told(name, limit)}, {rest}, and the call of the step {key!r} needs"
        f" {_told(name, wanted) if (wanted := getattr(need, name)) else 'more'}; raise it to let the run continue:"
        f" {stop_reasons.raising(account.name, name)}"
    )
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
        **state.to_json(),
    }
    return run_equipment.Parked(
        BUDGET_EXHAUSTED, errors.StepError(message, code=BUDGET_EXHAUSTED, key=key, detail=detail)
    )


def _told(name: str, amount: float) -> str:
    if name != "cost_usd":
        return f"{amount:,.0f} {name.removesuffix('s') if amount == 1 else name}"
    return f"${amount:.2f}" if amount >= 0.01 else f"${amount:.2g}"
