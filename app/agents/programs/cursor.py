"""Cursor Agent: names its conversations itself, in the first line that it writes. Written from its documentation alone.

A first prompt that was cut off is repeated in its conversation if that line was seen, and in a new one otherwise.
No known option switches off all its tools, so it takes no prompts that forbid them.
"""

from __future__ import annotations

from app.agents.programs import results
from app.agents.programs.program import Invocation, Program, Turn, arguments


def _invoke(turn: Turn) -> Invocation:
    leading = ("--print", "--output-format", "stream-json", "--trust", "--force")
    return Invocation(arguments=tuple(arguments(turn, leading, tools=(), begin=None)), stdin=turn.message())


PROGRAM = Program(
    label="Cursor Agent",
    commands=("cursor-agent",),
    path_variable="CURSOR_CLI_PATH",
    known_paths=(".local/bin/cursor-agent",),
    install="see cursor.com/docs/cli/installation",
    invoke=_invoke,
    parse=results.parse,
    names_sessions="it",
    tools_off=False,
    unknown_session=(r"(chat|session|conversation) (\S+ )?not found",),
    key_variable="CURSOR_API_KEY",
    keys=("CURSOR_API_KEY",),
)
"""How the backend calls Cursor Agent."""
