"""Registration of the search attributes: it is repeated when a server refuses or is away."""

from __future__ import annotations

import asyncio
import logging

import pytest

pytest.importorskip("temporalio")

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from app.clock import FakeClock
from app.engine import aio
from app.temporal import registration


async def test_a_refused_registration_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server refuses the attributes twice and then accepts them: they are known, and one warning was logged."""
    answers, time = [False, False, True], FakeClock()
    client = await Client.connect("127.0.0.1:1", lazy=True)

    async def has(made: registration.Registration) -> bool:
        if not answers.pop(0):
            raise RPCError("not allowed", RPCStatusCode.PERMISSION_DENIED, b"")
        return True

    async def until_lost(made: registration.Registration) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(registration.Registration, "_has", has)
    monkeypatch.setattr(registration.Registration, "_until_lost", until_lost)
    made = registration.Registration(client, time)
    with caplog.at_level(logging.WARNING):
        keeping = asyncio.create_task(made.keep())
        for _ in range(50):
            await asyncio.sleep(0)
            time.advance(time.next_wake_seconds() or 0.0)
    await aio.end(keeping)

    assert made.is_known
    assert [record.name for record in caplog.records].count(registration.__name__) == 1
