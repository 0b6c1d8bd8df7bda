"""What a command's standard output is read as, and the schema that it is held to."""

from __future__ import annotations

import asyncio

from app import errors
from app.domain import json_text, operations, plain
from app.processes import commands
from app.tools import captures
from app.tools.workspace import Workspace


async def rules(
    workspace: Workspace, capture: operations.Capture | None, masker: plain.Masker
) -> captures.Rules | None:
    """Return what a command's output has to be, None where nothing is said.

    The schema is read before the program starts: one that cannot be used fails the step before it costs anything, and a
    program cannot change what it will be held to.

    Raises:
        errors.StepError: `path_outside_workspace`, or `output_invalid` with the reason in `json_schema_errors`.
    """
    if capture is None:
        return None
    schema = None
    if capture.mode == "json" and capture.schema_file is not None:
        schema = await asyncio.to_thread(_schema, workspace, capture.schema_file)
    return captures.Rules(
        mode=capture.mode,
        allow_parse_error=capture.allow_parse_error,
        schema=schema,
        require=capture.require,
        masker=masker,
    )


def made_of(output: commands.Output, text: str, exit_code: int, wanted: captures.Rules) -> captures.Captured:
    """Return what an output becomes.

    Args:
        text: All that is held of it, masked.
        exit_code: 0 if the program did what it should.
    """
    is_complete = len(output.content) == output.size_bytes
    is_utf8 = wanted.mode != "json" or output.size_bytes > captures.JSON_BYTES or _is_utf8(output.content)
    said = captures.Output(text=text, size_bytes=output.size_bytes, complete=is_complete, is_utf8=is_utf8)
    return captures.captured(said, exit_code, wanted)


def _schema(workspace: Workspace, path: str) -> plain.Json:
    try:
        schema = json_text.read(workspace.read_text(path), exact=True)
    except errors.ToolFailed as failure:
        if failure.code == "path_outside_workspace":
            raise
        raise _unusable(failure.message) from failure
    except errors.InputRefused as refused:
        raise _unusable(f"{path!r:.200} cannot be parsed as JSON: {refused.message}") from refused
    if (problem := captures.problem_of_schema(schema)) is not None:
        raise _unusable(f"{path!r:.200}: {problem}")
    return schema


def _unusable(problem: str) -> errors.StepError:
    message = f"the schema cannot be used: {problem}"
    detail = {"context": {"json_schema_errors": [message]}, "exit_code": captures.INVALID_OUTPUT}
    return errors.StepError(message, code="output_invalid", detail=detail)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
