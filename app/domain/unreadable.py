"""Unreadable: a file that cannot be read now, which says nothing about what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from app import errors
from app.domain import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A file of a run that cannot be read now."""

    file: str
    """File within the run's folder, `.` for the folder itself."""
    errno: str
    """Why, as the system names it, e.g. `EIO`."""
    since: str
    """When it could not be read for the first time."""
    next_try_at: str
    """When it is read again."""

    @classmethod
    def of(cls, detail: Mapping[str, plain.Json]) -> Unreadable:
        """Return what the detail of an `errors.Unreadable` tells."""
        return cls(**{name: str(detail[name]) for name in cls.__slots__})

    def to_json(self) -> dict[str, plain.Json]:
        """Return it as plain JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


class Readable(Protocol):
    """A store whose files may not all be readable now."""

    def unreadable(self, run_id: str) -> Unreadable | None:
        """Return the file of a run that cannot be read now, as far as somebody tried."""

    async def until_readable(self, run_id: str) -> None:
        """Wait until every file of a run that could not be read can be; each is tried again with growing waits."""


class Waiting(Protocol):
    """A log whose run may wait for a file."""

    def wait_for(self, fault: errors.Unreadable) -> None:
        """Show the file that the run waits for, be it another's, until that can be read."""
