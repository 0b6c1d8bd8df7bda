"""A tiny product, run like the real ones: it stores no data, and behaves as its first argument demands."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from bench.others.inside import http, meter, servers

_BEHAVIOUR = sys.argv.pop(1)
"""`quick`, `broken` (fails at once), or with a server: `hang` or `fail`."""
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n"


class Engine:
    """A product whose steps take no time."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    async def run(self) -> None:
        """Yield to the event loop once for each step."""
        for _ in range(self._steps):
            await asyncio.sleep(0)

    async def park(self, count: int) -> None:
        """Record the number of waiting runs."""
        print(f"{count} wait")


@contextlib.asynccontextmanager
async def opened(order: meter.Order) -> AsyncIterator[Engine]:
    """Start as the behaviour demands."""
    if _BEHAVIOUR == "broken":
        raise RuntimeError("the engine is broken, see https://example.invalid/help")
    if _BEHAVIOUR == "quick":
        yield Engine(order.steps)
        return
    pids = order.place / "pids"
    async with servers.running(["/bin/sh", "-c", f"echo $$ $PPID > {pids}.new; mv {pids}.new {pids}; exec sleep 1000"]):
        if _BEHAVIOUR == "hang":
            await asyncio.Event().wait()
        await servers.until(lambda: asyncio.to_thread(pids.read_text), OSError)
        sys.exit(3)


@contextlib.asynccontextmanager
async def served(_: meter.Order, engine: Engine) -> AsyncIterator[http.Door]:
    """Serve an address that answers in chunks."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(EOFError):
            while await reader.readuntil(b"\r\n\r\n{}"):
                await engine.run()
                writer.write(_CHUNKED)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield http.Door(port=server.sockets[0].getsockname()[1], target="/", body=b"{}")


if __name__ == "__main__":
    meter.serve(opened, served)
