"""A server on loopback that speaks the part of S3 that Control Room uses, and fails when told to."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

ACCESS, SECRET = "test-access-key", "test-secret-of-the-bucket"


class ObjectServer(ThreadingHTTPServer):
    """Objects in memory, in one bucket."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.fault: str | None = None
        """`refused`, `stored` (and an error answered), `cut` (the body), `denied`, `no bucket`."""
        self.calls: list[str] = []

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables that lead clients here."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectServer

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        _, bucket, *rest = unquote(parts.path).split("/", 2)
        key, found, fault = "".join(rest), self.server.objects, self.server.fault
        self.server.calls.append(f"{self.command} {key}")
        if fault == "stored" and self.command == "PUT":
            found[key] = content, datetime.now(UTC)
        if fault in ("refused", "stored") and (fault == "refused" or self.command == "PUT"):
            self._answer(500, b"<Error><Code>InternalError</Code></Error>")
        elif fault == "denied" or SECRET in str(self.headers) or ACCESS not in self.headers.get("Authorization", ""):
            self._answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        elif fault == "no bucket" or bucket != "runs":
            self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        elif self.command == "PUT":
            found[key] = content, datetime.now(UTC)
            self._answer(200, etag=sha256(content).hexdigest())
        elif self.command == "POST":
            keys = re.findall(r"<Key>(.*?)</Key>", content.decode())
            for name in keys:
                found.pop(unescape(name), None)
            removed = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in keys)
            self._answer(200, f"<DeleteResult>{removed}</DeleteResult>".encode())
        elif "list-type" in parts.query:
            self._answer(200, self._listed(parse_qs(parts.query).get("prefix", [""])[0]))
        elif key not in found:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._answer_object(*found[key], cut=fault == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = _serve  # noqa: N815

    def _answer_object(self, body: bytes, at: datetime, *, cut: bool) -> None:
        etag = sha256(body).hexdigest()
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            begin, end = int(asked[1]), min(int(asked[2]), len(body) - 1)
            place = f"bytes {begin}-{end}/{len(body)}"
            self._answer(206, body[begin : end + 1], etag=etag, at=at, cut=cut, place=place)
        else:
            self._answer(200, body, etag=etag, at=at, cut=cut)

    def _listed(self, prefix: str) -> bytes:
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{at.isoformat().replace('+00:00', 'Z')}</LastModified>"
            f"<ETag>x</ETag><Size>{len(body)}</Size></Contents>"
            for name, (body, at) in sorted(self.server.objects.items())
            if name.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def _answer(
        self,
        status: int,
        body: bytes = b"",
        *,
        etag: str = "",
        at: datetime | None = None,
        cut: bool = False,
        place: str = "",
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{etag}"')
        self.send_header("Last-Modified", format_datetime(at or datetime.now(UTC), usegmt=True))
        if place:
            self.send_header("Content-Range", place)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut


@contextlib.contextmanager
def serving() -> Iterator[ObjectServer]:
    """Give a server that runs."""
    with ObjectServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
