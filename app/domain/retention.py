"""Retention: which finished runs are removed, and which are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain import shapes
from app.domain.states import RunState

FINISHED = tuple(state.value for state in RunState if state.finished)  # States of runs that can be removed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(shapes.Shape):
    """Which runs are removed: too old ones, and those for which the newer ones leave no room."""

    older_than_seconds: int | None = None
    """Time since a run ended after which it is removed; null: no age is too old."""
    keep_bytes: int | None = None
    """Bytes that the newest of these runs may have together; older ones are removed. Null: any number."""
    status: tuple[str, ...] = FINISHED  # States of the runs that the rule is about.
    recipe_id: str | None = None  # Only runs of this recipe.
    labels: Mapping[str, str] = field(default_factory=dict)  # Only runs with all these labels.

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Rule:
        """Read a rule from plain JSON.

        Raises:
            KeyError, ValueError, TypeError: it is none.
        """
        rule = cls(**{**value, "status": tuple(value.get("status", FINISHED))})
        amounts = (rule.older_than_seconds, rule.keep_bytes)
        if not all(amount is None or (type(amount) is int and amount >= 0) for amount in amounts):
            raise ValueError("an age and a size are whole numbers")
        if amounts == (None, None) or not rule.status or not set(rule.status) <= set(FINISHED):
            raise ValueError("a rule has an age or a size, and is about finished runs")
        if not all(isinstance(text, str) for pair in rule.labels.items() for text in pair):
            raise TypeError("labels are texts")
        return rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(shapes.Shape):
    """Rules that the service applies once an hour; none: nothing is removed."""

    rules: tuple[Rule, ...] = ()  # The rules, each by itself.

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Policy:
        """Read a policy from plain JSON.

        Raises:
            KeyError, ValueError, TypeError, AttributeError: it is none.
        """
        return cls(rules=tuple(Rule.of(rule) for rule in value["rules"]))
