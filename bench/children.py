"""Children: programs that a repetition starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import stopping

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""

_ADDRESS = re.compile(rb"http://([0-9.]+):([0-9]+)")
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A program that listens."""

    host: str
    """Address on loopback."""
    port: int
    """Port."""
    pid: int
    """Id of its process."""

    def cpu_seconds(self) -> float:
        """Return the CPU time that all threads of the process have used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Return the resident memory of the process."""
        return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def serving(project: Path, *, max_running: int = 8) -> AsyncIterator[Served]:
    """Run the service of a project, with the benchmark's language, and stop it afterwards."""
    words = ("bench.service", "--project", str(project), "--max-running", str(max_running))
    async with listening(words) as served:
        yield served


@contextlib.asynccontextmanager
async def routing(body: Path) -> AsyncIterator[Served]:
    """Run the bare route that returns the bytes of a file, and stop it afterwards."""
    async with listening(("bench.bare_route", "--body", str(body))) as served:
        yield served


@contextlib.asynccontextmanager
async def listening(module: Sequence[str], environ: Mapping[str, str] | None = None) -> AsyncIterator[Served]:
    """Start a module that prints its address, wait until it listens, and stop it with SIGTERM afterwards.

    Args:
        module: Name of the module and its arguments.
        environ: Its environment; None: this process's own.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *module,
        cwd=ROOT,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    reading = None
    try:
        async with asyncio.timeout(_START_SECONDS):
            host, port = await _address(process.stdout)
        reading = asyncio.create_task(process.stdout.read())
        yield Served(host=host, port=port, pid=process.pid)
    finally:
        await stopping.end(process)
        if reading is not None:
            await reading


async def _address(told: asyncio.StreamReader) -> tuple[str, int]:
    async for line in told:
        if found := _ADDRESS.search(line):
            return found[1].decode(), int(found[2])
    raise RuntimeError("a program that should listen ended before it did")
