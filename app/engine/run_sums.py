"""Sums over runs: queries and results of the store for the number of runs and their cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from app.domain import shapes
from app.domain.access import Scope
from app.domain.records import total
from app.domain.usage_sums import UsageSum
from app.engine.stores import RunQuery

By: TypeAlias = Literal["recipe", "agent", "model", "label", "day"]
"""Dimension by which sums of usage are grouped."""

MOST_ROWS = 1000  # Most rows of sums; those with the largest sums are kept, and the total covers all.
MOST_DAYS = 366  # Most days; the newest are kept.
Live: TypeAlias = Mapping[str, tuple[UsageSum, ...]]  # Sums of runs that execute now, whose rows lag behind.


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """Selects and groups sums of usage."""

    by: By = "recipe"  # Dimension by which they are grouped.
    label_key: str | None = None  # Label by whose values they are grouped, if `by` is `label`.
    offset_minutes: int = 0  # Offset of local time from UTC, which days follow.
    runs: RunQuery = field(default_factory=RunQuery)
    """Runs whose usage counts; the limit and the cursor are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageAmounts(shapes.Shape):
    """Sums over calls of agents."""

    runs: int = 0  # Runs with such calls, session plans included.
    calls: int = 0  # Calls that reported their usage.
    calls_silent: int = 0  # Further calls, which reported neither tokens nor a price, or were cut off.
    input_tokens: int = 0  # Tokens read.
    output_tokens: int = 0  # Tokens written.
    cost_usd: float | None = None  # Sum of the reported prices; None if there are none.
    calls_without_price: int = 0  # Calls without a reported price; `cost_usd` does not contain them.
    cost_estimated_usd: float | None = None
    """Sum of the estimates for calls without a reported price, by the price file; None without estimates."""

    def plus(self, other: UsageAmounts) -> UsageAmounts:
        """Return the sum of two sums of different runs."""
        return UsageAmounts(
            runs=self.runs + other.runs,
            calls=self.calls + other.calls,
            calls_silent=self.calls_silent + other.calls_silent,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=total((self.cost_usd, other.cost_usd)),
            calls_without_price=self.calls_without_price + other.calls_without_price,
            cost_estimated_usd=total((self.cost_estimated_usd, other.cost_estimated_usd)),
        )

    @classmethod
    def of(cls, usage: UsageSum, runs: int) -> UsageAmounts:
        """Return the sum of a run's usage as amounts."""
        return cls(
            runs=runs,
            calls=usage.calls,
            calls_silent=usage.calls_silent,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            calls_without_price=usage.calls_without_price,
            cost_estimated_usd=usage.cost_estimated_usd,
        )


Sums: TypeAlias = dict[str | None, UsageAmounts]  # Sums by name; None: runs without one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """Instants from which runs are counted, in the form of the index."""

    failed: str  # Runs that failed since then.
    today: str  # Runs that were created, and calls that ended, since then.
    scope: Scope | None = None  # Only runs of this scope; None: of any.


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts over the rows of all runs."""

    by_status: Mapping[str, int]  # Runs in each state that occurs.
    parked: int  # Paused runs that a fault stopped.
    failed: int  # Runs that failed since the given instant.
    created: int  # Runs that were created since the given instant.
    usage: UsageAmounts  # Calls that ended since then, without runs that execute now.


class SummingStore(Protocol):
    """Adds up the cost of all runs of a data directory."""

    @property
    def changes(self) -> int:
        """Return a number that rises whenever this process writes rows of runs."""

    async def totals(self, since: Since, aside: Sequence[str]) -> Totals:
        """Count runs, and add up usage except for that of the runs in `aside`."""

    async def sum_usage(self, query: UsageQuery, live: Live) -> tuple[Sums, UsageAmounts]:
        """Return sums of usage by name, and the total; for runs that execute now, `live` replaces the rows' sums."""


def merged(sums: Sums, more: Sums) -> Sums:
    """Return the sums of two sets of different runs."""
    return {name: sums.get(name, UsageAmounts()).plus(more.get(name, UsageAmounts())) for name in {**sums, **more}}
