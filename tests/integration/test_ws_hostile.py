"""Hostile or unresponsive clients of the WebSocket: each is answered or disconnected, without effect on others."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import resource
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app.api import callers, connections, problems, ws_connection, ws_messages
from tests.integration import listening, served
from tests.integration.listening import frame
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes import recipe_harness

STARTED = {"recipe_id": "review-and-commit", "backend": "said"}
MiB = 1024 * 1024
_ASK = frame(b'{"type": "get_available_recipes"}')

BAD: list[tuple[Any, str]] = [
    ("", "malformed_message"),
    ("{", "malformed_message"),
    ("\x00", "malformed_message"),
    ("NaN", "malformed_message"),
    ('{"type": "prompt", "type": "prompt"}', "malformed_message"),
    ('{"type": "prompt", "text": "\\u0000"}', "malformed_message"),
    ('{"type": 1e999}', "malformed_message"),
    ("[" * 20_000 + "]" * 20_000, "too_deep"),
    ('{"a":' * 70 + "1" + "}" * 70, "too_deep"),
    ("[]", "message_invalid"),
    ("null", "message_invalid"),
    ('"prompt"', "message_invalid"),
    ("{}", "message_invalid"),
    ('{"type": null}', "message_invalid"),
    ('{"type": 7}', "unknown_type"),
    ('{"type": ["prompt"]}', "unknown_type"),
    ('{"type": {"a": 1}}', "unknown_type"),
    ('{"type": "start-recipe"}', "unknown_type"),
    ('{"type": "__class__"}', "unknown_type"),
    ('{"type": "start_recipe"}', "message_invalid"),
    ('{"type": "start_recipe", "recipe_id": 1}', "message_invalid"),
    ('{"type": "start_recipe", "recipe_id": ""}', "message_invalid"),
    ('{"type": "start_recipe", "recipe_id": "a", "recip": "b"}', "message_invalid"),
    ('{"type": "start_recipe", "recipe_id": "a", "args": []}', "message_invalid"),
    ('{"type": "exit_recipe"}', "message_invalid"),
    ('{"type": "exit_recipe", "session_id": null}', "message_invalid"),
    ('{"type": "get_available_recipes", "all": true}', "message_invalid"),
    ('{"type": "prompt"}', "message_invalid"),
    ('{"type": "prompt", "text": ["Hi"]}', "message_invalid"),
    ('{"type": "prompt", "text": " \\n", "backend": "said"}', "args_invalid"),
    ('{"type": "prompt", "text": "Hi", "backend": "-rf"}', "args_invalid"),
    ('{"type": "prompt", "text": "Hi", "model": "huge"}', "args_invalid"),
    ('{"type": "prompt", "text": "Hi", "idempotency_key": ""}', "message_invalid"),
    ('{"type": "prompt", "text": "Hi", "backend": "said", "session_id": "../../x"}', "args_invalid"),
    ('{"type": "exit_recipe", "session_id": "\\ud83d\\ude00"}', "unknown_agent_session"),
    (b"{}", "binary_message"),
    (b"", "binary_message"),
    ('"' + "a" * MiB + '"', "message_too_large"),
    ('"' + "é" * (MiB // 2) + '"', "message_too_large"),
]
"""Messages, and the codes of their errors."""


@pytest.fixture
async def service(project: Project) -> AsyncIterator[listening.Listening]:
    """Return the service of the project, on a loopback port."""
    async with listening.on_a_port(project) as service:
        yield service


async def test_bad_messages(service: listening.Listening) -> None:
    """A bad message is answered with a code, and the connection continues."""
    answers = []
    async with service.client() as client:
        for content, _ in BAD:
            await client.socket.send(content)
            answers.append(await client.hear())
        quiet = await client.silence()
    shapes = {(tuple(answer), answer["type"], answer["seq"], answer["run_id"]) for answer in answers}

    assert [answer["code"] for answer in answers] == [code for _, code in BAD]
    assert shapes == {(("type", "code", "message", "seq", "run_id"), "error", None, None)}
    assert all(0 < len(answer["message"]) < 1000 and "Traceback" not in answer["message"] for answer in answers)
    assert quiet


STRANGE = [
    "\udfff",
    "a\ud800b",
    "\ud800" * 1000,
    "\ud800\ud800\udc00",
    "é" * 100_000,
    "\u202e\u0007\u200d\ufeff",
    "../" * 10_000,
    "/" + "a" * 5_000,
    "~nobody/\n{{args.text}} $(id) `id` %n",
    "👩‍👩‍👧" * 100,
    " ",
    "",
]
"""Unusual texts for any field."""


@pytest.mark.slow
async def test_strange_texts_in_every_field(service: listening.Listening, caplog: pytest.LogCaptureFixture) -> None:
    """Any text in a field is answered, with a code of its own for half surrogates."""
    service.project.say("*", text="Hello.")
    sent = [
        {"type": kind, **REQUIRED.get(kind, {}), name: text, **({} if name == "backend" else BACKEND.get(kind, {}))}
        for kind, model in ws_messages.TYPES.items()
        for name in [*(set(model.model_fields) - {"after_seq"}), *ws_messages.OTHER_NAMES]
        for text in STRANGE
    ]
    async with service.client() as client:
        for message in sent:
            await client.socket.send(json.dumps(message))
            answer = await client.hear()
            halves = any("\ud800" <= character <= "\udfff" for text in message.values() for character in str(text))
            assert (answer.get("code") == "lone_surrogate") == halves, (message, answer)
            if answer["run_id"] is not None:
                await client.until("turn_complete", run_id=answer["run_id"])
        quiet = await client.silence()

    assert quiet
    assert not [record for record in caplog.records if record.exc_info]


REQUIRED: dict[str, dict[str, str]] = {
    "start_recipe": {"recipe_id": "review-and-commit"},
    "prompt": {"text": "Hi!"},
    "exit_recipe": {"session_id": "a"},
    "subscribe": {"session_id": "a"},
}
BACKEND = {"start_recipe": {"backend": "said"}, "prompt": {"backend": "said"}}


async def test_near_names_are_offered(service: listening.Listening) -> None:
    """A misspelt type or field is answered with the most similar one and its place."""
    async with service.client() as client:
        kind = await client.ask("start-recipe")
        name = await client.ask("start_recipe", recip_id="rebase")

    assert "(did you mean start_recipe?)" in kind["message"]
    assert "exit_recipe" in kind["message"]
    assert "$.recipe_id: is required; $.recip_id: is not known (did you mean recipe_id?)" in name["message"]
    assert "idempotency_key" in name["message"]


# -- frames


async def test_huge_messages_are_not_held(service: listening.Listening) -> None:
    """A quarter of a gigabyte is dropped as it arrives, whole or in frames, and the connection continues."""
    part = bytes(8 * MiB)
    async with listening.wire(service) as wire:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await wire.write(b"\x81\xff" + (256 * MiB).to_bytes(8) + bytes(4))
        for _ in range(32):
            await wire.write(part)
        answers = [await wire.hear()]
        for place in range(32):
            head = bytes([0x01 if place == 0 else 0x00, 0xFF]) + len(part).to_bytes(8) + bytes(4)
            await wire.write(head, part)
        await wire.write(frame(b"", opcode=9), frame(b"end", opcode=0))
        assert (await wire.frame())[0] == 10
        answers.append(await wire.hear())
        await wire.write(frame(b'{"type": "get_available_recipes"}'))
        answers.append(await wire.hear())
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert [answer.get("code") for answer in answers] == ["message_too_large", "message_too_large", None]
    assert grown < 100 * 1024


async def test_a_flood_of_empty_frames(service: listening.Listening) -> None:
    """A message of endless empty frames is too large like any other."""
    async with listening.wire(service) as wire:
        await wire.write(frame(b"", fin=False), *[frame(b"", opcode=0, fin=False)] * 200_000, frame(b"", opcode=0))
        answer = await wire.hear()

    assert answer["code"] == "message_too_large"


async def test_a_message_in_frames(service: listening.Listening) -> None:
    """Frames form one message, with control frames between them and divided at any byte."""
    content = frame(b'{"type": "get_', fin=False) + frame(b"?", opcode=9) + frame(b'available_recipes"}', opcode=0)
    async with listening.wire(service) as wire:
        for place in range(len(content)):
            await wire.write(content[place : place + 1])
            await asyncio.sleep(0)
        assert await wire.frame() == (10, b"?")
        answer = await wire.hear()

    assert answer["type"] == "available_recipes"


async def test_text_that_is_none(service: listening.Listening, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that are not UTF-8 are reported, but a character that frames divide is valid."""
    halves = '{"type": "é"}'.encode()
    async with listening.wire(service) as wire:
        await wire.write(frame(b"\xff\xfe"))
        answers = [await wire.hear()]
        await wire.write(frame(halves[:11], fin=False), frame(halves[11:], opcode=0))
        answers.append(await wire.hear())

    assert [answer["code"] for answer in answers] == ["not_text", "unknown_type"]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    "broken",
    [
        frame(b"{}", masked=False),
        frame(b"{}", opcode=3),
        frame(b"{}", opcode=0),
        frame(b"a" * 126, opcode=9),
        frame(b"{}", opcode=9, fin=False),
        b"\xf1\x82" + bytes(6),
        b"\x81\xff" + b"\xff" * 8 + bytes(4),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_broken_framing(service: listening.Listening, broken: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Broken framing closes the connection with a code and without a traceback, and other clients are served."""
    async with listening.wire(service) as wire, service.client() as other:
        await wire.write(broken)
        wire.writer.write_eof()
        async with asyncio.timeout(served.WAIT_SECONDS):
            last = await wire.reader.read()
        quiet = await other.silence()

    assert last == b"" or last[:1] in (b"\x88", b"\x81")
    assert quiet
    assert not [record for record in caplog.records if record.exc_info and record.levelno >= logging.ERROR]


# -- clients that do not read


async def test_a_client_that_does_not_listen(service: listening.Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends requests and reads no answers delays no other, costs little memory, and is disconnected."""
    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with service.client() as client, listening.wire(service) as deaf:
        _stop_listening(deaf)
        deaf.writer.write(_ASK * 20_000)
        assert await client.silence()
        with pytest.raises(OSError):
            await _write_on(deaf)
        assert await client.silence()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert grown < 60 * 1024


def _stop_listening(wire: listening.Wire) -> None:
    transport: Any = wire.writer.transport
    transport.pause_reading()


async def _write_on(deaf: listening.Wire) -> None:
    async with asyncio.timeout(served.WAIT_SECONDS):
        while True:
            await deaf.write(frame(b"", opcode=9))
            await asyncio.sleep(0.05)


async def test_a_stop_does_not_wait_for_a_client_that_does_not_read(project: Project) -> None:
    """A service stops at once even if a client does not read its messages."""
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as later:
        async with listening.on_a_port(project) as service, service.client() as client:
            deaf = await later.enter_async_context(listening.wire(service))
            _stop_listening(deaf)
            deaf.writer.write(_ASK * 2_000)
            assert await client.silence()
            began = loop.time()
        took = loop.time() - began

    # A service that waits for the client needs longer.
    assert took < 15


async def test_runs_of_a_client_count_against_its_subscriptions(
    service: listening.Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that a client starts count like subscriptions; beyond the limit, no run is started."""
    monkeypatch.setattr(ws_connection, "MOST_RUNS", 2)
    service.project.say("prompt", hang=True)
    prompt = {"text": "Hi!", "backend": "said"}
    async with service.client() as client, service.client() as other:
        for one, text in ((client, "Hi!"), (client, "Hi!"), (other, "Ho!")):
            await one.say("prompt", **prompt | {"text": text})
            await one.say("get_available_recipes")
            while (await one.hear())["type"] != "available_recipes":
                continue
        runs = {run["description"]: run["run_id"] for run in (await service.http.get("/api/runs")).json()}
        shown = (await service.http.get(f"/api/runs/{runs['Ho!']}")).json()
        session_id = shown["task"]["initial_args"]["agent_session_id"]
        refusals = [
            await client.ask("prompt", **prompt),
            await client.ask("start_recipe", **STARTED),
            await client.ask("subscribe", session_id=session_id),
        ]
        begun = (await service.http.get("/api/runs")).json()
        locked = await other.ask("prompt", **prompt, session_id=session_id)

    assert {refusal.get("code") for refusal in refusals} == {"too_many_subscriptions"}
    assert len(begun) == 3
    assert locked["type"] == "session_locked"


# -- allowed origins, hosts and tokens


def _refusal(status: InvalidStatus) -> tuple[int, dict[str, Any]]:
    return status.response.status_code, json.loads(status.response.body)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Origin": "https://example.org"}, 403, "foreign_origin"),
        ({"Origin": "null"}, 403, "foreign_origin"),
    ],
)
async def test_pages_of_other_sites(service: listening.Listening, headers: Any, status: int, code: str) -> None:
    """A page of another site is refused with a problem document, as over HTTP."""
    with pytest.raises(InvalidStatus) as refused:
        async with service.client(additional_headers=headers):
            pass
    told_status, problem = _refusal(refused.value)

    assert (told_status, problem["code"], problem["status"]) == (status, code, status)


async def test_own_pages(service: listening.Listening) -> None:
    """A page of the service's own address may connect."""
    async with service.client(origin=f"http://127.0.0.1:{service.port}") as client:
        assert await client.silence()


async def test_an_unknown_host(service: listening.Listening) -> None:
    """An unknown host name is refused, so that a page cannot resolve its own name to the service."""
    answer = await _handshake(service, "Host: evil.example")

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"unknown_host"' in answer


async def test_the_token(project: Project) -> None:
    """With a token, a connection must send it in the header, or for pages in a subprotocol."""
    token = "s3cret-t0ken,with:everything/+="
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    async with listening.on_a_port(project, api_token=token) as service:
        async with service.client(additional_headers={"Authorization": f"Bearer {token}"}) as client:
            assert await client.silence()
        async with service.client(subprotocols=["control-room", f"control-room.bearer.{encoded}"]) as page:
            assert await page.silence()
            chosen = page.socket.subprotocol
        refused = []
        for options in (
            {},
            {"additional_headers": {"Authorization": "Bearer wrong"}},
            {"subprotocols": ["control-room"]},
            {"subprotocols": ["control-room", "control-room.bearer."]},
            {"subprotocols": ["control-room", f"control-room.bearer.{encoded[:-1]}"]},
            {"subprotocols": [f"bearer.{encoded}"]},
        ):
            with pytest.raises(InvalidStatus) as status:
                async with service.client(**options):
                    pass
            refused.append(_refusal(status.value))

    assert chosen == "control-room"
    assert {(status, problem["code"]) for status, problem in refused} == {(401, "unauthorized")}
    assert token not in json.dumps(refused)


async def test_no_page(service: listening.Listening) -> None:
    """The answer to a plain request names the WebSocket."""
    plain = await service.http.get("/ws")

    assert (plain.status_code, plain.json()["code"], plain.headers["upgrade"]) == (426, "upgrade_required", "websocket")


@pytest.mark.parametrize("path", ["/nowhere", "/ws/", "/api/runs", "/"])
async def test_a_websocket_elsewhere(service: listening.Listening, path: str) -> None:
    """A WebSocket at another address is refused with a problem document that names the right one."""
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"ws://127.0.0.1:{service.port}{path}", proxy=None):
            pass
    status, problem = _refusal(refused.value)

    assert refused.value.response.headers["content-type"] == problems.MEDIA_TYPE
    assert (status, problem["code"]) == (404, "not_found")
    assert problem["detail"] == f"there is no WebSocket at {path}; it is at /ws"


async def test_a_failure_of_the_opening(service: listening.Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose WebSocket cannot be opened because of a fault of the service receives its incident."""

    def fail(connection: object) -> None:
        raise KeyError(connection)

    monkeypatch.setattr(callers, "author_of", fail)
    with pytest.raises(InvalidStatus) as refused:
        async with service.client():
            pass
    status, problem = _refusal(refused.value)

    assert (status, problem["code"]) == (500, "internal_error")
    assert problem["facts"]["incident_id"] in problem["detail"]


async def test_a_service_that_stops(service: listening.Listening) -> None:
    """Idle clients are informed that the service stops, and new ones are closed in the same way."""
    async with service.client() as client:
        assert await client.silence()
        service.release()
        with pytest.raises(ConnectionClosed) as closed:
            await client.hear()
    async with service.client() as late:
        with pytest.raises(ConnectionClosed) as closed_late:
            await late.hear()

    assert [one.value.rcvd and one.value.rcvd.code for one in (closed, closed_late)] == [1012, 1012]


async def test_clients_that_come_and_go(service: listening.Listening) -> None:
    """Clients that disconnect at any moment do not affect others, and runs continue."""
    service.project.say("code-review", text=recipe_harness.OTHER_SAID, delay_seconds=0.3)
    async with service.client() as client:
        await client.say("start_recipe", **STARTED)
        started = (await client.until("recipe_started"))[0]
        client.socket.transport.abort()
    subscribe = frame(json.dumps({"type": "subscribe", "session_id": started["session_id"]}).encode())
    for _ in range(50):
        async with listening.wire(service) as wire:
            await wire.write(subscribe)
            wire.writer.transport.abort()
    shown = await service.until(started["run_id"], "done")
    async with service.client() as client:
        await client.say("subscribe", session_id=started["session_id"])
        told = await client.until("turn_complete")

    assert shown["ending"]["reason"] == "user-provided-other"
    assert told[0] == started


async def _handshake(service: listening.Listening, *headers: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    lines = ["GET /ws HTTP/1.1", *headers, "Upgrade: websocket", "Connection: Upgrade"]
    key = base64.b64encode(b"0123456789abcdef").decode()
    lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
    writer.write("\r\n".join(lines).encode())
    async with asyncio.timeout(served.WAIT_SECONDS):
        answer = await reader.read()
    writer.close()
    return answer
