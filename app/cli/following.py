"""Following: show a run until it stops, step by step on a live terminal or as plain lines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from enum import Enum
from typing import Any

from app import errors, interruption, printable
from app.cli import asking, exit_codes, formats, halting, options, terminal, use_cases
from app.cli.client import Client, JsonObject
from app.domain import events

Show = Callable[[JsonObject], Awaitable[None]]  # Shows one event.

SILENT_SECONDS = 5.0
"""Silence of a run under way after which the cause is printed; the wait doubles for each further time."""

_OVER = ("done", "failed", "cancelled")
_HALTED = ("paused", "waiting")
_AT_REST = (*_OVER, *_HALTED)

_RESTING = (events.EventType.RUN_PAUSED, events.EventType.RUN_WAITING)
_LONGEST_SILENCE_SECONDS = 60.0
_LOOK_SECONDS = 1.0  # Silence after which to check whether the run halts at one that it waits for; then doubled.
_LONGEST_LOOK_SECONDS = 5.0
_QUIET_SECONDS = 1.0  # Silence after an event of rest, after which to check whether the run still rests.
_FIRST_SECONDS = 10.0  # The same before the first event: a slow connection may take its time.


class Shown(Enum):
    """How to show a run that is followed."""

    TEXT = "text"  # Step by step, for people.
    DETAIL = "detail"  # The run as one JSON object, when it rests.
    EVENTS = "events"  # One event per line, as JSON.
    NOTHING = "nothing"  # Not at all, since the command has printed another result.


async def follow(
    client: Client,
    run_id: str,
    output: Shown,
    after: int = 0,
    *,
    answers: bool = False,
    first: Callable[[], object] = lambda: None,
) -> int:
    """Show a run until it rests; return the exit code for its state.

    Args:
        answers: Whether to ask the run's questions here, if there is a person and the output is for people.
        first: Prints what the command has done, before the run is shown.
    """
    progress = EventPrinter(live=terminal.is_redrawn())

    async def show(event: JsonObject) -> None:
        if output is Shown.TEXT:
            progress.show(event)
        elif output is Shown.EVENTS:
            terminal.say_json(event, one_line=True)

    live = output is Shown.TEXT and terminal.is_answered()
    asker = asking.Asker(client, run_id, live=live, clear=progress.finish) if answers else None
    printer = WaitPrinter(client, run_id, progress.hide, names_orders=not answers) if output is Shown.TEXT else None
    try:
        first()
        detail = await watch(client, run_id, show, after, asker, Silence(client, run_id, printer))
    except (terminal.PipeClosed, OSError):
        await _leave(client, run_id)
        raise
    finally:
        progress.finish()
    if detail["status"] == "waiting":
        halting.print_gates(await halting.open_gates(client, run_id))
    below = await _held_below(client, detail)
    if below:
        named = (f"run {each['run_id']}, which is {each['status']}" for each in below)
        terminal.warn(f"run {run_id} waits for {' and '.join(named)}")
        await halting.print_halts(client, below)
    code = _report_end(detail, output, client, shown_error=progress.shown_error, halts=bool(below))
    if output is Shown.TEXT and detail["status"] == "failed":
        await _suggest_next(detail, client)
    return code


async def _leave(client: Client, run_id: str) -> None:
    """Stop a run that executes here and whose output cannot be written, and print how it continues."""
    # After a signal, which has ended the reader too, the boundary prints that.
    if interruption.received() or not await client.stop():
        return
    if exit_codes.is_interrupted((await client.call(use_cases.show_run, run_id))["status"]):
        with contextlib.suppress(terminal.PipeClosed):
            _print_interrupted(run_id)


def _print_interrupted(run_id: str) -> None:
    terminal.warn(f"interrupted; continue with: control-room runs resume {run_id}{options.again()}")


async def _suggest_next(detail: JsonObject, client: Client) -> None:
    """Print the command that resumes a failed run, unless it would be refused."""
    if (detail.get("orders") or {}).get("resume"):
        return
    from app.cli import explaining
    from app.flows import registry

    with contextlib.suppress(errors.ControlRoomError, errors.StorageFault):
        # A denial below it is final, too.
        if (await client.call(explaining.explain_run, detail["run_id"]))["chain"][-1].get("act") is None:
            return
    order = f"control-room runs resume {detail['run_id']}{options.again()}"
    terminal.warn(f"once the cause is removed, continue with: {order}")
    # A resume of a run without a recipe, such as a conference, takes no arguments.
    if detail["dialect"] not in registry.DRIVERS:
        terminal.warn(
            "  --arg NAME=TEXT replaces an argument; with --from KEY, also one that the finished step KEY has read"
        )


async def _held_below(client: Client, detail: JsonObject) -> list[JsonObject]:
    if client.stopping or detail["status"] in (*_OVER, "paused"):
        return []
    held = await halting.halts(client, detail["run_id"])
    return [each for each in held if each["run_id"] != detail["run_id"]]


async def watch(
    client: Client,
    run_id: str,
    show: Show,
    after: int = 0,
    asker: asking.Asker | None = None,
    silence: Silence | None = None,
) -> JsonObject:
    """Show every event of a run until it rests, or halts at a run that it waits for; return the run as it is then.

    Args:
        asker: Decides whether a run that waits or halts may continue.
        silence: Checks a run under way while it has no event; None: the run starts no other runs.
    """
    # Repeat after each answer: the run continues, and further events come.
    while True:
        async with aclosing(_until_rest(client, run_id, after, silence)) as events:
            async for event in events:
                after = event["seq"]
                await show(event)
        detail = await client.call(use_cases.show_run, run_id)
        held = await halting.halts(client, run_id) if silence is not None and detail["status"] not in _OVER else []
        if asker is not None and (held or detail["status"] == "waiting") and not client.stopping:
            if await asker.goes_on(held, after):
                continue
            detail = await client.call(use_cases.show_run, run_id)
        if client.executes or detail["status"] in _AT_REST or held:
            return detail
        # A service that stops ends its streams, but answers until its steps have ended.
        await asyncio.sleep(_LOOK_SECONDS)


async def _until_rest(
    client: Client, run_id: str, after: int, silence: Silence | None
) -> AsyncGenerator[JsonObject, None]:
    stream, resting = client.follow(run_id, after), True
    quiet_seconds = _QUIET_SECONDS if after else _FIRST_SECONDS
    while True:
        coming = asyncio.ensure_future(anext(stream))
        try:
            # A run at rest emits no events, and its stream stays open; so check its state.
            while resting and not (await asyncio.wait({coming}, timeout=quiet_seconds))[0]:
                # The stream of an ended run ends by itself, however long its first event takes.
                if (await client.call(use_cases.show_run, run_id))["status"] in _HALTED:
                    return
                # It may have come to rest again before this stream began.
                if silence is not None and after and await silence.halts():
                    return
            if silence is not None and await silence.ends_at_halt(coming):
                return
            event = await coming
        except StopAsyncIteration:
            return
        finally:
            coming.cancel()
        resting, quiet_seconds = event["type"] in _RESTING, _QUIET_SECONDS
        yield event


class Silence:
    """Check, while a run under way has no event, whether it halts, and print what it waits for.

    Args:
        printer: Prints the cause; None: nothing does.
    """

    def __init__(self, client: Client, run_id: str, printer: WaitPrinter | None = None) -> None:
        self._client = client
        self._run_id = run_id
        self._printer = printer

    async def ends_at_halt(self, coming: asyncio.Future[JsonObject]) -> bool:
        """Wait for the next event; return true as soon as the run halts instead."""
        look, silent, printed_at, pause = _LOOK_SECONDS, 0.0, 0.0, SILENT_SECONDS
        while not (await asyncio.wait({coming}, timeout=look))[0]:
            silent += look
            if await self.halts():
                return True
            if self._printer is not None and silent - printed_at >= pause:
                await self._printer.print_new()
                # Each wait is longer than the one before, so that a long run does not fill the screen.
                printed_at, pause = silent, min(2 * pause, _LONGEST_SILENCE_SECONDS)
            look = min(2 * look, _LONGEST_LOOK_SECONDS)
        return False

    async def halts(self) -> bool:
        """Return whether the run halts at one that it waits for."""
        return bool(await halting.halts(self._client, self._run_id))


def _report_end(
    detail: JsonObject, output: Shown, client: Client, *, shown_error: str | None, halts: bool = False
) -> int:
    status = detail["status"]
    # A run that waits for a person looks the same whether this process has released it or not.
    left = (exit_codes.is_interrupted(status) and not halts) or (client.stopping and status == "waiting")
    interrupted = client.executes and left
    if output is Shown.DETAIL:
        terminal.say_json(detail)
    elif output is Shown.TEXT and status in _HALTED:
        terminal.say(f"run {detail['run_id']} {status}: {detail.get('reason') or 'it needs an answer'}")
    error = _message(detail)
    # The events may not have shown the error: an ending can be lost, or be older than the damage of the run.
    if error is not None and not (error == shown_error and terminal.is_shared()):
        terminal.warn(f"{status}: {error}")
    if status == "paused":
        halting.print_continuing(detail, client)
    if interrupted:
        _print_interrupted(detail["run_id"])
    if interrupted:
        return exit_codes.ExitCode.INTERRUPTED
    return exit_codes.ExitCode.FAILED if halts else exit_codes.of_status(status)


class WaitPrinter:
    """Print what a person can do about a run that waits, such as answering the gate of a run that it has started.

    Args:
        hide: Removes the line of the open step from the terminal.
        names_orders: Whether to print the command that sends the run on; one that waits in a process which executes
            it would be refused.
    """

    def __init__(self, client: Client, run_id: str, hide: Callable[[], None], *, names_orders: bool = True) -> None:
        self._client = client
        self._names_orders = names_orders or not client.executes
        self._run_id = run_id
        self._hide = hide
        self._printed = ""

    async def print_new(self) -> None:
        """Print it, unless it was the last thing printed."""
        from app.cli import explaining

        try:
            found = await self._client.call(explaining.explain_run, self._run_id)
        except errors.ControlRoomError:
            # The cause may be known at the next look.
            return
        causes = [cause for cause in found["chain"] if cause.get("act") and cause["kind"] != "queued"]
        act = causes[-1]["act"] if causes else self._printed
        if act == self._printed or found["status"] in _AT_REST:
            return
        self._printed = act
        self._hide()
        terminal.say(f"  waits: {printable.one_line(found['sentence'])}")
        if self._names_orders:
            terminal.say(f"  {options.led(act)}")


class EventPrinter:
    """Print events as they arrive."""

    def __init__(self, live: bool) -> None:
        self._live = live
        self._open: dict[str, str] = {}
        self._phases: dict[str, str] = {}
        self._shown = False
        self.shown_error: str | None = None
        """Error of the run that was shown last."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Show one event."""
        try:
            line = self._line(event)
        except (AttributeError, KeyError, TypeError, ValueError):
            # The file of events was edited by hand.
            line = f"  {event.get('type')}"
        self.hide()
        if line is not None:
            terminal.say(line)
        self._show_open()

    def finish(self) -> None:
        """Clear the line of the open step at the end."""
        self._open.clear()
        self.hide()

    def hide(self) -> None:
        """Remove the line of the open step from the terminal."""
        if self._shown:
            terminal.replace_line("")
            self._shown = False

    def _line(self, event: Mapping[str, Any]) -> str | None:
        key, data = event.get("key") or "", event.get("data") or {}
        match event["type"]:
            case "step.started":
                return self._begin(key, data)
            case "step.finished":
                return self._end(key, data.get("status", "done"), data.get("preview"), data)
            case "step.failed":
                return self._end(key, "failed", _message(data), data)
            case "step.retrying":
                return self._end(key, "retrying", f"at {data.get('retry_at')}: {_message(data)}", data)
            case "step.interrupted":
                return self._end(key, "interrupted", None, data)
            case "run.started" | "run.waiting" | "run.unpaused" | "recovery.continued" | "recipe.note" | "gate.decided":
                return None
            case "gate.opened":
                return f"  {key} asks: {formats.cell(data.get('prompt'))}"
            case "run.created":
                return f"run {event['run_id']} {data.get('recipe_id', '')}".rstrip()
            case "run.ended":
                return _sentence(
                    f"run {event['run_id']} {data.get('status')}",
                    self._error(data) or formats.partial(data.get("ending")),
                )
            case other:
                reason = data.get("reason") or self._error(data)
                return _sentence(other.replace(".", " "), str(reason) if reason else None)

    def _error(self, data: Mapping[str, Any]) -> str | None:
        self.shown_error = _message(data)
        return self.shown_error

    def _begin(self, key: str, data: Mapping[str, Any]) -> str | None:
        again = f" (try {data['attempt']})" if data.get("attempt", 1) > 1 else ""
        self._phases[key] = data.get("phase") or "-"
        self._open[key] = f"{self._row('running', key)}{again}"
        return None if self._live else self._open[key]

    def _end(self, key: str, status: str, what: str | None, data: Mapping[str, Any]) -> str:
        self._open.pop(key, None)
        took = f"{data['duration_ms'] / 1000:8.1f} s" if data.get("duration_ms") is not None else " " * 10
        return f"{self._row(status, key)} {took}  {formats.cell(what)}".rstrip(" -")

    def _row(self, status: str, key: str) -> str:
        return f"  {self._phases.get(key, '-'):<4} {status:<11} {key:<24}"

    def _show_open(self) -> None:
        if self._live and self._open:
            terminal.replace_line(next(reversed(self._open.values())))
            self._shown = True


def _sentence(what: str, why: str | None) -> str:
    return f"{what}: {why}" if why else what


def _message(data: Mapping[str, Any]) -> str | None:
    return formats.error(data["error"]) if data.get("error") else None
