"""Bounds of connections on real sockets: requests too large or too slow, and one connection too many, are refused.

Other clients are still served.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from uvicorn.protocols.http import httptools_impl

from app import main, settings, telemetry
from app.api import connections, http_protocol
from tests.integration import listening, served
from tests.integration.project import Project

HOST = b"Host: 127.0.0.1\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
POST = b"POST /api/route HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\n" + HOST + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
MiB = 1024 * 1024
KiB64 = 64 * 1024


@pytest.fixture
async def service(project: Project) -> AsyncIterator[listening.Listening]:
    """Return the service of the project, on a loopback port."""
    async with listening.on_a_port(project) as service:
        yield service


@contextlib.asynccontextmanager
async def raw(service: listening.Listening) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect without sending any bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """Return the status and document of the next answer."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, headers = head.split("\r\n", 1)
        size = next(line for line in headers.lower().splitlines() if line.startswith("content-length:"))
        body = await reader.readexactly(int(size.split(":")[1]))
    return int(status.split()[1]), json.loads(body)


async def status_and_code(service: listening.Listening, sent: bytes, times: int = 1) -> tuple[int, str]:
    """Send bytes so often, or until the service reads no more, and return the status and code of its answer."""
    async with raw(service) as (reader, writer):
        with contextlib.suppress(ConnectionError):
            for _ in range(times):
                writer.write(sent)
                await writer.drain()
        status, document = await answer(reader)
        assert status < 400 or document["status"] == status
        return status, document.get("code", "")


def padded(head: bytes, size: int) -> bytes:
    """Return a head of this size."""
    rest = size - len(head) - len(b"X: \r\n\r\n")
    return head + b"X: " + b"x" * rest + b"\r\n\r\n"


def many(head: bytes, count: int) -> bytes:
    """Return a head with a number of headers."""
    return head + b"X: y\r\n" * (count - head.count(b"\r\n") + 1) + b"\r\n"


BOUNDS = [
    (padded(GET, KiB64), 200, ""),
    (padded(GET, KiB64 + 1), 431, "head_too_large"),
    (many(GET, 100), 200, ""),
    (many(GET, 101), 431, "too_many_headers"),
    (many(UPGRADE, 101), 431, "too_many_headers"),
    (padded(UPGRADE, KiB64 + 1), 431, "head_too_large"),
    (padded(UPGRADE, KiB64), 431, "head_too_large"),
    (b"GET /" + b"a" * KiB64 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431, "head_too_large"),
    (b"\r\n" * KiB64 + GET + b"\r\n", 431, "head_too_large"),
    (b"\x16\x03\x01\x02\x00 no HTTP at all", 400, "malformed_request"),
    (b"GET /healthz RTSP/1.0\r\n" + HOST + b"\r\n", 400, "malformed_request"),
    (b"DESCRIBE /healthz RTSP/1.0\r\n" + HOST + b"\r\n", 400, "malformed_request"),
    (CHUNKED + b"2;" + b"e" * 2 * KiB64 + b"\r\n{}\r\n0\r\n\r\n", 431, "head_too_large"),
    (CHUNKED + b"2\r\n{}\r\n0\r\n" + b"T: " + b"t" * 2 * KiB64 + b"\r\n\r\n", 431, "head_too_large"),
    (CHUNKED + b"2\r\n{}\r\n0\r\n" + b"T: t\r\n" * 101 + b"\r\n", 431, "too_many_headers"),
    (CHUNKED + b"2\r\n{}\r\nzz\r\n", 400, "malformed_request"),
]
"""Requests, and the status and code of the answer."""


async def test_bounds_of_heads(service: listening.Listening) -> None:
    """Heads, headers, trailers and chunk extensions are bounded in every request, and each refusal names its reason."""
    found = [await status_and_code(service, sent) for sent, _, _ in BOUNDS]

    assert found == [(status, code) for _, status, code in BOUNDS]


