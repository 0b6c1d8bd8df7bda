"""Requests for a fork and for a preview, and their answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from app import errors
from app.domain import plain, records, shapes
from app.services.requests import Moved, ResumeRequest

Order: TypeAlias = Literal["resume", "fork"]  # Orders that can be previewed.
Action: TypeAlias = Literal["taken_over", "kept", "again", "next", "dropped"]  # What an order does with a step.


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest(ResumeRequest):
    """A request for a new run that begins with finished steps of another one."""

    line: int | None = None  # Position of the journal line of the step to go back to, instead of its key.
    prompt: str | None = None  # Text to send at that step instead of the recipe's; None: the recipe's.
    agent: str | None = None  # Agent for that step; None: the recipe's.
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """Changes of the source's labels; None removes a label."""
    idempotency_key: str | None = None  # Key by which a repeated request finds the same run.
    parent_run_id: str | None = None  # Run that requests the fork; the new run is its child.
    runs_above: int | None = None  # Number of runs above the new one, if the parent may be of another project.

    def resume(self) -> ResumeRequest:
        """Return the resume that corresponds to it."""
        return ResumeRequest(**{each.name: getattr(self, each.name) for each in dataclasses.fields(ResumeRequest)})

    def sha256(self, run_id: str) -> str:
        """Return the hash that distinguishes a repetition for a source from another request with the same key."""
        asked = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        for name in ("parent_run_id", "runs_above"):
            # Requests from before these fields existed keep their hash.
            if asked[name] is None:
                del asked[name]
        return plain.sha256(plain.canonical(plain.plain(asked | {"idempotency_key": None, "forked_from": run_id})))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked(Moved):
    """A new run that began with finished steps of another one."""

    published_as: ClassVar[str] = "Forked"

    forked_from: shapes.RunId  # Run whose steps it took over.
    taken_over: int  # Number of steps that it took over.
    next: tuple[str, ...]  # Steps that it performs first, at most 100; empty for a repeated request.
    existed: bool = shapes.internal(default=False)
    """Whether an earlier request with the same idempotency key made the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPreviewed(shapes.Shape):
    """A step, and what an order would do with it."""

    key: str  # Name of the step within its run.
    action: Action
    """`taken_over` by a fork, `kept` by a resume: not performed and not paid again; `again`: performed once more, if
    the run still reaches it; `next`: performed for the first time; `dropped`: the run ends without it.
    """
    why: str  # Reason for the action.
    agent_id: str | None = shapes.omitted()  # Agent of the step.
    tool: str | None = shapes.omitted()  # Tool of the step.
    usage: records.Usage | None = shapes.omitted()  # Usage of the step when it was performed.


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewReport(shapes.Shape):
    """Effects that an order would have; nothing was written."""

    run_id: shapes.RunId  # Run that the order is for.
    order: Order  # The order.
    ok: bool  # Whether the order would be accepted now.
    problems: tuple[errors.Flaw, ...]  # Obstacles to the order.
    steps: tuple[StepPreviewed, ...]
    """Steps in the order of the journal, then the next ones; at most 2,000."""
    taken_over: int  # Number of steps that are not performed again.
    again: int  # Number of finished steps that are performed once more, if the run still reaches them.
    finished: bool  # Whether no step is left to perform, so that the run ends at once.
    calls_at_most: int | None  # Most calls of agents from here on; None: no known limit.
    cost_usd_at_most: float | None  # Highest price of these calls; None: no known limit.
    paid_before: records.Usage  # Earlier usage of the steps that are performed again.
    note: str | None  # Why a limit is unknown, or which limit of the run is used up.
    workspace: str | None  # Folder in which the run works.
    workspace_note: str  # What happens to the files in that folder.


WORKSPACE_NOTE = (
    "Files are not restored: the run works with the workspace as it is now, changes of finished steps included."
)
"""Effect of a fork and a resume on files."""


def as_flaws(error: errors.ControlRoomError) -> tuple[errors.Flaw, ...]:
    """Return an error as the obstacles of a preview."""
    flaws = error.flaws if isinstance(error, errors.InputRefused) else ()
    return tuple(flaws) or (errors.Flaw(path="$", code=error.code, message=error.message),)


def fields(found: Mapping[str, plain.Json]) -> dict[str, str | None]:
    """Return the agent and the tool of a step from its journal line."""
    return {name: str(found[name]) for name in ("agent_id", "tool") if found.get(name) is not None}
