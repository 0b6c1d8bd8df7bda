"""The port by which session plans are kept."""

from __future__ import annotations

from typing import Protocol

from app.domain import plans

CHANGED = "plan_changed"
"""Code of a change that is refused because the file has changed since."""

DAMAGED = "plan_damaged"
"""Code of a file that cannot be read as a plan."""


class PlanStore(Protocol):
    """All session plans of a data directory. A writer holds the data directory."""

    async def get(self, session_id: str) -> plans.Plan | None:
        """Return a plan as its file has it, None where there is none.

        Raises:
            errors.Conflict: `plan_damaged`; its file is damaged; `flaws` say where.
        """

    async def put(self, plan: plans.Plan, known: plans.Plan | None = None) -> None:
        """Replace a plan's file, or make it; done once it is durable. Once begun that ends, whatever becomes of the
        caller.

        Args:
            known: What the file must still say; None: whatever it says.

        Raises:
            errors.Conflict: `plan_changed`, `plan_damaged`; it says something else, is gone, or cannot be read any
                more, and stays as it is.
            errors.StorageFault: it could not be made durable; the file is as before, or as it was to become.
        """

    async def try_writing(self, session_id: str) -> None:
        """See whether a plan's file could be replaced now, by a trial beside it.

        Raises:
            errors.StorageFault: it could not.
        """

    async def remove(self, session_id: str) -> None:
        """Remove a plan's file for good; done once that is durable. Once begun that ends, whatever becomes of the
        caller.

        Raises:
            errors.StorageFault: it could not be made durable; the file is as before, or gone.
        """

    async def was_removed(self, session_id: str) -> bool:
        """Return whether a session had a plan that was removed."""

    async def was_lost(self, session_id: str) -> bool:
        """Return whether a session had a plan whose file is gone, though nobody removed it here: a
        person has, or a disk.
        """

    async def list(self, query: plans.PlanQuery) -> list[plans.PlanSummary]:
        """Return plans, newest first; files that cannot be read are left out."""
