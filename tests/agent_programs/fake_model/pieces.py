"""Pieces of a streamed reply."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 16 * 1024
"""Most characters of a piece."""


def cut(text: str) -> Iterator[str]:
    """Cut a text; an empty one has no pieces."""
    for start in range(0, len(text), LONGEST):
        yield text[start : start + LONGEST]


def event(facts: Mapping[str, Any], kind: str | None = None) -> bytes:
    """Return a server-sent event."""
    head = f"event: {kind}\n" if kind else ""
    return f"{head}data: {json.dumps(facts)}\n\n".encode()
