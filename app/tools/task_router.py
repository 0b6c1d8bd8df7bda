"""The tool `task_router`: name the recipe that a task would be routed to (execution-modes, appendix E)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from app.domain import plain
from app.engine import ports
from app.tools import arguments, bounds
from app.tools.workspace import Workspace


class RoutingResult(Protocol):
    """The answer of the router."""

    @property
    def recipe_id(self) -> str | None:
        """Recipe that fits; None if none does."""

    @property
    def initial_args(self) -> plain.Object:
        """Arguments taken from the text."""

    @property
    def routable(self) -> bool:
        """Whether a recipe fits."""

    @property
    def reason(self) -> str:
        """Why this recipe, or why none."""


class TaskRouter:
    """Wrap the routing function as a tool."""

    name = "task_router"
    description = "Choose the recipe for a task by keywords and patterns, without a model."
    args_schema: plain.Object = arguments.schema(
        required=["user_request"], user_request=arguments.text("The task, in the user's words.", max_length=20_000)
    )

    def __init__(self, route: Callable[[str], RoutingResult]) -> None:
        self._route = route

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Return the choice, and the same as text."""
        params = arguments.complete(self.name, self.args_schema, args)
        result = self._route(params["user_request"])
        text = bounds.report(_lines(result))
        payload = {
            "recipe_id": result.recipe_id,
            "initial_args": plain.plain(result.initial_args),
            "routable": result.routable,
            "reason": bounds.clipped(result.reason, 1_000),
            "text": text,
            "report": text,
        }
        chosen = f"routed to {result.recipe_id}" if result.routable else f"not routable: {result.reason}"
        return ports.ToolOutput(
            payload=bounds.fitted(payload, ()), summary=bounds.clipped(chosen, bounds.SUMMARY_CHARACTERS)
        )


def _lines(result: RoutingResult) -> list[str]:
    if not result.routable:
        return ["No recipe fits this task.", f"Reason: {result.reason}"]
    args = [f"- {name}: {bounds.clipped(str(value))}" for name, value in result.initial_args.items()]
    return [f"Recipe: {result.recipe_id}", f"Reason: {result.reason}", *(["Arguments:", *args] if args else [])]
