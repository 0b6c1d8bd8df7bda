"""Ports: what the engine needs from the outside world, and what drivers need from the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Container, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from app import errors
from app.domain import graphs, limits, plain
from app.domain.library import Library, Recipe, Use
from app.domain.operations import Gate, Operation
from app.domain.records import BlobRef, Place, Record, Result
from app.domain.runs import Ending, RunStart
from app.domain.slots import Progress, Projection, Slot
from app.engine.agent_ports import Exchange, RetryUntilSpace, write_once
from app.engine.live_output import AppendLog, not_kept
from app.engine.live_steps import LiveStep

_NO_SECRETS = plain.Masker()


class Context(Protocol):
    """The only connection between a driver and the world. A driver awaits nothing else."""

    @property
    def run(self) -> RunStart:
        """Return the facts of the run, including the overrides of its last resume."""

    async def perform(self, key: str, operation: Operation, place: Place | None = None) -> Record:
        """Return the final record of an operation, persisted: from the journal, or performed now.

        Args:
            key: Permanent name of the step, unique within the run.
        """

    async def gather(
        self, branches: Mapping[str, Coroutine[Any, Any, Any]], *, limit: int | None = None, fail_fast: bool = True
    ) -> dict[str, Any]:
        """Run named branches in parallel and return what each returned, in the given order.

        With `fail_fast`, the first branch that raises cancels the others and its error is raised here; without, an
        error takes its branch's place. At most `limit` branches run at a time, started in order.
        """

    async def gate(self, key: str, gate: Gate, place: Place | None = None) -> Record:
        """Ask a person, and return the record of the answer."""

    async def timer(self, key: str, seconds: float) -> Record:
        """Wait for this many seconds."""

    async def read(self, blob: BlobRef) -> plain.Json:
        """Return the content behind a handle."""

    def fill(self, name: str, slot: Slot) -> None:
        """Put a slot on the board."""

    def show(self, progress: Progress) -> None:
        """Put the run's progress on the board."""

    def emit(self, key: str, facts: Mapping[str, plain.Json]) -> None:
        """Report a note, once in the life of the run, as an event `recipe.note`."""

    def project(self, projection: Projection) -> None:
        """Register a function that makes further files of the run folder; called whenever snapshots are written."""


class Driver(Protocol):
    """The behaviour of a dialect, which executes its runs."""

    name: str  # `control_room`, `agent_recipes`, …; `conference`, `prompt`, …
    driver_version: int  # Raised when the driver requests other operations than before.

    def check(self, recipe: Recipe, library: Library) -> list[errors.Flaw]:
        """Return the flaws that only show in combination with the tools, agents and prompts of the project."""

    def freeze(self, recipe: Recipe, library: Library) -> dict[str, plain.Json]:
        """Return what the driver needs besides the recipe, as plain JSON."""

    async def drive(self, ctx: Context) -> Ending:
        """Execute the recipe frozen in `ctx.run` deterministically.

        Raises:
            errors.RunFailed: the run failed.
        """


