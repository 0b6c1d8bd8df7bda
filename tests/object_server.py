"""An S3, Google Cloud Storage or Azure server on loopback, as far as Control Room uses them, with faults on request.

The real servers check other things; this one shows that requests and answers follow the protocols.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

ACCESS, SECRET = "test-access-key", "test-secret-of-the-bucket"
ACCOUNT_KEY = b64encode(SECRET.encode()).decode()


class ObjectServer(ThreadingHTTPServer):
    """Objects in memory, in one bucket."""

    daemon_threads = True

    def __init__(self, scheme: str = "s3") -> None:
        """Args: scheme: The protocol of the server: `s3`, `gs` or `az`."""
        super().__init__(("127.0.0.1", 0), {"s3": _Handler, "gs": _Google, "az": _Azure}[scheme])
        self.scheme = scheme
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.fault: str | None = None
        """`refused`, `stored` (and an error answered), `cut` (the body), `denied`, `no bucket`, `silent`."""
        self.closing = threading.Event()
        self.calls: list[str] = []

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables that direct clients to this server."""
        address = f"http://127.0.0.1:{self.server_port}"
        if self.scheme == "gs":
            names = {"client_email": ACCESS, "private_key": SECRET, "private_key_id": "1", "disable_oauth": True}
            return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(names), "GOOGLE_BASE_URL": address}
        if self.scheme == "az":
            account = {"AZURE_STORAGE_ACCOUNT_NAME": ACCESS, "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY}
            return {**account, "AZURE_STORAGE_ENDPOINT": address}
        return {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectServer
    _lists = "list-type"

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        _, bucket, *rest = unquote(parts.path).split("/", 2)
        key, found, fault = "".join(rest), self.server.objects, self.server.fault
        self.server.calls.append(f"{self.command} {key}")
        if fault == "silent":
            self.server.closing.wait()
        if fault == "stored" and self.command == "PUT":
            found[key] = content, datetime.now(UTC)
        if fault in ("refused", "stored") and (fault == "refused" or self.command == "PUT"):
            self._answer(500, b"<Error><Code>InternalError</Code></Error>")
        elif fault == "denied" or SECRET in str(self.headers) or not self._is_known():
            self._answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        elif fault == "no bucket" or bucket != "runs":
            self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        elif self.command == "PUT" and key in found and self._creates():
            self._answer(409 if self.server.scheme == "az" else 412, b"<Error><Code>Exists</Code></Error>")
        elif self.command == "PUT":
            found[key] = content, datetime.now(UTC)
            self._answer(201 if self.server.scheme == "az" else 200, etag=sha256(content).hexdigest())
        elif self.command == "POST":
            self._remove_all(content.decode())
        elif self._lists in parts.query:
            self._answer(200, self._listed(parse_qs(parts.query).get("prefix", [""])[0]))
        elif key not in found:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif self.command == "DELETE":
            del found[key]
            self._answer(204)
        else:
            self._answer_object(*found[key], cut=fault == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _creates(self) -> bool:
        return self.headers.get("If-None-Match") == "*" or self.headers.get("x-goog-if-generation-match") == "0"

    def _is_known(self) -> bool:
        return ACCESS in self.headers.get("Authorization", "")

    def _remove_all(self, content: str) -> None:
        keys = re.findall(r"<Key>(.*?)</Key>", content)
        for name in keys:
            self.server.objects.pop(unescape(name), None)
        removed = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in keys)
        self._answer(200, f"<DeleteResult>{removed}</DeleteResult>".encode())

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
        kind: str = "application/xml",
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{etag}"')
        self.send_header("Last-Modified", format_datetime(at or datetime.now(UTC), usegmt=True))
        if place:
            self.send_header("Content-Range", place)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut


class _Google(_Handler):
    """The XML interface of Google, which is that of S3 but with one request for each object that is removed."""

    def _is_known(self) -> bool:
        # The library sends no token when its configuration disables authentication.
        return True


class _Azure(_Handler):
    _lists = "comp=list"

    def _remove_all(self, content: str) -> None:
        parts = []
        for number, path in enumerate(re.findall(r"DELETE (\S+) HTTP", content)):
            gone = self.server.objects.pop(unquote(path).removeprefix("/runs/"), None) is None
            status = "404 The specified blob does not exist." if gone else "202 Accepted"
            code = "x-ms-error-code: BlobNotFound\r\n" if gone else ""
            parts.append(
                f"--batch\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
                f"HTTP/1.1 {status}\r\n{code}Content-Length: 0\r\n\r\n"
            )
        self._answer(202, ("".join(parts) + "--batch--\r\n").encode(), kind="multipart/mixed; boundary=batch")

    def _listed(self, prefix: str) -> bytes:
        entries = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{format_datetime(at, usegmt=True)}"
            f"</Last-Modified><Etag>x</Etag><Content-Length>{len(body)}</Content-Length>"
            "<Content-Type>text/plain</Content-Type></Properties></Blob>"
            for name, (body, at) in sorted(self.server.objects.items())
            if name.startswith(prefix)
        )
        return f"<EnumerationResults><Blobs>{entries}</Blobs><NextMarker /></EnumerationResults>".encode()


@contextlib.contextmanager
def serving(scheme: str = "s3") -> Iterator[ObjectServer]:
    """Yield a running server."""
    with ObjectServer(scheme) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()
