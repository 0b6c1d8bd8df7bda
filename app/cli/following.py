"""Following a run until it rests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from enum import Enum

from app.cli import asking, exit_codes, formats, options, terminal, use_cases
from app.cli.client import Answer, Client
from app.cli.progress import Progress
from app.domain import events

Show = Callable[[Answer], Awaitable[None]]
"""Shows one event."""

_OVER = ("done", "failed", "cancelled")
_AT_REST = (*_OVER, "paused", "waiting")

_RESTING = (events.EventType.RUN_PAUSED, events.EventType.RUN_WAITING)
_QUIET_SECONDS = 1.0
"""Silence after an event of rest, until it is looked whether the run still rests."""


class Output(Enum):
    """How a run that is followed is shown."""

    TEXT = "text"
    """Step by step, for people."""
    DETAIL = "detail"
    """The run as one JSON object, at its rest."""
    EVENTS = "events"
    """One event a line, as JSON."""
    NOTHING = "nothing"
    """Not at all, since something else was printed."""


async def follow(client: Client, run_id: str, output: Output, after: int = 0, *, answers: bool = False) -> int:
    """Show a run until it rests; return the exit code that tells how it stands.

    Args:
        answers: Whether what the run asks is asked here, if there is a person and the output is for people.
    """
    progress = Progress(live=terminal.is_live())

    async def show(event: Answer) -> None:
        if output is Output.TEXT:
            progress.show(event)
        elif output is Output.EVENTS:
            terminal.say_json(event, one_line=True)

    live = output is Output.TEXT and terminal.is_answered()
    asker = asking.Asker(client, run_id, live=live, clear=progress.finish) if answers else None
    try:
        detail = await watch(client, run_id, show, after, asker)
    finally:
        progress.finish()
    if detail["status"] == "waiting":
        _tell_gates(await asking.open_gates(client, run_id))
    return _tell_rest(detail, output, client.executes)


async def watch(client: Client, run_id: str, show: Show, after: int = 0, asker: asking.Asker | None = None) -> Answer:
    """Show every event of a run until it rests; return the run as it stands then.

    Args:
        asker: Asked whether a run that waits may go on.
    """
    while True:
        async with aclosing(_until_rest(client, run_id, after)) as told:
            async for event in told:
                after = event["seq"]
                await show(event)
        detail = await client.call(use_cases.show_run, run_id)
        if asker is not None and detail["status"] == "waiting":
            if await asker.goes_on(after):
                continue
            detail = await client.call(use_cases.show_run, run_id)
        if client.executes or detail["status"] in _AT_REST:
            return detail


async def _until_rest(client: Client, run_id: str, after: int) -> AsyncGenerator[Answer, None]:
    stream, resting = client.follow(run_id, after), True
    while True:
        coming = asyncio.ensure_future(anext(stream))
        try:
            while resting and not (await asyncio.wait({coming}, timeout=_QUIET_SECONDS))[0]:
                if (await client.call(use_cases.show_run, run_id))["status"] in _AT_REST:
                    return
            event = await coming
        except StopAsyncIteration:
            return
        finally:
            coming.cancel()
        resting = event["type"] in _RESTING
        yield event


def _tell_gates(found: Sequence[Answer]) -> None:
    for gate in found:
        terminal.warn(f"{gate['key']}: {formats.cell(gate['prompt'])}")
        terminal.warn(f"  answer with: {formats.answer_command(gate)}")


def _tell_rest(detail: Answer, output: Output, executes: bool) -> int:
    status, interrupted = detail["status"], executes and exit_codes.is_interrupted(detail["status"])
    if output is Output.DETAIL:
        terminal.say_json(detail)
    elif output is Output.TEXT and status in ("paused", "waiting"):
        terminal.say(f"run {detail['run_id']} {status}: {detail.get('reason') or 'it needs an answer'}")
    if detail.get("error"):
        terminal.warn(f"{status}: {formats.error(detail['error'])}")
    if interrupted:
        terminal.warn(f"interrupted; go on with: control-room runs resume {detail['run_id']}{options.again()}")
    return exit_codes.ExitCode.INTERRUPTED if interrupted else exit_codes.of_status(status)
