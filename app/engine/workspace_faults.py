"""Workspace faults: separates temporary refusals of the operating system from permanent ones."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Iterator

from app import errors
from app.domain import plain
from app.domain.records import Result
from app.engine import step_rules

_log = logging.getLogger(__name__)

_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
_PASSING = _SHORT | {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


def passes(number: int | None, *, reading: bool = False) -> bool:
    """Return whether an error concerns the disk or the machine's resources, and not the request.

    Args:
        reading: Whether the failed access read a user's file, which only the step can recognise as broken.
    """
    return number in (_SHORT if reading else _PASSING)


def waits(path: str, error: OSError) -> errors.WorkspaceFault:
    """Return the fault that makes a step wait, as long as the step has had no effect.

    Args:
        path: File that could not be read or written; empty if only the machine's resources are exhausted.
    """
    return errors.WorkspaceFault(_message(path, error), detail=facts(path, error))


@contextlib.contextmanager
def waiting(path: str) -> Iterator[None]:
    """Make the step wait if the system refuses an action before the step has had any effect."""
    try:
        yield
    except OSError as error:
        if not passes(error.errno):
            raise
        raise waits(path, error) from error


def parks(error: OSError) -> errors.StorageFault:
    """Return the fault that parks the run of a step whose effects are unknown."""
    path = _path_of(error)
    return errors.StorageFault(_message(path, error), detail=facts(path, error))


def failed(error: OSError) -> Result:
    """Return the failure of a step that met a permanent, unexpected error."""
    return step_rules.failed("internal_error", reason_of(error), facts("", error))


def shortage(error: BaseException | None) -> OSError | None:
    """Return the lack of descriptors or memory that prevented an action, such as a connection, from starting."""
    if isinstance(error, OSError) and error.errno in _SHORT:
        return error
    if error is None:
        return None
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    causes = (*inner, error.__cause__ or error.__context__)
    return next((lack for cause in causes if (lack := shortage(cause)) is not None), None)


def reason_of(error: OSError) -> str:
    """Return a sentence that describes what the system refused."""
    return _message(_path_of(error), error)


def facts(path: str, error: OSError) -> dict[str, plain.Json]:
    """Return the path and the reason as JSON."""
    return {"file": path or None, "errno": name(error.errno), "error": _reason(error)}


def name(number: int | None) -> str:
    """Return an error's name, e.g. `ENOSPC`."""
    return errno.errorcode.get(number or 0, "unknown")


def _message(path: str, error: OSError) -> str:
    readable_path = path.encode("utf-8", "replace").decode()[:200]
    where = f"{readable_path!r} cannot be used now" if path else "the step cannot be carried out now"
    return f"{where}: {_reason(error)}"


def _reason(error: OSError) -> str:
    return error.strerror or "unknown reason"


def _path_of(error: OSError) -> str:
    path = error.filename2 or error.filename
    if isinstance(path, bytes):
        return path.decode("utf-8", "surrogateescape")
    return path if isinstance(path, str) else ""


def result_of(run_id: str, key: str, error: Exception) -> Result:
    """Return the result of a performer that raised an error; a temporary error of the machine is raised as a fault."""
    if isinstance(error, errors.StepError | errors.InputRefused):
        return step_rules.failed(error.code, error.message, error.detail)
    of_step = {"run_id": run_id, "key": key}
    if not isinstance(error, OSError):
        _log.error("performing failed", exc_info=error, extra=of_step)
        return step_rules.failed("internal_error", f"{type(error).__name__}: {error}")
    if passes(error.errno):
        raise parks(error) from error
    _log.error("performing failed: %s", error, extra=of_step)
    return failed(error)
