"""The performer of tools: runs a tool on a thread, within its time limit."""

from __future__ import annotations

from app import errors
from app.domain import operations, plain, records
from app.engine import ports
from app.tools.registry import ToolRegistry
from app.tools.threads import AT_A_TIME, DEFAULT_TIMEOUT_SECONDS, Threads
from app.tools.workspace import Workspaces


class ToolPerformer:
    """Run a tool in a thread; its output is the payload."""

    def __init__(self, tools: ToolRegistry, workspaces: Workspaces, at_a_time: int = AT_A_TIME) -> None:
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
            output = await self._threads.run(
                lambda: self._tools.execute(operation.tool, operation.args, workspace), limit
            )
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
