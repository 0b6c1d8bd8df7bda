"""Spending: the port that reserves and charges calls of agents, and the sums from which it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from app.domain import plain
from app.domain.budgets import Budget, BudgetState
from app.domain.limits import RunLimits
from app.domain.operations import Operation
from app.domain.records import Record, Result
from app.domain.usage_sums import UsageSum
from app.engine.stores import Loaded, RunQuery, RunStore


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentQuery:
    """Selects the runs whose spending is added up."""

    runs: RunQuery = field(default_factory=RunQuery)
    """Filters of the runs; the runs that they started are included. The limit and the cursor are ignored."""
    since: str | None = None  # Only calls that ended in this period of 15 minutes or later.


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What runs have spent according to their rows."""

    finished: tuple[UsageSum, ...]  # Sums of the runs that have ended, by period.
    unfinished: Mapping[str, tuple[UsageSum, ...]]
    """Sums of each other run, by run; the run's journal may contain more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The expected tokens and cost of an agent call, as far as they are known before the call."""

    tokens: int | None = None  # Tokens read and written; None: unknown.
    cost_usd: float | None = None  # Price; None: unknown.
    is_capped: bool = False  # Whether the agent is a program that accepts a cost cap.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A call under way for whose end another call waits."""

    run_id: str  # Run that makes the call.
    key: str  # Step that makes the call.
    since: str  # When it was reserved.
    limit: str  # Limit that applies to both: `tokens`, `cost_usd` or `calls`.
    of: str  # Name of the run or budget that has the limit.
    is_unknown: bool  # Whether the calls wait for each other because their amounts are unknown in advance.


class SpendingStore(RunStore, Protocol):
    """Adds up what runs have spent."""

    async def spent(self, query: SpentQuery) -> Spent:
        """Return what runs have spent, from one consistent read."""


class Reservation(Protocol):
    """The amounts reserved for one call of an agent."""

    @property
    def cap_usd(self) -> float | None:
        """Return the most that the call may cost, for programs with a cap of their own; None: unlimited."""

    def ended_by_limit(self, result: Result) -> bool:
        """Return whether a program ended the call because the call used up its cap."""

    def begin(self, attempt: int) -> Mapping[str, plain.Json]:
        """Keep the reservation until the call leaves a line, and return the fields for its `started` line."""

    @property
    def release(self) -> Callable[[], None] | None:
        """Return what lets other processes reserve once the `started` line is durable; None: they need not wait."""

    def charge(self, record: Record) -> None:
        """Replace the reservation by the usage that the call reported."""

    def close(self) -> None:
        """Note that the call is over; without a line, its reservation continues to count."""


class Spending(Protocol):
    """Keeps the calls of agents within the limits of runs and the budgets of the project."""

    def forget(self, run_id: str) -> None:
        """Drop a run that has ended."""

    def limit(self, run_id: str, limits: RunLimits) -> None:
        """Change the limits of a run."""

    async def reserve(self, loaded: Loaded, key: str, operation: Operation) -> Reservation:
        """Wait until a call fits beside those under way, and reserve; `Parked` is raised if it never will."""

    def ahead(self, run_id: str, key: str) -> Ahead | None:
        """Return the oldest call under way for which the call of a step waits, if this process knows it."""

    def set_budgets(self, new_budgets: Iterable[Budget]) -> None:
        """Replace all budgets."""

    async def has_room(self, loaded: Loaded) -> bool:
        """Return whether the call for which a parked run waits fits now."""

    def shown(self, run_id: str) -> BudgetState | None:
        """Return the state of a run's limits, if the run is in memory."""

    async def counted(self, run_id: str, limits: RunLimits) -> BudgetState:
        """Return the state of a run's limits."""

    async def standing(self, budget: Budget) -> BudgetState:
        """Return the state of a budget."""
