"""
Perform commands: one program in the run's workspace, and what it said.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Mapping
from typing import Protocol

from app import errors, settings
from app.engine import interruptions, operations, plain, ports, records, states
from app.processes import commands
from app.tools import command_outputs, command_places
from app.tools.workspaces import Workspaces

DEFAULT_TIMEOUT_SECONDS = 24 * 60 * 60.0
"""Wall-clock limit of one try where the operation sets none."""

MAX_STDIN_BYTES = 16 * 1024 * 1024
"""Most that a command is given to read."""

_MUCH_BYTES = 128 * 1024


class Supervisor(Protocol):
    """
    Whoever runs commands.
    """

    async def run(self, request: commands.Request) -> commands.Ended:
        """
        Run a command to its end; a cancellation ends it first, with everything it has started.

        Raises:
            commands.NotStarted, commands.LauncherLost: it could not be run.
        """


class CommandPerformer:
    """
    Run a program; success is an exit code that the operation expects.
    """

    def __init__(
        self, supervisor: Supervisor, workspaces: Workspaces, environ: Mapping[str, str], secrets: Iterable[str] = ()
    ) -> None:
        self._supervisor = supervisor
        self._workspaces = workspaces
        self._environ = environ
        self._secrets = tuple(secrets)

    async def perform(self, call: ports.Call) -> records.Result:
        """
        Perform one try of an `operations.Command`.

        The output is `{"exit_code", "signal", "stdout", "stderr", "stdout_bytes", "stderr_bytes", "stdout_truncated",
        "stderr_truncated", "leftovers", "survivors", "cpu_seconds", "peak_bytes"}`, of a failed try too.

        Raises:
            errors.StepError: `invalid_command`, `missing_secrets`, `path_outside_workspace`, `cwd_missing`,
                `program_missing`, `program_not_executable`, `arguments_too_long`, `not_started`, …
            stepping.Parked: it was cut off and must not be repeated unasked, or was cut off too often.
        """
        operation = call.operation
        assert isinstance(operation, operations.Command)
        _refuse_broken(operation)
        env = self._env(call, operation)
        stdin = await _text(call, operation.stdin)

        async def once(_: int) -> records.Result:
            ended = await self._supervisor.run(self._request(call, operation, env, stdin))
            return await self._result(call, operation, ended)

        return await interruptions.outlived(call, commands.LauncherLost, once)

    def _env(self, call: ports.Call, operation: operations.Command) -> dict[str, str]:
        missing = sorted({name for name in operation.secrets if name not in self._environ})
        if missing:
            raise errors.StepError(
                f"The service's environment lacks {', '.join(missing)}, which the command needs.",
                code="missing_secrets",
                detail={"missing_secrets": missing},
            )
        secrets = {name: self._environ[name] for name in operation.secrets}
        place = {settings.RUN_ID: call.run.run_id, settings.DEPTH: str(call.run.depth)}
        return secrets | dict(operation.env) | place

    def _request(
        self, call: ports.Call, operation: operations.Command, env: Mapping[str, str], stdin: bytes | None
    ) -> commands.Request:
        workspace = self._workspaces.of(call.run)
        cwd = command_places.folder(workspace, operation.cwd)
        try:
            stdout = None if operation.output_file is None else command_places.output(workspace, operation.output_file)
        except BaseException:
            if isinstance(cwd, int):
                os.close(cwd)
            raise
        return commands.Request(
            argv=operation.argv,
            run_id=call.run.run_id,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            timeout_seconds=operation.timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
        )

    async def _result(self, call: ports.Call, operation: operations.Command, ended: commands.Ended) -> records.Result:
        secrets = {*self._secrets, *(self._environ[name] for name in operation.secrets)}
        secrets |= {operation.env[name] for name in operation.secrets if name in operation.env}

        def make() -> tuple[command_outputs.Said, command_outputs.Said]:
            limit = operation.output_limit_bytes
            return (
                command_outputs.said(ended.stdout, limit, secrets, at_end=False),
                command_outputs.said(ended.stderr, limit, secrets, at_end=True),
            )

        much = len(ended.stdout.content) + len(ended.stderr.content) > _MUCH_BYTES
        stdout, stderr = await asyncio.to_thread(make) if much else make()
        for name, said in (("stdout", stdout), ("stderr", stderr)):
            if said.log:
                await call.write_log(f"{call.key}.{call.attempt}.{name}.txt", said.log)
        return _result(operation, ended, stdout, stderr)


def _refuse_broken(operation: operations.Command) -> None:
    flaw = None
    if not operation.argv or not operation.argv[0]:
        flaw = "it names no program"
    elif any("\0" in text for text in (*operation.argv, *operation.env, *operation.env.values())):
        flaw = "it holds a NUL character"
    elif any("=" in name or not name for name in operation.env):
        flaw = "a variable has no name, or one with an equals sign"
    if flaw is not None:
        raise errors.StepError(f"The command cannot be run: {flaw}.", code="invalid_command")


async def _text(call: ports.Call, stdin: plain.Json) -> bytes | None:
    if isinstance(stdin, dict) and "blob" in stdin:
        stdin = await call.read_blob(records.BlobRef.from_json(stdin["blob"]))
        stdin = stdin if isinstance(stdin, str) else plain.canonical(stdin).decode()
    if stdin is not None and not isinstance(stdin, str):
        raise errors.StepError("The command cannot be run: what it reads is no text.", code="invalid_command")
    content = None if stdin is None else stdin.encode("utf-8", "replace")
    if content is not None and len(content) > MAX_STDIN_BYTES:
        raise errors.StepError(
            f"The command's input has {len(content)} bytes, more than the {MAX_STDIN_BYTES} that it can be given.",
            code="stdin_too_large",
            detail={"size_bytes": len(content), "limit_bytes": MAX_STDIN_BYTES},
        )
    return content


def _result(
    operation: operations.Command,
    ended: commands.Ended,
    stdout: command_outputs.Said,
    stderr: command_outputs.Said,
) -> records.Result:
    output: dict[str, plain.Json] = {
        "exit_code": ended.exit_code,
        "signal": None if ended.signal is None else _signal_name(ended.signal),
        "stdout": stdout.text,
        "stderr": stderr.text,
        "stdout_bytes": stdout.size_bytes,
        "stderr_bytes": stderr.size_bytes,
        "stdout_truncated": stdout.truncated,
        "stderr_truncated": stderr.truncated,
        "leftovers": ended.leftovers,
        "survivors": ended.survivors,
        "cpu_seconds": round(ended.cpu_seconds, 6),
        "peak_bytes": ended.peak_bytes,
    }
    error = _error(operation, ended)
    return records.Result(
        status=states.StepState.FAILED if error else states.StepState.DONE,
        output=output,
        summary=plain.preview(error.message if error else stdout.text or f"exit code {ended.exit_code}"),
        error=error,
    )


def _error(operation: operations.Command, ended: commands.Ended) -> records.StepError | None:
    """
    Decide whether a command failed.
    """
    program = operation.argv[0]
    if ended.cause == "timeout":
        limit = operation.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        message = f"The command {program!r:.100} did not end within {limit:g} seconds."
        return records.StepError(code="timeout", message=message, detail={"timeout_seconds": limit})
    if ended.cause == "output":
        message = f"The command {program!r:.100} wrote more than {commands.CAP_BYTES} bytes."
        return records.StepError(code="output_too_large", message=message, detail={"limit_bytes": commands.CAP_BYTES})
    if ended.exit_code in operation.exit_codes:
        return None
    if ended.signal is not None:
        name = _signal_name(ended.signal)
        message = f"The command {program!r:.100} was ended by {name}."
        return records.StepError(code="signal", message=message, detail={"signal": name, "number": ended.signal})
    message = f"The command {program!r:.100} ended with exit code {ended.exit_code}."
    return records.StepError(code="exit_code", message=message, detail={"exit_code": ended.exit_code})


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
