"""Silent prompts: a backend that writes nothing for `idle_seconds` is ended, and one that only waits is not."""

from __future__ import annotations

import asyncio
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.agents import backends
from app.agents.configuration import BackendConfig
from app.engine import live_steps
from tests.unit.agents import around, http_service
from tests.unit.agents.prompts import prompt

KINDS = ["openai", "anthropic"]


def serving(kind: str, url: str, **given: Any) -> backends.Backends:
    """Return backends whose `svc` is this service."""
    if util.find_spec(kind) is None:
        pytest.skip(f"the package {kind} is not installed")
    base = "/v1" if kind == "openai" else ""
    config = BackendConfig(name="svc", type=kind, base_url=url + base, models={"sonnet": "m"}, **given)
    return backends.Backends({"svc": config}, around.surroundings(environ={}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own", [None, 0.2])
async def test_a_service_that_falls_silent(kind: str, own: float | None) -> None:
    """A service that stops within a reply is ended at the idle limit; the prompt's limit wins over the backend's."""
    says: Any = http_service.completion if kind == "openai" else http_service.message
    half = http_service.Said(body=b": x\n\n", headers={"content-type": "text/event-stream"}, hang=True)
    async with http_service.service(says("Yes."), half) as running:
        there = serving(kind, running.url, idle_seconds=0.2 if own is None else 3600)
        # The first prompt loads the package.
        await there.ask("svc", prompt(idle_seconds=60))
        with pytest.raises(errors.AgentFailed) as raised:
            await asyncio.wait_for(there.ask("svc", prompt(idle_seconds=own)), 30)
        await asyncio.wait_for(running.left.wait(), 30)
        await there.close()

    assert (raised.value.code, raised.value.detail) == ("agent_idle", {"idle_seconds": 0.2})
    assert len(running.asked) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_pause_that_the_service_wants_is_not_silence(kind: str) -> None:
    """A `Retry-After` longer than the idle limit does not end the prompt, and the prompt is answered."""
    says: Any = http_service.completion if kind == "openai" else http_service.message
    refusal = http_service.said_json({"error": {"message": "No.", "type": "rate_limit_error"}}, 429, retry_after="1")
    async with http_service.service(says("Yes."), refusal, says("Yes.")) as running:
        there = serving(kind, running.url, idle_seconds=0.8)
        await there.ask("svc", prompt(idle_seconds=60))
        reply = await asyncio.wait_for(there.ask("svc", prompt()), 30)
        await there.close()

    assert (reply.text, len(running.asked)) == ("Yes.", 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "failed",
    [
        [http_service.Said(dropped=True)] * 2,
        [http_service.said_json({"error": {"message": "No.", "type": "api_error"}}, 503, retry_after="1")],
    ],
    ids=["dropped", "503"],
)
async def test_the_time_until_the_next_try_is_not_silence(kind: str, failed: list[http_service.Said]) -> None:
    """A prompt whose tries fail is answered although the time between two tries is longer than the idle limit."""
    says: Any = http_service.completion if kind == "openai" else http_service.message
    async with http_service.service(says("Yes."), *failed, says("Yes.")) as running:
        there, step = serving(kind, running.url, idle_seconds=0.6), live_steps.LiveStep()
        await there.ask("svc", prompt(idle_seconds=60))
        reply = await asyncio.wait_for(there.ask("svc", prompt(live=step)), 30)
        await there.close()

    assert (reply.text, len(running.asked)) == ("Yes.", len(failed) + 2)
    assert not step.between_tries


@pytest.mark.parametrize("kind", KINDS)
async def test_each_part_of_an_answer_is_a_sign_of_life(kind: str) -> None:
    """Each part of a service's answer reaches the step as a sign of life."""
    says: Any = http_service.completion if kind == "openai" else http_service.message
    heard: list[str] = []
    async with http_service.service(says("Yes.")) as running:
        there = serving(kind, running.url, idle_seconds=5)
        await asyncio.wait_for(there.ask("svc", prompt(hear=heard.append)), 30)
        await there.close()

    assert heard
    assert "".join(heard) == ("" if kind == "openai" else "Yes.")


async def test_a_scripted_reply_that_takes_long(tmp_path: Path) -> None:
    """The idle limit also applies to backends that are neither programs nor services."""
    script = tmp_path / "script.json"
    script.write_text('[{"text": "Late.", "delay_seconds": 600}]')
    config = BackendConfig(name="said", type="scripted", file=script, idle_seconds=0.1)
    there = backends.Backends({"said": config}, around.surroundings())
    with pytest.raises(errors.AgentFailed) as raised:
        await asyncio.wait_for(there.ask("said", prompt()), 30)

    assert raised.value.code == "agent_idle"
    assert raised.value.message == "The backend said wrote nothing for 0.1 seconds."


async def test_a_place_in_a_queue_is_not_silence(tmp_path: Path) -> None:
    """A prompt that waits in a queue is not ended by the idle limit; after its turn has come, it is."""
    script = tmp_path / "script.json"
    script.write_text('[{"text": "Late.", "delay_seconds": 600}]')
    config = BackendConfig(name="said", type="scripted", file=script, idle_seconds=0.1)
    there, step = backends.Backends({"said": config}, around.surroundings()), live_steps.LiveStep()
    step.queue = live_steps.BackendQueue("said")
    asking = asyncio.ensure_future(there.ask("said", prompt(live=step)))
    await asyncio.wait((asking,), timeout=0.5)
    waited = not asking.done()
    step.queue = None
    with pytest.raises(errors.AgentFailed, match="wrote nothing"):
        await asyncio.wait_for(asking, 30)

    assert waited


def test_every_type_of_backend_takes_the_limit() -> None:
    """Every type of backend accepts the idle limit of the settings."""
    known = {name: BackendConfig(name=name, type=name) for name in backends.TYPES}

    assert {config.idle_seconds for config in backends.with_idle_seconds(known, 60).values()} == {60}
