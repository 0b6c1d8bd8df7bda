"""The registry of tools: find a tool by name, describe it, and execute it with checked arguments."""

from __future__ import annotations

import asyncio
import difflib
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from app import errors
from app.domain import library, operations, plain, records
from app.engine import ports
from app.tools import arguments, bounds
from app.tools.threads import Threads
from app.tools.workspace import Workspace, Workspaces

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


DEFAULT_TIMEOUT_SECONDS = 120.0  # Wall-clock limit of one try if the operation sets none.
TOOLS_AT_A_TIME = 4  # Tools that run at the same time, over all runs; overrun ones included.


class Tools(Protocol):
    """Tools by name."""

    def execute(self, name: str, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Check the arguments and run the tool.

        Raises:
            errors.ToolFailed: `unknown_tool`, `invalid_args`, or the tool's own.
        """


class ToolPerformer:
    """Run a tool in a thread; its output is the payload."""

    def __init__(self, tools: Tools, workspaces: Workspaces, at_a_time: int = TOOLS_AT_A_TIME) -> None:
        self._tools = tools
        self._workspaces = workspaces
        self._threads = Threads(at_a_time)

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of an `operations.ToolCall`. Tools only read, so an abandoned one does no harm.

        Raises:
            errors.ToolFailed: `tool_timeout`, `workspace_not_allowed`, `unknown_tool`, `invalid_args`, and the tool's.
        """
        operation = call.operation
        assert isinstance(operation, operations.ToolCall)
        workspace = self._workspaces.of(call.run)
        limit = operation.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        try:
            async with asyncio.timeout(limit):
                output = await self._threads.run(lambda: self._tools.execute(operation.tool, operation.args, workspace))
        except errors.ToolFailed as failure:
            raise _naming_argument(failure, operation.args) from failure
        except TimeoutError as error:
            raise errors.ToolFailed(
                f"The tool {operation.tool} did not end within {limit:g} seconds.",
                code="tool_timeout",
                detail={"tool": operation.tool, "timeout_seconds": limit},
            ) from error
        return records.Result(output=output.payload, summary=output.summary[: plain.PREVIEW_CHARACTERS])


def _naming_argument(failure: errors.ToolFailed, args: plain.Object) -> errors.ToolFailed:
    """Return a failure that also names the argument whose path or words the failure is about."""
    query = failure.detail.get("query")
    about = {str(each) for each in [failure.detail.get("path"), *(query if isinstance(query, list) else ())] if each}
    name = next((name for name, given in args.items() if about & set(_texts(given))), None)
    if name is None:
        return failure
    message = f"{failure.message} It is given in the argument {name}."
    return type(failure)(message, code=failure.code, detail={**failure.detail, "argument": name})


def _texts(given: plain.Json) -> list[str]:
    return [each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str)]
