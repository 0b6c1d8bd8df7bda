"""Problem documents: the form of every refusal and failure (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app import errors
from app.domain import plain

MEDIA_TYPE = "application/problem+json"  # Media type of a problem document.

NO_SNIFFING = (b"x-content-type-options", b"nosniff")
"""Header of every answer, so that no browser takes it for another type, such as a script."""

POLICY = 1008  # Close code of a WebSocket whose caller may not use it.
TYPE_PREFIX = "urn:control-room:problem:"  # Prefix of a problem's `type`; its `code` follows.

_PHRASES = {413: "Content Too Large", 414: "URI Too Long", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}
"""Phrases that Python 3.13 changed, on which a code must not depend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A refusal or failure in the form that a client receives."""

    status: int  # HTTP status.
    code: str  # Stable name, for programs.
    title: str  # Title, the same for every problem of its kind.
    detail: str  # This occurrence of the problem, in a sentence.
    flaws: Sequence[errors.Flaw] = ()  # Flaws of an input, each with its position.
    facts: Mapping[str, plain.Json] = field(default_factory=dict)  # Further facts for programs.
    headers: Mapping[str, str] = field(default_factory=dict)  # Further headers of the answer.

    def to_json(self) -> dict[str, plain.Json]:
        """Return the document."""
        return {
            "type": TYPE_PREFIX + self.code,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "flaws": [flaw.to_json() for flaw in self.flaws],
            "facts": plain.plain(self.facts),
        }

    def response(self) -> Response:
        """Return the response that reports the problem."""
        body = plain.encode(plain.plain(self.to_json()))
        return Response(body, self.status, dict(self.headers), media_type=MEDIA_TYPE)

    def written(self) -> bytes:
        """Return the response as bytes of HTTP/1.1, the last ones on their connection."""
        answer = self.response()
        head = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        status = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n".encode()
        return b"%b%b%b: %b\r\nconnection: close\r\n\r\n%b" % (status, head, *NO_SNIFFING, bytes(answer.body))


def of_status(
    status: int, detail: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
) -> Problem:
    """Return a problem that HTTP itself defines, such as 405."""
    phrase = _PHRASES.get(status) or HTTPStatus(status).phrase
    name = code or phrase.lower().replace(" ", "_").replace("-", "_")
    return Problem(status=status, code=name, title=phrase, detail=detail, headers=headers or {})


def unauthorized(detail: str) -> Problem:
    """Return the refusal of a caller that is not known."""
    return of_status(401, detail, headers={"WWW-Authenticate": "Bearer"})


def of_http(refused: HTTPException, scope: Scope) -> Problem:
    """Return the problem of what a framework or the pages refuse."""
    method, path, status = scope["method"], scope["path"], refused.status_code
    details = {404: f"there is no resource at {path:.200}", 405: f"{method:.200} is not allowed at {path:.200}"}
    return of_status(status, details.get(status, str(refused.detail)), headers=refused.headers)


async def refuse(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with a problem; a WebSocket does not open then."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": POLICY, "reason": problem.code})
    else:
        await problem.response()(scope, receive, send)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a problem document."""
    flaw = {
        "type": "object",
        "required": ["path", "code", "message"],
        "properties": {
            "path": {"type": "string", "description": "JSON path of the flaw, or `query.NAME` or `header.NAME`."},
            "code": {"type": "string", "description": "Stable name of the kind of flaw."},
            "message": {"type": "string", "description": "The flaw, in one sentence."},
            "line": {"type": "integer", "description": "Line in the source text, if known."},
        },
    }
    return {
        "type": "object",
        "title": "Problem",
        "description": "A refusal or failure (RFC 9457).",
        "required": ["type", "title", "status", "detail", "code", "flaws", "facts"],
        "properties": {
            "type": {"type": "string", "description": f"`{TYPE_PREFIX}` and the code."},
            "title": {"type": "string", "description": "Title, which is the same for every problem with this code."},
            "status": {"type": "integer", "description": "The HTTP status."},
            "detail": {"type": "string", "description": "This occurrence of the problem, in one sentence."},
            "code": {"type": "string", "description": "Stable name for programs."},
            "flaws": {"type": "array", "items": flaw, "description": "Every flaw of the input, with its location."},
            "facts": {"type": "object", "description": "Further details for programs."},
        },
    }
