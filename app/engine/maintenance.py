"""Upkeep: what is asked of a store about folders that may have been damaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app import errors
from app.domain import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A page of what was found when everything was checked."""

    reports: Sequence[Mapping[str, plain.Json]]
    """`{kind, id, state, ok, files, advice}` of each thing, `run_id` too of a run."""
    cursor: str | None
    """Where the next page begins; None behind the last thing."""


class Maintenance(Protocol):
    """Check what is stored, and repair runs."""

    async def verify(self, run_id: str) -> dict[str, plain.Json]:
        """Report on each file of a run's authority; nothing is changed.

        Raises:
            errors.NotFound: there is no such run.
        """

    async def verify_page(self, after: str | None, most: int) -> Verified:
        """Report on the next runs, receipts, plans, issues and conversations.

        Args:
            after: Cursor of the page before.
            most: How many at most; less where checking them takes long.
        """

    async def repair(self, run_id: str, *, dry_run: bool = False) -> dict[str, plain.Json]:
        """Cut a damaged run back to what can be believed, and leave it paused; the damaged files are kept aside.

        Args:
            dry_run: Whether to change nothing and tell what would be changed.

        Raises:
            errors.NotFound, errors.Conflict, errors.JournalCorrupt: there is no such run, it is being written, or its
                start.json is damaged.
            errors.StorageFault: the disk failed.
        """


class Rechecks(Protocol):
    """Notice that folders were changed while their runs were at rest."""

    async def touched(self, run_ids: Sequence[str]) -> list[str]:
        """Return the runs that are not open and whose folders were changed since they came to rest,
        and not read since.
        """

    async def declare_failed(self, run_id: str, error: errors.JournalCorrupt) -> bool:
        """Show a run at rest that is damaged as failed, in its row too; its authority is left as it is."""


class KeptUp(Protocol):
    """A store whose folders are looked after."""

    @property
    def maintenance(self) -> Maintenance:
        """Return what checks and repairs runs."""

    @property
    def rechecks(self) -> Rechecks:
        """Return what notices that folders were changed."""
