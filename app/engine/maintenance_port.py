"""Maintenance: the port of a store's operations on folders that may be damaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, Protocol, TypedDict

from app import errors
from app.domain import shapes
from app.domain.states import RunState


class FileVerified(TypedDict):
    """Result of the verification of one file."""

    file: Annotated[str, shapes.Keywords({"examples": ["steps.jsonl"]})]
    """File, relative to the verified folder."""
    state: Annotated[str, Literal["ok", "torn", "corrupt", "unreadable"]]
    """`torn`: the end was never confirmed, and is cut off when the file is opened next.
    `unreadable`: the file cannot be read now, so its content is unknown.
    """
    lines: int | None  # Number of valid lines; None if they were not counted.
    line: int | None  # First invalid line, from 1; None if the whole file is invalid.
    reason: str | None  # The flaw in that line or file.


class Verification(TypedDict):
    """Result of a verification; nothing was changed."""

    kind: Annotated[str, Literal["run", "receipts", "plan", "issue", "conversation", "audit"]]
    """Kind of what was verified."""
    id: str  # Id of the run; for other kinds, the name of the file or folder in the data directory.
    state: Annotated[str, Literal["sound", "damaged", "unreadable"]]
    """`unreadable`: no damage is known, but a file cannot be read now."""
    ok: bool  # Whether the verified folder or file is sound.
    run_id: NotRequired[str | None]  # The same as `id`; only for runs.
    files: list[FileVerified]  # Result of each file.
    advice: str | None  # What to do about damage.


class JournalRepaired(TypedDict):
    """Result of the repair of a journal."""

    file: Annotated[str, Literal["steps.jsonl", "control.jsonl"]]  # The journal.
    kept: int  # Number of lines that are kept.
    lost: int  # Number of lines that are cut off.
    aside: str | None
    """File in the same folder that keeps the whole damaged journal; None if nothing is cut off."""
    reason: str | None  # The flaw after the kept lines.


class Repaired(TypedDict):
    """Result of a repair, or of its dry run."""

    run_id: str  # Id of the run.
    changed: bool  # Whether the run needs a repair.
    dry_run: bool  # Whether this is a dry run: it changes nothing and reports what a repair would do.
    status: Annotated[str, RunState]  # State of the run afterwards.
    files: list[JournalRepaired]  # Result of each journal.


class Collected(TypedDict):
    """Objects that no run refers to: found in object storage, or removed from it."""

    dry_run: bool  # Whether nothing was removed.
    older_than_seconds: int  # Age from which an object is considered.
    objects: int  # Number of objects that were examined.
    unnamed: int  # Number of them that no line of a run refers to.
    size_bytes: int  # Their size.
    removed: int  # Number of objects that were removed.
    more: bool  # Whether further objects are left for another call.


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A page of reports from a verification of the whole data directory."""

    reports: Sequence[Verification]
    """One report for each run, receipts file, plan, issue or conversation, and one for the audit log."""
    cursor: str | None  # Where the next page begins; None on the last page.


class Maintenance(Protocol):
    """Verifies stored files, and repairs runs."""

    async def verify(self, run_id: str) -> Verification:
        """Report on each file of a run's authority without changing anything.

        Raises:
            errors.NotFound: there is no such run.
        """

    async def sizes(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Return the size in bytes of each run's folder; runs that are gone or cannot be read are left out."""

    async def verify_page(self, after: str | None, most: int) -> Verified:
        """Report on the next runs, receipts, plans, issues and conversations.

        Args:
            after: Cursor of the previous page.
            most: Largest number of reports; the page has fewer if the checks take long.
        """

    async def collect(self, older_than_seconds: int, *, dry_run: bool) -> Collected:
        """Remove objects that no line of a run refers to and that are old enough; none without object storage."""

    async def repair(self, run_id: str, *, dry_run: bool = False) -> Repaired:
        """Cut a damaged run back to its sound prefix, and leave it paused; the damaged files are set aside.

        Args:
            dry_run: Whether to change nothing and only report the changes that a repair would make.

        Raises:
            errors.NotFound, errors.Conflict, errors.JournalCorrupt: the run does not exist, is being written, or has a
                damaged start.json.
            errors.StorageFault: the disk failed.
        """


class Rechecks(Protocol):
    """Detects folders that were changed while their runs were at rest."""

    async def touched(self, run_ids: Sequence[str]) -> list[str]:
        """Return the runs that are not open and whose folders were changed, but not read, since they came to rest."""

    async def check_run(self, run_id: str) -> None:
        """Update the row of a run at rest whose folder was changed."""

    async def declare_failed(self, run_id: str, error: errors.JournalCorrupt) -> bool:
        """Show a damaged run at rest as failed, also in its index row; its authority is unchanged."""


class KeptUp(Protocol):
    """A store whose folders can be checked and repaired."""

    @property
    def maintenance(self) -> Maintenance:
        """Return the part of the store that verifies and repairs runs."""

    @property
    def rechecks(self) -> Rechecks:
        """Return the part of the store that detects changed folders."""
