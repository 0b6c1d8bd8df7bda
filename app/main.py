"""The service: the HTTP interface over one project, in one process, from start to stop."""

# More than 100,000 objects of modules live as long as the service, and each full garbage collection blocked the
# loop for 100 to 250 ms to visit them. `gc.freeze` excludes them before the service is ready.

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import gc
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn
import uvloop

from app import __version__, bootstrap, clock, errors, garbage, interruption, settings, telemetry
from app.api import connections, gateway, http_protocol, service, streaming, use_cases
from app.processes import listeners
from app.services import bulk, event_feeds, preflight
from app.storage import data_directory, layout
from app.storage import keys as key_files
from app.ui import pages
from app.worker import stop_signals

_LOG = logging.getLogger(__name__)
_DRAIN_SECONDS = 5
"""Seconds that answers in progress get at a stop; streams and waiting polls have ended before."""
KEEP_ALIVE_SECONDS = 15
"""Seconds after which an idle connection is closed: longer than httpx and other clients keep one (5 s), so that none
sends a request on a connection that is just being closed.
"""
_BACKLOG = 2048
_SWITCH_SECONDS = 0.001
"""Seconds after which a computing thread lets the event loop continue."""


def create_app(config: settings.Settings, platform: bootstrap.Platform | None = None) -> gateway.Gateway:
    """Return the application for any ASGI server; its lifespan is that of the service."""

    @contextlib.asynccontextmanager
    async def lifespan(app: gateway.Gateway) -> AsyncIterator[None]:
        address = _address(config.server.host, config.server.port)
        async with _following(ring), _started(app, config, address, platform) as start:
            yield
            _release(start)

    ring = _key_ring(config)
    return service.create(config.server, lifespan, pages.Pages(), ring)


def serve(
    config: settings.Settings,
    announce: Callable[[str], None],
    platform: bootstrap.Platform | None = None,
    ready: Callable[[str], None] | None = None,
) -> int:
    """Serve until a stop signal arrives, and return the exit code.

    Args:
        announce: Called with each line of information for the person or script that started the service.
        platform: Replaces the real machine in tests.
        ready: Called once with the address of the first page, as soon as the service answers requests.

    Raises:
        errors.ConfigurationError: the address cannot be listened on, or the data directory cannot be used.
    """
    telemetry.write_logs(config.telemetry.log_level, sys.stderr)
    bootstrap.conceal(config)
    # The settings contain it by now, and no started program needs it.
    os.environ.pop(f"{settings.PREFIX}API_TOKEN", None)
    sys.setswitchinterval(_SWITCH_SECONDS)
    with _listening(config) as listener:
        return interruption.run(_serve(config, listener, announce, platform, ready), uvloop.new_event_loop)


async def _serve(
    config: settings.Settings,
    listener: socket.socket,
    announce: Callable[[str], None],
    platform: bootstrap.Platform | None,
    ready: Callable[[str], None] | None,
) -> int:
    address = _address(config.server.host, listener.getsockname()[1])
    ring = _key_ring(config)
    app = service.create(config.server, None, pages.Pages(), ring)
    server = _Server(configuration(app, config.server), lambda: _announce(config, address, listener, announce))
    async with _following(ring), _started(app, config, address, platform) as start:
        signals = stop_signals.StopSignals(lambda hurried: _stop(start, server, hurried))
        built = functools.partial(ready, _first_page(config.server, listener)) if ready else None
        attending = asyncio.create_task(_attend(app, start, server, announce, config.telemetry.log_level, built))
        try:
            with signals.caught():
                await server.serve(sockets=[listener])
            await signals.stopped()
            if start.application is not None or attending.done():
                await attending
        finally:
            attending.cancel()
        return 0 if signals.asked < 2 else interruption.EXIT_CODE


def _started(
    app: gateway.Gateway, config: settings.Settings, address: str, platform: bootstrap.Platform | None = None
) -> bootstrap.ServiceStart:
    def opened(application: bootstrap.Application) -> None:
        app.state.key_ring.common = application.store.common
        app.state.key_ring.reload()
        app.state.services = _services(application, config.server, app.state.key_ring)

    mode = bootstrap.OpenMode(address=address)
    start = bootstrap.ServiceStart(lambda: bootstrap.build(config, mode, platform), opened, clock.SystemClock())
    app.state.why_starting = start.refusal
    return start


async def _attend(
    app: gateway.Gateway,
    start: bootstrap.ServiceStart,
    server: uvicorn.Server,
    announce: Callable[[str], None],
    log_level: str,
    built: Callable[[], None] | None,
) -> None:
    try:
        application = await start.until_built()
        if built is not None:
            built()
        telemetry.write_logs(log_level, sys.stderr, application.masker.mask)
        # The objects loaded by the start are permanent; otherwise each full collection would visit them, for 0.1 s.
        gc.freeze()
        collecting = asyncio.create_task(garbage.collect_when_quiet(), name="collect garbage")
        try:
            recovered = _announce_recovered(application, announce)
            await asyncio.gather(_load_routes(app, application), recovered, application.engine.watch())
        finally:
            collecting.cancel()
    finally:
        _release(start)
        server.should_exit = True


async def _load_routes(app: gateway.Gateway, application: bootstrap.Application) -> None:
    # The first request that needs the routes loads them at once; until it arrives, unfinished runs have priority.
    await application.engine.wait_idle()
    if not application.engine.status().stopping:
        await app.state.load_routes()
        gc.freeze()


def _release(start: bootstrap.ServiceStart) -> None:
    if start.application is not None:
        start.application.runs.stopping.set()


