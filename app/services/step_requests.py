"""Step requests: the request of an open step to an agent, a tool or a program, as readable text."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from app.domain import explanations, operations, plain, records
from app.engine import open_steps, replay

MOST_CHARACTERS = 100_000  # Most characters of a request that are shown.

_RULES = ("retry", "timeout_seconds", "on_interrupted")


async def shown(
    wait: open_steps.StepWait, read_blob: replay.ReadBlob, masker: plain.Masker
) -> explanations.StepRequest:
    """Return the request of an open step, with secrets masked."""
    operation = wait.operation
    # Masked before it is cut, so that no part of a secret remains at the end.
    text = str(masker.mask(await _text(operation, read_blob)))
    agent = operation if isinstance(operation, operations.AgentCall) else None
    return explanations.StepRequest(
        key=wait.key,
        attempt=max(wait.attempt, 1),
        kind=operation.kind,
        agent_id=agent.agent_id if agent else None,
        backend=agent.backend if agent else None,
        model=agent.model if agent else None,
        tool=operation.tool if isinstance(operation, operations.ToolCall) else None,
        text=text[:MOST_CHARACTERS],
        truncated=len(text) > MOST_CHARACTERS,
    )


async def _text(operation: operations.Operation, read_blob: replay.ReadBlob) -> str:
    match operation:
        case operations.AgentCall():
            parts = [await _part(part, read_blob) for part in operation.prompt]
            prompt = "".join(parts)
            return f"{operation.system}\n\n---\n\n{prompt}" if operation.system else prompt
        case operations.Command():
            return _command(operation)
        case operations.ToolCall():
            return _json(operation.args)
        case _:
            body: Any = operations.body(operation)
            return _json({name: value for name, value in body.items() if name not in (*_RULES, "kind")})


def _command(operation: operations.Command) -> str:
    """Return a command, preceded by the variables that it uses."""
    text = operation.argv[-1] if operation.argv[:2] == ("bash", "-c") else " ".join(operation.argv)
    named = [f"{name}={shlex.quote(value)}" for name, value in operation.env.items() if f"${{{name}}}" in text]
    return "\n".join([*named, text])


async def _part(part: plain.Json, read_blob: replay.ReadBlob) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    content = await read_blob(records.BlobRef.from_json(part["blob"]))
    return content if isinstance(content, str) else _json(content)


def _json(value: object) -> str:
    return json.dumps(plain.plain(value), ensure_ascii=False, indent=1)
