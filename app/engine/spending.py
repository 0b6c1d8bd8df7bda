"""Spending: the port by which calls of agents are reserved and charged, and the sums that it starts from."""

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
    """Which runs are added up."""

    runs: RunQuery = field(default_factory=RunQuery)
    """Filters of the runs; those that they have started count with them. The limit and the cursor do not count."""
    since: str | None = None  # Only calls that ended in this period of 15 minutes or later.


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the rows of runs say that they spent."""

    finished: tuple[UsageSum, ...]  # Sums of the runs that have ended, by period.
    unfinished: Mapping[str, tuple[UsageSum, ...]]
    """Sums of each other run, which its journal may be ahead of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What a call of an agent may take, as far as that is known before it is made."""

    tokens: int | None = None  # Tokens read and written; None: unknown.
    cost_usd: float | None = None  # Price; None: unknown.
    is_capped: bool = False  # Whether the agent is a program that accepts a cost cap.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A call under way that another one waits for."""

    run_id: str  # Run whose call it is.
    key: str  # Its step.
    since: str  # When it was reserved.
    limit: str  # Limit that both count in: `tokens`, `cost_usd` or `calls`.
    of: str  # Name of the run or budget that has the limit.
    is_unknown: bool  # Whether the calls wait for each other because their amounts are not known before.


class SpendingStore(RunStore, Protocol):
    """Add up what runs have spent."""

    async def spent(self, query: SpentQuery) -> Spent:
        """Return what runs have spent, as one moment shows it."""


class Reservation(Protocol):
    """The amounts reserved for one call of an agent."""

    @property
    def cap_usd(self) -> float | None:
        """Return the most that the call may cost, for programs with a cap of their own; None: no limit."""

    def ended_by_limit(self, result: Result) -> bool:
        """Return whether a program ended the call because it cost all that was left."""

    def begin(self, attempt: int) -> Mapping[str, plain.Json]:
        """Keep the reservation until the call leaves a line; return the fields for its `started` line."""

    @property
    def release(self) -> Callable[[], None] | None:
        """Return what lets other processes reserve once the `started` line is durable; None: they need not wait."""

    def charge(self, record: Record) -> None:
        """Replace the reservation by what the call took."""

    def close(self) -> None:
        """Note that the call is over; without a line its reservation continues to count."""


class Spending(Protocol):
    """Keep the calls of agents within the limits of runs and the budgets of the project."""

    def forget(self, run_id: str) -> None:
        """Drop a run that has ended."""

    def limit(self, run_id: str, limits: RunLimits) -> None:
        """Change the limits of a run."""

    async def reserve(self, loaded: Loaded, key: str, operation: Operation) -> Reservation:
        """Wait until a call fits beside those under way, and reserve; `Parked` is raised if it never will."""

    def ahead(self, run_id: str, key: str) -> Ahead | None:
        """Return the oldest call under way that the call of a step waits for, if this process knows it."""

    def set_budgets(self, new_budgets: Iterable[Budget]) -> None:
        """Replace all budgets."""

    async def has_room(self, loaded: Loaded) -> bool:
        """Return whether the call that a parked run waits for fits by now."""

    def shown(self, run_id: str) -> BudgetState | None:
        """Return the state of a run's limits, if it is in memory."""

    async def counted(self, run_id: str, limits: RunLimits) -> BudgetState:
        """Return the state of a run's limits."""

    async def standing(self, budget: Budget) -> BudgetState:
        """Return the state of a budget."""
