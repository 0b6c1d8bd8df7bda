"""Everything that can go wrong, drawn as one tree.

ControlRoomError
├── InputRefused
│   ├── RequestInvalid
│   │   ├── UnknownRecipe
│   │   ├── ArgsInvalid
│   │   └── RecipeInvalid
│   ├── NotReady
│   ├── Unroutable
│   └── TooLarge
├── Unauthenticated
├── Denied
├── NotFound
├── Conflict
│   ├── RunExists
│   └── WrongState
├── ConfigurationError
│   └── DataDirectoryBusy
├── WriteFailed
├── Unavailable
├── JournalCorrupt
├── StepError
│   ├── ToolFailed
│   ├── AgentFailed
│   └── EvidenceRejected
└── RunFailed

Fault (BaseException)
├── StorageFault
│   ├── DatabaseAway
│   ├── LeaseLost
│   ├── Unreadable
│   └── WorkspaceFault
├── NondeterminismFault
├── DriverFault
└── InterruptionFault

Codes are stable and belong to the public contract; class docstrings are the default messages.
Faults derive from BaseException: they are never records, and no driver can swallow one.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One flaw of an input, with its place."""

    path: str
    """JSON path of the place, `$` for the whole, e.g. `$.phase_a[0].tool`."""
    message: str
    """The flaw, in one sentence."""
    code: str = "invalid"
    """Stable name of the kind of flaw."""
    line: int | None = field(default=None, metadata={"omitted": True})
    """Line in the source text, from 1, if known."""

    published_as: ClassVar[str] = "FlawShown"

    def to_json(self) -> dict[str, Any]:
        """Return the flaw as plain JSON."""
        shown: dict[str, Any] = {"path": self.path, "code": self.code, "message": self.message}
        return shown if self.line is None else shown | {"line": self.line}


class _Coded(BaseException):
    """Code, message, step and facts of an error or a fault."""

    default_code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        key: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        self.message = message or inspect.getdoc(type(self)) or type(self).__name__
        self.code = code or self.default_code
        self.key = key
        self.detail = dict(detail or {})
        super().__init__(self.message)

    def to_json(self) -> dict[str, Any]:
        """Return `{code, message, key, detail}`, in the form of run.json and journal lines."""
        return {"code": self.code, "message": self.message, "key": self.key, "detail": self.detail}


class ControlRoomError(_Coded, Exception):
    """An error occurred."""


class InputRefused(ControlRoomError):
    """The input was refused."""

    default_code = "input_refused"

    def __init__(self, message: str | None = None, *, flaws: Sequence[Flaw] = (), **facts: Any) -> None:
        super().__init__(message, **facts)
        self.flaws = tuple(flaws)


class RequestInvalid(InputRefused):
    """The request is not valid."""

    default_code = "request_invalid"


class UnknownRecipe(RequestInvalid):
    """The recipe does not exist."""

    default_code = "unknown_recipe"


class ArgsInvalid(RequestInvalid):
    """The arguments do not match the recipe."""

    default_code = "args_invalid"


class RecipeInvalid(RequestInvalid):
    """The recipe is not valid."""

    default_code = "recipe_invalid"


class NotReady(InputRefused):
    """A backend, program or recipe that the run needs cannot be used here."""

    default_code = "backend_not_ready"


class Unroutable(InputRefused):
    """No recipe fits the description."""

    default_code = "unroutable"


class TooLarge(InputRefused):
    """The input is too large."""

    default_code = "too_large"


class Unauthenticated(ControlRoomError):
    """The caller is not known."""

    default_code = "unauthorized"


class Denied(ControlRoomError):
    """The caller may not do this."""

    default_code = "role_missing"


class NotFound(ControlRoomError):
    """The resource does not exist."""

    default_code = "not_found"


def no_run(run_id: str, *, is_plan: bool = False) -> NotFound:
    """Return the error for a run that does not exist.

    Args:
        is_plan: Whether the id is one of a session plan; then the message names the command that shows the plan.
    """
    hint = f"; plans have such ids: control-room plan show {run_id:.80}" if is_plan else ""
    return NotFound(f"there is no run {run_id!r:.80}{hint}", code="run_not_found", detail={"run_id": run_id[:80]})


class Conflict(ControlRoomError):
    """The request conflicts with the current state."""

    default_code = "conflict"


class RunExists(Conflict):
    """Another run has this id."""

    default_code = "run_exists"


class WrongState(Conflict):
    """The current state does not allow this."""

    default_code = "wrong_state"


class ConfigurationError(ControlRoomError):
    """The configuration cannot work."""

    default_code = "configuration_error"


class DataDirectoryBusy(ConfigurationError):
    """Another process is the service of this data directory."""

    default_code = "data_directory_busy"


class WriteFailed(ControlRoomError):
    """The data directory or store cannot be written: it is full or failing."""

    default_code = "no_room"


class Unavailable(ControlRoomError):
    """The service is temporarily unavailable."""

    default_code = "unavailable"


class JournalCorrupt(ControlRoomError):
    """A journal is damaged; nothing was deleted."""

    default_code = "journal_corrupt"


class StepError(ControlRoomError):
    """The step failed."""

    default_code = "step_failed"


class ToolFailed(StepError):
    """The tool failed."""

    default_code = "tool_failed"


class AgentFailed(StepError):
    """The agent failed."""

    default_code = "agent_failed"


class EvidenceRejected(StepError):
    """What the reply names as its evidence does not hold."""

    default_code = "evidence_rejected"


class RunFailed(ControlRoomError):
    """The run failed."""

    default_code = "run_failed"

    def __init__(
        self, message: str | None = None, *, causes: Sequence[str] = (), reason: str | None = None, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.causes = tuple(causes)
        self.reason = reason or self.code


class Fault(_Coded):
    """The engine cannot continue with this run now."""

    default_code = "fault"


class StorageFault(Fault):
    """A write or a sync failed; the run is parked until it can be repeated."""

    default_code = "storage_error"


class DatabaseAway(StorageFault):
    """The database that holds the runs or their index cannot be reached now; it is tried again."""

    default_code = "database_away"


class LeaseLost(StorageFault):
    """Another process writes the run now; its journal must be read again before anything is written."""

    default_code = "lease_lost"


class Unreadable(StorageFault):
    """A file cannot be read now; nothing was changed, and reading is retried."""

    default_code = "unreadable"


class WorkspaceFault(StorageFault):
    """The workspace or the machine refuses what a step needs; nothing was done, and it is tried again."""


class NondeterminismFault(Fault):
    """The driver asked for something else than its journal holds."""

    default_code = "nondeterminism"


class DriverFault(Fault):
    """The driver broke the rules of its context."""

    default_code = "driver_fault"


class InterruptionFault(Fault):
    """The service is stopping; the run continues at its next start."""

    default_code = "interrupted"


@contextmanager
def as_failed_write(consequence: str) -> Iterator[None]:
    """Raise `WriteFailed` for any storage fault except `Unreadable` and `DatabaseAway`, also for a lost lease.

    Args:
        consequence: What could not be done because of the fault; the message begins with it.
    """
    try:
        yield
    except Unreadable:
        raise
    except DatabaseAway as fault:
        raise DatabaseAway(f"{consequence}: {fault.message}", detail=fault.detail) from fault
    except StorageFault as fault:
        raise WriteFailed(f"{consequence}: {fault.message}", detail=fault.detail) from fault
