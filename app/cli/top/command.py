"""The command `top`."""

from __future__ import annotations

from importlib import util

import click

from app import errors, extras, interruption
from app.cli import exit_codes, options, terminal
from app.cli.top import KEYS


@click.command(epilog=f"\b\n{KEYS}")
@options.anywhere
def top(place: options.Place) -> int:
    """Watch a service: what waits for you, what runs, and what it costs; answer gates there.

    It needs the extra `top`. Without --server, it finds the service of the project. It reconnects after a lost
    connection.
    """
    if util.find_spec("textual") is None:
        raise errors.ConfigurationError(
            "`control-room top` needs the package textual, which is not installed; "
            f"install it with: {extras.install('top')}",
            code="textual_missing",
        )
    if not terminal.is_answered():
        raise click.UsageError("`top` needs a terminal; `runs list` and `gates` print the same for programs.")
    from app import clock
    from app.cli import http_client
    from app.cli.top import feeds, screen

    source = feeds.Source(http_client.HttpClient(_server(place), place.settings().server.token), clock.SystemClock())
    interruption.run(screen.watch(source, _server(place)))
    return exit_codes.ExitCode.DONE


def _server(place: options.Place) -> str:
    """Return the address of the service.

    Raises:
        errors.ConfigurationError: no service runs on the project.
    """
    if place.server is not None:
        return place.server
    from app import clock
    from app.storage import data_directory

    folder = place.settings().project.data_directory
    service = data_directory.DataDirectory(folder, clock=clock.SystemClock(), ids=clock.RandomIds()).service()
    url = (service or {}).get("url")
    if not isinstance(url, str):
        raise errors.ConfigurationError(
            f"no service runs on {folder}; start one with `{place.led('control-room serve')}`, or name one with"
            " --server",
            code="no_service",
        )
    return url
