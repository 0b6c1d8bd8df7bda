"""Faults: raises faults of the engine and the storage as errors that contain advice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app import errors

_STOPPING = "stopping"


@contextmanager
def as_errors() -> Iterator[None]:
    """Raise the faults of a use case as errors.

    Raises:
        errors.WriteFailed: a write could not be made durable.
        errors.Unreadable: a file could not be read.
        errors.Unavailable: the service is stopping.
    """
    try:
        with errors.as_failed_write("nothing was changed"):
            yield
    except errors.InterruptionFault as fault:
        raise errors.Unavailable("the service is stopping", code=_STOPPING) from fault
    except errors.Conflict as error:
        if error.code != _STOPPING:
            raise
        raise errors.Unavailable(error.message, code=_STOPPING) from error


@contextmanager
def of_file(name: str) -> Iterator[None]:
    """Raise what is wrong with a file that would keep a service from starting as the refusal of one request.

    Raises:
        errors.Conflict: `file_damaged`, it holds something else.
        errors.Unavailable: `file_unreadable`, it cannot be read now.
    """
    try:
        yield
    except errors.ConfigurationError as error:
        if "errno" in error.detail:
            raise errors.Unavailable(error.message, code="file_unreadable", detail={"file": name}) from error
        raise errors.Conflict(error.message, code="file_damaged", detail={"file": name}) from error
