"""A service on loopback that gives the test's answers and records its requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Said:
    """One answer."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False
    """Whether the connection breaks before the body is whole."""
    hang: bool = False
    """Whether no more bytes follow the body, while the connection stays open."""
    dropped: bool = False
    """Whether the connection breaks in place of an answer."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    at: float


class Service:
    """A service that gives its answers in order and repeats the last one."""

    def __init__(self, answers: Iterable[Said]) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.hung = asyncio.Event()
        self.left = asyncio.Event()
        self.url = ""
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[Any] | None] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self._connections[writer] = asyncio.current_task()
        try:
            while request := await _request(reader):
                self.asked.append(request)
                said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if said.dropped:
                    return
                headers = {"content-length": str(len(said.body) + said.cut + said.hang), **said.headers}
                lines = [f"HTTP/1.1 {said.status} So", *(f"{name}: {value}" for name, value in headers.items())]
                writer.write("\r\n".join([*lines, "", ""]).encode() + said.body)
                await writer.drain()
                if said.hang:
                    self.hung.set()
                    await reader.read(1)
                    self.left.set()
                if said.cut or said.hang:
                    return
        except ConnectionError:
            self.left.set()
        finally:
            writer.close()
            del self._connections[writer]

    async def end(self) -> None:
        """Break all connections."""
        open_ones = dict(self._connections)
        for writer in open_ones:
            writer.transport.abort()
        await asyncio.gather(*(task for task in open_ones.values() if task))


@asynccontextmanager
async def service(*answers: Said) -> AsyncIterator[Service]:
    """Run a service for the block."""
    made = Service(answers)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        await made.end()


def said_json(value: Any, status: int = 200, **headers: str) -> Said:
    """Return an answer in JSON."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Said(status=status, body=json.dumps(value).encode(), headers={"content-type": "application/json", **named})


def completion(text: str | None, **given: Any) -> Said:
    """Return an answer of the Chat Completions interface."""
    message = {"role": "assistant", "content": text, **given.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": given.pop("finish_reason", "stop")}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return said_json({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage, **given})


def message(text: str, *, stop_reason: str = "end_turn", whole: bool = True, hang: bool = False) -> Said:
    """Return an answer of the Messages interface, streamed."""
    start: dict[str, Any] = {"type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    usage = {"input_tokens": 5, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 0, "output_tokens": 1}
    half = len(text) // 2
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", **start, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}
            for part in (text[:half], text[half:])
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    return Said(body=stream(events if whole else events[:4]), headers={"content-type": "text/event-stream"}, hang=hang)


def stream(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Write events as a stream."""
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


async def _request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    at = asyncio.get_running_loop().time()
    return Asked(path=first.split()[1], headers=headers, body=json.loads(body), at=at)
