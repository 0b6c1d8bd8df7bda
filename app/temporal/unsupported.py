"""What is refused by name: no process sees all runs."""

from __future__ import annotations

from app import errors
from app.domain import runs

_CODE = "unsupported_on_engine"


def refuse(start: runs.RunStart) -> None:
    """Refuse what no worker could keep: `concurrency`.

    Raises:
        errors.RequestInvalid: `unsupported_on_engine`.
    """
    if start.concurrency is not None:
        message = "concurrency is not supported on Temporal; leave it out, or use the embedded engine"
        raise errors.RequestInvalid(
            message, code=_CODE, flaws=[errors.Flaw(path="$.concurrency", code=_CODE, message=message)]
        )
