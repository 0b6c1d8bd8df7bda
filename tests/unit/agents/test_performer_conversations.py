"""Performing agent calls in conversations: one prompt at a time, and none in what somebody else has."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from app import clock, errors
from app.agents import performer
from app.agents.backends import Backends
from app.agents.performer import AgentPerformer
from app.domain import operations
from app.engine import ports
from app.engine.conversation_claims import ConversationClaims
from app.storage.agent_sessions import MemoryAgentSessions
from app.storage.memory_store import MemoryStore
from tests.conformance import store_harness
from tests.unit.agents import around
from tests.unit.calls import Harness

TALK, OTHER_TALK = "a-talk", "another-talk"


class Counting(Backends):
    """One backend, which answers when it is told to, and counts who speaks at the same time."""

    def __init__(self) -> None:
        super().__init__({}, around.surroundings())
        self.prompts: list[ports.AgentPrompt] = []
        self.speaking = 0
        self.most = 0
        self.free = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    def resolve_model(self, tier: str) -> str | None:
        """Return that it has one model."""
        return None

    def get(self, name: str) -> Any:
        """Return itself."""
        return self

    async def prompt(self, prompt: ports.AgentPrompt) -> ports.AgentReply:
        """Answer once it is told to."""
        self.prompts.append(prompt)
        self.speaking += 1
        self.most = max(self.most, self.speaking)
        self.begun.release()
        try:
            await self.free.wait()
        finally:
            self.speaking -= 1
        return ports.AgentReply(text="Yes.")


class Stage:
    """Runs that speak through one backend, in one process or in two."""

    def __init__(self) -> None:
        self.backend = Counting()
        self.sessions = MemoryAgentSessions()
        self.store = MemoryStore(clock=clock.FakeClock())

    def performer(self, sessions: MemoryAgentSessions | None = None) -> AgentPerformer:
        """Return a performer, that of another process if it has sessions of its own."""
        return AgentPerformer(self.backend, ConversationClaims(sessions or self.sessions, self.store, {}))


def call(run_id: str, talk: str | None = TALK, key: str = "fix", **facts: Any) -> ports.Call:
    """Return one try of a prompt in a conversation."""
    speech = operations.AgentCall(agent_id="a", backend="b", prompt=("Go on.",), agent_session_id=talk, **facts)
    made = Harness().call(speech, key=key)
    return dataclasses.replace(made, run=dataclasses.replace(made.run, run_id=run_id))


@pytest.fixture
async def stage() -> Any:
    """Give a stage with two unfinished runs."""
    made = Stage()
    await made.store.start()
    for run_id in ("run-a", "run-b"):
        await made.store.create(store_harness.start(run_id))
    yield made
    await made.store.close()


async def test_prompts_of_a_run_in_one_conversation_take_turns(stage: Stage) -> None:
    """Branches of a run that speak in one conversation wait for one another, and all are answered."""
    asking = stage.performer()
    tasks = [asyncio.create_task(asking.perform(call("run-a", key=f"branch{number}"))) for number in range(3)]
    await stage.backend.begun.acquire()
    stage.backend.free.set()
    await asyncio.gather(*tasks)

    assert (len(stage.backend.prompts), stage.backend.most) == (3, 1)


async def test_other_conversations_are_not_held_up(stage: Stage) -> None:
    """Prompts in different conversations, and prompts without one, are in flight together."""
    asking = stage.performer()
    calls = [call("run-a"), call("run-a", OTHER_TALK), call("run-a", None), call("run-a", None)]
    tasks = [asyncio.create_task(asking.perform(each)) for each in calls]
    for _ in calls:
        await stage.backend.begun.acquire()
    stage.backend.free.set()
    await asyncio.gather(*tasks)

    assert stage.backend.most == 4


@pytest.mark.parametrize("in_another_process", [False, True])
async def test_a_conversation_that_another_run_speaks_in_is_not_waited_for(
    stage: Stage, in_another_process: bool
) -> None:
    """A prompt fails at once if another run's is in flight there, and names that run."""
    first = asyncio.create_task(stage.performer().perform(call("run-a")))
    await stage.backend.begun.acquire()
    other = MemoryAgentSessions(stage.sessions.disk) if in_another_process else None
    with pytest.raises(errors.AgentFailed) as failed:
        await stage.performer(other).perform(call("run-b"))
    stage.backend.free.set()
    await first

    assert (failed.value.code, failed.value.detail["holder"]) == ("session_locked", "run-a")
    assert len(stage.backend.prompts) == 1