async def test_a_head_without_end_costs_no_more_than_its_bound(
    service: listening.Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser reads 64 KiB of a 40 MB header, and a client that continues to send receives its refusal."""
    fed = 0
    parse = httptools_impl.HttpToolsProtocol.data_received

    def counted(self: Any, data: bytes) -> None:
        nonlocal fed
        fed += len(data)
        parse(self, data)

    monkeypatch.setattr(httptools_impl.HttpToolsProtocol, "data_received", counted)
    found = await status_and_code(service, b"x" * MiB, 1)
    began = await status_and_code(service, GET + b"X: " + b"x" * MiB, 40)

    assert (found, began) == ((400, "malformed_request"), (431, "head_too_large"))
    assert fed <= http_protocol.SLICE_BYTES + KiB64


async def test_heads_cut_anywhere(service: listening.Listening) -> None:
    """Requests are read the same however they are divided, one after another, with and without bodies."""
    stream = (
        GET
        + b"\r\n"
        + POST
        + b"Content-Length: 2\r\n\r\n{}"
        + CHUNKED
        + b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
        + GET
        + b"\r\n"
    )
    found = []
    for size in (1, 7, len(stream)):
        async with raw(service) as (reader, writer):
            for place in range(0, len(stream), size):
                writer.write(stream[place : place + size])
                await writer.drain()
                await asyncio.sleep(0)
            found.append([(await answer(reader))[0] for _ in range(4)])

    assert found == [[200, 400, 400, 200]] * 3


@pytest.mark.parametrize("protocol", [b"RTSP", b"ICE"])
async def test_other_protocols_are_refused_however_they_come(service: listening.Listening, protocol: bytes) -> None:
    """A request line of another protocol that the parser takes for HTTP is refused, wherever it is divided."""
    foreign = GET.replace(b"HTTP/", protocol + b"/") + b"\r\n"
    first = POST + b"Content-Length: 2\r\nX: GET /healthz " + protocol + b"/1.0\r\n\r\n{}"
    found = []
    for size in (1, 5, foreign.index(protocol), foreign.index(protocol) + 2, len(foreign)):
        async with raw(service) as (reader, writer):
            for part in (first, *(foreign[place : place + size] for place in range(0, len(foreign), size))):
                with contextlib.suppress(ConnectionError):
                    writer.write(part)
                    await writer.drain()
                await asyncio.sleep(0.001)
            found.append([(await answer(reader))[1]["code"] for _ in range(2)])

    assert found == [["request_invalid", "malformed_request"]] * 5
    assert (await status_and_code(service, GET.replace(b"HTTP/", b"  HTTP/") + b"\r\n"))[0] == 200


async def test_pipelined_requests_are_taken_a_few_at_a_time(
    service: listening.Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand requests in one piece are answered in order, and only a slice of them is queued at a time."""
    queued: list[int] = []
    begin = http_protocol.Protocol.on_headers_complete

    def noted(self: Any) -> None:
        begin(self)
        queued.append(len(self.pipeline))

    monkeypatch.setattr(http_protocol.Protocol, "on_headers_complete", noted)
    async with raw(service) as (reader, writer):
        writer.write((GET + b"\r\n") * 1_000)
        answers = {(await answer(reader))[0] for _ in range(1_000)}

    assert answers == {200}
    assert max(queued) <= http_protocol.SLICE_BYTES // len(GET)


async def test_large_bodies_pass_in_portions(service: listening.Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service parses a body in portions, with the loop free between them, and receives it whole."""
    portions: list[int] = []
    go_on = http_protocol.Protocol._go_on

    def noted(self: Any) -> None:
        before = len(self._held)
        go_on(self)
        portions.append(before - len(self._held))

    monkeypatch.setattr(http_protocol.Protocol, "_go_on", noted)
    body = json.dumps({"description": "é" * 9_000, "more": "x" * 900_000}).encode()
    whole = await service.http.post("/api/route", content=body, headers={"Content-Type": "application/json"})
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body[:100_000])
    cut = await status_and_code(service, CHUNKED + chunks + b"0\r\n\r\n")

    assert (whole.status_code, whole.json()["flaws"][0]["path"]) == (400, "$.more")
    assert cut == (400, "malformed_body")
    assert max(portions) <= http_protocol.SLICE_BYTES * http_protocol.SLICES_AT_ONCE


async def test_a_body_that_is_not_wanted(project: Project) -> None:
    """A client that sends a large body where none is read receives the answer, and that to its next request."""
    head = b"DELETE /api/runs/x HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n"
    async with listening.on_a_port(project, body_seconds=10) as service, raw(service) as (reader, writer):
        for _ in range(2):
            writer.write(head % (2 * MiB) + b"x" * (2 * MiB))
            await writer.drain()
        writer.write(GET + b"\r\n")
        answers = [await answer(reader) for _ in range(3)]

    assert [(status, document.get("code")) for status, document in answers] == [
        (404, "run_not_found"),
        (404, "run_not_found"),
        (200, None),
    ]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET /healthz", "head_too_slow"),
        (b"\r\n", "head_too_slow"),
        (GET + b"\r\n" + GET, "head_too_slow"),
        (POST + b"Content-Length: 2\r\n\r\n{", "body_too_slow"),
        (CHUNKED + b"1\r\n{\r\n", "body_too_slow"),
        (CHUNKED + b"2\r\n{}\r\n0\r\nT: ", "body_too_slow"),
        (GET + b"Content-Length: 2\r\n\r\n{", ""),
        (b"", ""),
    ],
)
async def test_slow_clients(project: Project, sent: bytes, code: str) -> None:
    """An unfinished head or body is answered with 408; a client that sends no bytes is disconnected."""
    async with (
        listening.on_a_port(project, head_seconds=0.2, body_seconds=0.2) as service,
        raw(service) as (reader, writer),
    ):
        writer.write(sent)
        before = [(await answer(reader))[0]] if sent.startswith(GET) else []
        found = (await answer(reader))[1]["code"] if code else ""
        async with asyncio.timeout(served.WAIT_SECONDS):
            rest = await reader.read()

    assert (before, found, rest) == ([200] if before else [], code, b"")


async def test_a_trickling_client_is_refused_like_a_silent_one(project: Project) -> None:
    """A client that sends a byte now and then is refused like one that sends none."""
    async with listening.on_a_port(project, head_seconds=0.3) as service, raw(service) as (reader, writer):

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                for byte in GET * 100:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.02)

        task = asyncio.create_task(trickle())
        status, document = await answer(reader)
        task.cancel()

    assert (status, document["code"]) == (408, "head_too_slow")


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_address"])
async def test_a_connection_beyond_the_limit_is_refused(
    project: Project, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection beyond the limit is answered with 503; WebSockets count, and closed connections make room."""
    lost: asyncio.Queue[None] = asyncio.Queue()
    leave = connections.Connections.leave

    def noted(self: Any, address: str) -> None:
        leave(self, address)
        lost.put_nowait(None)

    monkeypatch.setattr(connections.Connections, "leave", noted)
    async with listening.on_a_port(project, **{limit: 8}) as service, contextlib.AsyncExitStack() as held:
        await service.http.get("/healthz")
        for _ in range(6):
            await held.enter_async_context(listening.wire(service))
        async with raw(service) as (reader, writer):
            writer.write(GET + b"\r\n")
            assert (await answer(reader))[0] == 200
            refused = await status_and_code(service, GET + b"\r\n")
        await held.aclose()
        for _ in range(6):
            await lost.get()
        again = await status_and_code(service, GET + b"\r\n")

    assert (refused, again) == ((503, "too_many_connections"), (200, ""))


def test_an_idle_connection_is_kept_longer_than_clients_keep_it(project: Project) -> None:
    """The service keeps idle connections longer than clients do, so that no request meets a closing connection."""
    configuration = main.configuration(main.create_app(served.chosen(project)), served.chosen(project).server)

    assert configuration.timeout_keep_alive > 10


def test_addresses_are_counted_apart() -> None:
    """An address with all its connections does not affect other addresses; the total is bounded, too."""
    counted = connections.Connections(
        _limits(connections=3, connections_per_address=2), connections.Warnings(lambda: 0)
    )
    first = [counted.enter("a") for _ in range(3)]
    second = [counted.enter("b") for _ in range(2)]
    counted.leave("a")

    assert [found is None for found in (*first, *second)] == [True, True, False, True, False]
    assert "from one address" in str(first[2])
    assert "from one address" not in str(second[1])
    assert counted.enter("c") is None


def test_connections_leave_room_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections take at most half of the files that may be open, even if the settings allow more."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    chosen = settings.ServerSettings(max_connections=1_000)

    assert connections.limits(chosen).connections == 128


def test_warnings_are_few(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand refusals of a kind write two lines to the log; the second contains the number of omitted ones."""
    now = 0.0
    warnings = connections.Warnings(lambda: now)
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            now = telemetry.QUIET_SECONDS if number == 999 else 0.0
            warnings.warn("head_too_large", "too large", "192.0.2.1")
        warnings.warn("head_too_slow", "too slow", "192.0.2.1")

    lines = [(vars(record)["code"], vars(record)["left_out"]) for record in caplog.records]
    assert lines == [("head_too_large", 0), ("head_too_large", 998), ("head_too_slow", 0)]


async def test_a_refusal_is_one_warning(service: listening.Listening, caplog: pytest.LogCaptureFixture) -> None:
    """A refusal writes one rate-limited warning of the service, and none of Uvicorn."""
    for _ in range(3):
        await status_and_code(service, b"no HTTP at all\r\n\r\n")

    assert [vars(record).get("code") for record in caplog.records if record.levelno >= logging.WARNING] == [
        "malformed_request"
    ]


async def test_a_refusal_is_sent_after_the_earlier_answer(service: listening.Listening) -> None:
    """Broken bytes after a request that is still being answered close the connection after that answer."""
    async with raw(service) as (reader, writer):
        writer.write(GET + b"\r\n\x00 broken")
        status, document = await answer(reader)
        async with asyncio.timeout(served.WAIT_SECONDS):
            rest = await reader.read()

    assert (status, document, rest) == (200, {"status": "ok"}, b"")


async def test_a_client_that_never_reads_is_let_go(
    service: listening.Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends many requests and reads no answer is disconnected, and its place becomes free."""
    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.2)
    lost = asyncio.Event()
    connection_lost = http_protocol.Protocol.connection_lost

    def noted(self: Any, exc: Exception | None) -> None:
        connection_lost(self, exc)
        lost.set()

    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", service.port))
        monkeypatch.setattr(http_protocol.Protocol, "connection_lost", noted)
        asking = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
        await asyncio.get_running_loop().sock_sendall(client, asking * 100)
        async with asyncio.timeout(served.WAIT_SECONDS):
            await lost.wait()


def _limits(**named: Any) -> connections.Limits:
    usual = {"head_bytes": 1, "headers": 1, "head_seconds": 1, "body_seconds": 1}
    return connections.Limits(**(usual | named))
