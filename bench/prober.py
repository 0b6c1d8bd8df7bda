"""The prober: measures how long a service takes to answer short requests, until its standard input ends.

It runs in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

from bench import client

_BETWEEN_SECONDS = 0.01


async def probe(host: str, port: int, targets: list[str]) -> dict[str, list[float]]:
    """Request each target in turn, repeatedly, and return how long each answer took.

    Raises:
        ConnectionError: a request was refused.
    """
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    connections = [await client.connect(host, port) for _ in targets]
    took: dict[str, list[float]] = {target: [] for target in targets}
    while not over.is_set():
        for target, connection in zip(targets, connections, strict=True):
            began = time.perf_counter()
            answer = await connection.get(target)
            took[target].append(time.perf_counter() - began)
            if answer.status != 200:
                raise ConnectionError(f"{target} answered {answer.status}")
        await asyncio.sleep(_BETWEEN_SECONDS)
    return took


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(probe(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))))
