"""Policies: limits and approvals that every run of a recipe gets, in any language and from any starter."""

# Why: docs/decisions/0355.

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from app import errors
from app.domain import limits, shapes
from app.domain.approvals import MOST, Approvals, strictest
from app.domain.limits import NO_LIMITS, RunLimits

ANY = "*"  # Matches every recipe.
MOST_POLICIES = 500  # Most policies in a project.

_RECIPE_PATTERN = r"^(\*|[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199})$"
_APPROVALS = {"count": int, "not_starter": bool}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipePolicy(shapes.Shape):
    """The limits and approvals that runs of a recipe get."""

    recipe_id: str  # The recipe; `*`: every recipe.
    limits: RunLimits = NO_LIMITS  # Limits of each run, unless its start sets others.
    approvals: Approvals | None = None  # Least approvals of its gates; null: one answer decides.


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies(shapes.Shape):
    """The policies of a project."""

    published_as: ClassVar[str] = "RecipePolicies"

    policies: tuple[RecipePolicy, ...] = ()  # At most one policy for each recipe.

    @classmethod
    def of(cls, value: Any) -> Policies:
        """Return the policies in a document.

        Raises:
            errors.RequestInvalid: the document has flaws, all of which are listed.
        """
        found = list(_flaws(value))
        if found:
            raise errors.RequestInvalid(f"the policies are not valid: {found[0].path}: {found[0].message}", flaws=found)
        return cls(policies=tuple(_policy(each) for each in value["policies"]))

    def limits_of(self, recipe_id: str, given: RunLimits) -> RunLimits:
        """Return the limits of a run: each from its start, else from its recipe's policy, else from that of `*`."""
        named: dict[str, Any] = {}
        for policy in reversed(self._for(recipe_id)):
            named |= policy.limits.to_json()
        return RunLimits(**named | given.to_json()) if named else given

    def approvals_of(self, recipe_id: str, given: Approvals | None) -> Approvals | None:
        """Return the approvals that the gates of a run need: the strictest of its own and of its policies."""
        return strictest(given, *(policy.approvals for policy in self._for(recipe_id)))

    def _for(self, recipe_id: str) -> list[RecipePolicy]:
        found = {policy.recipe_id: policy for policy in self.policies}
        return [found[name] for name in (recipe_id, ANY) if name in found]


NONE = Policies()  # No policies.


def _policy(value: dict[str, Any]) -> RecipePolicy:
    given = value.get("approvals")
    return RecipePolicy(
        recipe_id=value["recipe_id"],
        limits=RunLimits(**(value.get("limits") or {})),
        approvals=None if given is None else Approvals(**given),
    )


def _flaws(value: Any) -> Iterator[errors.Flaw]:
    listed = value.get("policies") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        yield errors.Flaw(path="$.policies", code="missing", message="must be a list of policies")
        return
    if len(listed) > MOST_POLICIES:
        yield errors.Flaw(path="$.policies", message=f"has more than {MOST_POLICIES} items")
        return
    names = set[str]()
    # All flaws of the document are reported, since a person edits it as a whole.
    for number, each in enumerate(listed):
        path = f"$.policies[{number}]"
        if not isinstance(each, dict):
            yield errors.Flaw(path=path, message="must be an object")
            continue
        yield from _of_policy(path, each)
        if str(each.get("recipe_id")) in names:
            yield errors.Flaw(path=f"{path}.recipe_id", code="duplicate", message="has a policy already")
        names.add(str(each.get("recipe_id")))


def _of_policy(path: str, value: dict[str, Any]) -> Iterator[errors.Flaw]:
    known = [each.name for each in dataclasses.fields(RecipePolicy)]
    for name in sorted(str(each) for each in value if each not in known):
        yield errors.Flaw(path=f"{path}.{name}", code="unknown_field", message=f"known are {', '.join(known)}")
    recipe_id, bounds, votes = (value.get(name) for name in known)
    if not isinstance(recipe_id, str) or not re.fullmatch(_RECIPE_PATTERN, recipe_id):
        yield errors.Flaw(path=f"{path}.recipe_id", message="must be the id of a recipe, or *")
    if not isinstance(bounds or {}, dict):
        yield errors.Flaw(path=f"{path}.limits", message="must be an object")
    elif unknown := sorted(set(bounds or {}) - set(limits.RANGES)):
        message = f"known are {', '.join(limits.RANGES)}"
        yield errors.Flaw(path=f"{path}.limits.{unknown[0]}", code="unknown_field", message=message)
    else:
        yield from limits.flaws(RunLimits(**(bounds or {})), f"{path}.limits")
    if votes is not None and not _are_approvals(votes):
        message = f"must have a count from 1 to {MOST}, and may have not_starter: true or false"
        yield errors.Flaw(path=f"{path}.approvals", message=message)
    if votes is None and isinstance(bounds or {}, dict) and all(each is None for each in (bounds or {}).values()):
        yield errors.Flaw(path=path, code="missing", message="give limits or approvals")


def _are_approvals(value: Any) -> bool:
    if not isinstance(value, dict) or not set(value) <= set(_APPROVALS):
        return False
    right = all(type(value[name]) is _APPROVALS[name] for name in value)
    return right and 1 <= value.get("count", 1) <= MOST
