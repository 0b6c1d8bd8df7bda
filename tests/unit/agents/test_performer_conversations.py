"""Agent calls in conversations: one prompt at a time, and none in the conversation of another run."""

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
from app.engine import agent_ports, ports
from app.engine.conversation_claims import ConversationClaims
from app.storage.agent_sessions import MemoryAgentSessions
from app.storage.memory_store import MemoryStore
from tests.conformance import store_harness
from tests.unit.agents import around
from tests.unit.calls import Harness

TALK, OTHER_TALK = "a-talk", "another-talk"


class Counting(Backends):
    """One backend that answers once the test allows it, and counts simultaneous prompts."""

    def __init__(self) -> None:
        super().__init__({}, around.surroundings())
        self.prompts: list[agent_ports.AgentPrompt] = []
        self.speaking = 0
        self.most = 0
        self.free = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    def resolve_model(self, tier: str) -> str | None:
        """Return None: the backend has one model."""
        return None

    def get(self, name: str) -> Any:
        """Return itself."""
        return self

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        """Answer once the test allows it."""
        self.prompts.append(prompt)
        self.speaking += 1
        self.most = max(self.most, self.speaking)
        self.begun.release()
        try:
            await self.free.wait()
        finally:
            self.speaking -= 1
        return agent_ports.AgentReply(text="Yes.")


class Stage:
    """Runs that use one backend, in one process or in two."""

    def __init__(self) -> None:
        self.backend = Counting()
        self.sessions = MemoryAgentSessions()
        self.store = MemoryStore(clock=clock.FakeClock())

    def performer(self, sessions: MemoryAgentSessions | None = None) -> AgentPerformer:
        """Return a performer; with sessions of its own, that of another process."""
        return AgentPerformer(self.backend, ConversationClaims(sessions or self.sessions, self.store, {}))


def call(run_id: str, talk: str | None = TALK, key: str = "fix", **facts: Any) -> ports.Call:
    """Return one try of a prompt in a conversation."""
    speech = operations.AgentCall(agent_id="a", backend="b", prompt=("Go on.",), agent_session_id=talk, **facts)
    made = Harness().call(speech, key=key)
    return dataclasses.replace(made, run=dataclasses.replace(made.run, run_id=run_id))


@pytest.fixture
async def stage() -> Any:
    """Return a stage with two unfinished runs."""
    made = Stage()
    await made.store.start()
    for run_id in ("run-a", "run-b"):
        await made.store.create(store_harness.start(run_id))
    yield made
    await made.store.close()


async def test_prompts_of_a_run_in_one_conversation_take_turns(stage: Stage) -> None:
    """Prompts of one run in one conversation are sent one after another, and all are answered."""
    asking = stage.performer()
    tasks = [asyncio.create_task(asking.perform(call("run-a", key=f"branch{number}"))) for number in range(3)]
    await stage.backend.begun.acquire()
    stage.backend.free.set()
    await asyncio.gather(*tasks)

    assert (len(stage.backend.prompts), stage.backend.most) == (3, 1)


async def test_other_conversations_are_not_held_up(stage: Stage) -> None:
    """Prompts in different conversations, and prompts without one, are sent at the same time."""
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
    """A prompt fails at once if another run's prompt is under way in the conversation, and the error names that run."""
    first = asyncio.create_task(stage.performer().perform(call("run-a")))
    await stage.backend.begun.acquire()
    other = MemoryAgentSessions(stage.sessions.disk) if in_another_process else None
    with pytest.raises(errors.AgentFailed) as failed:
        await stage.performer(other).perform(call("run-b"))
    stage.backend.free.set()
    await first

    assert (failed.value.code, failed.value.detail["holder"]) == ("session_locked", "run-a")
    assert "run-a, and is free once that has ended" in failed.value.message
    assert len(stage.backend.prompts) == 1


async def test_a_conversation_stays_with_its_run_between_prompts(stage: Stage) -> None:
    """A conversation stays with its run between prompts; after the run's end another run may use it."""
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


async def test_a_refused_run_never_takes_the_conversations_lock(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is refused a conversation never takes its lock."""
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


async def test_a_claim_is_written_before_the_first_prompt(stage: Stage) -> None:
    """The claim of a conversation is on disk before its first prompt, so that it survives a crash."""
    task = asyncio.create_task(stage.performer().perform(call("run-a")))
    await stage.backend.begun.acquire()
    left = stage.sessions.crashed(lose_unsynced=True)
    task.cancel()
    await asyncio.wait([task])

    assert await left.claimant(TALK) == "run-a"


async def test_a_cancelled_prompt_lets_go(stage: Stage) -> None:
    """Cancelled prompts, under way or waiting for their turn, release the conversation."""
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
    """Waiting for a turn in a conversation counts towards the prompt's time-out."""
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
    """A prompt without a time-out gets one of twenty-four hours, as agent-recipes 13.2 allows."""
    stage.backend.free.set()
    await stage.performer().perform(call("run-a"))

    assert stage.backend.prompts[0].timeout_seconds == performer.DEFAULT_TIMEOUT_SECONDS == 86_400


async def test_a_damaged_claim_fails_the_step(stage: Stage) -> None:
    """A damaged claim fails the step, and no prompt is sent."""
    await stage.sessions.claim(TALK, "run-a")
    stage.sessions.disk.write(f"sessions/agents/{TALK}/claim.json", b"{", sync=True)
    with pytest.raises(errors.AgentFailed) as failed:
        await stage.performer().perform(call("run-a"))

    assert failed.value.code == "agent_session_damaged"
    assert stage.backend.prompts == []