class Dialect(Driver, Protocol):
    """One recipe language, with the driver of its runs."""

    file_suffixes: tuple[str, ...]  # Suffixes of its recipe files, e.g. `.json`.

    def parse(self, source: str, stem: str) -> Recipe:
        """Read a recipe file.

        Args:
            source: Text of the file.
            stem: Name of the file without suffix; the id of a recipe that names none.

        Raises:
            errors.RecipeInvalid: the recipe has flaws; the error lists all of them.
        """

    def flaws(self, source: str, stem: str, library: Library) -> list[errors.Flaw]:
        """Return all flaws of a recipe's text at once.

        These are the flaws for which `parse` refuses the text and, as far as it can be understood, those of `check`.
        """

    def json_schema(self) -> dict[str, plain.Json]:
        """Return the published JSON Schema of its recipe files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A recipe's text, with the parts from other files inserted."""

    source: str  # The text; a part that could not be inserted remains a reference.
    flaws: tuple[errors.Flaw, ...] = ()  # Parts that could not be inserted, at the places of their references.
    sources: Mapping[str, tuple[str, str]] = field(default_factory=dict, compare=False)
    """File (empty: the recipe's own) and place there of parts, by their JSON path in the text."""

    def located(self, flaws: Iterable[errors.Flaw]) -> tuple[errors.Flaw, ...]:
        """Return flaws of the text; those in a part from another file name that file."""
        return tuple(map(self._located, flaws))

    def _located(self, flaw: errors.Flaw) -> errors.Flaw:
        around = [path for path in self.sources if flaw.path == path or flaw.path.startswith((f"{path}.", f"{path}["))]
        path = max(around, key=len, default="")
        file, place = self.sources.get(path, ("", ""))
        if not file:
            return flaw
        message = f"{flaw.message} (in {file} at {place}{flaw.path.removeprefix(path)})"
        return dataclasses.replace(flaw, message=message)


@runtime_checkable
class ComposingDialect(Protocol):
    """A language whose recipes can take parts from files beside them."""

    def compose(self, source: str, read: Callable[[str], str]) -> Composition:
        """Insert the parts before the recipe is parsed.

        Args:
            read: Returns the text of a file by its path relative to the folder of the recipes; raises
                `errors.InputRefused` if the file does not exist or is outside that folder.
        """


@runtime_checkable
class AskingDriver(Protocol):
    """A driver whose runs ask agents."""

    def uses(self, recipe: Recipe, library: Library, args: Mapping[str, plain.Json]) -> Iterable[Use]:
        """Return each backend, program of a model and other recipe that a run with these arguments could need."""


@runtime_checkable
class ConversingDriver(Protocol):
    """A driver whose runs ask one backend, which an argument names."""

    speaks_through: str  # Name of the argument.


@runtime_checkable
class GraphedDriver(Protocol):
    """A driver whose recipes have a graph."""

    def graph(self, document: Mapping[str, plain.Json], frozen: Mapping[str, plain.Json]) -> graphs.Drawing:
        """Return the graph of a recipe, and how the steps of its runs are located in it.

        Args:
            document: The recipe.
            frozen: What `freeze` returned for the recipe; empty for a recipe that cannot be frozen.
        """


@runtime_checkable
class BoundedDriver(Protocol):
    """A driver that can compute an upper bound of its runs' calls of agents."""

    def call_limit(self, start: RunStart) -> limits.CallLimit:
        """Return the largest number of calls that a run can make."""


@runtime_checkable
class SettlingDriver(Protocol):
    """A driver whose finished steps also settle calls that they could have made, but did not."""

    def calls_left(self, start: RunStart, finished: Sequence[str], open_keys: Collection[str]) -> limits.CallLimit:
        """Return the largest number of calls that a run can still make.

        Args:
            finished: Keys of the finished calls of agents.
            open_keys: Keys of the steps that the run performs next.
        """


@runtime_checkable
class PathArgsDialect(Protocol):
    """A language whose recipes show which arguments name files."""

    declares_paths: bool
    """Whether no other argument names a file; otherwise their texts reach prompts and commands, which may read any."""

    def path_args(self, document: Mapping[str, plain.Json]) -> Mapping[str, bool]:
        """Return the arguments that name files of the workspace, with whether a step reads the file."""


@runtime_checkable
class SlotNamingDialect(Protocol):
    """A language whose recipes show which slots their runs can fill."""

    def slots(self, document: Mapping[str, plain.Json]) -> Sequence[str] | None:
        """Return the names of the slots, with `[*]` for an iteration; None: other names are possible."""


