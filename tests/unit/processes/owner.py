"""A process that runs one command after another through its own supervisor, and that a test kills.

`python -m tests.unit.processes.owner FOLDER_OF_REGISTERS MODE WORD…` first prints the process id of its launcher. Then
it runs the command of these words, contained in that mode.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from app import clock
from app.processes import commands, supervisor


async def _own(folder: Path, mode: str, argv: tuple[str, ...]) -> None:
    running = supervisor.Supervisor(folder, clock.RandomIds(), os.environ, containment=mode)
    await running.run(commands.Request(argv=("/bin/true",), run_id="first", cwd=Path("/")))
    print(running.launcher_pid, flush=True)
    await running.run(commands.Request(argv=argv, run_id="owned", cwd=Path("/"), contained=True))
    await running.close()


if __name__ == "__main__":
    asyncio.run(_own(Path(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:])))
