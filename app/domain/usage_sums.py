"""Usage sums: the cost of agent calls, by agent, model and quarter of an hour."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.records import Record, Usage, amount, total

QUARTER_MINUTES = 15
"""Length of a period; every time zone's offset is a multiple of it, so that local days can be added up."""

_MINUTES = slice(14, 16)
_UNREPORTED = Usage(input_tokens=None, output_tokens=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum:
    """Calls of one agent with one model that ended in one period."""

    quarter: str  # Instant at which the period of 15 minutes begins, in the form of instants in the index.
    agent_id: str  # Agent; empty if the journal names none.
    model: str  # Requested model or tier; empty for the backend's default.
    calls: int  # Calls that reported their usage.
    input_tokens: int  # Tokens read.
    output_tokens: int  # Tokens written.
    cost_usd: float | None  # Sum of the reported prices; None if there are none.
    calls_without_price: int  # Calls without a reported price.
    cost_estimated_usd: float | None = None  # Sum of the estimates for those calls; None if there are none.
    calls_silent: int = 0  # Further calls, which reported no usage, including those that were cut off.
    tokens_reserved: int = 0  # Tokens reserved for calls that reported none.
    cost_reserved_usd: float = 0.0
    """Price reserved for calls whose price is neither reported nor estimated."""

    def plus(self, other: UsageSum) -> UsageSum:
        """Return the sum of both amounts."""
        amounts: dict[str, Any] = {name: total((getattr(self, name), getattr(other, name))) for name in _AMOUNTS}
        return dataclasses.replace(self, **amounts)

    def alone(self, quarter: str) -> UsageSum:
        """Return the amounts as those of a period, without agent and model."""
        return dataclasses.replace(self, quarter=quarter, agent_id="", model="")


_COLUMNS = tuple(field.name for field in dataclasses.fields(UsageSum))
_AMOUNTS = _COLUMNS[3:]
# Positions in a list of amounts: each step of each run is added there, without a new value for each.
_CALLS, _INPUT, _OUTPUT, _PRICE, _UNPRICED, _ESTIMATE, _SILENT, _TOKENS, _COST = range(len(_AMOUNTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """The amounts reserved for an agent call before it began; they count until the call leaves a line."""

    at: str  # When they were reserved.
    tokens: int | None = None  # Tokens; None: unknown.
    cost_usd: float | None = None  # Price; None: unknown.

    @classmethod
    def from_json(cls, value: Any, at: str) -> Reserved:
        """Read the content of a control line; a value that is not an amount counts as unknown."""
        given = value if isinstance(value, dict) else {}
        tokens, cost = amount(given.get("tokens"), int), amount(given.get("cost_usd"), int, float)
        return cls(at=at, tokens=tokens, cost_usd=cost)

    def as_sum(self) -> UsageSum:
        """Return the amount that counts for the call if its cost is never reported."""
        return UsageSum(
            quarter=quarter_of(self.at),
            agent_id="",
            model="",
            calls=0,
            input_tokens=0,
            output_tokens=0,
            cost_usd=None,
            calls_without_price=0,
            calls_silent=1,
            tokens_reserved=self.tokens or 0,
            cost_reserved_usd=self.cost_usd or 0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The sums of a run's journals, for its row."""

    started_at: str | None = None  # When a process first took it up; None: not yet.
    usage: Usage  # Its total cost.
    sums: tuple[UsageSum, ...] = ()  # Its cost in parts.


class UsageTally:
    """Adds up the usage of a run, line by line."""

    def __init__(
        self, records: Iterable[Record] = (), reserved: Mapping[tuple[str, int], Reserved] | None = None
    ) -> None:
        self.total = Usage()
        """Usage of all lines; dead lines and repeated attempts cost money too. Zero without a call; an amount that no
        call reported is None."""
        self._sums: dict[tuple[str, str, str], list[Any]] = {}
        for record in records:
            self.add(record, reserved.get((record.key, record.attempt)) if reserved else None)

    def add(self, record: Record, reserved: Reserved | None = None) -> None:
        """Add one more line.

        Args:
            reserved: Amounts reserved for it; they count if the line reports none.
        """
        usage = record.usage
        # A call that reported no usage was made nevertheless, and counts as silent.
        if usage is None:
            if is_call(record):
                self._count(_UNREPORTED)
                sums = self._part(record)
                sums[_SILENT] += 1
                _add_reserved(sums, reserved, _UNREPORTED)
            return
        self._count(usage)
        sums = self._part(record)
        _add_reserved(sums, reserved, usage)
        sums[_CALLS] += 1
        sums[_INPUT] += usage.input_tokens or 0
        sums[_OUTPUT] += usage.output_tokens or 0
        if usage.cost_usd is None:
            sums[_UNPRICED] += 1
            if usage.cost_estimated_usd is not None:
                sums[_ESTIMATE] = (sums[_ESTIMATE] or 0) + usage.cost_estimated_usd
        else:
            sums[_PRICE] = (sums[_PRICE] or 0) + usage.cost_usd

    def sums(self) -> tuple[UsageSum, ...]:
        """Return the sums so far."""
        return tuple(
            UsageSum(**dict(zip(_COLUMNS, (*place, *sums), strict=True))) for place, sums in self._sums.items()
        )

    def facts(self, started_at: str | None, reserved: Iterable[Reserved] = ()) -> RunFacts:
        """Return the sums for a run's row.

        Args:
            reserved: Amounts reserved for calls that left no line.
        """
        parts = [*(self.sums() if self._sums else ()), *[each.as_sum() for each in reserved]]
        return RunFacts(started_at=started_at, usage=self.total, sums=merged(parts) if parts else ())

    def _count(self, usage: Usage) -> None:
        # Called before the line's part is added: as long as there are no parts, there was no call.
        self.total = (self.total if self._sums else _UNREPORTED).plus(usage)

    def _part(self, record: Record) -> list[Any]:
        place = quarter_of(record.completed_at), str(record.line.get("agent_id") or ""), _model(record)
        return self._sums.setdefault(place, [0, 0, 0, None, 0, None, 0, 0, 0.0])


def _add_reserved(sums: list[Any], reserved: Reserved | None, usage: Usage) -> None:
    if reserved is None:
        return
    if usage.input_tokens is None and usage.output_tokens is None:
        sums[_TOKENS] += reserved.tokens or 0
    if usage.cost_usd is None and usage.cost_estimated_usd is None:
        sums[_COST] += reserved.cost_usd or 0.0


def merged(parts: Iterable[UsageSum]) -> tuple[UsageSum, ...]:
    """Return sums of the parts with the same period, agent and model."""
    found: dict[tuple[str, str, str], UsageSum] = {}
    for part in parts:
        place = part.quarter, part.agent_id, part.model
        found[place] = part if place not in found else found[place].plus(part)
    return tuple(found.values())


def quarter_of(at: str) -> str:
    """Return the beginning of the period of an instant."""
    # Instants in journal lines have one form, `2026-02-10T14:38:07.123Z`; any other is counted where it sorts.
    minutes = at[_MINUTES]
    if len(at) < 20 or not minutes.isdecimal():
        return at[:24]
    return f"{at[:14]}{int(minutes) // QUARTER_MINUTES * QUARTER_MINUTES:02d}:00.000Z"


def uncharged(
    reserved: Mapping[tuple[str, int], Reserved], records: Iterable[Record]
) -> dict[tuple[str, int], Reserved]:
    """Return the reserved amounts of calls that left no line."""
    left = dict(reserved)
    for record in records if left else ():
        left.pop((record.key, record.attempt), None)
        if record.covers is not None:
            left.pop((record.key, record.covers), None)
    return left


def is_call(record: Record) -> bool:
    """Return whether a line is a call of an agent or of a model's program, which may have reported no usage."""
    # The source of a fork paid for the steps that were taken over.
    if record.line.get("taken_over"):
        return False
    if record.line.get("agent_id") is None:
        return record.line.get("provider") is not None
    operation: Any = record.line.get("operation")
    body = operation.get("body") if isinstance(operation, dict) else None
    # A refusal names the agent that was not called.
    return not isinstance(body, dict) or body.get("kind") in (None, "agent_call")


def _model(record: Record) -> str:
    operation: Any = record.line.get("operation")
    body = operation.get("body") if isinstance(operation, dict) else None
    model = body.get("model") if isinstance(body, dict) else None
    return str(model or record.line.get("model") or "")
