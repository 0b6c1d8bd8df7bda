"""The catalogue: the known programs, by the type of their backends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath

from app.agents.programs import claude_code, codex, cursor, gemini, github_copilot, opencode, qwen
from app.agents.programs.program import Program

PROGRAMS: Mapping[str, Program] = {
    "claude-code": claude_code.PROGRAM,
    "codex": codex.PROGRAM,
    "gemini": gemini.PROGRAM,
    "opencode": opencode.PROGRAM,
    "github-copilot": github_copilot.PROGRAM,
    "cursor": cursor.PROGRAM,
    "qwen": qwen.PROGRAM,
}
"""Every program that has its own backend type."""


def called(command: Iterable[str]) -> list[Program]:
    """Return the known programs that the words of a command name."""
    words = [PurePath(word).name.lower() for word in command]
    return [
        program for program in PROGRAMS.values() if any(program.commands[0].split("-")[0] in word for word in words)
    ]
