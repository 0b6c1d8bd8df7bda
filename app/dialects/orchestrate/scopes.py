"""Scopes: the steps of a workflow and of each loop in it, and the targets of a `goto` (workflow-dsl, loop scoping)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app import errors
from app.dialects.orchestrate import schema
from app.domain import json_schemas, json_text, plain

Step: TypeAlias = plain.Object

_CONTEXT = re.compile(r"\$\{context\.([^{}.]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The steps of one scope."""

    steps: Mapping[str, Step]  # The steps by name; if several share one, the first.
    outer: Scope | None  # Scope of the loop around them.
    loop: Step | None = None  # The loop that contains them.

    def find(self, name: str) -> Step | None:
        """Return the step with a name, from this scope or an outer one."""
        found = self.steps.get(name)
        return found if found is not None or self.outer is None else self.outer.find(name)

    def loops(self) -> list[Step]:
        """Return the loops around the steps, the innermost first."""
        return [] if self.loop is None or self.outer is None else [self.loop, *self.outer.loops()]

    def names(self) -> list[str]:
        """Return the names of all steps that are visible from this scope."""
        return [*self.steps, *(self.outer.names() if self.outer is not None else ())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One step of a workflow, with its place."""

    place: json_text.Parts  # Its position in the document.
    step: Step  # The step.
    scope: Scope  # Scope of the step.
    repeated: bool  # Whether an earlier step has the same name.

    @property
    def loop(self) -> plain.Object | None:
        """Return the loop of a step; None if it has none."""
        loop = self.step.get("for_each")
        return loop if isinstance(loop, dict) else None

    def flaw(self, code: str, message: str, *parts: str | int) -> errors.Flaw:
        """Return a flaw of the step, or of the given part of it."""
        return json_schemas.flaw((*self.place, *parts), code, message)


def spots(
    workflow: plain.Object, place: json_text.Parts = (), outer: Scope | None = None, loop: Step | None = None
) -> Iterator[Spot]:
    """Return every step in order, those of loops after their loop; malformed steps are skipped."""
    listed = workflow.get("steps")
    steps = [(index, step) for index, step in enumerate(listed if isinstance(listed, list) else ()) if _is_step(step)]
    named: dict[str, Step] = {}
    first: dict[str, int] = {}
    for index, step in steps:
        if isinstance(step.get("name"), str):
            named.setdefault(step["name"], step)
            first.setdefault(step["name"], index)
    scope = Scope(steps=named, outer=outer, loop=loop)
    for index, step in steps:
        name, here = step.get("name"), (*place, "steps", index)
        repeated = isinstance(name, str) and first[name] < index
        spot = Spot(place=here, step=step, scope=scope, repeated=repeated)
        yield spot
        if spot.loop is not None:
            yield from spots(spot.loop, (*here, "for_each"), scope, step)


def problem_of_goto(target: str, spot: Spot, everywhere: plain.Object) -> tuple[str, str] | None:
    """Return code and message if a `goto` cannot reach its target."""
    if target == schema.END or spot.scope.find(target) is not None:
        return None
    if target in everywhere:
        return "goto_into_loop", f"leads to {target:.80}, which is inside of a loop; a `goto` leads out of loops only"
    near = json_schemas.nearest(target, [*spot.scope.names(), schema.END])
    return "unknown_step", f"leads to {target!r:.80}, which is not a step here{near}"


def path_args(workflow: plain.Object) -> dict[str, bool]:
    """Return the values of the context that are the whole path of a step's file, and whether a step reads it before
    another one writes it.
    """
    found: dict[str, bool] = {}
    for spot in spots(workflow):
        needed = (spot.step.get("depends_on") or {}).get("required", ())
        files = [(path, True) for path in (spot.step.get("input_file"), *needed)]
        for path, is_read in (*files, (spot.step.get("output_file"), False)):
            if (name := _of_context(path)) is not None:
                # The first step decides: a file that an earlier step writes need not exist before the run.
                found.setdefault(name, is_read)
    return found


def may_repeat(workflow: plain.Object) -> bool:
    """Return whether the flow can pass a step twice: by a loop, or by a jump back."""
    order = [step["name"] for step in workflow["steps"]]
    return any("for_each" in step for step in workflow["steps"]) or any(
        branch["goto"] in order[: index + 1]
        for index, step in enumerate(workflow["steps"])
        for branch in step.get("on", {}).values()
    )


def _of_context(path: plain.Json) -> str | None:
    found = _CONTEXT.fullmatch(path) if isinstance(path, str) else None
    return found[1] if found is not None else None


def _is_step(step: plain.Json) -> bool:
    return isinstance(step, dict)
