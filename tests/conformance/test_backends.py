"""The basic promises of every backend, tested on each of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from app.agents import local
from app.agents.backends import Backends
from app.agents.configuration import TIERS, BackendConfig, Recording
from app.engine import agent_ports
from tests.unit.agents import around, living
from tests.unit.agents.prompts import SLOW, prompt

CANCEL_SECONDS = 20.0

SCRIPT = {"slow*": {"hang": True}, "brief": "Kael arrives at dawn.", "draft": "Rain on the gate.", "*": "Yes."}

MODEL = [
    pytest.mark.model,
    # `test_agent_backends.py` runs a smoke test of it.
    pytest.mark.slow,
    pytest.mark.skipif(bool(local.missing_packages()), reason=local.lacks() or ""),
]

Making = Callable[[], Backends]


@pytest.fixture(
    params=[
        "script",
        "taped-script",
        pytest.param("local", marks=MODEL),
    ]
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(tmp_path: Path) -> Making:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    configs = [
        BackendConfig(name="local", type="local"),
        BackendConfig(name="script", type="scripted", file=tmp_path / "script.json"),
        BackendConfig(
            name="taped-script", type="scripted", record=Recording(backend="script", file=tmp_path / "script.jsonl")
        ),
    ]
    return lambda: Backends({config.name: config for config in configs}, around.surroundings())


@pytest.fixture
async def backend(make: Making, name: str) -> AsyncIterator[agent_ports.AgentBackend]:
    made = make()
    yield made.get(name)
    await made.close()


def slow(number: int = 0) -> agent_ports.AgentPrompt:
    """Return a prompt that no backend here answers soon."""
    return prompt(SLOW, key=f"slow-{number}", max_tokens=4_000)


def test_a_backend_has_its_configured_name(backend: agent_ports.AgentBackend, name: str) -> None:
    """A backend has the name of its configuration."""
    assert backend.get_name() == name


def test_a_backend_knows_a_model_for_each_tier(backend: agent_ports.AgentBackend) -> None:
    """Each of the three tier names selects a model; any other name is passed on unchanged."""
    assert all(backend.resolve_model(tier) for tier in TIERS)
    assert backend.resolve_model("a-model-of-its-own") == "a-model-of-its-own"


async def test_a_prompt_gets_a_reply(backend: agent_ports.AgentBackend) -> None:
    """A reply has text and no error."""
    reply = await backend.prompt(prompt())

    assert reply.text.strip()
    assert reply.error is None


async def test_the_same_prompt_gets_the_same_reply_after_a_restart(make: Making, name: str) -> None:
    """A repeated step gets the same reply, also in another process of the service."""
    replies = []
    for prompts in (("brief", "draft"), ("draft", "brief")):
        made = make()
        said = {key: await made.get(name).prompt(prompt(f"Tell about the {key}.", key=key)) for key in prompts}
        replies.append((said["brief"].text, said["draft"].text))
        await made.close()

    assert replies[0] == replies[1]
    assert replies[0][0] != replies[0][1]


async def test_prompts_at_once_get_their_own_replies(backend: agent_ports.AgentBackend) -> None:
    """Concurrent prompts get their own replies."""
    asked = [prompt(f"Tell about the {key}.", key=key) for key in ("brief", "draft")]
    together = await asyncio.gather(*(backend.prompt(one) for one in asked))
    apart = [await backend.prompt(one) for one in asked]

    assert [reply.text for reply in together] == [reply.text for reply in apart]


async def test_a_cancellation_stops_the_agent(backend: agent_ports.AgentBackend) -> None:
    """A cancelled prompt ends early and leaves no process, and the next prompt is answered."""
    before = living.children()
    speaking = asyncio.ensure_future(backend.prompt(slow()))
    await asyncio.wait([speaking], timeout=0.3)
    speaking.cancel()
    done, _ = await asyncio.wait([speaking], timeout=CANCEL_SECONDS)

    assert done
    assert speaking.cancelled()
    assert living.children() == before
    assert (await backend.prompt(prompt())).text


async def test_a_timeout_stops_the_agent(backend: agent_ports.AgentBackend) -> None:
    """A caller's time-out stops the agent like a cancellation."""
    before = living.children()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await backend.prompt(slow())

    assert living.children() == before


async def test_cancelling_one_prompt_leaves_the_others(backend: agent_ports.AgentBackend) -> None:
    """A prompt that waits or runs beside a cancelled one gets its reply."""
    cancelled = asyncio.ensure_future(backend.prompt(slow()))
    await asyncio.wait([cancelled], timeout=0.1)
    other = asyncio.ensure_future(backend.prompt(prompt()))
    await asyncio.wait([other], timeout=0.1)
    cancelled.cancel()

    assert (await other).text
    await asyncio.wait([cancelled], timeout=CANCEL_SECONDS)
    assert cancelled.cancelled()


async def test_closing_ends_everything(make: Making, name: str) -> None:
    """After `close` no process runs; an unused backend can be closed as well, and `close` can be repeated."""
    before = living.children()
    unused, used = make(), make()
    unused.get(name)
    await unused.close()
    await used.get(name).prompt(prompt())
    await used.close()
    await used.close()

    assert living.children() == before
