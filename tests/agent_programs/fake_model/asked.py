"""Requests as a fake model reads them, in any dialect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of the conversation so far."""

    role: str
    """`user`, `assistant` or `tool`."""
    text: str
    """The text of the message; of a tool, its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request for a reply."""

    dialect: str
    """`anthropic`, `responses`, `chat` or `gemini`."""
    path: str
    """Path of the request, its query included."""
    headers: Mapping[str, str]
    """Headers, their names in lower case."""
    body: Mapping[str, Any]
    """The whole request."""
    model: str
    """The requested model."""
    system: str
    """The system prompt."""
    turns: tuple[Turn, ...]
    """Conversation so far, without the system prompt."""
    offered: Mapping[str, Mapping[str, Any] | None]
    """Tools by name, with the schema of their arguments; None: the argument is a text."""
    streaming: bool
    """Whether the client asks for a streamed reply."""

    @property
    def said(self) -> str:
        """Return the text of all user messages."""
        return "\n".join(turn.text for turn in self.turns if turn.role == "user")

    @property
    def prompt(self) -> str:
        """Return the last user message, with the text that the program added to it."""
        last: list[str] = []
        for turn in reversed(self.turns):
            if turn.role != "user" and last:
                break
            if turn.role == "user":
                last.insert(0, turn.text)
        return "\n".join(last)

    @property
    def after_tool(self) -> str | None:
        """Return the result of the tool called last; None if there is none."""
        last = self.turns[-1] if self.turns else None
        return last.text if last is not None and last.role == "tool" else None

    @property
    def everything(self) -> str:
        """Return the whole request as a text."""
        return json.dumps(self.body, ensure_ascii=False)


def text_of(content: Any) -> str:
    """Return the text within a message's content, which may be a text, a part, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        known = next((content[name] for name in ("text", "content", "output") if name in content), None)
        return json.dumps(content) if known is None else text_of(known)
    if isinstance(content, Iterable):
        return "\n".join(text_of(part) for part in content)
    return ""
