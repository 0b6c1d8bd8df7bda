"""Request bodies: bounded in size and checked to be strict JSON before any route runs."""

from __future__ import annotations

import asyncio
import functools
from email import message

from starlette.types import Message, Receive, Scope

from app import errors
from app.api import problems, refusals
from app.domain import json_text, plain

DRAINED_BYTES = 64 * 1024 * 1024
"""Bytes of a body too large that are read and dropped, so that the client hears why instead of a reset."""

MOST_VALUES = 50_000  # Values that a body holds at most: elements of lists and fields of objects.

MOST_TYPED = 5_000
"""Values that it holds at most outside of what recipes and their arguments may be; each can be wrong in its form."""

CHECKED_AT_ONCE = 16 * 1024  # Length of a body that is checked without leaving the loop.

_FREE_FIELDS = frozenset({"args", "options", "recipe"})
_WITH_BODIES = frozenset({"POST", "PUT", "PATCH"})
_MANY = f"holds more than {MOST_TYPED} values"
_GONE = -1
_NULL = errors.RequestInvalid(
    "$: must be an object, or be omitted where that is allowed",
    flaws=[errors.Flaw(path="$", code="wrong_type", message="must be an object, or be omitted where that is allowed")],
)


class Body:
    """A request's body, read whole."""

    def __init__(self, content: bytes, value: plain.Json, receive: Receive) -> None:
        self.value = value
        """What it holds; None where it is empty."""
        self._pending: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
        self._receive = receive

    async def again(self) -> Message:
        """Hand the body on to who reads the request's messages, and then what comes behind it."""
        return self._pending.pop() if self._pending else await self._receive()


class BodyLimits:
    """Read a request's body whole, and refuse one that is too large or not strict JSON."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Each thread that computes makes the loop wait for its turn, so large bodies are checked one by one.
        self._checking = asyncio.Lock()

    async def read(self, scope: Scope, receive: Receive) -> Body | problems.Problem | None:
        """Return a proper body, or why it is refused; None where the client has gone."""
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        declared = headers.get(b"content-length", b"")
        expects = headers.get(b"expect", b"").lower() == b"100-continue"
        # A client that waits for `100 Continue` is refused before it sends anything. Any other one is read on for a
        # while (`DRAINED_BYTES`): to a connection that is closed on unread bytes the kernel sends a reset, which eats
        # the answer.
        if expects and declared.isdigit() and int(declared) > self._max_bytes:
            return refusals.problem(_too_large(self._max_bytes))
        content, size = await _read(receive, self._max_bytes)
        if size < 0:
            return None
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        if len(content) <= CHECKED_AT_ONCE:
            found = self._checked(content_type, content, size)
        else:
            async with self._checking:
                found = await asyncio.to_thread(self._checked, content_type, content, size)
        return found if isinstance(found, problems.Problem) else Body(content, found, receive)

    def _checked(self, content_type: str, content: bytes, size: int) -> plain.Json | problems.Problem:
        if size > self._max_bytes:
            return refusals.problem(_too_large(self._max_bytes))
        if not content:
            return None
        if not _is_json(content_type):
            return problems.of_status(415, "the body must be JSON in UTF-8 with Content-Type: application/json")
        try:
            value = check(content)
        except errors.InputRefused as error:
            return refusals.problem(error)
        return refusals.problem(_NULL) if value is None else value


def check(body: bytes) -> plain.Json:
    """Return what a body holds; refuse one that is not strict JSON.

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
    return value


def has_body(scope: Scope) -> bool:
    """Return whether a request brings a body that is read."""
    if scope["method"] not in _WITH_BODIES:
        return False
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return True
    return False


async def _read(receive: Receive, max_bytes: int) -> tuple[bytes, int]:
    chunks: list[bytes] = []
    size, more = 0, True
    while more and size <= DRAINED_BYTES:
        part = await receive()
        if part["type"] != "http.request":
            return b"", _GONE
        more = part.get("more_body", False)
        chunk = part.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            chunks.clear()
        else:
            chunks.append(chunk)
    return b"".join(chunks), size


@functools.lru_cache(maxsize=64)
def _is_json(content_type: str) -> bool:
    header = message.Message()
    header["content-type"] = content_type
    charset = header.get_param("charset", "utf-8")
    return header.get_content_type() == "application/json" and str(charset).lower() in ("utf-8", "utf8")


def _malformed(*flaws: errors.Flaw) -> errors.RequestInvalid:
    place = "" if flaws[0].path == "$" else f" at {flaws[0].path}"
    return errors.RequestInvalid(f"the body{place} {flaws[0].message}", code="malformed_body", flaws=flaws)


def _too_many(flaw: errors.Flaw) -> errors.TooLarge:
    place = "the body" if flaw.path == "$" else flaw.path
    return errors.TooLarge(f"{place} {flaw.message}", code="too_many_values", flaws=[flaw])


def _too_large(max_bytes: int) -> errors.TooLarge:
    return errors.TooLarge(f"the body is larger than {max_bytes} bytes", detail={"max_bytes": max_bytes})
