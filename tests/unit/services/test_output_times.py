"""Times of last outputs in other processes: requested at a bounded rate, and stable for the same output."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.clock import FakeClock
from app.domain import records, runs, states, views
from app.services import output_times

RUN = "run_1"
START = runs.RunStart(
    run_id=RUN,
    recipe_id="r",
    dialect="toy",
    driver_version=1,
    created_at="2026-02-10T14:30:00.000Z",
    recipe={},
    recipe_sha256="",
    session_id="s",
)


class Elsewhere:
    """An engine whose steps other processes perform."""

    elsewhere = True

    def __init__(self) -> None:
        self.asked = 0
        self.at = "2026-02-10T14:31:00.400Z"
        self.silent = False
        self.remote = self

    async def last_outputs(self, run_id: str) -> dict[str, str]:
        """Return the time of the step's last output."""
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        return {"talk": self.at}


def view(kind: str = "command", started_at: str = "2026-02-10T14:30:30.000Z") -> views.RunView:
    """Return a run with an open step."""
    step = views.OpenStep(
        key="talk", attempt=1, kind=kind, place=records.Place(step_id="talk"), facts={}, started_at=started_at
    )
    return views.RunView(start=START, status=states.RunState.RUNNING, open=[step])


def shown(found: views.RunView) -> str | None:
    """Return the time of the step's last output in a view."""
    return found.open[0].output_at


async def test_a_run_is_asked_for_once_in_a_while() -> None:
    """Other processes are asked only every few seconds, and not for runs that only wait."""
    engine, time = Elsewhere(), FakeClock()
    times: Any = output_times.OutputTimes(engine, time)  # type: ignore[arg-type]
    for _ in range(20):
        await times.refresh(RUN)
        first = shown(await times.shown(view()))
    engine.at = "2026-02-10T14:31:00.600Z"
    asked = [engine.asked]
    time.advance(output_times.LOOK_SECONDS)
    await times.refresh(RUN)
    same = shown(await times.shown(view()))
    engine.at = "2026-02-10T14:31:09.900Z"
    time.advance(output_times.LOOK_SECONDS)
    await times.refresh(RUN)
    later = shown(await times.shown(view()))
    asked.append(engine.asked)
    of_a_later_try = shown(await times.shown(view(started_at="2026-02-10T14:32:00.000Z")))
    waiting = shown(await times.shown(view(kind="gate")))

    assert asked == [1, 3]
    assert first == same == "2026-02-10T14:31:00.000Z"
    assert later == "2026-02-10T14:31:09.000Z"
    assert (of_a_later_try, waiting) == (None, None)


async def test_a_server_that_does_not_answer_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process does not answer in time, the client gets the known time."""
    monkeypatch.setattr(output_times, "ANSWER_SECONDS", 0.0)
    engine = Elsewhere()
    engine.silent = True
    found = await output_times.OutputTimes(engine, FakeClock()).shown(view())  # type: ignore[arg-type]

    assert shown(found) is None
