"""The stand-in for a recipe language that this version does not speak."""

from __future__ import annotations

from typing import cast

from app import errors
from app.domain import runs
from app.engine import ports


class UnknownDialect:
    """A dialect that can only park its runs; they can still be cancelled."""

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Refuse.

        Raises:
            errors.DriverFault: `unknown_dialect`.
        """
        raise errors.DriverFault(
            f"this version does not speak {ctx.run.dialect!r}; one that does continues the run",
            code="unknown_dialect",
            detail={"dialect": ctx.run.dialect},
        )


UNSPOKEN = cast(ports.Driver, UnknownDialect())
"""In place of a dialect that is missing."""
