"""Parts of logs, as they are read and followed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A part of a log."""

    content: bytes  # The bytes.
    offset: int  # Where they begin.
    size_bytes: int  # Size of the whole log.
    version: str  # What the log has no more once it has grown or was replaced.