async def test_a_conversation_stays_with_its_run_between_prompts(stage: Stage) -> None:
    """Between two prompts of an unfinished run nobody else speaks; after its end the next one may."""
    stage.backend.free.set()
    asking = stage.performer()
    await asking.perform(call("run-a"))
    with pytest.raises(errors.AgentFailed) as failed:
        await asking.perform(call("run-b"))
    await asking.perform(call("run-a", key="fix#2"))
    log = await stage.store.open("run-a")
    await store_harness.end(log)
    await log.close()
    await asking.perform(call("run-b"))

    assert failed.value.code == "session_locked"
    assert [prompt.run_id for prompt in stage.backend.prompts] == ["run-a", "run-a", "run-b"]
    assert await stage.sessions.claimant(TALK) == "run-b"


async def test_who_is_refused_is_in_nobodys_way(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that may not speak does not hold the conversation for a moment, so that the run that has it can."""
    await stage.sessions.claim(TALK, "run-a")
    held: list[str] = []
    hold = stage.sessions.hold

    def noted(talk: str, holder: str) -> Any:
        held.append(holder)
        return hold(talk, holder)

    monkeypatch.setattr(stage.sessions, "hold", noted)
    stage.backend.free.set()
    with pytest.raises(errors.AgentFailed):
        await stage.performer().perform(call("run-b"))
    await stage.performer().perform(call("run-a"))

    assert held == ["run-a"]


async def test_whose_a_conversation_is_stands_before_its_first_prompt(stage: Stage) -> None:
    """A crash in the first prompt leaves on disk which run speaks there, and nobody holds it."""
    task = asyncio.create_task(stage.performer().perform(call("run-a")))
    await stage.backend.begun.acquire()
    left = stage.sessions.crashed(lose_unsynced=True)
    task.cancel()
    await asyncio.wait([task])

    assert await left.claimant(TALK) == "run-a"


async def test_a_cancelled_prompt_lets_go(stage: Stage) -> None:
    """A prompt that is cut off holds nothing any more, and one that waits for its turn is cut off too."""
    asking = stage.performer()
    tasks = [asyncio.create_task(asking.perform(call("run-a"))) for _ in range(2)]
    await stage.backend.begun.acquire()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    stage.backend.free.set()
    async with stage.sessions.hold(TALK, "somebody"):
        pass

    assert stage.backend.speaking == 0
    assert len(stage.backend.prompts) == 1


async def test_waiting_for_a_turn_counts_towards_the_time_out(stage: Stage) -> None:
    """A prompt that does not get its turn in time fails as one that is not answered in time."""
    asking = stage.performer()
    first = asyncio.create_task(asking.perform(call("run-a")))
    await stage.backend.begun.acquire()
    with pytest.raises(errors.AgentFailed) as failed:
        await asking.perform(call("run-a", timeout_seconds=0.05))
    stage.backend.free.set()
    await first

    assert failed.value.code == "agent_timeout"
    assert len(stage.backend.prompts) == 1


async def test_a_prompt_without_a_limit_gets_a_day(stage: Stage) -> None:
    """Recipe steps may take twenty-four hours (agent-recipes, 13.2)."""
    stage.backend.free.set()
    await stage.performer().perform(call("run-a"))

    assert stage.backend.prompts[0].timeout_seconds == performer.DEFAULT_TIMEOUT_SECONDS == 86_400


async def test_a_damaged_claim_fails_the_step(stage: Stage) -> None:
    """Who has a conversation that is not known must not be guessed."""
    await stage.sessions.claim(TALK, "run-a")
    stage.sessions.disk.write(f"sessions/agents/{TALK}/claim.json", b"{", sync=True)
    with pytest.raises(errors.AgentFailed) as failed:
        await stage.performer().perform(call("run-a"))

    assert failed.value.code == "agent_session_damaged"
    assert stage.backend.prompts == []
