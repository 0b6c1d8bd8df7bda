"""Payloads: bounded and strict before they reach a route."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app import errors
from app.api import request_models
from tests.unit.api import gateways

LIMIT = 2000


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Return the received body."""
    await Response(await Request(scope, receive).body())(scope, receive, send)


def client() -> httpx.AsyncClient:
    """Return a client of an application behind the payload check."""
    transport = httpx.ASGITransport(gateways.behind(echo, max_body_bytes=LIMIT))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def post(body: bytes, content_type: str = "application/json") -> httpx.Response:
    """Post a body."""
    async with client() as http:
        return await http.post("/", content=body, headers={"Content-Type": content_type})


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=UTF-8", "Application/JSON"])
async def test_strict_json_reaches_the_route_unchanged(content_type: str) -> None:
    """A valid body arrives byte for byte."""
    body = '{"a": [1, 2.5, "ä\\ud83d\\ude00"], "b": null}'.encode()
    answers = [await post(beginning + body, content_type) for beginning in (b"", b"\xef\xbb\xbf")]

    assert [answer.content for answer in answers] == [body, b"\xef\xbb\xbf" + body]


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        (b"{", "syntax"),
        (b"nonsense", "syntax"),
        (b'{"a": 1} x', "syntax"),
        (b"\xff\xfe", "not_text"),
        (b'{"a": NaN}', "bad_number"),
        (b'{"a": 1e999}', "bad_number"),
        (b'{"a": ' + b"9" * 500 + b"}", "bad_number"),
        (b'{"a": "x\\u0000y"}', "nul_character"),
        (b'{"a\\u0000": 1}', "nul_character"),
        (b'{"a": 1, "a": 2}', "repeated_name"),
        (b'{"a": "\\ud800"}', "lone_surrogate"),
        (b'{"\\udfff": 1}', "lone_surrogate"),
        (b'[["x", {"k": "\\udc00\\ud800"}]]', "lone_surrogate"),
        (b"[" * 900 + b"]" * 900, "too_deep"),
        (b"[" * 1999, "too_deep"),
    ],
)
async def test_a_body_that_is_not_strict_json_is_refused(body: bytes, flaw: str) -> None:
    """A body that is not strict JSON is refused with 400 and the kind and place of the flaw."""
    answer = await post(body)

    assert answer.status_code == 400
    assert answer.json()["code"] == "malformed_body"
    assert answer.json()["flaws"][0]["code"] in (flaw, "syntax" if flaw == "too_deep" else flaw)
    assert answer.json()["flaws"][0]["path"].startswith("$")


async def test_a_syntax_error_is_answered_with_its_line() -> None:
    """The answer to a syntax error contains its line."""
    answer = await post(b'{\n "a": 1,\n "b": }\n')

    assert answer.json()["flaws"][0]["line"] == 3


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", ""]
)
async def test_another_media_type_is_refused(content_type: str) -> None:
    """A body of a web form, or of any media type but JSON in UTF-8, is refused."""
    answer = await post(b"{}", content_type)

    assert answer.status_code == 415


async def test_a_large_body_is_refused_by_its_length() -> None:
    """A body over the limit is refused with 413 and the limit."""
    answer = await post(b'"' + b"x" * LIMIT + b'"')

    assert answer.status_code == 413
    assert answer.json()["facts"] == {"max_bytes": LIMIT}


async def test_a_large_body_without_a_length_is_refused() -> None:
    """A chunked body without a length is counted while it arrives."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b" " * 100

    async with client() as http:
        answer = await http.post("/", content=chunks(), headers={"Content-Type": "application/json"})

    assert answer.status_code == 413


async def test_a_body_at_the_limit_is_taken() -> None:
    """A body of exactly the limit is accepted."""
    answer = await post(b'"' + b"x" * (LIMIT - 2) + b'"')

    assert answer.status_code == 200


async def test_a_client_waiting_for_100_continue_is_refused_first() -> None:
    """A client that waits for `100 Continue` gets the refusal of a large body before the service reads the body."""
    read: list[str] = []
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        read.append("asked")
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-length", b"10000000"), (b"expect", b"100-continue"), (b"content-type", b"application/json")]
    headers = [(b"host", b"127.0.0.1"), *headers]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    await gateways.behind(echo, max_body_bytes=LIMIT)(scope, receive, send)

    assert (read, sent[0]["status"]) == ([], 413)


async def test_a_client_that_goes_away_starts_nothing() -> None:
    """Half a body never reaches a route, even if it is valid JSON."""
    messages = iter([{"type": "http.request", "body": b"{}", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    await gateways.behind(echo, max_body_bytes=LIMIT)(scope, receive, send)

    assert sent == []


@given(st.binary(max_size=200))
def test_bytes_are_either_json_or_refused(body: bytes) -> None:
    """Any bytes are either accepted and valid for a strict JSON parser, or refused with flaws."""
    flaws = refusal(body)

    assert flaws is None or len(flaws) >= 1
    assert flaws is not None or json.dumps(json.loads(body))


def refusal(body: bytes) -> tuple[errors.Flaw, ...] | None:
    """Return the reason why a body is refused, or None."""
    try:
        request_models.check(body)
    except errors.InputRefused as error:
        return error.flaws
    return None
