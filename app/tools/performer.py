"""Perform tool calls: one model-free tool on the run's workspace."""

from __future__ import annotations

import asyncio
from typing import Protocol

from app import errors
from app.domain import operations, plain, records
from app.engine import ports
from app.tools.threads import Threads
from app.tools.workspace import Workspace, Workspaces

DEFAULT_TIMEOUT_SECONDS = 120.0  # Wall-clock limit of one try where the operation sets none.
TOOLS_AT_A_TIME = 4  # Tools that run at a time, over all runs; those that have overrun their time-out included.


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
        """Perform one try of an `operations.ToolCall`. Tools only read, so one that is not waited for does no harm.

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
        except TimeoutError as error:
            raise errors.ToolFailed(
                f"The tool {operation.tool} did not end within {limit:g} seconds.",
                code="tool_timeout",
                detail={"tool": operation.tool, "timeout_seconds": limit},
            ) from error
        return records.Result(output=output.payload, summary=output.summary[: plain.PREVIEW_CHARACTERS])
