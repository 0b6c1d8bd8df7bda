"""Refusals of a service as the errors that the same command raises in process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from app import errors

_OF_STATUS: Mapping[int, type[errors.ControlRoomError]] = {
    401: errors.ConfigurationError,
    403: errors.ConfigurationError,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    422: errors.Unroutable,
    507: errors.DiskFull,
}


def told(answer: httpx.Response) -> errors.ControlRoomError:
    """Return the error that a refusal stands for."""
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "code" not in problem:
        message = f"the server answered {answer.status_code} {answer.reason_phrase}"
        return errors.ConfigurationError(message, code="server_error")
    message = str(problem.get("detail") or problem.get("title") or answer.reason_phrase)
    return _error(answer.status_code, message, str(problem["code"]), problem.get("flaws") or ())


def _error(status: int, message: str, code: str, flaws: Any) -> errors.ControlRoomError:
    if status == 400 and code == errors.UnknownRecipe.default_code:
        return errors.UnknownRecipe(message)
    kind = _OF_STATUS.get(status, errors.RequestInvalid if status < 500 else errors.ConfigurationError)
    if code == errors.NotReady.default_code:
        kind = errors.NotReady
    if not issubclass(kind, errors.InputRefused):
        return kind(message, code=code)
    known = [
        errors.Flaw(path=flaw["path"], message=flaw["message"], code=flaw["code"], line=flaw.get("line"))
        for flaw in flaws
    ]
    return kind(message, code=code, flaws=known)
