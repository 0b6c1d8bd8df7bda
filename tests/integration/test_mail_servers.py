"""E-mail: the replies of a mail server are bounded in time and size, and cause no repeated mails or shown passwords."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from app.domain import notifications
from app.services.notifications import mail_sender, senders
from tests.integration import endpoints

AT = "2026-01-01T00:00:00Z"
ENDPOINT = notifications.Endpoint(
    endpoint_id="end_1", name="", channel="email", to=("a@example.org",), created_at=AT, since=AT
)
MESSAGE = notifications.Message(
    message_id="msg_1", kind="done", run_id="20260101T000000Z-aaaaaa", recipe_id="quick", text="It is done.", at=AT
)

Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def _sender(converse: Conversation) -> AsyncIterator[mail_sender.MailSender]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            await converse(reader, writer)

    async with endpoints.serving(serve) as port:
        yield mail_sender.MailSender(f"smtp://127.0.0.1:{port}", "room@example.org")


async def _endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"220-and more\r\n" * 100)
        await writer.drain()


@pytest.mark.parametrize(
    ("url", "sender", "named"),
    [
        ("smtp://127.0.0.1", None, "CONTROL_ROOM_MAIL_FROM is not set"),
        (None, "room@example.org", "CONTROL_ROOM_SMTP_URL is not set"),
        (None, None, "CONTROL_ROOM_SMTP_URL and CONTROL_ROOM_MAIL_FROM are not set"),
    ],
)
async def test_a_missing_setting_is_named_alone(url: str | None, sender: str | None, named: str) -> None:
    """A mail that lacks a setting names the settings that are missing, and no other."""
    with pytest.raises(senders.NotDelivered) as refused:
        await mail_sender.MailSender(url, sender).send(ENDPOINT, MESSAGE)

    assert str(refused.value) == named


async def test_an_endless_reply_is_not_read_to_its_end() -> None:
    """A server that never ends its reply does not fill the memory."""
    async with _sender(_endless) as sender:
        with pytest.raises(senders.NotDelivered, match="more than 65,536 bytes"):
            await sender.send(ENDPOINT, MESSAGE)


async def test_a_reply_that_comes_in_drops_ends_with_the_time_of_a_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply whose bytes come one by one ends at the time limit of a try."""
    monkeypatch.setattr(mail_sender, "SEND_SECONDS", 0.2)

    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"2")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with _sender(drips) as sender:
        with pytest.raises(senders.NotDelivered, match=r"not done within 0\.2 seconds|timed out"):
            await sender.send(ENDPOINT, MESSAGE)


@pytest.mark.parametrize("farewell", [b"421 busy\r\n", b"", b"what?\r\n"])
async def test_a_mail_that_the_server_took_counts_as_delivered(farewell: bytes) -> None:
    """A mail that the server took counts as delivered even if an error follows: a repetition would be a second mail."""
    async with _sender(_taking(farewell)) as sender:
        assert await sender.send(ENDPOINT, MESSAGE) == "the server took it"


@pytest.mark.parametrize(
    ("reply", "is_final", "again"),
    [
        (b"550 no such user", True, b"550 no such user"),
        (b"450 try later", False, b"250 fine"),
    ],
)
async def test_a_mail_that_some_addresses_did_not_get_is_not_delivered(
    reply: bytes, is_final: bool, again: bytes
) -> None:
    """The refused address is named, and only it gets the next try, which a refusal for good makes useless."""
    replies, asked = {b"B@EXAMPLE.ORG": reply}, list[bytes]()
    endpoint = dataclasses.replace(ENDPOINT, to=("a@example.org", "b@example.org"))
    async with _sender(_taking(b"221 bye\r\n", replies, asked)) as sender:
        with pytest.raises(senders.NotDelivered) as refused:
            await sender.send(endpoint, MESSAGE)
        first, replies[b"B@EXAMPLE.ORG"] = asked.copy(), again
        asked.clear()
        if not is_final:
            assert await sender.send(endpoint, MESSAGE) == "the server took it"

    assert str(refused.value) == f"b@example.org was refused: {reply.decode()}; the other addresses got the mail"
    assert (refused.value.is_final, len(first)) == (is_final, 2)
    assert asked == ([] if is_final else [b"B@EXAMPLE.ORG"])


async def test_a_mail_that_no_address_got_is_tried_again_for_all() -> None:
    """A refusal of all addresses names each of them, and is not final."""
    endpoint = dataclasses.replace(ENDPOINT, to=("a@example.org", "b@example.org"))
    replies = {b"A@EXAMPLE.ORG": b"550 unknown", b"B@EXAMPLE.ORG": b"550 unknown"}
    async with _sender(_taking(b"221 bye\r\n", replies, [])) as sender:
        with pytest.raises(senders.NotDelivered) as refused:
            await sender.send(endpoint, MESSAGE)

    assert str(refused.value) == "a@example.org was refused: 550 unknown; b@example.org was refused: 550 unknown"
    assert not refused.value.is_final


def _taking(
    farewell: bytes, replies: Mapping[bytes, bytes] | None = None, asked: list[bytes] | None = None
) -> Conversation:
    """Return a server that takes mails.

    Args:
        replies: Replies to addresses that it does not accept.
        asked: Receives each address.
    """

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while command := (await reader.readline()).upper():
            if command.startswith(b"QUIT"):
                writer.write(farewell)
                return
            address = command.partition(b"<")[2].partition(b">")[0]
            if command.startswith(b"RCPT") and asked is not None:
                asked.append(address)
            fine = (replies or {}).get(address, b"250 fine") + b"\r\n"
            writer.write(b"354 go on\r\n" if command.startswith(b"DATA") else fine)
            if command.startswith(b"DATA"):
                await reader.readuntil(b"\r\n.\r\n")
                writer.write(b"250 taken\r\n")

    return take
