"""Entries of scripts: replies, and the prompts that each one answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from app import errors
from app.agents import json_files
from app.domain import plain, records
from app.engine import agent_ports

MAX_BYTES = 64 * 1024 * 1024  # Largest script.

_Given = tuple[str, plain.Json, int | None]
_COUNT = {"type": ["integer", "null"], "minimum": 0, "description": "must be a whole number, not negative, or null"}
_UNREPORTED = {"input_tokens": None, "output_tokens": None}
_SECONDS = {"type": "number", "minimum": 0, "maximum": 86_400, "description": "must be from 0 to 86400 seconds"}

ENTRY_SCHEMA: plain.Object = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "key": {"type": "string"},
        "attempt": {"type": "integer", "minimum": 1, "description": "must be a whole number from 1"},
        "prompt_sha256": {"type": "string"},
        "text": {"type": "string"},
        "error": {
            "type": "object",
            "additionalProperties": False,
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "detail": {"type": "object"}},
        },
        "delay_seconds": _SECONDS,
        "hang": {"type": "boolean"},
        "usage": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"input_tokens": _COUNT, "output_tokens": _COUNT, "cost_usd": {"type": ["number", "null"]}},
        },
        "agent_session_id": {"type": ["string", "null"]},
        "finish": {"enum": ["length", None]},
    },
}
"""JSON Schema of one entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A reply, and the prompts that it answers."""

    key: str = "*"  # Step that it answers; `*` matches any characters, `?` any single one.
    attempt: int | None = None  # Try that it answers; None: every try.
    prompt_sha256: str | None = None  # Hash of the prompt that it answers; None: every prompt.
    reply: agent_ports.AgentReply  # The reply, with or without an error.
    delay_seconds: float = 0.0  # Delay before the reply.
    hang: bool = False  # Whether the reply never comes.

    def fits(self, prompt: agent_ports.AgentPrompt, prompt_sha256: str) -> bool:
        """Return whether this entry answers a prompt."""
        return (
            self.attempt in (None, prompt.attempt)
            and self.prompt_sha256 in (None, prompt_sha256)
            and (self.key == prompt.key or _pattern(self.key).fullmatch(prompt.key) is not None)
        )


def read(path: Path, *, recorded: bool = False) -> tuple[Entry, ...]:
    """Read a script: a list of entries, an object by step key, or (`.jsonl`) one entry per line."""
    content = json_files.read(path, MAX_BYTES)
    # A recording is appended to and may end in half a line; a script that a person wrote must be complete.
    if recorded or path.suffix == ".jsonl":
        lines = (content[: whole_lines(content)] if recorded else content).split(b"\n")
        given: list[_Given] = [
            ("$", json_files.parse_line(line, n), n) for n, line in enumerate(lines, 1) if line.strip()
        ]
    else:
        given = _listed(json_files.parse(content))
    flaws = [flaw for place, value, line in given for flaw in _flaws(place, value, line)]
    if flaws:
        raise errors.InputRefused("The script is not valid.", flaws=flaws)
    return tuple(_entry(value) for _, value, _ in given)


def prompt_sha256(prompt: agent_ports.AgentPrompt) -> str:
    """Return the hash of a prompt: text, standing instruction, model, tools, and schema and length of the reply."""
    # Only fields that change the reply; the run and the step may differ.
    content = {
        "text": prompt.text,
        "system": prompt.system,
        "model": prompt.model,
        "tools": prompt.tools,
        "reply_schema": None if prompt.reply_schema is None else plain.plain(prompt.reply_schema),
        "max_tokens": prompt.max_tokens,
    }
    return plain.sha256(plain.canonical(content))


def whole_lines(content: bytes) -> int:
    """Return the length of the content up to its last newline."""
    return content.rfind(b"\n") + 1


def _listed(document: plain.Json) -> list[_Given]:
    match document:
        case list():
            return [(f"$[{position}]", value, None) for position, value in enumerate(document)]
        case dict():
            # The most exact key first, independent of the order in the file.
            ranked = sorted(document.items(), key=lambda item: _vagueness(item[0]))
            return [tried for key, value in ranked for tried in _tries(key, value)]
    flaw = errors.Flaw(path="$", code="type", message="must be a list of entries or an object by step key")
    raise errors.InputRefused("The script is not valid.", flaws=[flaw])


def _vagueness(key: str) -> tuple[bool, int]:
    vague = "*" in key or "?" in key
    return vague, -len(key) if vague else 0


def _tries(key: str, value: plain.Json) -> Iterable[_Given]:
    tries = value if isinstance(value, list) else [value]
    for attempt, one in enumerate(tries, 1):
        fields = {"text": one} if isinstance(one, str) else one
        chosen = {"key": key} if attempt == len(tries) else {"key": key, "attempt": attempt}
        yield f"$['{key:.80}']", fields | chosen if isinstance(fields, dict) else fields, None


def _flaws(place: str, value: plain.Json, line: int | None) -> list[errors.Flaw]:
    found = json_files.flaws(ENTRY_SCHEMA, value, line)
    if not found and sum(name in value for name in ("text", "error", "hang")) != 1:
        found = [errors.Flaw(path="$", code="one_of", message="needs one of text, error and hang", line=line)]
    return [
        errors.Flaw(path=place + flaw.path.removeprefix("$"), code=flaw.code, message=flaw.message, line=line)
        for flaw in found
    ]


def _entry(value: Mapping[str, Any]) -> Entry:
    chosen = {
        name: value[name] for name in ("key", "attempt", "prompt_sha256", "delay_seconds", "hang") if name in value
    }
    error, usage = value.get("error"), value.get("usage")
    reply = agent_ports.AgentReply(
        text=value.get("text", ""),
        agent_session_id=value.get("agent_session_id"),
        usage=records.Usage(**_UNREPORTED | usage) if usage else None,
        finish=value.get("finish"),
        error=records.StepError(**error) if error else None,
    )
    return Entry(reply=reply, **chosen)


@lru_cache(maxsize=256)
def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(re.escape(key).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
