"""Unreadable files: files that cannot be read now, whose content is unknown until they can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from app import errors
from app.domain import plain, shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(shapes.Shape):
    """A file of a run that cannot be read now; it is not known to be damaged, and was not changed."""

    published_as: ClassVar[str] = "UnreadableShown"

    file: Annotated[str, shapes.Keywords({"examples": ["start.json"]})]
    """File within the run's folder, `.` for the folder itself."""
    errno: Annotated[str, shapes.Keywords({"examples": ["EIO"]})]  # Name of the system's error.
    since: shapes.Instant  # When a read first failed.
    next_try_at: shapes.Instant  # When the next read is due.

    @classmethod
    def of(cls, detail: Mapping[str, plain.Json]) -> Unreadable:
        """Return the facts in the detail of an `errors.Unreadable`."""
        return cls(**{name: str(detail[name]) for name in cls.__slots__})


class Readable(Protocol):
    """A store in which some files may be unreadable now."""

    def unreadable(self, run_id: str) -> Unreadable | None:
        """Return the file of a run that cannot be read now, if a read was attempted."""

    async def until_readable(self, run_id: str) -> None:
        """Wait until all unreadable files of a run can be read; each is tried again with growing waits."""

    def lags(self, run_id: str) -> bool:
        """Return whether a run has ended but its row does not show that yet; it is shown as ended, and to be opened."""


class Waiting(Protocol):
    """A log whose run may wait for a file."""

    def wait_for(self, fault: errors.Unreadable) -> None:
        """Show the file for which the run waits, even one of another run, until it can be read."""
