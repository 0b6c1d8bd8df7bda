"""WebSocket clients of the real service on a loopback port: a well-behaved one, and one that writes raw frames."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import struct
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.integration import served
from tests.integration.project import Project


class Client:
    """A connection to `/ws` that records the messages it receives."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: list[dict[str, Any]] = []

    async def say(self, type: str, **fields: Any) -> None:
        """Send a message."""
        await self.socket.send(json.dumps({"type": type} | fields))

    async def hear(self) -> dict[str, Any]:
        """Return the next message."""
        async with asyncio.timeout(served.WAIT_SECONDS):
            message: dict[str, Any] = json.loads(await self.socket.recv())
        self.heard.append(message)
        return message

    async def until(self, type: str, **fields: Any) -> list[dict[str, Any]]:
        """Return all messages up to the next one of a type with these fields, without messages that a run waits."""
        told: list[dict[str, Any]] = []
        while not told or told[-1]["type"] != type or fields.items() - told[-1].items():
            if not waits(message := await self.hear()):
                told.append(message)
        return told

    async def ask(self, type: str, **fields: Any) -> dict[str, Any]:
        """Send a message and return the next one that arrives."""
        await self.say(type, **fields)
        return await self.hear()

    async def silence(self) -> bool:
        """Return whether the service sent no message before its answer to a question asked now."""
        return (await self.ask("get_available_recipes"))["type"] == "available_recipes"


def waits(message: dict[str, Any]) -> bool:
    """Return whether a message only reports that a run waits for its turn, which the service may send once.

    A service that has just started grants no workspace before it knows which run had which.
    """
    return bool(message["type"] == "run_pending")


class Listening(served.Served):
    """The service on a loopback port."""

    @property
    def port(self) -> int:
        """Return the port of the service."""
        assert self.http.base_url.port is not None
        return self.http.base_url.port

    @contextlib.asynccontextmanager
    async def client(self, query: str = "", **options: Any) -> AsyncIterator[Client]:
        """Connect a client."""
        options = {"proxy": None, "compression": None, "max_size": None} | options
        async with connect(f"ws://127.0.0.1:{self.port}/ws{query}", **options) as socket:
            yield Client(socket)


@contextlib.asynccontextmanager
async def on_a_port(project: Project, **overrides: Any) -> AsyncIterator[Listening]:
    """Serve a project on a free loopback port, as the program does, with a short grace period at the end."""
    async with served.on_a_port(project, **({"stop_grace_seconds": 0.2} | overrides)) as found:
        yield Listening(project, found.http, found.app)


class Wire:
    """A connection on which a test can write any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def write(self, *frames: bytes) -> None:
        """Write bytes unchanged."""
        self.writer.write(b"".join(frames))
        await self.writer.drain()

    async def frame(self) -> tuple[int, bytes]:
        """Return the opcode and payload of the service's next frame."""
        async with asyncio.timeout(served.WAIT_SECONDS):
            first, length = await self.reader.readexactly(2)
            if length in (126, 127):
                length = int.from_bytes(await self.reader.readexactly(2 if length == 126 else 8))
            return first & 0x0F, await self.reader.readexactly(length)

    async def hear(self) -> dict[str, Any]:
        """Return the next message."""
        opcode, payload = await self.frame()
        assert opcode == 1, (opcode, payload)
        message: dict[str, Any] = json.loads(payload)
        return message


@contextlib.asynccontextmanager
async def wire(service: Listening) -> AsyncIterator[Wire]:
    """Connect to `/ws` without a WebSocket client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=2**24)
    key = base64.b64encode(os.urandom(16)).decode()
    head = (
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), served.WAIT_SECONDS)
    assert answer.startswith(b"HTTP/1.1 101"), answer
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def frame(payload: bytes, *, opcode: int = 1, fin: bool = True, masked: bool = True) -> bytes:
    """Return a frame as a client sends it."""
    head = bytes([(0x80 if fin else 0) | opcode])
    bit, size = (0x80 if masked else 0), len(payload)
    if size < 126:
        head += bytes([bit | size])
    elif size < 2**16:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    if not masked:
        return head + payload
    mask = b"\x01\x02\x03\x04"
    return head + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
