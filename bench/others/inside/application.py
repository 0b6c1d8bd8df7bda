"""A small FastAPI application around a product that has no HTTP interface of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import fastapi
import uvicorn

from bench.others.inside import http


@contextlib.asynccontextmanager
async def serving(run: Callable[[], Awaitable[object]]) -> AsyncIterator[http.Door]:
    """Serve `POST /runs`, which starts a run and answers when the run has ended; yield that door."""
    app = fastapi.FastAPI(openapi_url=None)

    @app.post("/runs")
    async def start() -> Mapping[str, str]:
        await run()
        return {"status": "done"}

    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        server = uvicorn.Server(uvicorn.Config(app, http="httptools", lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield http.Door(port=listener.getsockname()[1], target="/runs")
        finally:
            server.should_exit = True
            await serving
