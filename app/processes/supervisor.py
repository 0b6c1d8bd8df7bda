"""The supervisor: runs every command of this process through one launcher, so that none outlives the process.

This process is large and busy, and should neither fork nor wait for children; and if it is killed, no program that it
started may continue to run.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import itertools
import logging
import os
import resource
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from app import clock, errors, settings
from app.domain import secret_spellings
from app.engine import workspace_faults
from app.processes import (
    command_register,
    connections,
    environments,
    launcher_client,
    launcher_protocol,
    namespace_init,
    process_markers,
    sweeping,
)
from app.processes.commands import HELD_BYTES, Active, Ended, NotStarted, Output, Request

_FOLDER_MODE = 0o700
_SERIES_BYTES = 8
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})

_log = logging.getLogger(__name__)


class Supervisor:
    """Runs commands."""

    def __init__(
        self,
        folder: Path,
        ids: clock.Ids,
        environ: Mapping[str, str],
        files: int | None = None,
        containment: str = namespace_init.AUTO,
        secrets: Iterable[str] = settings.SECRET_NAMES,
    ) -> None:
        self._folder = folder
        self._ids = ids
        self._containment = containment
        # Number of files that a command may open; by default as many as this process.
        self._files = files or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        withheld = secret_spellings.named(environments.inherited(environ), secrets)
        self._environ = environments.inherited(environ, withheld)
        self._secrets = {name: environ[name] for name in withheld}
        self._numbers = itertools.count(1)
        self.under_way: dict[int, Request] = {}
        """The commands that have not ended, by number."""
        self._register = ""
        self._has_noticed = False
        self._launcher: launcher_client.LauncherClient | None = None
        self._started: list[launcher_client.LauncherClient] = []

    @property
    def launcher_pid(self) -> int | None:
        """Return the process id of the launcher; None while there is none."""
        return self._launcher.pid if self._launcher is not None else None

    def withheld_from(self, request: Request) -> frozenset[str]:
        """Return the names of the secret variables of this process that a command does not get."""
        return frozenset(self._secrets).difference(request.secrets, request.env)

    async def sweep(self) -> None:
        """Kill processes that an earlier process left running; call this before any run continues."""
        await asyncio.to_thread(self._sweep)

    async def run(self, request: Request) -> Ended:
        """Run a command to its end, so that none of its processes is left; a cancellation ends the command first.

        Raises:
            NotStarted: `program_missing`, `program_not_executable`, `cwd_missing`, `arguments_too_long`,
                `containment_missing`, `not_started`.
            commands.LauncherLost: its launcher was killed; it is unknown whether the command did its work.
            errors.WorkspaceFault: the machine has no space or no descriptor for it now; it was not started.
        """
        # Each secret is only given to the commands that need it.
        secrets = {name: value for name, value in self._secrets.items() if name in request.secrets}
        start, files = _start(next(self._numbers), request, {**secrets, **request.env})
        try:
            launcher = self._running_launcher()
        except BaseException:
            for file in files:
                os.close(file)
            raise
        # From here on, the launcher client owns the files and closes them.
        self.under_way[start.number] = request
        try:
            reply, passed = await launcher.run(start, files, request.on_output)
        finally:
            del self.under_way[start.number]
        if isinstance(reply, launcher_protocol.Refused):
            raise _refusal(reply, request, self._folder)
        if passed:
            # Shielded: a job that waits for a thread would never begin after a cancellation, and it closes the files.
            contents = await asyncio.shield(asyncio.to_thread(_read, reply, passed))
        else:
            contents = [_inline(reply.stdout), _inline(reply.stderr)]
        self._notice(request, reply)
        return _ended(reply, *contents)

    def active(self, *, run_id: str | None = None, agent_session_id: str | None = None) -> list[Active]:
        """Return the commands of this process that have not ended: all, or those of a run or a conversation."""
        wanted = {
            number: request
            for number, request in self.under_way.items()
            if run_id in (None, request.run_id) and agent_session_id in (None, request.agent_session_id)
        }
        # Read only if there is something to look up.
        entries = command_register.read(self._register)[1] if wanted else []
        pids = {entry.number: entry.pid for entry in entries if entry.pid}
        return [
            Active(
                run_id=request.run_id,
                agent_session_id=request.agent_session_id,
                program=request.argv[0],
                pid=pids.get(number),
            )
            for number, request in wanted.items()
        ]

    async def run_behind(self, own: connections.Address, other: connections.Address) -> str | None:
        """Return the run whose command holds the other end of a connection; None if no command of this process does.

        Args:
            own: Address of this end.
            other: Address of the other end.
        """
        series = command_register.series_of(self._register)
        marker = await asyncio.to_thread(connections.marker_behind, own, other, series)
        request = None if marker is None else self.under_way.get(process_markers.number_of(marker))
        return None if request is None else request.run_id

    async def close(self) -> None:
        """End every command and the launcher."""
        self._launcher = None
        for launcher in self._started:
            await launcher.close()

    def _notice(self, request: Request, reply: launcher_protocol.Ended) -> None:
        if not request.contained or self._has_noticed:
            return
        self._has_noticed = True
        if reply.containment == namespace_init.GUARD != self._containment:
            _log.warning("the system allows no namespaces; the launcher alone contains agents")
        else:
            _log.info("agents are contained", extra={"containment": reply.containment})

    def _running_launcher(self) -> launcher_client.LauncherClient:
        if self._launcher is None:
            # Derived by a hash, so that injected ids give series that differ widely.
            series = process_markers.series(hashlib.sha256(self._ids.token("").encode()).digest()[:_SERIES_BYTES])
            try:
                self._prepare()
                folders = [str(self._folder.absolute()), tempfile.gettempdir()]
                arguments = [str(series), str(self._files), self._containment, *folders]
                self._register = str(self._folder / command_register.name_of(series))
                self._launcher = launcher_client.LauncherClient.start(
                    arguments, self._environ, self._forget, self._sweep
                )
            except OSError as error:
                if workspace_faults.passes(error.errno):
                    raise workspace_faults.waits(str(self._folder), error) from error
                raise NotStarted(f"No command can be started: {error.strerror or error}.") from error
            self._started.append(self._launcher)
        return self._launcher

    def _prepare(self) -> None:
        self._folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        if not (ignored := self._folder / ".gitignore").exists():
            ignored.write_text("*\n", encoding="ascii")

    # Each launcher reports its own end. One that was replaced meanwhile must not remove its successor.
    def _forget(self, launcher: launcher_client.LauncherClient) -> None:
        if launcher is self._launcher:
            _log.error("the launcher ended; its commands are ended too", extra={"pid": launcher.pid})
            self._launcher = None

    def _sweep(self) -> None:
        for swept in (each for each in sweeping.sweep(self._folder) if each.killed):
            facts = {"run_ids": swept.run_ids, "killed": swept.killed, "survivors": swept.survivors}
            _log.warning("killed leftover processes of commands", extra=facts)


def _start(number: int, request: Request, env: Mapping[str, str | None]) -> tuple[launcher_protocol.Start, list[int]]:
    """Return the message to the launcher, and the open files that are sent with it."""
    files = [file for file in (request.cwd, request.stdin, request.stdout) if isinstance(file, int)]
    start = launcher_protocol.Start(
        number=number,
        run_id=request.run_id,
        argv=[os.fsencode(part) for part in request.argv],
        cwd=None if isinstance(request.cwd, int) else os.fsencode(request.cwd),
        env={os.fsencode(name): None if value is None else os.fsencode(value) for name, value in env.items()},
        inherits=request.inherits,
        stdin=None if isinstance(request.stdin, int) else request.stdin,
        reads_from_file=isinstance(request.stdin, int),
        timeout_seconds=request.timeout_seconds,
        idle_seconds=request.idle_seconds,
        cap_bytes=request.cap_bytes,
        contained=request.contained,
        writes_to_file=request.stdout is not None,
        passes_output=request.on_output is not None,
    )
    return start, files


def _refusal(refused: launcher_protocol.Refused, request: Request, folder: Path) -> NotStarted | errors.WorkspaceFault:
    reason = os.strerror(refused.errno)
    if workspace_faults.passes(refused.errno):
        places = {"cwd": str(request.cwd), "output": tempfile.gettempdir(), "register": str(folder)}
        return workspace_faults.waits(places.get(refused.what, request.argv[0]), OSError(refused.errno, reason))
    detail = {"program": request.argv[0], "errno": errno.errorcode.get(refused.errno, "unknown")}
    if refused.what == "cwd":
        return NotStarted(f"The command's folder cannot be entered: {reason}.", code="cwd_missing", detail=detail)
    if refused.what == "output":
        return NotStarted(f"The command's output cannot be stored: {reason}.", detail=detail)
    if refused.what == "register":
        message = f"The register of running commands in {str(folder)!r} cannot be written: {reason}."
        return NotStarted(message, detail=detail)
    if refused.what == "containment":
        message = f"The setting CONTAINMENT requires a namespace, and the system allows none: {reason}."
        return NotStarted(message, code="containment_missing", detail=detail)
    if refused.errno in _MISSING:
        message = f"The program {request.argv[0]!r:.200} or something that it needs is not installed here."
        return NotStarted(message, code="program_missing", detail=detail)
    if refused.errno == errno.E2BIG:
        return NotStarted("The command's arguments are too long.", code="arguments_too_long", detail=detail)
    message = f"The program {request.argv[0]!r:.200} cannot be executed: {reason}."
    return NotStarted(message, code="program_not_executable", detail=detail)


def _inline(content: bytes | None) -> Output:
    return Output(content=content or b"", size_bytes=len(content or b""))


def _read(reply: launcher_protocol.Ended, files: list[int]) -> list[Output]:
    """Return the outputs that were too long for a message: the beginning of the first, the end of the second."""
    remaining, outputs = list(files), []
    try:
        for content, at_end in ((reply.stdout, False), (reply.stderr, True)):
            outputs.append(_inline(content) if content is not None else _part_of(remaining.pop(0), at_end))
    finally:
        for file in files:
            os.close(file)
    return outputs


def _part_of(file: int, at_end: bool) -> Output:
    size_bytes = os.fstat(file).st_size
    content = os.pread(file, HELD_BYTES, max(size_bytes - HELD_BYTES, 0) if at_end else 0)
    return Output(content=content, size_bytes=size_bytes)


def _ended(reply: launcher_protocol.Ended, stdout: Output, stderr: Output) -> Ended:
    exited = os.WIFEXITED(reply.status)
    return Ended(
        pid=reply.pid,
        exit_code=os.WEXITSTATUS(reply.status) if exited else None,
        signal=None if exited else os.WTERMSIG(reply.status),
        cause=reply.cause,
        stdout=stdout,
        stderr=stderr,
        leftovers=reply.leftovers,
        survivors=reply.survivors,
        cpu_seconds=reply.cpu_seconds,
        peak_bytes=reply.peak_bytes,
        containment=reply.containment,
    )