async def _stop(start: bootstrap.ServiceStart, server: uvicorn.Server, hurried: bool) -> None:
    # Streams and waiting polls are released first: the server drains its connections, and these would stay open until
    # their runs change.
    _release(start)
    if start.application is not None:
        await start.application.engine.stop(0 if hurried else None)
    server.force_exit = hurried
    server.should_exit = True


async def _announce_recovered(application: bootstrap.Application, announce: Callable[[str], None]) -> None:
    found = await application.engine.recovered()
    words = {0: "nothing was unfinished", 1: "1 unfinished run"}
    announce(f"recovered: {words.get(found, f'{found} unfinished runs')}")


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers of its own."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _key_ring(config: settings.Settings) -> key_files.KeyRing:
    folder = layout.common_folder(config.project.data_directory, config.project.store_url)
    ring = key_files.KeyRing(folder, clock.SystemClock())
    ring.check()
    if ring.is_locked and config.server.token is None and not ring.is_administered():
        act = "add one with `control-room keys add NAME --role admin` in the project's folder"
        _LOG.warning("no key can manage keys, so that only commands on this machine can: %s", act)
    return ring


@contextlib.asynccontextmanager
async def _following(ring: key_files.KeyRing) -> AsyncIterator[None]:
    watching = asyncio.create_task(ring.watch(), name="follow the keys")
    try:
        yield
    finally:
        watching.cancel()


def _services(
    application: bootstrap.Application, server: settings.ServerSettings, ring: key_files.KeyRing | None = None
) -> use_cases.Services:
    return use_cases.Services(
        runs=application.runs,
        bulk=bulk.BulkOrders(application.runs),
        gates=application.gates,
        commands=application.commands,
        explanations=application.explanations,
        statistics=application.statistics,
        feed=event_feeds.FeedFollower(
            application.store.feed,
            application.runs.stopping,
            clock.SystemClock(),
            clock.RandomIds(),
            streaming.server_sent,
        ),
        issues=application.issues,
        conversation_service=application.conversation_service,
        plans=application.plans,
        conferences=application.conferences,
        triggers=application.unattended.triggers,
        hooks=application.unattended.hooks,
        endpoints=application.unattended.endpoints,
        retention=application.unattended.retention,
        max_message_bytes=server.max_body_bytes,
        catalogue=application.catalogue,
        preflight=preflight.Preflight(
            application.starter, application.catalogue, application.runs.refuse_locked, application.store
        ),
        route=application.route,
        inventory=application.inventory,
        health=application.health,
        metrics=application.metrics,
        maintenance=application.maintenance,
        # With the guard's own ring, a change of a key is in force as soon as the request is answered.
        keys=application.keys if ring is None else application.keys.over(ring),
        budgets=application.budgets,
        prices=application.budgets.prices,
        policies=application.budgets.policies,
        audit=application.store.audit,
    )


def configuration(app: gateway.Gateway, server: settings.ServerSettings) -> uvicorn.Config:
    """Return the configuration with which uvicorn serves the application."""
    logging.getLogger("uvicorn.error").addFilter(http_protocol.is_news)
    counted = connections.Connections(connections.limits(server), app.state.warnings)
    return uvicorn.Config(
        app,
        # Uvicorn accepts any factory of protocols.
        http=functools.partial(http_protocol.Protocol, counted=counted),  # type: ignore[arg-type]
        ws=_web_socket,  # type: ignore[arg-type]
        ws_max_size=server.max_body_bytes,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


def _web_socket(*given: Any, **named: Any) -> asyncio.Protocol:
    # Imported with the first WebSocket.
    from app.api import ws_protocol

    return ws_protocol.Protocol(*given, **named)


def _announce(
    config: settings.Settings, address: str, listener: socket.socket, announce: Callable[[str], None]
) -> None:
    announce(f"Control Room {__version__} listens on {address}")
    announce(f"project: {config.project.project.resolve()}")
    announce(f"data: {config.project.data_directory.resolve()}")
    announce(f"web UI: {_first_page(config.server, listener)}")
    announce(f"process: {os.getpid()}")
    if bootstrap.speak_locally(config):
        announce(
            "agents speak through a small local model, which only shows the machinery; for real work, choose a backend:"
            ' {"default_backend": "claude-code"} in agents.json of the data folder'
        )


@contextlib.contextmanager
def _listening(config: settings.Settings) -> Iterator[socket.socket]:
    server = config.server
    try:
        listener = _bound(server.host, server.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            # Most likely it is this project's own service, which is running or still stopping.
            folder = config.project.data_directory
            found = data_directory.DataDirectory(folder, clock=clock.SystemClock(), ids=clock.RandomIds())
            found.refuse_second_service()
        raise unavailable(server.host, server.port, error) from error
    with listener:
        yield listener


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def unavailable(host: str, port: int, error: OSError) -> errors.ConfigurationError:
    """Return the error of an address that cannot be listened on, with the process that has it, if that can be seen."""
    reason = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        holder, who, process = listeners.of_port(port), "another program", ""
        if holder is not None:
            # A service holds its data directory open.
            served = listeners.announced_in(holder, data_directory.SERVICE)
            who = who if served is None else f"the Control Room service of {served}"
            process = f" (process {holder.pid})"
        reason = f"{who} has this port{process}; choose one with --port, 0 takes a free one"
    message = f"{host}:{port} cannot be listened on: {reason}"
    return errors.ConfigurationError(message, code="address_unavailable", detail={"host": host, "port": port})


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _first_page(server: settings.ServerSettings, listener: socket.socket) -> str:
    """Return the address at which a browser on this machine starts."""
    here = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104
    return f"{_address(here, listener.getsockname()[1])}/{'sign-in' if server.token else ''}"
