"""Any bytes on a socket: the service refuses them or closes the connection soon, and still serves other clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Iterable

import pytest

from app import main
from tests.integration import listening, raw_http, served
from tests.integration.project import Project

WAIT = {"head_seconds": 2, "body_seconds": 2}
"""Settings that end incomplete requests soon, but not requests that are slow by chance."""

AT_ONCE = 64
"""Connections at a time."""

_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)
_OPENED = b"HTTP/1.1 101 "
_HEAD = re.compile(rb"HTTP/1\.1 \d{3} [^\r]*\r\n(?:[^\r\n]+\r\n)*\r\n")


@pytest.fixture
async def service(
    project: Project, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[listening.Listening]:
    """Return the service on a loopback port, and check at its end that its log contains only refusals."""
    # The test reads answers until the connection is closed.
    monkeypatch.setattr(main, "KEEP_ALIVE_SECONDS", 1)
    caplog.set_level(logging.WARNING)
    async with listening.on_a_port(project, **WAIT) as service:
        yield service
    worse = [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    assert worse == []


async def answer_bytes(service: listening.Listening, sent: bytes, *, byte_by_byte: bool = False) -> bytes:
    """Return all bytes that the service sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    answer = b""
    with contextlib.suppress(ConnectionError):
        for part in [sent[place : place + 1] for place in range(len(sent))] if byte_by_byte else [sent]:
            writer.write(part)
            await writer.drain()
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(served.WAIT_SECONDS):
            # The test sends no messages on an opened WebSocket.
            while not answer.startswith(_OPENED) and (part := await reader.read(65536)):
                answer += part
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return answer


async def served_in_the_end(service: listening.Listening, sent: bytes, *, byte_by_byte: bool = False) -> list[int]:
    """Return the statuses of the answers to a request, which is repeated if a busy machine was too slow."""
    async with asyncio.timeout(served.WAIT_SECONDS * 3):
        while (found := statuses(await answer_bytes(service, sent, byte_by_byte=byte_by_byte))) in ([], [408]):
            pass
    return found


async def all_answers(
    service: listening.Listening, cases: Iterable[bytes], *, byte_by_byte: bool = False
) -> list[bytes]:
    """Return the answers to all cases, several at a time, and check that other requests are answered meanwhile."""
    application = asyncio.Semaphore(AT_ONCE)

    async def one(sent: bytes) -> bytes:
        async with application:
            answer = await answer_bytes(service, sent, byte_by_byte=byte_by_byte)
            assert await served_in_the_end(service, raw_http.SERVED["whole target"]) == [200]
            return answer

    return list(await asyncio.gather(*map(one, cases)))


def statuses(answer: bytes) -> list[int]:
    """Return the statuses of all answers on a connection, without interim ones."""
    return [status for status in map(int, _STATUS.findall(answer)) if status >= 200]


@pytest.mark.parametrize("byte_by_byte", [False, True])
async def test_every_kind_of_junk_is_refused(service: listening.Listening, byte_by_byte: bool) -> None:
    """At most one refusal ends the connection; unusual requests are served, in whichever pieces the bytes arrive."""
    refused = await all_answers(service, raw_http.REFUSED.values(), byte_by_byte=byte_by_byte)
    answered = {
        name: await served_in_the_end(service, sent, byte_by_byte=byte_by_byte)
        for name, sent in raw_http.SERVED.items()
    }
    found = dict(zip(raw_http.REFUSED, map(statuses, refused), strict=True))

    assert {
        name: codes for name, codes in found.items() if codes and not (len(codes) == 1 and 400 <= codes[0] < 500)
    } == {}
    assert answered == {name: [200] for name in raw_http.SERVED}
    heads = [head.lower() for answer in refused for head in _HEAD.findall(answer)]
    assert all(b"x-content-type-options: nosniff" in head for head in heads)
    assert all(b"content-type: application/problem+json" in head for head in heads)


@pytest.mark.parametrize("name", ["WebSocket by POST", "WebSocket with a length", "WebSocket in chunks"])
async def test_a_websocket_with_a_body(service: listening.Listening, name: str) -> None:
    """The refusal of a WebSocket's request with a body names the body, and no limit of the head."""
    answer = await answer_bytes(service, raw_http.REFUSED[name])

    assert statuses(answer) == [400]
    assert b'"malformed_request"' in answer
    assert b"has no body" in answer


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_cut_off_request_ends_at_its_time_limit(service: listening.Listening, step: int) -> None:
    """A request that is cut off at any place ends at its time limit."""
    cut = [
        sent[:place]
        for sent in (raw_http.WHOLE, raw_http.CHUNKED, raw_http.UPGRADE)
        for place in range(1, len(sent), step)
    ]
    answers = await all_answers(service, cut)

    assert {tuple(statuses(answer)) for answer in answers} <= {(), (408,)}


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 100), pytest.param(2, 5_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
async def test_broken_requests_break_nothing(service: listening.Listening, seed: int, count: int) -> None:
    """Requests with lost, doubled, changed and mixed bytes receive no answer worse than a refusal."""
    cases = list(raw_http.changed(seed, count))
    answers = await all_answers(service, cases)
    worse = [
        (sent, answer) for sent, answer in zip(cases, answers, strict=True) if max(statuses(answer), default=0) >= 500
    ]

    assert worse == []
