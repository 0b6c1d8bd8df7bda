"""Plan events: what the run of a session plan shows to its planner, and the inputs that it takes.

Their JSON is in the journals of plans, so its form is permanent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.domain import plain, plan_files, plans, states


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What an input of a plan shows; with `is_removal`, the file is to be removed, and the event is `Removed`."""

    plan: plans.Plan  # The plan.
    on_file: str | None  # Hash of what its file held before; None: the file is not made yet.
    is_last: bool = False  # Whether the journal is full, so that the plan continues in a further run.
    is_stale: bool = False  # Whether the file holds an earlier version of the plan.
    is_removal: bool = False  # Whether the plan is deleted.
    earlier: tuple[str, ...] | None = None
    """Hashes of the file's earlier contents, oldest first, which the next journal needs; None: it needs none."""

    def to_json(self) -> dict[str, plain.Json]:
        """Return the data that the input shows."""
        shown: dict[str, plain.Json] = {"plan": self.plan.to_json(), "on_file": self.on_file}
        if self.is_removal:
            return shown | {"removed": True}
        shown["last"] = self.is_last
        if self.is_stale:
            shown["stale"] = True
        return shown if self.earlier is None else shown | {"earlier": [*self.earlier]}

    @classmethod
    def from_json(cls, value: Any) -> Shown:
        """Read the data that an input shows."""
        return cls(
            plan=plan_files.from_json(value["plan"]),
            on_file=value["on_file"],
            is_last=value.get("last", False),
            is_stale=value.get("stale", False),
            is_removal=value.get("removed", False),
            earlier=tuple(value["earlier"]) if "earlier" in value else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A person has changed the plan that was shown."""

    plan: plans.Plan  # The plan as it is to be.

    def to_json(self) -> dict[str, plain.Json]:
        """Return the value of the input."""
        return {"kind": "change", "plan": self.plan.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdited:
    """The file holds something else than the plan."""

    plan: plans.Plan  # What it holds.
    at_start: bool | None = None
    """Whether this process has not seen file and journal agree yet; None: an earlier service did not record it."""
    seen_at: str | None = None  # When it was read; None: an earlier service did not record it.
    may_end: bool = False  # Whether the edit can end the plan, as edits in journals of earlier services can.

    def to_json(self) -> dict[str, plain.Json]:
        """Return the value of the input."""
        facts = {"at_start": self.at_start, "seen_at": self.seen_at, "ends": self.may_end}
        return {"kind": "file", "plan": self.plan.to_json(), **facts}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFact:
    """Facts about the run of a task that its plan needs."""

    status: states.RunState | None  # State of the run; None: it was deleted.
    error: Mapping[str, plain.Json] | None = None  # Error of a failed run: `{code, message, key, detail}`.
    ended_at: str | None = None  # Time of its end.
    partial: bool = False  # Whether it is only partly done.
    gate_id: str | None = None  # Gate at which it asks a person; only for runs of reviews.

    def to_json(self) -> dict[str, plain.Json]:
        """Return the facts as plain JSON."""
        status = None if self.status is None else self.status.value
        known: dict[str, plain.Json] = {"status": status, "error": plain.plain(self.error), "ended_at": self.ended_at}
        known |= {"partial": True} if self.partial else {}
        return known | ({} if self.gate_id is None else {"gate_id": self.gate_id})

    @classmethod
    def from_json(cls, value: Any) -> RunFact:
        """Read facts from plain JSON."""
        status = value["status"]
        return cls(
            status=None if status is None else states.RunState(status),
            error=value["error"],
            ended_at=value["ended_at"],
            partial=value.get("partial", False),
            gate_id=value.get("gate_id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The planner has looked at the runs of the plan."""

    facts: Mapping[str, RunFact]  # Facts about runs, by their ids.
    limit: int  # How many tasks of the plan may run at the same time; 0: no task may start now.
    scoped: plans.Plan | None = None  # The plan with tasks that were scoped; None: none was.
    attempts: Mapping[int, int] | None = None
    """Highest attempts of earlier tasks by number, of a plan that was deleted and written again; else None."""

    def to_json(self) -> dict[str, plain.Json]:
        """Return the value of the input."""
        seen = {run_id: fact.to_json() for run_id, fact in self.facts.items()}
        value: dict[str, plain.Json] = {"kind": "look", "facts": seen, "limit": self.limit}
        value["scoped"] = None if self.scoped is None else self.scoped.to_json()
        if self.attempts is not None:
            value["attempts"] = {str(task_id): attempt for task_id, attempt in self.attempts.items()}
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """A person has deleted the plan, or its file was removed by an earlier deletion."""

    def to_json(self) -> dict[str, plain.Json]:
        """Return the value of the input."""
        return {"kind": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """The plan continues in a further run."""

    plan: plans.Plan | None = None  # The plan as it was shown; None: the next journal begins with the file.
    earlier: tuple[str, ...] = ()  # Hashes of the file's earlier contents as they were shown; only with a plan.

    def to_json(self) -> dict[str, plain.Json]:
        """Return the value of the input."""
        return {"kind": "continue", **self.passed_on()}

    def passed_on(self) -> dict[str, plain.Json]:
        """Return the arguments that the next run gets."""
        return {} if self.plan is None else {"plan": self.plan.to_json(), "earlier": [*self.earlier]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """The file of a deleted plan is removed."""

    def to_json(self) -> dict[str, plain.Json]:
        """Return the value of the input."""
        return {"kind": "removed"}


PlanEvent: TypeAlias = Changed | FileEdited | Observed | Deleted | Continued | Removed
"""What happens to a plan: the value of an input."""


def from_json(value: Any) -> PlanEvent:
    """Read the value of an input.

    Raises:
        ValueError: the value is of an unknown kind.
    """
    match value["kind"]:
        case "change":
            return Changed(plan=plan_files.from_json(value["plan"]))
        case "file":
            return FileEdited(
                plan=plan_files.from_json(value["plan"]),
                at_start=value.get("at_start"),
                seen_at=value.get("seen_at"),
                # Edits in journals of earlier services replay as they were.
                may_end=value.get("ends", True),
            )
        case "look":
            attempts = value.get("attempts")
            return Observed(
                facts={run_id: RunFact.from_json(fact) for run_id, fact in value["facts"].items()},
                limit=value["limit"],
                scoped=plan_files.from_json(value["scoped"]) if value.get("scoped") else None,
                attempts=None if attempts is None else {int(each): most for each, most in attempts.items()},
            )
        case "delete":
            return Deleted()
        case "continue":
            passed = plan_files.from_json(value["plan"]) if "plan" in value else None
            return Continued(plan=passed, earlier=tuple(value.get("earlier", ())))
        case "removed":
            return Removed()
    # Not ignored: a run of a later version is refused before its events are read.
    raise ValueError(f"{value['kind']!r} is not an event of a plan")
