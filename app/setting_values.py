"""Setting values: the documentation of settings, and the findings of a check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Documented:
    """The documentation of one setting."""

    env: str  # Environment variable.
    default: str  # Default, as text.
    meaning: str  # What the setting does.


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A finding of a check of the settings."""

    setting: str  # Environment variable, or the file concerned.
    message: str  # The finding in words.
    fatal: bool  # Whether the service refuses to start.
