"""Retention: rules for which finished runs are removed and which are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app import errors
from app.domain import shapes
from app.domain.states import RunState

FINISHED = tuple(state.value for state in RunState if state.finished)  # States of runs that can be removed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(shapes.Shape):
    """Selects runs to remove: those that are too old, and those for which newer ones leave no room."""

    older_than_seconds: int | None = None
    """Seconds after its end from which a run is removed; null: at no age."""
    keep_bytes: int | None = None
    """Bytes that the newest of these runs may use together; older ones are removed. Null: unlimited."""
    status: tuple[str, ...] = FINISHED  # States of the runs to which the rule applies.
    recipe_id: str | None = None  # Only runs of this recipe.
    labels: Mapping[str, str] = field(default_factory=dict)  # Only runs with all these labels.


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(shapes.Shape):
    """Rules that the service applies once an hour; without rules, no run is removed."""

    rules: tuple[Rule, ...] = ()  # The rules; each is applied by itself.

    @classmethod
    def of(cls, value: Any) -> Policy:
        """Read a policy from plain JSON.

        Raises:
            errors.RequestInvalid: the policy has flaws, all of which are listed.
        """
        rules = value.get("rules") if isinstance(value, dict) else None
        flaws = list(_flaws(rules))
        if flaws:
            raise errors.RequestInvalid(f"{flaws[0].path}: {flaws[0].message}", flaws=flaws)
        given = rules if isinstance(rules, list) else []
        return cls(rules=tuple(Rule(**each | {"status": tuple(each.get("status", FINISHED))}) for each in given))


def _flaws(rules: Any) -> Iterator[errors.Flaw]:
    if not isinstance(rules, list):
        yield errors.Flaw(path="$.rules", code="missing", message="must be a list of rules")
        return
    for number, rule in enumerate(rules):
        path = f"$.rules[{number}]"
        if isinstance(rule, dict):
            yield from (errors.Flaw(path=path + place, code=code, message=text) for place, code, text in _wrong(rule))
        else:
            yield errors.Flaw(path=path, message="must be an object")


def _wrong(rule: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    known = [each.name for each in dataclasses.fields(Rule)]
    for name in sorted(str(each) for each in rule if each not in known):
        yield f".{name}", "unknown_field", f"known are {', '.join(known)}"
    amounts = {name: rule[name] for name in ("older_than_seconds", "keep_bytes") if rule.get(name) is not None}
    for name, amount in amounts.items():
        if type(amount) is not int or amount < 0:
            yield f".{name}", "invalid", "must be a whole number, 0 or more"
    if not amounts:
        yield "", "missing", "say what to remove: set older_than_seconds or keep_bytes"
    status = rule.get("status", FINISHED)
    if not isinstance(status, list | tuple) or not status or not all(each in FINISHED for each in status):
        yield ".status", "invalid", f"must be a list of {', '.join(FINISHED)}"
    if not isinstance(rule.get("recipe_id"), str | None):
        yield ".recipe_id", "invalid", "must be the id of a recipe"
    labels = rule.get("labels", {})
    if not isinstance(labels, dict) or not all(isinstance(text, str) for text in labels.values()):
        yield ".labels", "invalid", "must be an object of texts"
