"""Documents: the port of JSON objects in files of a folder, each replaced as a whole and durable before the answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from app import errors

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The content of a folder of documents."""

    documents: Mapping[str, dict[str, Any]]  # Documents by their names.
    damaged: tuple[str, ...] = ()  # Names of files that do not contain a JSON object.


def damaged(path: str, why: object) -> errors.Conflict:
    """Return the error of a document whose file has another content than it must have."""
    message = f"{path} is damaged: {why}; fix it, or move it away, and restart the service"
    return errors.Conflict(message, code="file_damaged", detail={"file": path})


NO_OBJECT = "it is not a JSON object"  # Why a file of `Found.damaged` cannot be used.


def read(
    found: Found, folder: str, what: str, read_one: Callable[[str, Mapping[str, Any]], T]
) -> tuple[dict[str, T], dict[str, errors.Conflict]]:
    """Return the values of documents, and an error for each file that does not contain one, which is logged.

    Args:
        what: What each document must contain: `a trigger`.
        read_one: Returns the value of a document with a name; a `ValueError` says why the file cannot be used.
    """
    values = dict[str, T]()
    errors_by_name = {name: damaged(f"{folder}/{name}.json", NO_OBJECT) for name in found.damaged}
    for name, document in found.documents.items():
        try:
            values[name] = read_one(name, document)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            why = error if isinstance(error, ValueError) else f"it does not contain {what}"
            errors_by_name[name] = damaged(f"{folder}/{name}.json", why)
            _log.error("%s (%s)", errors_by_name[name].message, error)
    return values, errors_by_name


class Documents(Protocol):
    """Documents of one folder."""

    async def read_all(self) -> Found:
        """Return all documents.

        Raises:
            errors.Unreadable: a file cannot be read now.
        """

    async def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Create or replace a document durably; once begun, the write completes even if the caller is cancelled.

        Raises:
            errors.StorageFault: the document could not be written.
        """

    async def remove(self, name: str) -> None:
        """Remove a document durably, if it exists.

        Raises:
            errors.StorageFault: the document could not be removed.
        """
