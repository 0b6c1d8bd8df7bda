"""Leading: a service does unattended work while it leads, and again after it has lost the lead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from app.bootstrap import leading
from app.bootstrap.engines import Store
from app.bootstrap.unattended import Unattended
from tests.integration import scheduled, served
from tests.integration.project import Project


class _Unattended:
    """Unattended work that records its starts and stops."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    def start(self) -> None:
        """Start, unless started already."""
        if self.orders[-1:] != ["start"]:
            self.orders.append("start")

    def check_triggers(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Stop."""
        self.orders.append("stop")


def _answers(*given: bool | OSError) -> tuple[Callable[[], Awaitable[bool]], asyncio.Event]:
    left, over = list(given), asyncio.Event()

    async def ask() -> bool:
        if not left:
            over.set()
            return True
        answer = left.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    return ask, over


async def test_a_service_leads_again_after_it_has_lost_the_lead(monkeypatch: pytest.MonkeyPatch):
    """Unattended work stops if another service leads, but not if this is unknown, and starts with the next lead."""
    monkeypatch.setattr(leading, "LOOK_SECONDS", 0.0)
    unattended = _Unattended()
    ask, over = _answers(False, True, OSError("away"), True, False, OSError("away"), False, True)
    following = asyncio.create_task(leading._follow(ask, unattended))  # type: ignore[arg-type]
    async with asyncio.timeout(30):
        await over.wait()
    following.cancel()

    assert unattended.orders == ["start", "stop", "start"]


async def test_triggers_start_runs_again_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Triggers that stopped with the lead start each occurrence once after they start again."""
    caught: list[Unattended] = []
    lead = leading.lead

    def note(store: Store, unattended: Unattended, closing: AsyncExitStack) -> None:
        caught.append(unattended)
        lead(store, unattended, closing)

    monkeypatch.setattr(leading, "lead", note)
    async with scheduled.in_process(Project(tmp_path)) as service:
        added = await service.add(schedule={"every_seconds": 60})
        await service.advance(60)
        await service.results(added["trigger_id"], 1)
        (unattended,) = caught
        await unattended.stop()
        sleeps = service.probes.count("triggers.idle")
        unattended.start()
        async with asyncio.timeout(served.WAIT_SECONDS):
            while service.probes.count("triggers.idle") == sleeps:
                await served.moment()
        service.time.advance(60)
        results = await service.results(added["trigger_id"], 2)

    assert [each["result"] for each in results] == ["started", "started"]
