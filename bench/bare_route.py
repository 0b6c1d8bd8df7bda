"""A bare FastAPI application on the service's own server: `python -m bench.bare_route --body FILE`.

`GET /` returns the bytes of the file, `GET /unchanged` a 304 with an entity tag, for every request.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import socket
from pathlib import Path

import fastapi
import uvicorn
import uvloop


def application(body: bytes) -> fastapi.FastAPI:
    """Return an application with two routes that only answer."""
    app = fastapi.FastAPI(openapi_url=None)
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"', "Cache-Control": "no-cache"}

    @app.get("/")
    async def answer() -> fastapi.Response:
        return fastapi.Response(body, media_type="application/json", headers=headers)

    @app.get("/unchanged")
    async def unchanged() -> fastapi.Response:
        return fastapi.Response(status_code=304, headers=headers)

    return app


def serve() -> None:
    """Print the address, and serve the file on a free port of loopback until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m bench.bare_route", description=__doc__)
    parser.add_argument("--body", type=Path, required=True, help="file whose bytes are answered")
    body = parser.parse_args().body.read_bytes()
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        print(f"listens on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        configuration = uvicorn.Config(
            application(body),
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(uvicorn.Server(configuration).serve(sockets=[listener]))


if __name__ == "__main__":
    serve()
