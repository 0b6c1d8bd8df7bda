"""Budgets: what runs may spend together, and how a limit or budget stands."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from app import clock, errors
from app.domain import shapes, zones
from app.domain.limits import NO_LIMITS, RunLimits, flaws
from app.domain.records import rounded, total
from app.domain.usage_sums import UsageSum, quarter_of

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"  # Form of the name of a budget.
NAME_FORM = "must be 1 to 64 letters, digits, '_', '.' and '-', and begin with a letter or digit"
MOST_BUDGETS = 200  # Most budgets of a project.
MONEY = ("cost_usd", "tokens", "calls")  # Limits that calls of agents use up.


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(shapes.Shape):
    """What some runs, with those that they start, may spend together."""

    name: str  # Name of the budget.
    recipe_id: str | None = None  # Only runs of this recipe count; None: of any.
    label: str | None = None  # Only runs with this label count, `name:value`; None: any.
    session_id: str | None = None  # Only runs of this work session, or of its plans, count; None: of any.
    per: Literal["day"] | None = None
    """`day`: the spending of each day counts by itself; None: everything counts."""
    time_zone: str = "UTC"  # Time zone of midnight, by its IANA name.
    limits: RunLimits = NO_LIMITS  # The limits: `cost_usd`, `tokens`, `calls`.

    @classmethod
    def from_json(cls, value: Any) -> Budget:
        """Read a budget that was written; unknown fields of a later version are ignored.

        Raises:
            KeyError, TypeError, ValueError: it is not one.
        """
        known = {name: value[name] for name in cls.__slots__ if name in value}
        budget = cls(**{**known, "limits": RunLimits.from_json(known["limits"])})
        for flaw in budget.flaws():
            raise ValueError(flaw.message)
        return budget

    def flaws(self) -> list[errors.Flaw]:
        """Return everything wrong with it."""
        found = flaws(self.limits)
        if not re.fullmatch(NAME_PATTERN, str(self.name)):
            found.append(errors.Flaw(path="$.name", message=f"name {NAME_FORM}"))
        if self.label is not None and ":" not in str(self.label):
            found.append(errors.Flaw(path="$.label", message="label must have the form name:value"))
        found += [
            errors.Flaw(path=f"$.limits.{name}", message=f"a budget has no {name}; limit each run instead")
            for name in ("wall_seconds", "active_seconds")
            if getattr(self.limits, name) is not None
        ]
        if self.limits == NO_LIMITS:
            found.append(errors.Flaw(path="$.limits", code="missing", message="give cost_usd, tokens or calls"))
        if self.per not in ("day", None):
            found.append(errors.Flaw(path="$.per", message="per must be day or null"))
        if fault := zones.fault(self.time_zone):
            found.append(errors.Flaw(path="$.time_zone", code="unknown_time_zone", message=fault))
        return found

    def covers(self, recipe_id: str, labels: Mapping[str, str], session_id: str) -> bool:
        """Return whether a run counts."""
        name, _, value = (self.label or "").partition(":")
        return (
            self.recipe_id in (None, recipe_id)
            and self.session_id in (None, session_id)
            and (self.label is None or labels.get(name) == value)
        )

    def since(self, now: datetime) -> str:
        """Return the first period of 15 minutes that counts."""
        return quarter_of(clock.stamp(_midnight(now, self.time_zone))) if self.per == "day" else ""

    def next_turn(self, now: datetime) -> datetime | None:
        """Return when what was spent begins anew; None: never."""
        if self.per != "day":
            return None
        # A day may have 23 or 25 hours.
        return _midnight(_midnight(now, self.time_zone) + timedelta(hours=30), self.time_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used(shapes.Shape):
    """What calls of agents took."""

    cost_usd: float | None = None  # Sum of the reported prices; None if there are none.
    cost_estimated_usd: float | None = None
    """Sum of the estimates for calls without a reported price; None if there are none."""
    tokens: int = 0  # Tokens read and written.
    calls: int = 0  # Calls, repeated ones and those that were cut off included.
    calls_without_price: int = 0
    """Calls whose usage, but no price, was reported; an estimate counts for them, or else the reserved amount."""
    calls_silent: int = shapes.omitted(default=0)
    """Calls that reported nothing, those that were cut off among them; the reserved amount counts for them."""

    @classmethod
    def of(cls, parts: Iterable[UsageSum]) -> Used:
        """Add up parts; what was reserved for calls that told nothing is not contained."""
        found = list(parts)
        return cls(
            cost_usd=total(part.cost_usd for part in found),
            cost_estimated_usd=total(part.cost_estimated_usd for part in found),
            tokens=sum(part.input_tokens + part.output_tokens for part in found),
            calls=sum(part.calls + part.calls_silent for part in found),
            calls_without_price=sum(part.calls_without_price for part in found),
            calls_silent=sum(part.calls_silent for part in found),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts(shapes.Shape):
    """Amounts of what limits limit; absent: not limited."""

    cost_usd: float | None = shapes.omitted()  # US dollars.
    tokens: int | None = shapes.omitted()  # Tokens.
    calls: int | None = shapes.omitted()  # Calls of agents.


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState(shapes.Shape):
    """How the limits of a run, or a budget, stand."""

    limits: RunLimits  # The limits in force.
    used: Used  # What calls of agents took so far.
    reserved: Amounts
    """Reserved amounts: for calls under way, and for those that ended without reporting usage."""
    left: Amounts  # Remainder of each limit; negative by the amount that exceeds it.

    @classmethod
    def of(cls, limits: RunLimits, parts: Iterable[UsageSum], open_parts: Iterable[UsageSum] = ()) -> BudgetState:
        """Return how limits stand.

        Args:
            parts: Calls that ended.
            open_parts: Reserved amounts of calls under way.
        """
        ended, under_way = list(parts), list(open_parts)
        used = Used.of(ended)
        tokens = sum(part.tokens_reserved for part in [*ended, *under_way])
        cost = sum(part.cost_reserved_usd for part in [*ended, *under_way])
        # Calls under way count as made, or many at a time would pass a limit together.
        calls = sum(part.calls_silent for part in under_way)
        spent = (used.cost_usd or 0) + (used.cost_estimated_usd or 0)
        taken = {"cost_usd": spent + cost, "tokens": used.tokens + tokens, "calls": used.calls + calls}
        left: dict[str, Any] = {
            name: rounded(limit - taken[name]) for name in MONEY if (limit := getattr(limits, name)) is not None
        }
        reserved = Amounts(cost_usd=rounded(cost), tokens=tokens, calls=calls)
        return cls(limits=limits, used=used, reserved=reserved, left=Amounts(**left))


def limits_money(limits: RunLimits) -> bool:
    """Return whether calls of agents use limits up."""
    return any(getattr(limits, name) is not None for name in MONEY)


def _midnight(at: datetime, time_zone: str) -> datetime:
    local = at.astimezone(zoneinfo.ZoneInfo(time_zone))
    # Where clocks are set back to midnight, the day begins at the first of the two.
    return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0).astimezone(UTC)
