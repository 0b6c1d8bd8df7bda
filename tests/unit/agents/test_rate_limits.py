"""Rate limits: prompts of all runs to one backend and model begin in order and within its limits."""

from __future__ import annotations

import asyncio
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.agents import backends, rate_limits
from app.agents.configuration import BackendConfig
from app.engine import live_steps
from app.storage import project_file
from app.storage.disk import os_disk
from tests.unit.agents import around, http_service
from tests.unit.agents.prompts import prompt


class Line:
    """Prompts to one model, and the order in which they begin."""

    def __init__(self, **limits: int) -> None:
        self.clock = clock.FakeClock()
        config = BackendConfig(name="svc", type="openai", **limits)  # type: ignore[arg-type]
        self.limit = rate_limits.RateLimits({"svc": config}, self.clock).of("svc", "m-2")
        self.begun: list[int] = []
        self.steps: list[live_steps.LiveStep] = []
        self._over: dict[int, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(self, count: int) -> None:
        """Send prompts, one after the other."""
        for _ in range(count):
            number = len(self.steps)
            self.steps.append(live_steps.LiveStep())
            self._over[number] = asyncio.Event()
            self._tasks.append(asyncio.create_task(self._prompt(number)))
            await self.settle()

    async def end(self, number: int) -> None:
        """Complete a prompt."""
        self._over[number].set()
        await self.settle()

    async def pass_by(self, seconds: float) -> None:
        """Advance the time."""
        self.clock.advance(seconds)
        await self.settle()

    async def close(self) -> None:
        """Cancel all prompts."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def settle(self) -> None:
        """Let every task run that can."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def _prompt(self, number: int) -> None:
        async with self.limit.turn(self.steps[number]):
            self.begun.append(number)
            await self._over[number].wait()


async def test_so_many_a_minute() -> None:
    """The third prompt of a minute waits until the first one is a minute old, and its step shows its place."""
    line = Line(max_per_minute=2)
    await line.ask(1)
    await line.pass_by(20)
    await line.ask(3)
    before, shown = list(line.begun), [step.queue for step in line.steps]
    places = [line.limit.place_of(line.steps[number]) for number in (2, 3)]
    named = line.limit.limit
    await line.pass_by(40)
    middle = list(line.begun)
    await line.pass_by(20)

    assert (before, middle, line.begun) == ([0, 1], [0, 1, 2], [0, 1, 2, 3])
    assert shown == [None, None, line.limit, line.limit]
    assert (places, named) == ([(1, 2), (2, 2)], "max_per_minute: 2")
    await line.close()


async def test_so_many_at_a_time() -> None:
    """A prompt beyond `max_parallel` begins when another one ends, in order, without cancelled ones."""
    line = Line(max_parallel=2)
    await line.ask(5)
    before, named = list(line.begun), line.limit.limit
    line._tasks[2].cancel()
    await line.end(1)
    after = list(line.begun)
    await line.end(0)

    assert (before, after, line.begun) == ([0, 1], [0, 1, 3], [0, 1, 3, 4])
    assert named == "max_parallel: 2"
    await line.close()


async def test_a_pause_holds_all() -> None:
    """After a pause no prompt begins until its end; a shorter pause does not shorten it."""
    line = Line()
    line.limit.pause(30)
    line.limit.pause(1)
    await line.ask(2)
    until = line.limit.until
    await line.pass_by(29)
    before = list(line.begun)
    await line.pass_by(1)

    assert until is not None
    assert clock.stamp(until) == "2026-02-10T14:30:30.000Z"
    assert (before, line.begun, line.limit.until) == ([], [0, 1], None)
    await line.close()


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_retry_after_holds_the_prompts_of_other_runs(kind: str) -> None:
    """A 429 to one run's prompt delays another run's prompt to the same model, and not one to another model."""
    if util.find_spec(kind) is None:
        pytest.skip(f"the package {kind} is not installed")
    says: Any = http_service.completion if kind == "openai" else http_service.message
    # Longer than the packages wait themselves, so that the first prompt fails at once.
    refusal = http_service.said_json(
        {"error": {"message": "No.", "type": "rate_limit_error"}}, 429, retry_after="600", x_should_retry="false"
    )
    time = clock.FakeClock()
    async with http_service.service(refusal, says("Yes.")) as running:
        base = "/v1" if kind == "openai" else ""
        config = BackendConfig(name="svc", type=kind, base_url=running.url + base, models={"sonnet": "m-2"})
        all_backends = backends.Backends({"svc": config}, around.surroundings(environ={}, time=time))

        async def ask(model: str | None) -> str:
            wanted = prompt(model=model)
            async with all_backends.turn("svc", wanted):
                return (await all_backends.get("svc").prompt(wanted)).text

        with pytest.raises(errors.AgentFailed, match="429"):
            await asyncio.wait_for(ask("m-2"), 30)
        waiting = asyncio.create_task(ask(None))
        other = await asyncio.wait_for(ask("m-3"), 30)
        time.advance(599)
        await asyncio.sleep(0)
        held = not waiting.done()
        time.advance(1)
        text = await asyncio.wait_for(waiting, 30)
        await all_backends.close()

    assert (held, text, other) == (True, "Yes.", "Yes.")
    assert [asked.body["model"] for asked in running.asked if asked.body] == ["m-2", "m-3", "m-2"]


def limits(file: project_file.ProjectFile, time: clock.Clock) -> rate_limits.RateLimits:
    """Return the limits of a process that has just started."""
    made = rate_limits.RateLimits({}, time, file)
    made.reload()
    return made


async def test_a_pause_outlasts_the_process(tmp_path: Path) -> None:
    """The pauses of each model survive a restart of the process, and expired ones are removed."""
    time, file = clock.FakeClock(), project_file.ProjectFile(os_disk.OsDisk(tmp_path), "rate_limits.json")
    first = limits(file, time)
    first.pause("svc", "m-2", 600)
    first.pause("svc", None, 60)
    await first.close()
    time.advance(61)
    second = limits(file, time)
    second.pause("svc", "m-3", 30)
    await second.close()
    third = limits(file, time)
    until = {model: third.of("svc", model).until for model in ("m-2", "m-3", None)}

    assert {model: at and clock.stamp(at)[11:19] for model, at in until.items()} == {
        "m-2": "14:40:00",
        "m-3": "14:31:31",
        None: None,
    }


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[", "is not JSON"),
        ("[]", "$.pauses must be a list"),
        ('{"pauses": {"until": "now"}}', "$.pauses must be a list"),
        ('{"pauses": [1]}', "$.pauses[0] must be an object"),
        ('{"pauses": [{}]}', "$.pauses[0].backend must be"),
        ('{"pauses": [{"backend": "svc", "model": [], "until": "x"}]}', "$.pauses[0].model must be"),
        ('{"pauses": [{"backend": "svc", "model": null, "until": "x"}]}', "$.pauses[0].until must be"),
        ('{"pauses": [{"backend": "svc", "model": null, "until": 5}]}', "$.pauses[0].until must be"),
    ],
)
async def test_a_broken_file_of_pauses_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, place: str
) -> None:
    """A broken file of pauses does not change the pauses in force, and is logged once with the place of the flaw."""
    (tmp_path / "rate_limits.json").write_text(text)
    time, file = clock.FakeClock(), project_file.ProjectFile(os_disk.OsDisk(tmp_path), "rate_limits.json")
    first = limits(file, time)
    first.reload()
    before = first.of("svc", "m-2").until
    first.pause("svc", "m-2", 30)
    await first.close()
    first.reload()
    (tmp_path / "rate_limits.json").write_text(text + " ")
    first.reload()

    assert before is None
    assert first.of("svc", "m-2").until is not None
    assert [place in line for line in caplog.messages] == [True, True]


