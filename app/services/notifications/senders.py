"""Senders: deliver one message over a channel."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from app import errors, printable
from app.domain import notifications, plain
from app.processes import commands

SEND_SECONDS = 15.0  # Longest time for one attempt.
MOST_WAIT_SECONDS = 24 * 3600.0  # Longest time for which a receiver can refuse messages.
COMMAND_SECONDS = 60.0  # Longest time for one attempt of a command.

_OUTPUT_BYTES = 64 * 1024
_TAIL_CHARACTERS = 300


def mail_lacks(smtp_url: str | None, mail_from: str | None) -> str | None:
    """Return which settings e-mail lacks; None if it has them."""
    given = {"CONTROL_ROOM_SMTP_URL": smtp_url, "CONTROL_ROOM_MAIL_FROM": mail_from}
    missing = [name for name, value in given.items() if not value]
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set" if missing else None


class NotDelivered(Exception):
    """An attempt failed; the text is the reason.

    Args:
        wait_seconds: Time for which the receiver wants no message.
        is_final: Whether another attempt would fail, too.
    """

    def __init__(self, message: str, wait_seconds: float = 0.0, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.wait_seconds = min(wait_seconds, MOST_WAIT_SECONDS)
        self.is_final = is_final


class Sender(Protocol):
    """Delivers messages by one channel."""

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        """Deliver a message, and return the receiver's answer.

        Raises:
            NotDelivered: the receiver did not accept the message.
        """


@runtime_checkable
class CheckingSender(Sender, Protocol):
    """A sender that can find out before a message that it could not deliver it."""

    def lacks(self, endpoint: notifications.Endpoint) -> str | None:
        """Return what this process lacks to deliver to an endpoint; None if nothing is known; meant for a thread."""


class LateSender:
    """A sender that loads its libraries for the first message, on a thread.

    Args:
        lacks: What it lacks in this process to deliver anything.
    """

    def __init__(self, make: Callable[[], Sender], lacks: str | None = None) -> None:
        self._lacks = lacks
        self._make = make
        self._made: Sender | None = None

    def lacks(self, endpoint: notifications.Endpoint) -> str | None:
        """Return which settings it lacks."""
        return self._lacks

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        """Deliver a message."""
        if self._made is None:
            self._made = await asyncio.to_thread(self._make)
        return await self._made.send(endpoint, message)


class CommandSender:
    """Runs a program with the message on its standard input.

    Args:
        run: Runs a command to its end; `supervisor.Supervisor.run`.
        masker: Masks secrets in what a program prints.
    """

    def __init__(self, run: Callable[[commands.Request], object], folder: Path, masker: plain.Masker) -> None:
        self._run = run
        self._folder = folder
        self._masker = masker

    def lacks(self, endpoint: notifications.Endpoint) -> str | None:
        """Return why its program cannot be executed."""
        program = endpoint.argv[0]
        # A name without a slash is searched on PATH; any other is a path from the folder.
        place = str(self._folder / program) if "/" in program else program
        return f"the program {program!r:.200} is not found, or not executable" if shutil.which(place) is None else None

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        """Deliver a message."""
        request = commands.Request(
            argv=endpoint.argv,
            run_id=message.run_id,
            cwd=self._folder,
            env={"CONTROL_ROOM_MESSAGE_ID": message.message_id},
            # The id is also outside of the message, so that a program recognises a repetition without reading it.
            stdin=plain.encode({"id": message.message_id} | message.payload()) + b"\n",
            timeout_seconds=COMMAND_SECONDS,
            cap_bytes=_OUTPUT_BYTES,
        )
        try:
            ended: commands.Ended = await self._run(request)  # type: ignore[misc]
        except (commands.NotStarted, commands.LauncherLost, errors.WorkspaceFault) as error:
            raise NotDelivered(f"{error.message} [{error.code}]") from error
        if ended.cause:
            raise NotDelivered(f"it was ended: {ended.cause}{self._printed(ended)}")
        if ended.signal is not None:
            raise NotDelivered(f"signal {ended.signal}{self._printed(ended)}")
        if ended.exit_code != 0:
            raise NotDelivered(f"exit code {ended.exit_code}{self._printed(ended)}")
        return "exit code 0"

    def _printed(self, ended: commands.Ended) -> str:
        """Return the end of what a failed program printed, with a colon before it; empty if it printed nothing."""
        content = ended.stderr.content.strip() or ended.stdout.content
        # Masked before it is cut: a part of a secret would not be recognised.
        text = printable.title(str(self._masker.mask(content.decode("utf-8", "replace"))))
        cut = f"… {text[-_TAIL_CHARACTERS:].lstrip()}" if len(text) > _TAIL_CHARACTERS else text
        return f": {cut}" if cut else ""
