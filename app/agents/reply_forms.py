"""
Forms of replies, for those who cannot be held to them.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.engine import plain

BREAK = "\n\n---\n\n"
"""What stands between the parts of a prompt that are told in one text."""


def in_words(schema: Mapping[str, plain.Json]) -> str:
    """
    Return the sentence that asks for a reply of a form.
    """
    return f"Answer with JSON alone that fits this JSON Schema: {plain.canonical(plain.plain(schema)).decode()}"
