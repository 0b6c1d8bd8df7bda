"""Pages: serve the UI's files from memory, each with its entity tag, and one document at every page address."""

from __future__ import annotations

import base64
import gzip
import hashlib
import mimetypes
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.domain import plain

# Without a build step: the files are served as they are written. Our own code lays out graphs (docs/decisions/0281).
FILES = "/ui/"  # Beginning of the addresses of the UI's files.

PAGES = frozenset(
    (
        "runs",
        "inbox",
        "plans",
        "start",
        "recipes",
        "agents",
        "issues",
        "conferences",
        "cost",
        "triggers",
        "notifications",
        "rules",
        "access",
        "sign-in",
    )
)
"""First parts of the addresses of all pages except `/`."""

_OTHERS = frozenset(("api", "healthz", "hooks", "metrics", "readyz", "ws"))
"""First parts of addresses that answer with data, even to a browser."""

_INLINE = re.compile(rb"<script type=\"importmap\">(.*?)</script>", re.DOTALL)
_TYPES = {".mjs": "text/javascript", ".js": "text/javascript"}
_METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of the UI in the form in which it is sent."""

    content: bytes  # Its content.
    compressed: bytes  # The content, compressed by gzip.
    media_type: str  # Its media type.
    etag: str  # Hash of the content.


class Pages:
    """The pages as a separate application, which needs no token."""

    def serves(self, scope: Scope) -> bool:
        """Return whether the pages answer: a page, one of their files, or an unknown address from a browser."""
        if _is_known(scope["path"]):
            return True
        wants_page = scope["method"] in _METHODS and "text/html" in Headers(scope=scope).get("accept", "")
        return wants_page and _first(scope["path"]) not in _OTHERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a page or one of its files.

        Raises:
            HTTPException: there is no such file, or it is not asked for by GET or HEAD.
        """
        path = scope["path"]
        found = _files().get(path.removeprefix(FILES) if path.startswith(FILES) else "index.html")
        if found is None:
            raise HTTPException(404)
        if scope["method"] not in _METHODS:
            raise HTTPException(405, headers={"Allow": ", ".join(_METHODS)})
        asked = Headers(scope=scope)
        response = _response(found, asked) if _is_known(path) else _content(found, asked, _headers(), status_code=404)
        await response(scope, receive, send)


def _is_known(path: str) -> bool:
    return path == "/" or path.startswith(FILES) or _first(path) in PAGES


def _first(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]


def _response(found: File, asked: Headers) -> Response:
    # Names contain no hash: a browser asks again each time, and gets a short answer.
    headers = _headers() | {"ETag": found.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if found.etag in asked.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return _content(found, asked, headers, status_code=200)


def _content(found: File, asked: Headers, headers: dict[str, str], *, status_code: int) -> Response:
    content = found.content
    if "gzip" in asked.get("accept-encoding", ""):
        content, headers = found.compressed, headers | {"Content-Encoding": "gzip"}
    return Response(content, status_code=status_code, media_type=found.media_type, headers=headers)


@cache
def _headers() -> dict[str, str]:
    (inline,) = _INLINE.findall(_files()["index.html"].content)
    digest = base64.b64encode(hashlib.sha256(inline).digest()).decode()
    policy = (
        f"default-src 'self'; script-src 'self' 'sha256-{digest}'; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    )
    return {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}


@cache
def _files() -> dict[str, File]:
    folder = Path(__file__).parent / "static"
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            found[path.relative_to(folder).as_posix()] = File(
                content=content,
                compressed=gzip.compress(content, mtime=0),
                media_type=media_type,
                etag=plain.entity_tag(content),
            )
    return found
