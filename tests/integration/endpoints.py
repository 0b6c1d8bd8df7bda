"""Real endpoints on loopback: an HTTP server that can refuse posts, and an SMTP server that stores its messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tests.integration import served


class Post:
    """A request that was received."""

    def __init__(self, headers: Mapping[str, str], body: bytes) -> None:
        self.headers = headers
        self.body = body
        self.content: dict[str, Any] = json.loads(body)


class Receiver:
    """An HTTP server that answers each post with the next status, and repeats the last one."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.statuses = [204]
        self.retry_after = ""
        self.url = ""

    async def until(self, count: int) -> list[Post]:
        """Wait until this number of posts has arrived, and return all of them."""
        async with asyncio.timeout(served.WAIT_SECONDS):
            while len(self.posts) < count:
                await served.moment()
        return self.posts

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        with contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head if line)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.posts.append(Post(headers, body))
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            more = f"Location: {self.url}/elsewhere\r\n" if 300 <= status < 400 else ""
            more += f"Retry-After: {self.retry_after}\r\n" if self.retry_after else ""
            writer.write(f"HTTP/1.1 {status} X\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()


class Mailbox:
    """An SMTP server, with TLS if it has a context."""

    def __init__(self, upgrade: ssl.SSLContext | None = None) -> None:
        self._upgrade = upgrade
        self.mails: list[str] = []
        self.recipients: list[str] = []
        self.commands: list[str] = []
        self.greetings: list[str] = []
        self.refuses = False
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""

        def say(line: str) -> None:
            writer.write(f"{line}\r\n".encode())

        with contextlib.closing(writer):
            say("220 here")
            while line := (await reader.readline()).decode().strip():
                self.commands.append(line.upper().split()[0])
                if line.upper().startswith("RCPT"):
                    self.recipients.append(line.partition(":")[2].strip("<> "))
                if line.upper() == "DATA":
                    say("354 go on")
                    self.mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
                if line.upper() == "STARTTLS" and self._upgrade is not None:
                    say("220 begin")
                    await writer.drain()
                    await writer.start_tls(self._upgrade)
                    continue
                if line.upper().startswith("EHLO"):
                    self.greetings.append(line.partition(" ")[2])
                    say(f"250-here\r\n{'250-STARTTLS' if self._upgrade else '250-HELP'}\r\n250 AUTH PLAIN")
                    continue
                if line.upper().startswith("AUTH"):
                    say(f"535 not you: {line}" if self.refuses else "235 welcome")
                    continue
                say("221 bye" if line.upper() == "QUIT" else "250 fine")
                if line.upper() == "QUIT":
                    return


@contextlib.asynccontextmanager
async def receiver(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Serve a receiver on a free port of loopback."""
    made = Receiver()
    async with serving(made.serve, tls) as port:
        made.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield made


@contextlib.asynccontextmanager
async def mailbox(tls: ssl.SSLContext | None = None, *, upgrades: bool = False) -> AsyncIterator[Mailbox]:
    """Serve a mailbox on a free port of loopback: without TLS, with TLS from the start, or after STARTTLS."""
    made = Mailbox(tls if upgrades else None)
    async with serving(made.serve, None if upgrades else tls) as port:
        made.url = f"{'smtps' if tls and not upgrades else 'smtp'}://127.0.0.1:{port}"
        yield made


@contextlib.asynccontextmanager
async def serving(serve: Callable[..., Any], tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]
