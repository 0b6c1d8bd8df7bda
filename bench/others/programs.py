"""Programs of others: each leads a process group of its own, and the whole group ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

_GONE_SECONDS = 10.0
_GLANCE_SECONDS = 0.01


async def execute(words: Sequence[str], *, folder: Path, log: Path, seconds: float) -> int:
    """Execute a program with all its output in a log, and return its exit code.

    Args:
        folder: Its working directory.
        log: File for its output; overwritten.
        seconds: Time limit.

    Raises:
        TimeoutError: the program took too long; it has been ended.
    """
    with log.open("wb") as told:
        async with _started(words, folder, None, told.fileno(), told.fileno()) as process, asyncio.timeout(seconds):
            return await process.wait()


async def ask(
    words: Sequence[str], *, folder: Path, variables: Mapping[str, str], log: Path, seconds: float
) -> tuple[int, bytes]:
    """Execute a program with an open standard input; return its exit code and its output.

    Args:
        folder: Its working directory.
        variables: Its whole process environment.
        log: File for its standard error stream; overwritten.
        seconds: Time limit.

    Raises:
        TimeoutError: the program took too long; it has been ended.
    """
    with log.open("wb") as told:
        piped = asyncio.subprocess.PIPE
        async with _started(words, folder, variables, piped, told.fileno()) as process, asyncio.timeout(seconds):
            assert process.stdout is not None
            answer = await process.stdout.read()
            return await process.wait(), answer


@contextlib.asynccontextmanager
async def _started(
    words: Sequence[str], folder: Path, variables: Mapping[str, str] | None, answers: int, complaints: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder,
        env=variables,
        stdin=asyncio.subprocess.PIPE,
        stdout=answers,
        stderr=complaints,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        await asyncio.shield(_ended(process))


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    async with asyncio.timeout(_GONE_SECONDS):
        while members(process.pid):  # noqa: ASYNC110 - not children of this process: it cannot await their end
            await asyncio.sleep(_GLANCE_SECONDS)


def members(group: int) -> list[int]:
    """Return the living processes of a group."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, _, owner, *_ = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(owner) == group and state not in "ZX":
            found.append(int(entry.name))
    return found
