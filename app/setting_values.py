"""Values about settings: their documentation, and the findings of a check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Documented:
    """One setting, for people."""

    env: str  # Environment variable.
    default: str  # Default, as text.
    meaning: str  # What it does.


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that a check of the settings found."""

    setting: str  # Environment variable, or the file concerned.
    message: str  # What about it.
    fatal: bool  # Whether the service refuses to start.
