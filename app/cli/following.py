"""
Following a run until it rests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from enum import Enum

from app.cli import client, endings, formats, terminal
from app.cli.progress import Progress
from app.engine import events

Show = Callable[[client.Answer], Awaitable[None]]
"""Shows one event."""

_OVER = ("done", "failed", "cancelled")
_AT_REST = (*_OVER, "paused", "waiting")

_RESTING = (events.EventType.RUN_PAUSED, events.EventType.RUN_WAITING)
_QUIET_SECONDS = 1.0
"""Silence after an event of rest, until it is looked whether the run still rests."""


class Output(Enum):
    """
    How a run that is followed is shown.
    """

    TEXT = "text"
    """Step by step, for people."""
    DETAIL = "detail"
    """The run as one JSON object, at its rest."""
    EVENTS = "events"
    """One event a line, as JSON."""


async def follow(connected: client.Client, run_id: str, output: Output, after: int = 0) -> int:
    """
    Show a run until it rests; return the exit code that tells how it stands.
    """
    progress = Progress(live=terminal.is_live())

    async def show(event: client.Answer) -> None:
        if output is Output.TEXT:
            progress.show(event)
        elif output is Output.EVENTS:
            terminal.say_json(event, one_line=True)

    try:
        detail = await watch(connected, run_id, show, after)
    finally:
        progress.finish()
    return _tell_rest(detail, output, connected.executes)


async def watch(connected: client.Client, run_id: str, show: Show, after: int = 0) -> client.Answer:
    """
    Show every event of a run until it rests; return the run as it stands then.
    """
    while True:
        async with aclosing(_until_rest(connected, run_id, after)) as told:
            async for event in told:
                after = event["seq"]
                await show(event)
        detail = await connected.detail(run_id)
        if connected.executes or detail["status"] in _AT_REST:
            return detail


async def _until_rest(connected: client.Client, run_id: str, after: int) -> AsyncGenerator[client.Answer, None]:
    stream, resting = connected.follow(run_id, after), True
    while True:
        coming = asyncio.ensure_future(anext(stream))
        try:
            while resting and not (await asyncio.wait({coming}, timeout=_QUIET_SECONDS))[0]:
                if (await connected.detail(run_id))["status"] in _AT_REST:
                    return
            event = await coming
        except StopAsyncIteration:
            return
        finally:
            coming.cancel()
        resting = event["type"] in _RESTING
        yield event


def _tell_rest(detail: client.Answer, output: Output, executes: bool) -> int:
    status, interrupted = detail["status"], executes and endings.is_interrupted(detail["status"])
    if output is Output.DETAIL:
        terminal.say_json(detail)
    elif output is Output.TEXT and status in ("paused", "waiting"):
        terminal.say(f"run {detail['run_id']} {status}: {detail.get('reason') or 'nothing to do'}")
    if detail.get("error"):
        terminal.warn(f"{status}: {formats.error(detail['error'])}")
    if interrupted:
        terminal.warn(f"interrupted; go on with: control-room runs resume {detail['run_id']}")
    return endings.ExitCode.INTERRUPTED if interrupted else endings.of_status(status)
