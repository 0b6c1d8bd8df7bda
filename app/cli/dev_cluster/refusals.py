"""Refusals of a cluster that would meet another one, a taken port or another store, before anything is touched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from app import errors
from app.cli import terminal
from app.cli.demo import address

if TYPE_CHECKING:
    from app.storage import data_directory

FOLDER = ".dev-cluster"  # Folder of a cluster's own files, in its project.


@contextlib.contextmanager
def alone(place: Path) -> Iterator[None]:
    """Keep other clusters of the same folder away.

    Raises:
        errors.DataDirectoryBusy: a service runs on the project.
        errors.ConfigurationError: `cluster_running`, a cluster runs there.
    """
    from app.storage.disk import os_disk

    served, is_new = _directory(place.parent), not place.exists()
    if is_new:
        served.refuse_second_service()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Held to the end of this command. Its members do not inherit the lock.
    lock = os_disk.lock(str(place))
    if lock is None:
        at = (served.service() or {}).get("url")
        where = f", at {at}/" if at else ""
        message = f"a cluster runs in {place.parent} already{where}; use it, or end it with Ctrl-C or SIGTERM first"
        raise errors.ConfigurationError(message, code="cluster_running")
    try:
        served.refuse_second_service()
        yield
    finally:
        lock.release()


def _directory(folder: Path) -> data_directory.DataDirectory:
    from app import clock
    from app.storage import data_directory

    found = folder / ".control-room"
    return data_directory.DataDirectory(found, clock=clock.SystemClock(), ids=clock.RandomIds())


def port_of(wanted: int | None) -> int:
    """Return the port of the service.

    Raises:
        errors.ConfigurationError: `address_unavailable`, another program has the wanted port.
    """
    port = address.free_port(address.PORT if wanted is None else wanted)
    if wanted:
        try:
            address.take(wanted)
        except OSError as error:
            from app import main

            raise main.unavailable(address.HOST, wanted, error) from error
    elif wanted is None and port != address.PORT:
        terminal.say(f"port {address.PORT} is taken: the service gets port {port}; --port chooses another")
    return port


def refuse_store(folder: Path, store: str) -> None:
    """Refuse another store than that of the project's first start.

    Raises:
        errors.ConfigurationError: `store_differs`.
    """
    from app.storage import store_mark

    directory = _directory(folder)
    if store == "postgres":
        count = store_mark.runs_in_folders(directory)
        message = f"the {count} runs of {folder} are in folders: leave out --store postgres" if count else ""
    else:
        known = store_mark.read(directory)
        message = f"the runs of {folder} are in a Postgres: add --store postgres" if known else ""
        if known and not (folder / FOLDER / "postgres").exists():
            message = f"the runs of {folder} are in {known['address']}, which is no database of a dev-cluster"
            message += ": use `control-room serve`, or another folder"
    if message:
        raise errors.ConfigurationError(
            f"{message}; a project keeps the store of its first start", code="store_differs"
        )
