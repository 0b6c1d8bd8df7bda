"""The command `dev-cluster`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from app import errors, extras, settings
from app.cli import boundary, exit_codes, terminal
from app.cli.demo import address
from app.cli.dev_cluster import refusals
from app.cli.dev_cluster.members import Members, Program

_INSTALL = extras.install("cluster")


@click.command("dev-cluster")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help=f"Port to listen on; 0 chooses a free one.  [default: {address.PORT}, or a free one if that is taken]",
)
@click.option("--workers", type=click.IntRange(1, 16), default=2, show_default=True, help="Number of workers.")
@click.option(
    "--store",
    type=click.Choice(["folders", "postgres"]),
    default="folders",
    show_default=True,
    help="Run store: folders, or a Postgres server that is started.",
)
def dev_cluster(folder: Path, port: int | None, workers: int, store: str) -> int:
    """Try a cluster on this machine: Temporal, workers, and a service for the project FOLDER, until Ctrl-C.

    Its data is stored in FOLDER/.control-room and FOLDER/.dev-cluster; the next start uses it again.
    """
    _refuse_missing(store)
    place = folder.resolve() / refusals.FOLDER
    refusals.refuse_store(folder.resolve(), store)
    with refusals.alone(place):
        _prepare(place)
        port = refusals.port_of(port)
        members = Members(place)
        with contextlib.suppress(KeyboardInterrupt), boundary.stopping(members.stop):
            _start(members, folder.resolve(), port, workers, store)
            members.watch(terminal.say)
    return exit_codes.ExitCode.DONE


def _prepare(place: Path) -> None:
    if os.geteuid() == 0:
        # Postgres runs as another user, who must be able to enter.
        place.chmod(0o711)
    (place / ".gitignore").write_text("*\n", encoding="utf-8")


def _start(members: Members, folder: Path, port: int, workers: int, store: str) -> None:
    place, temporal = members.logs, f"{address.HOST}:{address.free_port(0)}"
    environ = _environ(folder, temporal)
    if store == "postgres":
        from app.cli.dev_cluster import postgres

        environ["CONTROL_ROOM_STORE_URL"] = url = postgres.start(members, place / "postgres", address.free_port(0))
        terminal.say(f"Postgres   {url.rpartition('@')[2]}")
    command = [
        _temporal(),
        "server",
        "start-dev",
        "--headless",
        "--ip",
        address.HOST,
        "--port",
        temporal.rpartition(":")[2],
    ]
    # Only by its name: the server inserts it into an address, where a path with a % would mean another path.
    command += ["--db-filename", "temporal.db", "--log-level", "error"]
    command += ["--dynamic-config-value", "matching.enableFairness=true"]
    server = Program(name="temporal", command=command, environ=environ, folder=place)
    members.start(server, lambda: _listens(temporal))
    terminal.say(f"Temporal   {temporal}")
    terminal.say(f"blobs      {environ['CONTROL_ROOM_BLOBS_URL']}")
    url = address.of(port)
    this = [sys.executable, "-P", "-m", "app"]
    serve = Program(
        name="service", command=[*this, "serve", "--host", address.HOST, "--port", str(port)], environ=environ
    )
    members.start(serve, lambda: _is_ready(url))
    pids = []
    for number in range(1, workers + 1):
        name = f"worker-{number}"
        # The text `worker: ready` of an earlier worker must not count.
        (place / f"{name}.log").unlink(missing_ok=True)
        worker = Program(name=name, command=[*this, "worker"], environ=environ)
        pid = members.start(worker, lambda name=name: members.has_logged(name, "worker: ready"))  # type: ignore[misc]
        pids.append(str(pid))
    terminal.say(f"workers    {workers}: {', '.join(pids)} (process ids)")
    terminal.say(f"service    {url}/")
    terminal.say(f"Logs are in {place}. Ctrl-C ends everything.")


def _environ(folder: Path, temporal: str) -> dict[str, str]:
    # Settings of another service must not reach these.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(settings.PREFIX)}
    given: Mapping[str, str] = {
        "PROJECT": str(folder),
        "ENGINE": "temporal",
        "TEMPORAL": temporal,
        "BLOBS_URL": (folder / refusals.FOLDER / "blobs").as_uri(),
    }
    return environ | {settings.PREFIX + name: value for name, value in given.items()}


def _refuse_missing(store: str) -> None:
    needed = ["temporalio", "obstore", *(["psycopg"] if store == "postgres" else [])]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        message = f"packages of a cluster are not installed ({', '.join(missing)}): {_INSTALL}"
        raise errors.ConfigurationError(message, code="cluster_missing")


def _temporal() -> str:
    found = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    if found is None:
        message = f"the program `temporal` is not installed: {_INSTALL}"
        raise errors.ConfigurationError(message, code="cluster_missing")
    return found


def _listens(place: str) -> bool:
    host, _, port = place.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def _is_ready(url: str) -> bool:
    import httpx

    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz", trust_env=False).is_success
    return False
