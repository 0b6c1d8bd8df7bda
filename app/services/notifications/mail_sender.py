"""The sender of e-mail."""

from __future__ import annotations

import asyncio
import email.message
import functools
import smtplib
import ssl
from email.utils import formatdate
from urllib.parse import unquote, urlsplit

from app import clock, printable
from app.domain import notifications, plain
from app.services.notifications.senders import SEND_SECONDS, NotDelivered


class MailSender:
    """Send messages by SMTP, in a thread.

    Args:
        smtp_url: `smtp://[USER:PASSWORD@]HOST[:PORT]`, or `smtps://…` for TLS from the start.
    """

    def __init__(self, smtp_url: str | None, mail_from: str | None) -> None:
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
        # Else smtplib asks the name service for this machine's name, for as long as that takes to answer.
        named = (self._from or "").rpartition("@")[2].strip("> ")
        port = url.port or (465 if secure else 587)
        with kind(host, port, local_hostname=named, timeout=SEND_SECONDS) as server:
            server.ehlo()
            if not secure and server.has_extn("starttls"):
                server.starttls(context=context)
                secure = True
            if url.username:
                if not secure:
                    raise smtplib.SMTPException("the server offers no TLS, so the password is not sent")
                server.login(unquote(url.username), unquote(url.password or ""))
            server.send_message(mail)


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