async def test_a_changed_file_of_pauses_counts_at_once(tmp_path: Path) -> None:
    """A pause of another process delays prompts here, and prompts begin once a person removes the pause."""
    time, file = clock.FakeClock(), project_file.ProjectFile(os_disk.OsDisk(tmp_path), "rate_limits.json")
    here, there = limits(file, time), limits(file, time)
    here.pause("svc", "m-2", 600)
    await here.close()
    there.pause("svc", "m-3", 60)
    await there.close()
    here.reload()
    shared = [here.of("svc", model).until is not None for model in ("m-2", "m-3")]
    waits = asyncio.create_task(here.of("svc", "m-2").begin(live_steps.LiveStep()))
    await asyncio.sleep(0)
    (tmp_path / "rate_limits.json").unlink()
    time.advance(4)
    await asyncio.sleep(0)
    early = waits.done()
    time.advance(1)
    await asyncio.wait_for(waits, 60)

    assert (shared, early) == ([True, True], False)


async def test_a_pause_reaches_an_hour_at_most(tmp_path: Path) -> None:
    """An instant in the far future in the file delays prompts for one hour at most."""
    time, file = clock.FakeClock(), project_file.ProjectFile(os_disk.OsDisk(tmp_path), "rate_limits.json")
    file.write({"pauses": [{"backend": "svc", "model": "m-2", "until": "2099-01-01T00:00:00Z"}]})
    until = limits(file, time).of("svc", "m-2").until

    assert until is not None
    assert clock.stamp(until) == "2026-02-10T15:30:00.000Z"


async def test_a_refused_prompt_knows_when_it_is_sent_again() -> None:
    """A step whose prompt a service refused knows when it is sent again; steps of other prompts do not."""
    limits = rate_limits.RateLimits({}, clock.FakeClock())
    refused, other = live_steps.LiveStep(), live_steps.LiveStep()
    async with limits.of("svc", "m-2").turn(refused):
        limits.pause("svc", "m-2", 30)
        until = refused.refused_until
    limits.pause("svc", "m-2", 60)

    assert until is not None
    assert clock.stamp(until) == "2026-02-10T14:30:30.000Z"
    assert (refused.refused_until, other.refused_until) == (None, None)
