"""The sender of webhooks, which contacts only permitted addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Iterable
from typing import TypeAlias

import httpcore

from app import clock
from app.domain import notifications, plain, retry_after
from app.services.notifications.senders import SEND_SECONDS, NotDelivered
from app.services.triggers import pointers

_BUSY = (429, 503)  # Statuses with which a receiver may report when it wants messages again.

_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
_RESERVED = ipaddress.IPv4Network("192.0.0.0/24")  # Some versions of Python treat it as global.
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All public IPv6 addresses; others, which `is_global` may admit, lead to private addresses or to none."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressGuard(httpcore.AsyncNetworkBackend):
    """Connects to public addresses and to those that the settings allow, always to the checked address itself.

    Args:
        allowed: Host names, addresses and networks that the service may contact although they are not public.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
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
        """Connect to the first permitted address of a host.

        Raises:
            NotDelivered: none of its addresses is permitted.
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
        # The checked address, not the name: a second look-up could return another address.
        return await self._backend.connect_tcp(may[0], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Refuse, since an endpoint is never a socket of this machine."""
        raise NotDelivered("sockets of this machine are not contacted")

    async def sleep(self, seconds: float) -> None:
        """Wait between attempts of the library; here it makes none."""
        await self._backend.sleep(seconds)

    def allows(self, host: str, address: str) -> bool:
        """Return whether the service may contact an address of a host."""
        found = _inner(ipaddress.ip_address(address.partition("%")[0]))
        if host.lower() in self._names or any(found in network for network in self._networks):
            return True
        is_public = found in _UNICAST if isinstance(found, ipaddress.IPv6Address) else found not in _RESERVED
        return found.is_global and not found.is_multicast and is_public


class WebhookSender:
    """Posts messages, signed by Standard Webhooks, without following redirects."""

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
                status, wait = answer.status, self._wait_seconds(answer)
        except (httpcore.TimeoutException, TimeoutError) as error:
            raise NotDelivered(f"no answer within {SEND_SECONDS:g} seconds") from error
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            raise NotDelivered(f"{type(error).__name__}: {error}"[:300]) from error
        if not 200 <= status < 300:
            redirect = "; redirects are not followed" if 300 <= status < 400 else ""
            raise NotDelivered(f"the answer was {status}{redirect}", wait)
        return f"the answer was {status}"

    def _wait_seconds(self, answer: httpcore.Response) -> float:
        headers = {name.lower(): value for name, value in answer.headers}
        asked = headers.get(b"retry-after", b"") if answer.status in _BUSY else b""
        return retry_after.seconds(asked.decode("latin-1"), self._clock.now())


def _inner(address: _Address) -> _Address:
    """Return the IPv4 address behind an IPv6 address of a translation or a tunnel, otherwise the address itself."""
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
