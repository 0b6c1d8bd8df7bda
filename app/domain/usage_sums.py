"""Sums of usage: what calls of agents cost, by agent, model and quarter of an hour."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from app.domain.records import Record, Usage

QUARTER_MINUTES = 15
"""Length of a period; the offset of every time zone is a multiple of it, so that days of each can be added up."""

_MINUTES = slice(14, 16)
_MOST = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum:
    """Calls of one agent with one model that ended in one period."""

    quarter: str
    """Instant at which the period of 15 minutes begins, in the form of instants in the index."""
    agent_id: str
    """Agent; empty where the journal names none."""
    model: str
    """Model or tier as it was asked for; empty for the backend's default."""
    calls: int
    """Calls that reported their usage."""
    input_tokens: int
    """Tokens read."""
    output_tokens: int
    """Tokens written."""
    cost_usd: float | None
    """Sum of the prices that were told; None where none was."""
    calls_without_price: int
    """Calls whose price nobody told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What the journals of a run add up to, for its row."""

    started_at: str | None = None
    """When a process took it up for the first time; None: not yet."""
    usage: Usage
    """What it cost in all."""
    sums: tuple[UsageSum, ...] = ()
    """What it cost in parts."""


class UsageTally:
    """Add up the usage of a run, line by line."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.total = Usage()
        """Usage of all lines; dead ones and repeated tries were paid too."""
        self._sums: dict[tuple[str, str, str], list[Any]] = {}
        for record in records:
            if record.usage is not None:
                self.add(record, record.usage)

    def add(self, record: Record, reported: Usage) -> None:
        """Count one more line; what is no amount, in a file that was written by hand, counts as not reported."""
        usage = Usage(
            input_tokens=_amount(reported.input_tokens, int),
            output_tokens=_amount(reported.output_tokens, int),
            cost_usd=_amount(reported.cost_usd, int, float),
        )
        self.total = self.total.plus(usage)
        place = _quarter(record.completed_at), str(record.line.get("agent_id") or ""), _model(record)
        sums = self._sums.setdefault(place, [0, 0, 0, None, 0])
        sums[0] += 1
        sums[1] += usage.input_tokens or 0
        sums[2] += usage.output_tokens or 0
        if usage.cost_usd is None:
            sums[4] += 1
        else:
            sums[3] = (sums[3] or 0) + usage.cost_usd

    def sums(self) -> tuple[UsageSum, ...]:
        """Return the sums so far."""
        return tuple(
            UsageSum(
                quarter=place[0],
                agent_id=place[1],
                model=place[2],
                calls=sums[0],
                input_tokens=sums[1],
                output_tokens=sums[2],
                cost_usd=sums[3],
                calls_without_price=sums[4],
            )
            for place, sums in self._sums.items()
        )

    def facts(self, started_at: str | None) -> RunFacts:
        """Return what a run's row shows of it."""
        return RunFacts(started_at=started_at, usage=self.total, sums=self.sums())


def _amount(given: Any, *kinds: type) -> Any:
    is_amount = type(given) in kinds and 0 <= given <= _MOST
    return given if is_amount else None


def _quarter(at: str) -> str:
    # Instants of journal lines have one form, `2026-02-10T14:38:07.123Z`; another one is counted where it sorts.
    minutes = at[_MINUTES]
    if len(at) < 20 or not minutes.isdecimal():
        return at[:24]
    return f"{at[:14]}{int(minutes) // QUARTER_MINUTES * QUARTER_MINUTES:02d}:00.000Z"


def _model(record: Record) -> str:
    operation: Any = record.line.get("operation")
    body = operation.get("body") if isinstance(operation, dict) else None
    model = body.get("model") if isinstance(body, dict) else None
    return str(model or record.line.get("model") or "")
