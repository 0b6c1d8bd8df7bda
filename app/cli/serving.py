"""The command `serve`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from app import settings
from app.cli import exit_codes, formats, options, terminal, typed_options

Command = TypeVar("Command", bound=Callable[..., Any])

_STORE = "STORE_URL"
_BLOBS = "BLOBS_URL"
_IN_ENVIRONMENT_ONLY = frozenset(settings.PREFIX + name for name in ("API_TOKEN", "DATABASE_URL", _STORE))
"""Options that may be secret: every user of the machine can read a command line."""


def _with_settings(command: Command) -> Command:
    for item in reversed(settings.documented()):
        name = item.env.removeprefix(settings.PREFIX)
        if item.env not in _IN_ENVIRONMENT_ONLY and name != _BLOBS:
            flag = f"--{name.lower().replace('_', '-')}"
            command = click.option(flag, name, metavar="VALUE", help=_described(name))(command)
    return command


def _described(name: str) -> str:
    item = next(item for item in settings.documented() if item.env == settings.PREFIX + name)
    return f"{item.meaning}  [{item.env}; default: {item.default}]"


def _without_password(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is not None and re.match(r"[^:/?#]+://[^/?#@]*:[^/?#@]*@", value):
        message = "every user of the machine can read a password here: put it into CONTROL_ROOM_STORE_URL or ~/.pgpass"
        raise click.BadParameter(message)
    return value


store_option = click.option(
    "--store",
    _STORE,
    metavar="URL",
    callback=_without_password,
    help="Run store on Postgres, as an address without a password.  [CONTROL_ROOM_STORE_URL; default: folders]",
)


@click.command()
@click.option("--open", "opens", is_flag=True, help="Open the web UI in a browser once the service is ready.")
@store_option
@click.option("--blobs", _BLOBS, metavar="URL", help=_described(_BLOBS))
@_with_settings
def serve(opens: bool, **given: str | None) -> int:
    """Serve a project and its web UI over HTTP until SIGTERM or Ctrl-C.

    On the signal no further step starts, and steps in flight get STOP_GRACE_SECONDS; a second signal interrupts them.
    Unfinished runs continue at the next start.
    """
    environ = options.laid_over(**given)
    config, remarks = settings.examine(environ)
    if remarks:
        warn_of(remarks)
    if config is None or any(remark.fatal for remark in remarks):
        return exit_codes.ExitCode.CONFIGURATION
    from app import garbage

    with garbage.postponed():
        from app import main
        from app.cli import browser

    ready = functools.partial(browser.open_page, announce=_announce) if opens else None
    return main.serve(config, announce=_announce, ready=ready)


def warn_of(remarks: Sequence[settings.Remark]) -> None:
    """Print remarks about settings on stderr, with the typed options instead of the settings' names."""
    named = [{**dataclasses.asdict(remark), "setting": typed_options.name_of(remark.setting)} for remark in remarks]
    terminal.warn(*formats.remarks(named).split("\n"))


def _announce(line: str) -> None:
    # A service continues when its output has no reader.
    with contextlib.suppress(terminal.PipeClosed):
        terminal.say(line)
