"""Call limits: how often a run asks agents at most."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimit:
    """The worst case of a run."""

    most: int | None  # Most calls of agents, repeated ones included; None: no limit is known.
    note: str | None = None  # Why no limit is known.
