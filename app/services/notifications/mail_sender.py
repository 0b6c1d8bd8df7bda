"""The sender of e-mail."""

from __future__ import annotations

import asyncio
import contextlib
import email.message
import functools
import io
import smtplib
import ssl
import time
from email.utils import formatdate
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from app import clock, printable
from app.domain import notifications, plain
from app.services.notifications.senders import SEND_SECONDS, NotDelivered, mail_lacks

_REPLY_BYTES = 64 * 1024  # Most bytes of a server's replies during one delivery.
_MOST_PARTLY_TAKEN = 1000  # Most mails of which the sender remembers who got them.
_REFUSED_FOR_GOOD = 500  # Lowest code of a reply that another attempt does not change.

_Refused: TypeAlias = dict[str, tuple[int, bytes]]  # Code and text of each refusal, by address.


class MailSender:
    """Sends messages by SMTP, on a thread.

    Args:
        smtp_url: `smtp://[USER:PASSWORD@]HOST[:PORT]`, or `smtps://…` for TLS from the start.
    """

    def __init__(self, smtp_url: str | None, mail_from: str | None) -> None:
        self._url = smtp_url
        self._from = mail_from
        # Who got a mail that the server refused for others, by endpoint and message; the next attempt leaves them out.
        self._taken: dict[tuple[str, str], tuple[str, ...]] = {}

    async def send(self, endpoint: notifications.Endpoint, message: notifications.Message) -> str:
        """Deliver a message."""
        if not self._url or not self._from:
            raise NotDelivered(mail_lacks(self._url, self._from) or "")
        mail, key = _mail(endpoint, message, self._from), (endpoint.endpoint_id, message.message_id)
        taken = self._taken.get(key, ())
        addresses = [address for address in endpoint.to if address not in taken]
        try:
            refused = await asyncio.to_thread(self._deliver, mail, addresses) if addresses else {}
        except smtplib.SMTPAuthenticationError as error:
            # Some servers repeat what they received, which is the password.
            raise NotDelivered(f"the server refused the user or password, with code {error.smtp_code}") from error
        except (smtplib.SMTPException, OSError) as error:
            raise NotDelivered(f"{type(error).__name__}: {error}"[:300]) from error
        taken += tuple(address for address in addresses if address not in refused)
        self._remember(key, taken if refused else ())
        if refused:
            rest = "; the other addresses got the mail" if taken else ""
            is_final = bool(taken) and all(code >= _REFUSED_FOR_GOOD for code, _ in refused.values())
            raise NotDelivered(f"{_refusals(refused)}{rest}", is_final=is_final)
        return "the server took it"

    def _remember(self, key: tuple[str, str], taken: tuple[str, ...]) -> None:
        self._taken.pop(key, None)
        if taken:
            self._taken[key] = taken
        if len(self._taken) > _MOST_PARTLY_TAKEN:
            del self._taken[next(iter(self._taken))]

    def _deliver(self, mail: email.message.EmailMessage, addresses: list[str]) -> _Refused:
        url = urlsplit(self._url or "")
        secure, host = url.scheme == "smtps", url.hostname or ""
        # Without a context of its own, smtplib does not check certificates.
        context = ssl.create_default_context()
        kind = functools.partial(_SecureClient, context=context) if secure else _Client
        # Otherwise smtplib asks the name service for this machine's name, and waits as long as that takes.
        named = (self._from or "").rpartition("@")[2].strip("> ")
        port = url.port or (465 if secure else 587)
        server = kind(host, port, local_hostname=named, timeout=SEND_SECONDS)
        with contextlib.closing(server):
            server.ehlo()
            if not secure and server.has_extn("starttls"):
                server.starttls(context=context)
                secure = True
            if url.username:
                if not secure:
                    raise smtplib.SMTPException("the server offers no TLS, so the password is not sent")
                server.login(unquote(url.username), unquote(url.password or ""))
            try:
                refused: _Refused = server.send_message(mail, to_addrs=addresses)
            except smtplib.SMTPRecipientsRefused as error:
                return error.recipients
            # The server has accepted the mail, whatever it replies to this; another mail would be a repetition.
            with contextlib.suppress(OSError):
                server.quit()
            return refused


class _BoundedReplies:
    """Limits the time and size of all replies of a server together; smtplib limits only the time between two bytes."""

    sock: Any
    file: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        self._ends_at = time.monotonic() + SEND_SECONDS
        self._bytes_left = _REPLY_BYTES
        super().__init__(*args, **options)

    def getreply(self) -> tuple[int, bytes]:
        """Read a reply."""
        if self.file is None:
            self.file = io.BufferedReader(_Replies(self))
        reply: tuple[int, bytes] = super().getreply()  # type: ignore[misc]
        return reply

    def receive(self, buffer: Any) -> int:
        """Receive the next bytes into a buffer, and return their number."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not done within {SEND_SECONDS:g} seconds")
        self.sock.settimeout(left)
        count: int = self.sock.recv_into(buffer)
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise OSError(f"the server says more than {_REPLY_BYTES:,} bytes")
        return count


class _Replies(io.RawIOBase):
    """The replies of a server, as a file."""

    def __init__(self, client: _BoundedReplies) -> None:
        self._client = client

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into a buffer, and return their number."""
        return self._client.receive(buffer)


class _Client(_BoundedReplies, smtplib.SMTP):
    pass


class _SecureClient(_BoundedReplies, smtplib.SMTP_SSL):
    pass


def _refusals(refused: _Refused) -> str:
    texts = (
        f"{address} was refused: {code} {text.decode(errors='replace')}" for address, (code, text) in refused.items()
    )
    return printable.one_line("; ".join(texts))[:300]


def _mail(endpoint: notifications.Endpoint, message: notifications.Message, sender: str) -> email.message.EmailMessage:
    mail = email.message.EmailMessage()
    mail["Subject"] = printable.one_line(f"[Control Room] {message.text}")[:200]
    mail["From"] = sender
    mail["To"] = ", ".join(endpoint.to)
    mail["Date"] = formatdate(clock.instant(message.at).timestamp())
    # A repetition has the same id, by which mail programs recognise and drop it.
    mail["Message-ID"] = f"<{message.message_id}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    run = {"run": message.run_id} if message.has_run else {}
    facts = {**run, "recipe": message.recipe_id, "at": message.at, **message.data}
    lines = [
        f"{name}: {value if isinstance(value, str) else plain.encode(value).decode()}" for name, value in facts.items()
    ]
    mail.set_content("\n".join([message.text, "", *lines]))
    return mail
