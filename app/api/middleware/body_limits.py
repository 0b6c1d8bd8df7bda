"""Request bodies: bounded in size and checked to be strict JSON before any route runs."""

from __future__ import annotations

import asyncio
import functools
from email.message import Message

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Sent

from app import errors
from app.api import guards, problems, refusals
from app.domain import json_text, plain

DRAINED_BYTES = 64 * 1024 * 1024
"""Bytes of a body too large that are read and dropped, so that the client hears why instead of a reset."""

MOST_VALUES = 50_000
"""Values that a body holds at most: elements of lists and fields of objects."""

MOST_TYPED = 5_000
"""Values that it holds at most outside of what recipes and their arguments may be; each can be wrong in its form."""

CHECKED_AT_ONCE = 16 * 1024
"""Length of a body that is checked without leaving the loop."""

_FREE_FIELDS = frozenset({"args", "options", "recipe"})
_WITH_BODIES = frozenset({"POST", "PUT", "PATCH"})
_MANY = f"holds more than {MOST_TYPED} values"
_GONE = -1
_NULL = errors.RequestInvalid(
    "$: must be an object, or be omitted where that is allowed",
    flaws=[errors.Flaw(path="$", code="wrong_type", message="must be an object, or be omitted where that is allowed")],
)


class BodyLimits:
    """Read a request's body whole, refuse what is too large or not strict JSON, and hand it on."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        # Each thread that computes makes the loop wait for its turn, so large bodies are checked one by one.
        self._checking = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request with a proper body, or none, through."""
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
        if size < 0:
            return
        if len(body) <= CHECKED_AT_ONCE:
            refusal = self._refusal(headers, body, size)
        else:
            async with self._checking:
                refusal = await asyncio.to_thread(self._refusal, headers, body, size)
        if refusal is None:
            await self._app(scope, _replay(body, receive), send)
        else:
            await guards.refuse(refusal, scope, receive, send)

    def _refusal(self, headers: Headers, body: bytes, size: int) -> problems.Problem | None:
        if size > self._max_bytes:
            return refusals.problem(_too_large(self._max_bytes))
        if not body:
            return None
        if not _is_json(headers.get("content-type", "")):
            return problems.of_status(415, "the body must be JSON in UTF-8 with Content-Type: application/json")
        try:
            check(body)
        except errors.InputRefused as error:
            return refusals.problem(error)
        return refusals.problem(_NULL) if body.strip() == b"null" else None


def check(body: bytes) -> None:
    """Refuse a body that is not strict JSON.

    Raises:
        errors.RequestInvalid: `malformed_body`, with each flaw and its place.
        errors.TooLarge: it is longer than any text that is read, or holds too many values.
    """
    try:
        value = json_text.read(body.decode(), exact=True, most_values=MOST_VALUES)
    except UnicodeDecodeError as error:
        raise _malformed(errors.Flaw(path="$", code="not_text", message=f"byte {error.start} is not UTF-8")) from error
    except errors.InputRefused as error:
        if any(flaw.code == "too_large" for flaw in error.flaws):
            raise _too_large(json_text.MAX_CHARACTERS) from error
        if any(flaw.code == "too_many_values" for flaw in error.flaws):
            raise _too_many(error.flaws[0]) from error
        raise _malformed(*error.flaws) from error
    for name, item in value.items() if isinstance(value, dict) else ():
        if name not in _FREE_FIELDS and plain.holds_more(item, MOST_TYPED, _FREE_FIELDS):
            path = json_text.json_path((name,))
            raise _too_many(errors.Flaw(path=path, code="too_many_values", message=_MANY))
    if isinstance(value, dict) and len(value) > MOST_TYPED:
        raise _too_many(errors.Flaw(path="$", code="too_many_values", message=_MANY))


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


def _too_many(flaw: errors.Flaw) -> errors.TooLarge:
    place = "the body" if flaw.path == "$" else flaw.path
    return errors.TooLarge(f"{place} {flaw.message}", code="too_many_values", flaws=[flaw])


def _too_large(max_bytes: int) -> errors.TooLarge:
    return errors.TooLarge(f"the body is larger than {max_bytes} bytes", detail={"max_bytes": max_bytes})
