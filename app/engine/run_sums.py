"""Sums over runs: how many there are, and what they cost; questions and answers of the store."""

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

MOST_ROWS = 1000  # Most rows of sums, those of the largest first; the total covers all.
MOST_DAYS = 366  # Most days, the newest.
Live: TypeAlias = Mapping[str, tuple[UsageSum, ...]]  # Sums of runs that execute now, whose rows lag behind.


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """Which sums of usage are asked for."""

    by: By = "recipe"  # Dimension by which they are grouped.
    label_key: str | None = None  # Label by whose values they are grouped.
    offset_minutes: int = 0  # Offset of local time from UTC, which days follow.
    runs: RunQuery = field(default_factory=RunQuery)
    """Runs whose usage counts; the limit and the cursor do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageAmounts(shapes.Shape):
    """Calls of agents, added up."""

    runs: int = 0  # Runs with such calls, session plans included.
    calls: int = 0  # Calls that reported their usage.
    input_tokens: int = 0  # Tokens read.
    output_tokens: int = 0  # Tokens written.
    cost_usd: float | None = None  # Sum of the reported prices; None if there are none.
    calls_without_price: int = 0  # Calls without a reported price; `cost_usd` does not contain them.
    cost_estimated_usd: float | None = None
    """Sum of the estimates for those, by the price file; None where there is none."""

    def plus(self, other: UsageAmounts) -> UsageAmounts:
        """Add two sums of different runs."""
        return UsageAmounts(
            runs=self.runs + other.runs,
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=total((self.cost_usd, other.cost_usd)),
            calls_without_price=self.calls_without_price + other.calls_without_price,
            cost_estimated_usd=total((self.cost_estimated_usd, other.cost_estimated_usd)),
        )

    @classmethod
    def of(cls, usage: UsageSum, runs: int) -> UsageAmounts:
        """Return one sum of a run."""
        return cls(
            runs=runs,
            calls=usage.calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            calls_without_price=usage.calls_without_price,
            cost_estimated_usd=usage.cost_estimated_usd,
        )


Sums: TypeAlias = dict[str | None, UsageAmounts]  # Sums by name; None: what has none.


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
    usage: UsageAmounts  # Calls that ended since then; runs that execute now left out.


class SummingStore(Protocol):
    """Add up what all runs of a data directory cost."""

    @property
    def changes(self) -> int:
        """Return a number that rises whenever this process writes rows of runs."""

    async def totals(self, since: Since, aside: Sequence[str]) -> Totals:
        """Count runs, and add usage up but that of the runs that are aside."""

    async def sum_usage(self, query: UsageQuery, live: Live) -> tuple[Sums, UsageAmounts]:
        """Return sums of usage by name, and the total, with those of runs that execute now in place of their rows'."""


def merged(sums: Sums, more: Sums) -> Sums:
    """Add sums of different runs."""
    return {name: sums.get(name, UsageAmounts()).plus(more.get(name, UsageAmounts())) for name in {**sums, **more}}
