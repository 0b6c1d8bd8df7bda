"""Budgets: the most that several runs may spend together, and the state of limits and budgets."""

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
MOST_BUDGETS = 200  # Most budgets in a project.
MONEY = ("cost_usd", "tokens", "calls")  # Limits that calls of agents use up.


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(shapes.Shape):
    """The most that some runs may spend together, with the runs that they start."""

    name: str  # Name of the budget.
    recipe_id: str | None = None  # Only runs of this recipe count; None: of any recipe.
    label: str | None = None  # Only runs with this label count, `name:value`; None: all.
    session_id: str | None = None  # Only runs of this work session, or of its plans, count; None: of any session.
    per: Literal["day"] | None = None
    """`day`: the spending of each day is counted separately; None: all spending counts together."""
    time_zone: str = "UTC"  # Time zone whose midnight begins a day, by its IANA name.
    limits: RunLimits = NO_LIMITS  # The limits: `cost_usd`, `tokens`, `calls`.

    @classmethod
    def from_json(cls, value: Any) -> Budget:
        """Read a stored budget; unknown fields of a later version are ignored.

        Raises:
            KeyError, TypeError, ValueError: the value is not a budget.
        """
        known = {name: value[name] for name in cls.__slots__ if name in value}
        budget = cls(**{**known, "limits": RunLimits.from_json(known["limits"])})
        for flaw in budget.flaws():
            raise ValueError(flaw.message)
        return budget

    def flaws(self) -> list[errors.Flaw]:
        """Return all flaws of the budget."""
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

    def without_effect(self) -> list[errors.Flaw]:
        """Return a flaw for each field that changes nothing; the file of an earlier version may have it."""
        if self.per is not None or self.time_zone == "UTC":
            return []
        return [errors.Flaw(path="$.time_zone", message="belongs to per: day; without it, no day begins")]

    def covers(self, recipe_id: str, labels: Mapping[str, str], session_id: str) -> bool:
        """Return whether a run counts in the budget."""
        name, _, value = (self.label or "").partition(":")
        return (
            self.recipe_id in (None, recipe_id)
            and self.session_id in (None, session_id)
            and (self.label is None or labels.get(name) == value)
        )

    def since(self, now: datetime) -> str:
        """Return the first period of 15 minutes that counts in the budget."""
        return quarter_of(clock.stamp(_midnight(now, self.time_zone))) if self.per == "day" else ""

    def next_turn(self, now: datetime) -> datetime | None:
        """Return when the spending of the next day begins to count; None: never."""
        if self.per != "day":
            return None
        # A day may have 23 or 25 hours.
        return _midnight(_midnight(now, self.time_zone) + timedelta(hours=30), self.time_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used(shapes.Shape):
    """The usage of agent calls."""

    cost_usd: float | None = None  # Sum of the reported prices; None if there are none.
    cost_estimated_usd: float | None = None
    """Sum of the estimates for calls without a reported price; None if there are none."""
    tokens: int = 0  # Tokens read and written.
    calls: int = 0  # Calls, including repeated ones and those that were cut off.
    calls_without_price: int = 0
    """Calls that reported their usage but no price; their estimate counts or, without one, the reserved amount."""
    calls_silent: int = shapes.omitted(default=0)
    """Calls that reported no usage, including those that were cut off; the reserved amount counts for them."""

    @classmethod
    def of(cls, parts: Iterable[UsageSum]) -> Used:
        """Add up parts, without the reserved amounts of calls that reported no usage."""
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
    """An amount for each limit; absent: not limited."""

    cost_usd: float | None = shapes.omitted()  # US dollars.
    tokens: int | None = shapes.omitted()  # Tokens.
    calls: int | None = shapes.omitted()  # Calls of agents.


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState(shapes.Shape):
    """The state of the limits of a run, or of a budget."""

    limits: RunLimits  # The limits in force.
    used: Used  # Usage of agent calls so far.
    reserved: Amounts
    """Reserved amounts: for calls under way, and for those that ended without reporting usage."""
    left: Amounts  # Remainder of each limit; negative if the limit is exceeded.

    @classmethod
    def of(cls, limits: RunLimits, parts: Iterable[UsageSum], open_parts: Iterable[UsageSum] = ()) -> BudgetState:
        """Return the state of limits.

        Args:
            parts: Calls that have ended.
            open_parts: Reserved amounts of calls under way.
        """
        ended, under_way = list(parts), list(open_parts)
        used = Used.of(ended)
        tokens = sum(part.tokens_reserved for part in [*ended, *under_way])
        cost = sum(part.cost_reserved_usd for part in [*ended, *under_way])
        # Calls under way count as made; otherwise many concurrent calls could exceed a limit together.
        calls = sum(part.calls_silent for part in under_way)
        spent = (used.cost_usd or 0) + (used.cost_estimated_usd or 0)
        taken = {"cost_usd": spent + cost, "tokens": used.tokens + tokens, "calls": used.calls + calls}
        left: dict[str, Any] = {
            name: rounded(limit - taken[name]) for name in MONEY if (limit := getattr(limits, name)) is not None
        }
        reserved = Amounts(cost_usd=rounded(cost), tokens=tokens, calls=calls)
        return cls(limits=limits, used=used, reserved=reserved, left=Amounts(**left))


def limits_money(limits: RunLimits) -> bool:
    """Return whether any of the limits applies to agent calls."""
    return any(getattr(limits, name) is not None for name in MONEY)


def _midnight(at: datetime, time_zone: str) -> datetime:
    local = at.astimezone(zoneinfo.ZoneInfo(time_zone))
    # If clocks are set back to midnight, the day begins at the first of the two midnights.
    return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0).astimezone(UTC)
