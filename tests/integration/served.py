"""A project as users run it: the real application on real run folders, in process or on a loopback port."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import uvicorn

from app import main, settings
from app.api import gateway
from tests.integration.project import Project

HOST = "127.0.0.1:8000"
"""Host name of the service in process."""

WAIT_SECONDS = 200
"""Time within which a run of a test must reach the expected state."""


class Served:
    """A client, with the actions that most tests need."""

    def __init__(self, project: Project, http: httpx.AsyncClient, app: gateway.Gateway | None = None) -> None:
        self.project = project
        self.http = http
        self.app = app

    def release(self) -> None:
        """End all waits, as a service does first when it stops."""
        assert self.app is not None
        self.app.state.services.runs.stopping.set()

    async def start(self, recipe_id: str, **body: Any) -> str:
        """Start a run and return its id."""
        answer = await self.http.post("/api/runs", json={"recipe_id": recipe_id} | body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["run_id"])

    async def show(self, run_id: str) -> dict[str, Any]:
        """Return a run's consolidated answer."""
        answer = await self.http.get(f"/api/runs/{run_id}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    async def until(self, run_id: str, *statuses: str, step: str | None = None) -> dict[str, Any]:
        """Wait by long polls until a run has one of the states, or is at a step."""
        async with asyncio.timeout(WAIT_SECONDS):
            etag = ""
            while True:
                # The first request does not wait: the state may be there already, and the next change may leave it.
                wait = 5 if etag else 0
                answer = await self.http.get(f"/api/runs/{run_id}?wait={wait}", headers={"If-None-Match": etag})
                if answer.status_code == 200:
                    etag, shown = answer.headers["etag"], answer.json()
                    if shown["status"] in statuses or step in _open_steps(shown):
                        return dict(shown)

    async def run(self, recipe_id: str, **body: Any) -> dict[str, Any]:
        """Start a run, wait for its end and return its consolidated answer."""
        return await self.until(await self.start(recipe_id, **body), "done", "failed", "cancelled")


@contextlib.asynccontextmanager
async def in_process(project: Project, **overrides: Any) -> AsyncIterator[Served]:
    """Serve a project to a client in this process, with hardly any grace period at the end."""
    app = main.create_app(chosen(project, **({"stop_grace_seconds": 0.05} | overrides)))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with app.router.lifespan_context(app), client(transport, f"http://{HOST}") as http:
        yield Served(project, http, app)


@contextlib.asynccontextmanager
async def on_a_port(project: Project, **overrides: Any) -> AsyncIterator[Served]:
    """Serve a project on a free loopback port, as the program does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        app = main.create_app(chosen(project, **overrides))
        configuration = main.configuration(app, chosen(project, **overrides).server)
        configuration.lifespan = "on"
        server = _Server(configuration)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await asyncio.wait_for(server.ready.wait(), WAIT_SECONDS)
            async with client(None, f"http://127.0.0.1:{listener.getsockname()[1]}") as http:
                yield Served(project, http, app)
        finally:
            if server.started:
                app.state.services.runs.stopping.set()
            server.should_exit = True
            await serving


@contextlib.contextmanager
def in_a_thread(project: Project, **overrides: Any) -> Iterator[str]:
    """Serve a project on a free loopback port from another thread, and yield the address."""
    address: concurrent.futures.Future[str] = concurrent.futures.Future()
    stop = threading.Event()

    async def serve() -> None:
        async with on_a_port(project, **overrides) as service:
            address.set_result(str(service.http.base_url))
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield address.result(WAIT_SECONDS)
    finally:
        stop.set()
        thread.join()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def moment() -> None:
    """Let other tasks run before the caller checks a condition again that changes without a notice."""
    await asyncio.sleep(0.02)


def chosen(project: Project, **overrides: Any) -> settings.Settings:
    """Return the settings of a service over a project."""
    return settings.load({}, **({"project": project.root, "home": project.root / "home"} | overrides))


def client(transport: httpx.AsyncBaseTransport | None, base_url: str) -> httpx.AsyncClient:
    """Return a client."""
    # A client of loopback needs no certificates.
    return httpx.AsyncClient(transport=transport, base_url=base_url, timeout=WAIT_SECONDS, verify=False)


def _open_steps(shown: dict[str, Any]) -> list[str]:
    return [step["key"] for step in shown["steps"] if step["status"] == "running"]
