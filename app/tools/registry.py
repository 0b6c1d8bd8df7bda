"""The registry of tools: find a tool by name, describe it, and execute it with checked arguments."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from app import errors
from app.domain import library, plain
from app.engine import ports
from app.tools import arguments, bounds
from app.tools.workspace import Workspace

if TYPE_CHECKING:
    from app.tools.task_router import RoutingResult


class Tool(Protocol):
    """A tool without a model: the same arguments and the same files give the same output."""

    name: str  # Id in the registry.
    description: str  # One sentence about what it does.
    args_schema: plain.Object  # JSON Schema of its arguments.

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Do the work synchronously; called on a worker thread."""


class ToolRegistry:
    """The tools by name.

    Args:
        load: Returns the tools; called at the first use of one.
    """

    def __init__(self, load: Callable[[], Iterable[Tool]]) -> None:
        self._load = load

    @functools.cached_property
    def _tools(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self._load()}

    def names(self) -> list[str]:
        """Return the names of all tools, sorted."""
        return sorted(self._tools)

    def specs(self) -> dict[str, library.ToolSpec]:
        """Return the specification of each tool for recipes and people, by name."""
        return {name: _spec(self._tools[name]) for name in self.names()}

    def get(self, name: str) -> Tool:
        """Return a tool.

        Raises:
            errors.ToolFailed: `unknown_tool`, with the nearest names.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise _unknown(name, self.names())
        return tool

    def flaws(self, name: str, args: plain.Object) -> list[errors.Flaw]:
        """Return all flaws of arguments.

        Raises:
            errors.ToolFailed: `unknown_tool`.
        """
        return arguments.flaws(self.get(name).args_schema, args)

    def execute(self, name: str, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Execute a tool.

        Raises:
            errors.ToolFailed: `unknown_tool`, `invalid_args`, or what the tool itself raises.
        """
        return self.get(name).execute(args, workspace)


def bundled_tools(route: Callable[[str], RoutingResult]) -> ToolRegistry:
    """Return the registry of all bundled tools, which are imported at the first use of one."""

    def load() -> list[Tool]:
        from app.tools.story.canon_checker import CanonChecker
        from app.tools.story.consistency_checker import ConsistencyChecker
        from app.tools.story.file_locator import FileLocator
        from app.tools.story.outline_analyzer import OutlineAnalyzer
        from app.tools.story.prose_analyzer import ProseAnalyzer
        from app.tools.story.reader_experience_simulator import ReaderExperienceSimulator
        from app.tools.story.scene_draft_validator import SceneDraftValidator
        from app.tools.story.stakes_mapper import StakesMapper
        from app.tools.task_router import TaskRouter

        return [
            CanonChecker(),
            ConsistencyChecker(),
            FileLocator(),
            OutlineAnalyzer(),
            ProseAnalyzer(),
            ReaderExperienceSimulator(),
            SceneDraftValidator(),
            StakesMapper(),
            TaskRouter(route),
        ]

    return ToolRegistry(load)


def _spec(tool: Tool) -> library.ToolSpec:
    return library.ToolSpec(name=tool.name, description=tool.description, args_schema=tool.args_schema)


def _unknown(name: str, known: list[str]) -> errors.ToolFailed:
    nearest = difflib.get_close_matches(name[:80], known, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(nearest)}?" if nearest else f"There are {', '.join(known)}."
    shown = bounds.clipped(name, 80)
    return errors.ToolFailed(f"There is no tool {shown!r}. {hint}", code="unknown_tool", detail={"nearest": nearest})
