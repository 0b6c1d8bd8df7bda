"""Calls of the tools that a program offers, for the actions that a test requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.agent_programs.fake_model.asked import Asked
from tests.agent_programs.fake_model.replies import Reply, Shell, Write

SHELLS = ("Bash", "exec_command", "shell", "shell_command", "bash", "run_shell_command")
WRITERS = ("Write", "write_file", "write", "create")
_TEXTS = {"string": "Do what is wanted.", "boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of one of the program's tools."""

    name: str
    """The name of the tool."""
    arguments: Mapping[str, Any]
    """The arguments of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A reply in the terms of the program that asked for it."""

    text: str
    """The text of the reply."""
    call: Call | None
    """The tool call of the reply."""
    cut: bool = False
    """Whether the reply reached the length limit."""


def said(reply: Reply, asked: Asked) -> Said:
    """Translate a reply for the program that asked for it."""
    if reply.tool is None:
        return Said(text=reply.text, call=None, cut=reply.cut)
    call = _call(reply.tool, asked.offered)
    if call is None:
        return Said(text=f"{reply.text} NO TOOL IS OFFERED".strip(), call=None)
    return Said(text=reply.text, call=call)


def _call(tool: Shell | Write, offered: Mapping[str, Mapping[str, Any] | None]) -> Call | None:
    known = SHELLS if isinstance(tool, Shell) else WRITERS
    name = next((name for name in known if name in offered), tool.insist)
    if name is not None:
        return Call(name=name, arguments=_arguments(tool, offered.get(name) or {}))
    if isinstance(tool, Write):
        return _call(Shell(command=f"printf %s '{tool.content}' > '{tool.path}'"), offered)
    return None


def _arguments(tool: Shell | Write, schema: Mapping[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties") or _usual(tool)
    required = set(schema.get("required") or ())
    arguments = {}
    for name, field in properties.items():
        wanted = _wanted(tool, name, field)
        if wanted is not None:
            arguments[name] = wanted
        elif name in required:
            arguments[name] = _filler(field)
    return arguments


def _wanted(tool: Shell | Write, name: str, field: Mapping[str, Any]) -> Any:
    if isinstance(tool, Shell):
        if name not in ("command", "cmd"):
            return None
        return ["bash", "-lc", tool.command] if field.get("type") == "array" else tool.command
    if "path" in name.lower():
        return tool.path
    return tool.content if name in ("content", "contents", "file_text") else None


def _usual(tool: Shell | Write) -> Mapping[str, Any]:
    names = ("command", "cmd") if isinstance(tool, Shell) else ("file_path", "path", "content")
    return {name: {"type": "string"} for name in names}


def _filler(field: Mapping[str, Any]) -> Any:
    if field.get("enum"):
        return field["enum"][0]
    kind = field.get("type", "string")
    return _TEXTS.get(str(kind[0] if isinstance(kind, list) else kind).lower(), "")
