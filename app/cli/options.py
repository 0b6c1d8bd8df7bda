"""Options that many commands share, and the folder or service that they select."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from app import errors, interruption, settings
from app.cli import terminal
from app.cli.client import Access, Client, P, T, UseCase

if TYPE_CHECKING:
    from app import bootstrap
    from app.cli import folder_client

AnyClient = TypeVar("AnyClient")
# Arguments of recipes may have the same names as options.
_FIELD = re.compile(r"(?:query\.|\$\.(?:webhook\.|schedule\.|files\.|limits\.)?)(\w+)(?:\[\d+\])?")

# By the code of the error about an id; each of these commands shows the ids that exist.
_LISTS = {
    "endpoint_not_found": "notifications list",
    "gate_not_found": "gates",
    "issue_not_found": "issues list",
    "key_not_found": "keys list",
    "plan_not_found": "plan list",
    "receipt_not_found": "receipts list",
    "recipe_not_found": "recipes list",
    "run_not_found": "runs list",
    "trigger_not_found": "triggers list",
    "unknown_recipe": "recipes list",
}

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folder or service with a command's runs and recipes."""

    environ: Mapping[str, str]  # Environment, overridden by the command's options.
    server: str | None = None  # Address of a service; None: the project's folder, in process.

    def settings(self) -> settings.Settings:
        """Return the settings.

        Raises:
            errors.ConfigurationError: a value is malformed.
        """
        return settings.load(self.environ)

    def connect(self, access: Access) -> AbstractAsyncContextManager[Client]:
        """Return the client of the service or of the folder."""
        if self.server is None:
            return self.open(access)

        from app.cli import http_client

        return http_client.HttpClient(self.server, self.settings().server.token)

    def open(
        self, access: Access, platform: bootstrap.Platform | None = None
    ) -> AbstractAsyncContextManager[folder_client.FolderClient]:
        """Return the client of the folder."""
        from app.cli import folder_client

        return folder_client.connect(self.settings(), access, platform)

    def ask(self, wanted: UseCase[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the answer of one use case."""
        return self.work(lambda client: client.call(wanted, *args, **kwargs), wanted.access)

    def work(self, work: Callable[[Client], Awaitable[T]], access: Access = Access.READ) -> T:
        """Do asynchronous work with the client."""
        return self._run(self.connect(access), work)

    def work_on_run(self, work: Callable[[Client, list[str]], Awaitable[T]]) -> T:
        """Start a run and follow it; the work notes the run's id, which the message of an interruption names."""
        started: list[str] = []
        try:
            return self.work(lambda client: work(client, started), Access.START)
        except (KeyboardInterrupt, terminal.PipeClosed) as error:
            # Ctrl-C ends the reader of the output, too.
            if isinstance(error, terminal.PipeClosed) and not interruption.received():
                raise
            order = "resume" if self.server is None else "follow"
            message = f" before the run was known; control-room runs list{again()} shows whether it was started"
            if started:
                message = f"; continue with: control-room runs {order} {started[0]}{again()}"
            raise KeyboardInterrupt(message) from error

    def work_here(
        self,
        work: Callable[[folder_client.FolderClient], Awaitable[T]],
        access: Access = Access.READ,
        platform: bootstrap.Platform | None = None,
    ) -> T:
        """Do asynchronous work with the client of the folder."""
        return self._run(self.open(access, platform), work)

    def led(self, order: str) -> str:
        """Return a command line of `control-room` for the same folder or service."""
        return led(order)

    def _run(self, connecting: AbstractAsyncContextManager[AnyClient], work: Callable[[AnyClient], Awaitable[T]]) -> T:
        async def connected() -> T:
            async with connecting as client:
                found = await work(client)
                interruption.settle()
                return found

        try:
            return interruption.run(connected())
        except errors.ControlRoomError as error:
            # The boundary prints the note; the command with its options is known only here.
            if error.code in _LISTS and "control-room" not in error.message:
                error.add_note(f"list them with: {self.led(f'control-room {_LISTS[error.code]}')}")
            if isinstance(error, errors.WrongState) and "act" in error.detail:
                error.add_note(f"continue it with: {self.led(error.detail['act'])}")
            raise


def in_folder(command: Command) -> Command:
    """Give a command the option `--project`; it gets a `place` that is a folder."""

    @_project
    @functools.wraps(command)
    def placed(project: str | None, **given: Any) -> Any:
        return command(place=Place(environ=laid_over(PROJECT=project)), **given)

    return placed  # type: ignore[return-value]


def anywhere(command: Command) -> Command:
    """Give a command the options `--project` and `--server`; it gets a `place`."""

    @_project
    @_server
    @functools.wraps(command)
    def placed(project: str | None, server: str | None, **given: Any) -> Any:
        if project and server:
            if click.get_current_context().get_parameter_source("server") is ParameterSource.COMMANDLINE:
                raise click.UsageError("--project is a folder here, --server is a service: give one of them.")
            # A project on the command line overrides a server in the environment.
            server = None
        try:
            return command(place=Place(server=server, environ=laid_over(PROJECT=project)), **given)
        except errors.InputRefused as error:
            raise _naming_options(error) from error.__cause__

    return placed  # type: ignore[return-value]


def _naming_options(error: errors.InputRefused) -> errors.InputRefused:
    """Return an error that names the command's options instead of the fields of its request."""
    context = click.get_current_context(silent=True)
    typed = {} if context is None else {parameter.name: _typed(parameter) for parameter in context.command.params}
    named = []
    for flaw in error.flaws:
        field = _FIELD.fullmatch(flaw.path)
        names = () if field is None else (field[1], f"{field[1]}_file", field[1].removeprefix("allowed_"))
        option = next((typed[name] for name in names if name in typed), None)
        if field is not None and option is not None:
            # The message contains the field, too, unless it is that of the flaw alone.
            path = f"{option}: " if error.message == flaw.message else ""
            whole, part = (text.replace(f"`{field[1]}`", option) for text in (error.message, flaw.message))
            error.message = path + whole.replace(f"{flaw.path}: ", f"{option}: ")
            flaw = dataclasses.replace(flaw, path=option, message=part)
        named.append(flaw)
    error.flaws = tuple(named)
    return error


def _typed(parameter: click.Parameter) -> str:
    return parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name


def again(taken: Collection[str] = ("--project", "--server")) -> str:
    """Return the options with which the present command selected its folder or service, to be typed
    again.

    Args:
        taken: Options that the next command accepts.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return ""
    given = ((name, context.params.get(name)) for name in ("project", "server") if f"--{name}" in taken)
    typed = (pair for pair in given if context.get_parameter_source(pair[0]) is ParameterSource.COMMANDLINE)
    return "".join(f" --{name} {shlex.quote(str(value))}" for name, value in typed)


def led(order: str) -> str:
    """Return a command line with the present command's `--project` or `--server`, if it accepts that and names no
    server.
    """
    context = click.get_current_context(silent=True)
    command = None if context is None else _command(context.find_root().command, order)
    taken = [] if command is None else [option for parameter in command.params for option in parameter.opts]
    return order if "--server" in order.split() else order + again(taken)


def _command(root: click.Command, order: str) -> click.Command | None:
    found: click.Command | None = root
    for word in order.split()[1:]:
        if not isinstance(found, click.Group):
            break
        found = found.get_command(click.get_current_context(), word)
    return found


def laid_over(**given: str | None) -> Mapping[str, str]:
    """Return the environment overridden by settings, which have their names without the prefix."""
    return os.environ | {settings.PREFIX + name: value for name, value in given.items() if value is not None}


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def limit(what: str) -> Callable[[Command], Command]:
    """Return the option `--limit` of a list of these things."""
    help_text = f"Maximum number of {what} to show."
    return click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help=help_text)


_project = click.option("--project", metavar="DIR", help="Folder of the project.  [default: the current folder]")
_server = click.option(
    "--server",
    metavar="URL",
    envvar="CONTROL_ROOM_SERVER",
    help="Address of a running service, by default CONTROL_ROOM_SERVER; CONTROL_ROOM_API_TOKEN has its token.",
)
