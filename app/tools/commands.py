"""Perform commands: run one program in the run's workspace, and record its output."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from app import errors, settings
from app.domain import operations, plain, records
from app.engine import live_output, ports
from app.processes import commands, environments
from app.tools import captures, command_paths, command_results
from app.tools.workspace import Workspace, Workspaces

MAX_STDIN_BYTES = 16 * 1024 * 1024  # Largest standard input of a command.

_STREAMS = {1: "stdout", 2: "stderr"}
_MUCH_BYTES = 128 * 1024
_MOST_PROGRAMS = 256


class Supervisor(Protocol):
    """Runs commands."""

    async def run(self, request: commands.Request) -> commands.Ended:
        """Run a command to its end; a cancellation first ends the command and all processes that it has started.

        Raises:
            commands.NotStarted, commands.LauncherLost: it could not be run.
        """


def _nothing(_: str) -> Collection[str]:
    return ()


class CommandPerformer:
    """Run a program; success is an exit code that the operation expects.

    Args:
        withheld: Returns the variables that a program does not get unless the recipe names them.
        idle_seconds: Longest silence of commands that set none; None: no limit.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        workspaces: Workspaces,
        environ: Mapping[str, str],
        withheld: Callable[[str], Collection[str]] = _nothing,
        idle_seconds: float | None = None,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._supervisor = supervisor
        self._workspaces = workspaces
        # Every access to `os.environ` decodes all of it.
        self._environ = dict(environ)
        self._withheld = functools.lru_cache(_MOST_PROGRAMS)(withheld)
        self._inherited = functools.lru_cache(_MOST_PROGRAMS)(self._inherit)

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of an `operations.Command`.

        The output is `{"exit_code", "signal", "stdout", "stderr", "stdout_bytes", "stderr_bytes", "stdout_truncated",
        "stderr_truncated", "leftovers", "survivors", "cpu_seconds", "peak_bytes", "env_count"}`, of a failed try too.
        Where the operation captures, `captured` replaces `stdout`, and a failed try has `stdout_tail` and
        `stderr_tail`.

        Raises:
            errors.StepError: `invalid_command`, `missing_secrets`, `path_outside_workspace`, `cwd_missing`,
                `program_missing`, `program_not_executable`, `arguments_too_long`, `not_started`, `output_invalid`, …
            ports.Interrupted: the launcher was killed; whether the command has done its work is unknown.
        """
        operation = call.operation
        assert isinstance(operation, operations.Command)
        if operation.idle_seconds is None and self._idle_seconds is not None:
            operation = dataclasses.replace(operation, idle_seconds=self._idle_seconds)
        _refuse_broken(operation)
        env = self._env(call, operation)
        # Secrets are masked before output is parsed or cut: a cut through a secret would leave parts that the
        # masker does not recognise.
        masker = call.masker.hiding(self._secrets(operation))
        withheld = self._withheld(operation.argv[0])
        inherited, secrets = self._inherited(frozenset(withheld))
        variables = inherited | env.keys()
        if call.run.options.get("debug"):
            await _explain(call, operation.log or call.key, sorted(variables), masker)
        workspace = self._workspaces.of(call.run)
        wanted = await captures.rules(workspace, operation.capture, masker)
        stdin = await _text(call, operation.stdin)

        outputs = _Outputs(call, operation, masker)
        request = _request(call, operation, workspace, env, stdin, secrets, outputs.hear)
        try:
            ended = await self._supervisor.run(request)
        except commands.LauncherLost as lost:
            raise ports.Interrupted(lost) from lost
        finally:
            await outputs.close()
        return await _result(call, operation, ended, wanted, masker, len(variables))

    def _env(self, call: ports.Call, operation: operations.Command) -> dict[str, str]:
        missing = sorted({name for name in operation.secrets if name not in self._environ})
        if missing:
            raise errors.StepError(
                f"The environment lacks {', '.join(missing)}, which the command needs.",
                code="missing_secrets",
                detail={"missing_secrets": missing},
            )
        secrets = {name: self._environ[name] for name in operation.secrets}
        place = {settings.RUN_ID: call.run.run_id, settings.DEPTH: str(call.run.depth)}
        # The variables of run and depth come last, so that no recipe can pass for another run.
        return secrets | dict(operation.env) | place

    def _secrets(self, operation: operations.Command) -> set[str]:
        secrets = {self._environ[name] for name in operation.secrets}
        return secrets | {operation.env[name] for name in operation.secrets if name in operation.env}

    def _inherit(self, withheld: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
        """Return the variables that a command gets by default, and those that may hold its secrets."""
        names = environments.names(self._environ, (), withheld)
        return frozenset(names), frozenset(self._environ).difference(withheld)


def _request(
    call: ports.Call,
    operation: operations.Command,
    workspace: Workspace,
    env: Mapping[str, str],
    stdin: bytes | None,
    secrets: Collection[str],
    on_output: Callable[[int, bytes, int], None],
) -> commands.Request:
    # An open folder instead of a path: if a link replaces the folder later, the command does not follow it.
    cwd = command_paths.folder(workspace, operation.cwd)
    try:
        stdout = None if operation.output_file is None else command_paths.output(workspace, operation.output_file)
    except BaseException:
        os.close(cwd)
        raise
    return commands.Request(
        argv=operation.argv,
        run_id=call.run.run_id,
        cwd=cwd,
        env=env,
        secrets=secrets,
        stdin=stdin,
        stdout=stdout,
        timeout_seconds=operation.timeout_seconds or command_results.DEFAULT_TIMEOUT_SECONDS,
        idle_seconds=operation.idle_seconds,
        on_output=on_output,
    )


class _Outputs:
    """The output of a running command, in logs that are replaced at its end."""

    def __init__(self, call: ports.Call, operation: operations.Command, masker: plain.Masker) -> None:
        self._call = call
        self._operation = operation
        self._masker = masker
        self._streams: dict[int, live_output.LiveOutput] = {}

    def hear(self, stream: int, content: bytes, skipped_bytes: int) -> None:
        if stream not in self._streams:
            name = _log_name(self._call, self._operation, _STREAMS[stream])
            self._streams[stream] = live_output.LiveOutput(self._call.live, self._call.append_log, name, self._masker)
        self._streams[stream].hear_bytes(content, skipped_bytes)

    async def close(self) -> None:
        for output in self._streams.values():
            await output.close()


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
        raise errors.StepError("The command cannot be run: its standard input is not text.", code="invalid_command")
    content = None if stdin is None else stdin.encode("utf-8", "replace")
    if content is not None and len(content) > MAX_STDIN_BYTES:
        raise errors.StepError(
            f"The command's input has {len(content)} bytes, more than the {MAX_STDIN_BYTES} that it can be given.",
            code="stdin_too_large",
            detail={"size_bytes": len(content), "limit_bytes": MAX_STDIN_BYTES},
        )
    return content


async def _explain(call: ports.Call, name: str, variables: list[str], masker: plain.Masker) -> None:
    """Write down how the command was built, and the names, never the values, of the variables that it gets."""
    for ending, text in call.place.notes.items():
        if ending == "debug":
            text = "\n".join([text.rstrip("\n"), f"environment: {len(variables)} variables", *variables, ""])
        await call.write_log(f"{name}.{ending}", masker.mask(text))


async def _result(
    call: ports.Call,
    operation: operations.Command,
    ended: commands.Ended,
    wanted: captures.Rules | None,
    masker: plain.Masker,
    env_count: int,
) -> records.Result:
    def make() -> command_results.Report:
        return command_results.heard(operation, ended, wanted, masker, env_count, call.attempt)

    much = len(ended.stdout.content) + len(ended.stderr.content) > _MUCH_BYTES
    is_work = much or (wanted is not None and wanted.schema is not None)
    heard = await asyncio.to_thread(make) if is_work else make()
    for name, log in (("stdout", heard.stdout_log), ("stderr", heard.stderr_log)):
        if log:
            await call.write_log(_log_name(call, operation, name), log)
    return heard.result


def _log_name(call: ports.Call, operation: operations.Command, name: str) -> str:
    return f"{call.key}.{call.attempt}.{name}.txt" if operation.log is None else f"{operation.log}.{name}"
