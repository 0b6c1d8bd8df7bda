"""Bare spawning on the standard event loop: `python -m bench.bare_spawns COUNT AT_A_TIME` prints processes a second.

This runs in a process of its own, since the service's loop, which repetitions use, spawns more slowly.
"""

from __future__ import annotations

import asyncio
import sys
import time

TRUE = "/bin/true"
"""A program that does nothing."""


async def per_second(count: int, at_a_time: int) -> float:
    """Return how many processes that do nothing the running loop spawns and awaits in a second."""
    left = iter(range(count))

    async def follow_on() -> None:
        for _ in left:
            process = await asyncio.create_subprocess_exec(
                TRUE,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            await process.wait()

    began = time.perf_counter()
    await asyncio.gather(*(follow_on() for _ in range(min(count, at_a_time))))
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    print(asyncio.run(per_second(int(sys.argv[1]), int(sys.argv[2]))))
