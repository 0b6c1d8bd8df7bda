"""
Payloads: request bodies of a bounded size that hold strict JSON, before any route sees them.
"""

from __future__ import annotations

import functools
from email.message import Message

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Sent

from app import errors
from app.api import errors as http_errors
from app.api import guards, problems
from app.engine import json_text

DRAINED_BYTES = 64 * 1024 * 1024
"""Bytes of a body too large that are read and dropped, so that the client hears why instead of a reset."""

_WITH_BODIES = frozenset({"POST", "PUT", "PATCH"})
_GONE = -1
_NULL = errors.RequestInvalid(
    "$: must be an object, or be left out where it may be",
    flaws=[errors.Flaw(path="$", code="wrong_type", message="must be an object, or be left out where it may be")],
)


class Payloads:
    """
    Read a request's body whole, refuse what is too large or not strict JSON, and hand it on.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """
        Let a request with a proper body, or none, through.
        """
        if scope["type"] != "http" or scope["method"] not in _WITH_BODIES:
            await self._app(scope, receive, send)
        else:
            await self._look(scope, receive, send)

    async def _look(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if not _has_body(headers):
            await self._app(scope, receive, send)
            return
        declared = headers.get("content-length", "")
        if (
            headers.get("expect", "").lower() == "100-continue"
            and declared.isdigit()
            and int(declared) > self._max_bytes
        ):
            body, size = b"", int(declared)
        else:
            body, size = await _read(receive, self._max_bytes)
        refusal = self._refusal(headers, body, size)
        if size < 0:
            return
        if refusal is None:
            await self._app(scope, _replay(body, receive), send)
        else:
            await guards.refuse(refusal, scope, receive, send)

    def _refusal(self, headers: Headers, body: bytes, size: int) -> problems.Problem | None:
        if size > self._max_bytes:
            return http_errors.problem(_too_large(self._max_bytes))
        if not body:
            return None
        if not _is_json(headers.get("content-type", "")):
            return problems.of_status(415, "the body must be JSON in UTF-8 with Content-Type: application/json")
        try:
            check(body)
        except errors.InputRefused as error:
            return http_errors.problem(error)
        return http_errors.problem(_NULL) if body.strip() == b"null" else None


def check(body: bytes) -> None:
    """
    Refuse a body that is not strict JSON.

    Raises:
        errors.RequestInvalid: `malformed_body`, with each flaw and its place.
        errors.TooLarge: it is longer than any text that is read.
    """
    try:
        json_text.read(body.decode(), exact=True)
    except UnicodeDecodeError as error:
        raise _malformed(errors.Flaw(path="$", code="not_text", message=f"byte {error.start} is not UTF-8")) from error
    except errors.InputRefused as error:
        if any(flaw.code == "too_large" for flaw in error.flaws):
            raise _too_large(json_text.MAX_CHARACTERS) from error
        raise _malformed(*error.flaws) from error


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def _read(receive: Receive, max_bytes: int) -> tuple[bytes, int]:
    chunks: list[bytes] = []
    size, more = 0, True
    while more and size <= DRAINED_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            return b"", _GONE
        more = message.get("more_body", False)
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            chunks.clear()
        else:
            chunks.append(chunk)
    return b"".join(chunks), size


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[Sent] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Sent:
        return pending.pop() if pending else await receive()

    return replayed


@functools.lru_cache(maxsize=64)
def _is_json(content_type: str) -> bool:
    message = Message()
    message["content-type"] = content_type
    charset = message.get_param("charset", "utf-8")
    return message.get_content_type() == "application/json" and str(charset).lower() in ("utf-8", "utf8")


def _malformed(*flaws: errors.Flaw) -> errors.RequestInvalid:
    place = "" if flaws[0].path == "$" else f" at {flaws[0].path}"
    return errors.RequestInvalid(f"the body{place} {flaws[0].message}", code="malformed_body", flaws=flaws)


def _too_large(max_bytes: int) -> errors.TooLarge:
    return errors.TooLarge(f"the body is larger than {max_bytes} bytes", detail={"max_bytes": max_bytes})
