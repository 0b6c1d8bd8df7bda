"""Senders: deliver one message to a webhook, by e-mail, or to a command."""

from __future__ import annotations

import asyncio
import email.message
import functools
import ipaddress
import smtplib
import socket
import ssl
from collections.abc import Callable, Iterable
from email.utils import formatdate
from pathlib import Path
from typing import Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

import httpcore

from app import clock, errors, printable
from app.domain import notifications, plain
from app.processes import commands
from app.services.triggers import pointers

SEND_SECONDS = 15.0
"""Longest time for one try."""

COMMAND_SECONDS = 60.0
"""Longest time for one try of a command."""

_OUTPUT_BYTES = 64 * 1024
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class NotDelivered(Exception):
    """A try failed; the text says why."""


class Sender(Protocol):
    """Delivers messages by one channel."""

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        """Deliver a message, and return what the other side answered.

        Raises:
            NotDelivered: it did not take the message.
        """


class AddressGuard(httpcore.AsyncNetworkBackend):
    """Connect to public addresses, and to those that the settings allow; what is checked is what is connected to."""

    def __init__(self, allowed: Iterable[str]) -> None:
        """Args: allowed: Host names, addresses and networks that may be contacted though they are not public."""
        self._backend = httpcore.AnyIOBackend()
        self._names = frozenset(each.lower() for each in allowed)
        self._networks = [network for each in self._names if (network := _network(each)) is not None]

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of a host that may be contacted.

        Raises:
            NotDelivered: none of its addresses may.
        """
        try:
            async with asyncio.timeout(timeout):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise NotDelivered(f"{host} has no address: {error}") from error
        addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
        may = [address for address in addresses if self.allows(host, address)]
        if not may:
            message = f"{host} leads to {', '.join(addresses[:3])}, which is not public; CONTROL_ROOM_NOTIFY_ALLOWED"
            raise NotDelivered(f"{message} names private addresses that may be contacted")
        return await self._backend.connect_tcp(may[0], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Refuse; no endpoint is a socket of this machine."""
        raise NotDelivered("sockets of this machine are not contacted")

    async def sleep(self, seconds: float) -> None:
        """Wait, as the library asks between its own tries; it makes none here."""
        await self._backend.sleep(seconds)

    def allows(self, host: str, address: str) -> bool:
        """Return whether an address that a host has led to may be contacted."""
        found = _inner(ipaddress.ip_address(address.partition("%")[0]))
        if host.lower() in self._names or any(found in network for network in self._networks):
            return True
        return found.is_global and not found.is_multicast


class WebhookSender:
    """Post messages, signed by Standard Webhooks; redirects are not followed."""

    def __init__(self, guard: AddressGuard, clock: clock.Clock) -> None:
        self._guard = guard
        self._clock = clock

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        """Deliver a message."""
        body, at = plain.encode(message.payload()), int(self._clock.now().timestamp())
        key = pointers.key_of(endpoint.signing_secret or "")
        assert key is not None
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Control-Room",
            "webhook-id": message.message_id,
            "webhook-timestamp": str(at),
            "webhook-signature": pointers.signature(key, message.message_id, at, body),
        }
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), SEND_SECONDS)
        url = endpoint.url or ""
        context = ssl.create_default_context() if url.startswith("https") else None
        try:
            async with (
                asyncio.timeout(SEND_SECONDS),
                httpcore.AsyncConnectionPool(ssl_context=context, network_backend=self._guard) as pool,
                pool.stream(
                    "POST", url, headers=list(headers.items()), content=body, extensions={"timeout": timeout}
                ) as answer,
            ):
                status = answer.status
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            raise NotDelivered(f"{type(error).__name__}: {error}"[:300]) from error
        if not 200 <= status < 300:
            redirect = "; redirects are not followed" if 300 <= status < 400 else ""
            raise NotDelivered(f"the answer was {status}{redirect}")
        return f"the answer was {status}"


class MailSender:
    """Send messages by SMTP, in a thread."""

    def __init__(self, smtp_url: str | None, mail_from: str | None) -> None:
        """Args: smtp_url: `smtp://[USER:PASSWORD@]HOST[:PORT]`, or `smtps://…` for TLS from the start."""
        self._url = smtp_url
        self._from = mail_from

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        """Deliver a message."""
        if not self._url or not self._from:
            raise NotDelivered("CONTROL_ROOM_SMTP_URL and CONTROL_ROOM_MAIL_FROM are not set")
        mail = _mail(endpoint, message, self._from)
        try:
            await asyncio.to_thread(self._deliver, mail)
        except (smtplib.SMTPException, OSError) as error:
            # The answer of a server may hold what it was sent, but never the password.
            raise NotDelivered(f"{type(error).__name__}: {error}"[:300]) from error
        return "the server took it"

    def _deliver(self, mail: email.message.EmailMessage) -> None:
        url = urlsplit(self._url or "")
        secure, host = url.scheme == "smtps", url.hostname or ""
        # Without a context of its own, smtplib checks no certificate.
        context = ssl.create_default_context()
        kind = functools.partial(smtplib.SMTP_SSL, context=context) if secure else smtplib.SMTP
        with kind(host, url.port or (465 if secure else 587), timeout=SEND_SECONDS) as server:
            server.ehlo()
            if not secure and server.has_extn("starttls"):
                server.starttls(context=context)
                secure = True
            if url.username:
                if not secure:
                    raise smtplib.SMTPException("the server offers no TLS, so the password is not sent")
                server.login(unquote(url.username), unquote(url.password or ""))
            server.send_message(mail)


class CommandSender:
    """Run a program with the message on its standard input."""

    def __init__(self, run: Callable[[commands.Request], object], folder: Path) -> None:
        """Args: run: Runs a command to its end; `supervisor.Supervisor.run`."""
        self._run = run
        self._folder = folder

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        """Deliver a message."""
        request = commands.Request(
            argv=endpoint.argv,
            run_id=message.run_id,
            cwd=self._folder,
            env={"CONTROL_ROOM_MESSAGE_ID": message.message_id},
            stdin=plain.encode({"id": message.message_id} | message.payload()) + b"\n",
            timeout_seconds=COMMAND_SECONDS,
            cap_bytes=_OUTPUT_BYTES,
        )
        try:
            ended: commands.Ended = await self._run(request)  # type: ignore[misc]
        except (commands.NotStarted, commands.LauncherLost, errors.WorkspaceFault) as error:
            raise NotDelivered(f"{error.message} [{error.code}]") from error
        if ended.cause or ended.exit_code != 0:
            why = f"it was ended: {ended.cause}" if ended.cause else f"exit code {ended.exit_code}"
            raise NotDelivered(why)
        return "exit code 0"


def _mail(endpoint: notifications.Endpoint, message: notifications.Message, sender: str) -> email.message.EmailMessage:
    mail = email.message.EmailMessage()
    mail["Subject"] = printable.one_line(f"[Control Room] {message.recipe_id} {message.kind}: {message.text}")[:200]
    mail["From"] = sender
    mail["To"] = ", ".join(endpoint.to)
    mail["Date"] = formatdate(clock.instant(message.at).timestamp())
    # A repetition has the same id, by which programs of mail drop it.
    mail["Message-ID"] = f"<{message.message_id}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    facts = {"run": message.run_id, "recipe": message.recipe_id, "at": message.at, **message.data}
    lines = [
        f"{name}: {value if isinstance(value, str) else plain.encode(value).decode()}" for name, value in facts.items()
    ]
    mail.set_content("\n".join([message.text, "", *lines]))
    return mail


def _inner(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address leads to by translation or a tunnel; else the address."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
