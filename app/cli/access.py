"""Access: what a command does to a folder."""

# Why: docs/decisions/0051.

from __future__ import annotations

from enum import Enum


class Access(Enum):
    """What a command does to a folder."""

    READ = "read"
    """Looks only; works while a service runs."""
    START = "start"
    """Starts and executes a run of its own; works while a service runs."""
    CHANGE = "change"
    """Moves runs that a service may own; refused while one runs."""
