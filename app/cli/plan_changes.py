"""What all commands that change a session plan share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from app.cli import exit_codes, options, plan_formats
from app.cli.access import Access

if TYPE_CHECKING:
    from app.cli import client

revision = click.option(
    "--revision", type=click.IntRange(1), metavar="N", help="Reject the change if the plan's revision is newer."
)
"""The revision that was seen."""

detach = click.option("--detach", is_flag=True, help="With --server: return at once instead of following the plan.")
"""Whether a service goes on with the plan alone."""


def changed(
    place: options.Place,
    change: Callable[[client.Client], Awaitable[client.Answer]],
    as_json: bool,
    *,
    detach: bool = False,
    follows: bool = False,
    goes_on: Callable[[client.Answer], bool] = plan_formats.goes_on,
) -> int:
    """Change a plan and show it; where it goes on by that, show its changes until it rests.

    Args:
        follows: Whether a plan of a service is waited for, too; what goes on in this process always is.
        goes_on: Tells whether the plan is to be followed.
    """
    if detach and place.server is None:
        raise click.UsageError("--detach needs --server: without a service nobody would go on with the plan.")

    from app.cli import plan_following

    async def work(connected: client.Client) -> int:
        found = await change(connected)
        if detach or not (follows or connected.executes) or not goes_on(found):
            return exit_codes.shown(found, as_json, plan_formats.outline)
        return await plan_following.follow(connected, found, as_json)

    return place.ask(work, Access.CHANGE)
