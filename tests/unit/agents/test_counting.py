"""Counting: the usage of single turns, where a program reports sums of the whole conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.domain.records import Usage
from app.engine.agent_ports import AgentReply
from tests.unit.agents.conftest import Speaking
from tests.unit.agents.stub_programs import Stub
from tests.unit.agents.test_programs_running import OURS, asked

CALL: dict[str, Any] = {"input_tokens": 101, "output_tokens": 23}


def claude(turns: int, *, calls: int = 1, **given: Any) -> dict[str, Any]:
    """Return Claude Code's answer after some equal turns: tokens of the turn, and sums of all other values."""
    models = {"opus": {"inputTokens": 96 * turns, "cacheReadInputTokens": 5 * turns, "outputTokens": 23 * turns}}
    usage = {"input_tokens": 101 * calls, "output_tokens": 23 * calls}
    result = {"type": "result", "is_error": False, "result": "PONG", "session_id": OURS, "usage": usage}
    return {"stdout": [{**result, "modelUsage": models, "total_cost_usd": 0.1 * turns, **given}]}


def codex(turns: int) -> dict[str, Any]:
    """Return Codex's answer after some equal turns."""
    usage = {"input_tokens": 101 * turns, "output_tokens": 23 * turns}
    said = {"type": "item.completed", "item": {"type": "agent_message", "text": "PONG"}}
    return {"stdout": [{"type": "thread.started", "thread_id": OURS}, said, {"type": "turn.completed", "usage": usage}]}


FAILED = {
    "stdout": [{"type": "thread.started", "thread_id": OURS}, {"type": "turn.failed", "error": {"message": "bad"}}],
    "exit_code": 1,
}


class Talk:
    """A conversation with a program that continues over several runs."""

    def __init__(self, speaking: Speaking, work: Path) -> None:
        self._speaking = speaking
        self._work = work

    async def turn(self, program: str, key: str, **given: Any) -> AgentReply:
        """Send a prompt through a new backend, as after a restart of the service."""
        first: dict[str, Any] = {"agent_session_id": OURS, "session_created": key != "one"}
        return await self._speaking(program).prompt(asked(self._work, key=key, **(first | given)))


@pytest.fixture
def claude_stub(tmp_path: Path) -> Stub:
    return Stub(tmp_path / "bin", "claude")


@pytest.fixture
def codex_stub(tmp_path: Path) -> Stub:
    return Stub(tmp_path / "bin", "codex")


@pytest.fixture
def talk(speaking: Speaking, work: Path) -> Talk:
    return Talk(speaking, work)


async def test_equal_turns_take_the_same(talk: Talk, claude_stub: Stub) -> None:
    """Equal turns have equal usage, although the reported sums grow."""
    claude_stub.answer(*map(claude, (1, 2, 3)))
    told = [(await talk.turn("claude-code", key)).usage for key in ("one", "two", "three")]

    assert told == [Usage(**CALL, cost_usd=0.1)] * 3


async def test_a_failed_turns_usage_is_counted_with_the_next(talk: Talk, codex_stub: Stub) -> None:
    """The usage of a failed turn is null, and the next turn includes it."""
    codex_stub.answer(codex(1), FAILED, codex(3))
    told = [(await talk.turn("codex", key, attempt=n)).usage for n, key in enumerate(("one", "two", "two"), start=1)]

    assert told == [Usage(**CALL), None, Usage(input_tokens=202, output_tokens=46)]


async def test_a_reply_without_a_line_is_paid_by_the_next(talk: Talk, codex_stub: Stub) -> None:
    """After a crash before a reply's line is recorded, the retry counts both; after the line, only itself."""
    codex_stub.answer(codex(1), codex(2), codex(3), codex(4))
    await talk.turn("codex", "one")
    await talk.turn("codex", "two", line_attempt=1)
    lost = await talk.turn("codex", "two", line_attempt=2)
    kept = await talk.turn("codex", "two", line_attempt=3, recorded=(2,))

    assert (lost.usage, kept.usage) == (Usage(input_tokens=202, output_tokens=46), Usage(**CALL))


async def test_another_run_does_not_pay_for_it(talk: Talk, codex_stub: Stub) -> None:
    """Usage that one run did not record is not counted for the next run in the conversation."""
    codex_stub.answer(codex(1), codex(2))
    await talk.turn("codex", "one")
    reply = await talk.turn("codex", "one", run_id="another", session_created=True)

    assert reply.usage == Usage(**CALL)


async def test_the_first_turn_of_a_foreign_conversation_has_no_usage(talk: Talk, codex_stub: Stub) -> None:
    """The first turn in a conversation that was begun elsewhere has no usage, because the sums before are unknown."""
    codex_stub.answer(codex(7), codex(8))
    told = [(await talk.turn("codex", key)).usage for key in ("two", "three")]

    assert told == [None, Usage(**CALL)]


async def test_the_first_turn_of_a_foreign_conversation_has_its_tokens(talk: Talk, claude_stub: Stub) -> None:
    """In a conversation begun elsewhere, the first turn has the tokens reported for the turn, but no price."""
    claude_stub.answer(claude(7), claude(8))
    told = [(await talk.turn("claude-code", key)).usage for key in ("two", "three")]

    assert told == [Usage(**CALL), Usage(**CALL, cost_usd=0.1)]


async def test_a_program_that_counts_by_process_is_believed(talk: Talk, claude_stub: Stub) -> None:
    """Sums that begin again with each process are taken unchanged, not as a difference."""
    claude_stub.answer(claude(1), claude(1), claude(2, calls=2), claude(1))
    told = [(await talk.turn("claude-code", key)).usage for key in ("one", "two", "three", "four")]

    assert [usage and (usage.input_tokens, usage.cost_usd) for usage in told] == [
        (101, 0.1),
        (101, 0.1),
        (202, 0.2),
        (101, 0.1),
    ]