@runtime_checkable
class SecretiveDialect(Protocol):
    """A language whose recipes name secrets."""

    def secrets(self, document: Mapping[str, plain.Json]) -> Secrets:
        """Return the secrets that must be masked in all records of a run of the recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """The secrets of a recipe."""

    names: frozenset[str] = frozenset()  # Variables of the service's environment that contain secrets.
    texts: frozenset[str] = frozenset()  # Secret texts that the recipe itself contains.


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One attempt of an operation, as its performer sees it."""

    run: RunStart  # The facts that the run began with.
    key: str  # Key of the step.
    attempt: int  # Number of the attempt, from 1.
    operation: Operation  # The requested operation.
    place: Place  # Position of the step in the recipe.
    due_at: str | None  # When a timer, a gate or a wait ends; the same after a restart.
    read_blob: Callable[[BlobRef], Awaitable[plain.Json]]  # Reads the content behind a handle.
    write_log: Callable[[str, str], Awaitable[None]]  # Writes a text (name, text) to `logs/`, masked.
    asked_at: str | None = None  # When the run first asked a gate; the same after a restart.
    retry_until_space: RetryUntilSpace = write_once
    """Repeats a write of a file outside the run's folder until it succeeds."""
    append_log: AppendLog = not_kept  # Appends a text, masked, to a log during the attempt.
    live: LiveStep = field(default_factory=LiveStep)  # What the step shows during the attempt.
    masker: plain.Masker = _NO_SECRETS
    """Hides secrets in output that is cut or parsed before it reaches the engine."""
    recorded: tuple[int, ...] = ()  # Earlier attempts of the step that left a line in the journal.
    committed: Mapping[str, str] = field(default_factory=dict)
    """Files of the workspace that earlier attempts of the step have written: SHA-256 by path."""
    exchanges: tuple[Exchange, ...] = ()
    """The run's exchanges so far in the step's conversation, if a person had it begun again; otherwise empty."""
    cap_usd: float | None = None  # Most that a call of an agent may cost; None: unlimited.


Source: TypeAlias = Callable[[Call], Awaitable[plain.Json]]
"""Supplies an input's value from within the service, unless a delivery arrives first; the input is open meanwhile."""


class Interrupted(BaseException):
    """The process of an attempt was killed while the service continued: as after a crash, another attempt is made."""

    def __init__(self, cause: errors.ControlRoomError) -> None:
        super().__init__(cause.message)
        self.cause = cause


class Performer(Protocol):
    """Performs operations of one kind."""

    async def perform(self, call: Call) -> Result:
        """Perform one attempt.

        A cancellation must reach everything that the attempt has started, and may take no longer than that needs. An
        exception other than `errors.StepError` becomes a failed record with the code `internal_error`.
        """


class Capacity(Protocol):
    """A run's share of the pool's bounded capacity."""

    @property
    def holders(self) -> Container[str]:
        """Return the ids of the runs that hold capacity now."""

    async def enter(self) -> None:
        """Wait until capacity is free and take it; return at once if the run holds it already.

        Several steps of the run may wait at the same time.
        """

    def leave(self) -> None:
        """Release the capacity, if the run holds any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What a tool returns."""

    payload: dict[str, plain.Json]  # The full result.
    summary: str  # One-line summary, at most two hundred characters.


def driver_of(drivers: Mapping[str, Driver], start: RunStart) -> Driver:
    """Return the driver of a run; a driver also executes runs of its earlier versions.

    Raises:
        errors.DriverFault: `unknown_dialect`, `driver_newer`.
    """
    driver, dialect = drivers.get(start.dialect), start.dialect
    if driver is None:
        message = f"this version does not know the language {dialect!r}; one that does continues the run"
        raise errors.DriverFault(message, code="unknown_dialect", detail={"dialect": dialect})
    if start.driver_version > driver.driver_version:
        message = (
            f"the run was begun by version {start.driver_version} of the driver of {dialect}, and this process has "
            f"version {driver.driver_version}; one that is up to date continues the run"
        )
        facts = {"dialect": dialect, "driver_version": start.driver_version, "known": driver.driver_version}
        raise errors.DriverFault(message, code="driver_newer", detail=facts)
    return driver
