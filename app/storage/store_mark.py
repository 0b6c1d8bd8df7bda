"""The mark of a data directory whose runs are in a database: a process refuses to use any other store with it.

`store.json` is `{"identity": …, "address": …}`.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from app import errors
from app.domain import plain
from app.storage import layout
from app.storage.data_directory import DataDirectory
from app.storage.disk import disk_health, disk_port
from app.storage.disk.os_disk import OsDisk


def read(directory: DataDirectory) -> dict[str, Any] | None:
    """Return the database store of a data directory's runs; None if they are in its folders.

    Raises:
        errors.ConfigurationError: the mark cannot be read.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            found = json.loads(OsDisk(directory.path).read(layout.STORE_MARK))
            return {name: str(found[name]) for name in ("identity", "address")}
    except OSError as error:
        raise disk_health.unusable(directory.path, error) from error
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"{directory.path / layout.STORE_MARK} does not say which store holds the runs; put it back from a copy"
        )
        raise errors.ConfigurationError(message, code="data_directory_unusable") from error
    return None


def refuse_database(directory: DataDirectory) -> None:
    """Refuse to use the folders of a data directory whose runs are in a database.

    Raises:
        errors.ConfigurationError: `store_differs`.
    """
    if (known := read(directory)) is not None:
        message = (
            f"the runs of {directory.path} are in the store {known['address']}: set CONTROL_ROOM_STORE_URL to it."
            " To go back to folders: control-room runs export --to FOLDER, then remove"
            f" {directory.path / layout.STORE_MARK}"
        )
        raise errors.ConfigurationError(message, code="store_differs", detail=known)


def refuse_folders(directory: DataDirectory) -> None:
    """Refuse to use a database for a data directory whose runs are in its folders.

    Raises:
        errors.ConfigurationError: `store_differs`.
    """
    if count := runs_in_folders(directory):
        message = (
            f"{directory.path / layout.RUNS} holds {count} runs in folders: without CONTROL_ROOM_STORE_URL they are"
            " used. To continue in a database, move that folder aside and import it: control-room runs import FOLDER"
        )
        raise errors.ConfigurationError(message, code="store_differs", detail={"address": str(directory.path)})


def runs_in_folders(directory: DataDirectory) -> int:
    """Return how many runs a data directory has in its folders; 0 where its runs are in a database.

    Raises:
        errors.ConfigurationError: the mark cannot be read.
    """
    if read(directory) is not None or not (directory.path / layout.RUNS).is_dir():
        return 0
    return len(layout.run_ids(OsDisk(directory.path).names(layout.RUNS)))


def keep(directory: DataDirectory, identity: str, address: str, *, looks_only: bool) -> None:
    """Record the store, or refuse it if the data directory last used another one.

    Raises:
        errors.ConfigurationError: `store_differs`.
    """
    known = read(directory)
    if known is not None and known["identity"] != identity:
        message = (
            f"{directory.path} last used the store {known['address']} ({known['identity']}); {address} is another one"
            f" ({identity}). Set CONTROL_ROOM_STORE_URL to the former, or use another data directory"
        )
        raise errors.ConfigurationError(message, code="store_differs", detail=known)
    fresh = {"identity": identity, "address": address}
    if known == fresh or looks_only:
        return
    try:
        disk_port.replace(OsDisk(directory.path), layout.STORE_MARK, plain.encode(fresh) + b"\n", sync=True)
    except OSError as error:
        raise disk_health.unusable(directory.path, error) from error
