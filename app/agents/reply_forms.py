"""Forms of replies, for those who cannot be held to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.domain import plain

BREAK = "\n\n---\n\n"
"""What stands between the parts of a prompt that are told in one text."""


def in_words(schema: Mapping[str, plain.Json]) -> str:
    """Return the sentence that asks for a reply of a form."""
    return f"Answer with JSON alone that fits this JSON Schema: {plain.canonical(plain.plain(schema)).decode()}"


def after(past: Sequence[tuple[str, str]], text: str) -> str:
    """Return a prompt with what was said before it, for an agent that has no memory of that."""
    if not past:
        return text
    said = "\n\n".join(f"<prompt>\n{prompt}\n</prompt>\n<reply>\n{reply}\n</reply>" for prompt, reply in past)
    return f"This continues an earlier conversation. What was said in it:\n\n{said}{BREAK}{text}"
