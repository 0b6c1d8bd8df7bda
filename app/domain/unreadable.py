"""Files that cannot be read now, whose content is unknown until they can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from app import errors
from app.domain import plain, shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(shapes.Shape):
    """A file of a run that cannot be read now; it is not known to be damaged, and nothing was changed."""

    published_as: ClassVar[str] = "UnreadableShown"

    file: Annotated[str, shapes.Keywords({"examples": ["start.json"]})]
    """File within the run's folder, `.` for the folder itself."""
    errno: Annotated[str, shapes.Keywords({"examples": ["EIO"]})]  # Name of the system's error.
    since: shapes.Instant  # When reading it failed first.
    next_try_at: shapes.Instant  # When it is read again.

    @classmethod
    def of(cls, detail: Mapping[str, plain.Json]) -> Unreadable:
        """Return the facts in the detail of an `errors.Unreadable`."""
        return cls(**{name: str(detail[name]) for name in cls.__slots__})


class Readable(Protocol):
    """A store whose files may not all be readable now."""

    def unreadable(self, run_id: str) -> Unreadable | None:
        """Return the file of a run that cannot be read now, if reading it was tried."""

    async def until_readable(self, run_id: str) -> None:
        """Wait until every file of a run that could not be read can be; each is tried again with growing waits."""

    def lags(self, run_id: str) -> bool:
        """Return whether a run has ended though its row does not say so yet; it is shown as ended, and to be opened."""


class Waiting(Protocol):
    """A log whose run may wait for a file."""

    def wait_for(self, fault: errors.Unreadable) -> None:
        """Show the file that the run waits for, be it another's, until that can be read."""
