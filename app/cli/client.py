"""The client: commands call use cases, and a service over HTTP, or the project's folder in process, answers them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

JsonObject = dict[str, Any]  # A JSON object in the form of the REST interface.


# Without `--server` a command opens the project's folder itself, which a service may own. Refusing everything would
# make `runs list` useless while runs execute; allowing everything would let two processes decide about one run.
#
# Commands that show recipes open no store, since its database may be away. Commands that read take no lock and
# change no file. `run` starts a run of its own beside a service, with the lock of its own run folder. Commands that
# change runs or rebuild the index take the service's lock while they work; if a service holds it, they print the
# `--server` address that it left in `service.json`.
#
# Price: while `runs resume` executes in process, no service can start on that folder.
class Access(Enum):
    """A command's access to a folder."""

    RECIPES = "recipes"  # Reads recipes and agents, and no runs; works without the store of the runs.
    READ = "read"  # Reads stored files; works while a service runs.
    PREVIEW = "preview"  # As `examine`; without the store of the runs while it cannot be opened.
    EXAMINE = "examine"  # Examines what would execute, and changes no file; works while a service runs.
    START = "start"  # Starts and executes a run of its own; works while a service runs.
    CHANGE = "change"  # Changes runs that a service may own; refused while one runs.


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCase(Generic[P, T]):
    """A request that both transports answer with the same JSON."""

    perform: Callable[Concatenate[Any, P], Awaitable[T]]
    """Answers in process; its first argument is the client of the folder."""
    route: str  # Method and path of the REST interface, with the names of arguments in braces.
    access: Access  # Its access to a folder.
    answers: type | None  # Type of the answer: an object, an array, a text, or None.
    body: Callable[..., Mapping[str, Any]] | None
    """Makes the request's body from the arguments; None: the body has all that the path does not name."""


def use_case(
    route: str,
    access: Access = Access.READ,
    answers: type | None = dict,
    body: Callable[..., Mapping[str, Any]] | None = None,
) -> Callable[[Callable[Concatenate[Any, P], Awaitable[T]]], UseCase[P, T]]:
    """Make a use case from the function that answers it in process; the arguments become its attributes."""
    return lambda perform: UseCase(perform=perform, route=route, access=access, answers=answers, body=body)


class Client(Protocol):
    """A transport. Every error that it raises is one of `app.errors`."""

    executes: bool
    """Whether runs execute in this process and stop when it ends; otherwise a service executes them."""

    @property
    def stopping(self) -> bool:
        """Return whether a signal has stopped the runs that execute in this process."""

    async def stop(self) -> bool:
        """Stop the runs that execute in this process; return whether any could."""

    async def call(self, wanted: UseCase[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the answer of a use case."""

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[JsonObject, None]:
        """Yield the run's events numbered above `after` until it stops."""

    def followed(self, run_id: str) -> str:
        """Return the run to follow after an order to a run: the topmost that waits for it, if this process continues
        that too.
        """

    def follow_log(self, run_id: str, name: str) -> AsyncGenerator[str | None, None]:
        """Yield the texts of a log until its run has ended; None where another log replaces it, and at the end."""

    def verify_all(self) -> AsyncGenerator[list[JsonObject], None]:
        """Check all stored data and yield the reports page by page."""
