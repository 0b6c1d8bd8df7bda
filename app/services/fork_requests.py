"""Requests for a fork and for a preview, and what they are answered with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from app import errors
from app.domain import plain, records, shapes
from app.services.requests import Moved, ResumeRequest

Order: TypeAlias = Literal["resume", "fork"]  # Orders that a preview is made of.


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest(ResumeRequest):
    """A new run that takes over steps of another one."""

    line: int | None = None  # Position of the journal line of the step to go back to, in place of its key.
    prompt: str | None = None  # Words sent at that step in place of the recipe's; None: the recipe's.
    agent: str | None = None  # Agent that is asked at that step; None: the recipe's.
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """Changes of the source's labels; None for one that goes."""
    idempotency_key: str | None = None  # Key under which a repetition finds the same run.
    parent_run_id: str | None = None  # Run that asks; the new one is below it.
    runs_above: int | None = None  # How many runs are above, where that one may be of another project.

    def sha256(self, run_id: str) -> str:
        """Return the hash that distinguishes a repetition for a source from another request with the same key."""
        asked = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        for name in ("parent_run_id", "runs_above"):
            # Requests from before there were these keep their hash.
            if asked[name] is None:
                del asked[name]
        return plain.sha256(plain.canonical(plain.plain(asked | {"idempotency_key": None, "forked_from": run_id})))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked(Moved):
    """A new run that took over steps of another one."""

    published_as: ClassVar[str] = "Forked"

    forked_from: shapes.RunId  # Run whose steps it took over.
    taken_over: int  # Steps that it took over.
    next: tuple[str, ...]  # Steps that it performs first, at most 100; a repeated request names none.
    existed: bool = shapes.internal(default=False)
    """Whether an earlier request with the same idempotency key made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPreviewed(shapes.Shape):
    """A step, and what an order would do with it."""

    key: str  # Name of the step within its run.
    action: Literal["taken_over", "kept", "again", "next"]
    """`taken_over` by a fork, `kept` by a resume: not performed and not paid again; `again`: performed once more;
    `next`: performed for the first time.
    """
    why: str  # Why.
    agent_id: str | None = shapes.omitted()  # Agent that it asks.
    tool: str | None = shapes.omitted()  # Tool that it calls.
    usage: records.Usage | None = shapes.omitted()  # What it cost when it was performed.


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewReport(shapes.Shape):
    """What an order would do; nothing was written."""

    run_id: shapes.RunId  # Run that the order is for.
    order: Order  # The order.
    ok: bool  # Whether the order would be accepted now.
    problems: tuple[errors.Flaw, ...]  # The obstacle.
    steps: tuple[StepPreviewed, ...]
    """Steps in the order of the journal, then what comes next; at most 2,000."""
    taken_over: int  # Steps that are not performed again.
    again: int  # Finished steps that are performed once more.
    finished: bool  # Whether nothing is left to perform, so that the run ends at once.
    calls_at_most: int | None  # Most calls of agents from here on; None: no limit is known.
    cost_usd_at_most: float | None  # Most that these calls cost; None: no limit is known.
    paid_before: records.Usage  # What the steps that are performed again cost before.
    note: str | None  # Why a limit is not known.
    workspace: str | None  # Folder in which the run works.
    workspace_note: str  # What happens to the files there.


WORKSPACE_NOTE = (
    "Files are not restored: the run works with the workspace as it is now, changes of finished steps included."
)
"""What a fork and a resume do with files."""


def as_flaws(error: errors.ControlRoomError) -> tuple[errors.Flaw, ...]:
    """Return an error as an obstacle."""
    flaws = error.flaws if isinstance(error, errors.InputRefused) else ()
    return tuple(flaws) or (errors.Flaw(path="$", code=error.code, message=error.message),)


def fields(found: Mapping[str, plain.Json]) -> dict[str, str | None]:
    """Return who performed a step, by its journal line."""
    return {name: str(found[name]) for name in ("agent_id", "tool") if found.get(name) is not None}
