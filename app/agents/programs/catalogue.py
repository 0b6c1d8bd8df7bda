"""
The programs that are known, by the type of their backends.
"""

from __future__ import annotations

from collections.abc import Mapping

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
"""Every program that has a type of its own."""
