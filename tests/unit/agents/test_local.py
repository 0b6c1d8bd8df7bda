"""The local backend with its real model: loading, prompts, stopping, failures."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app import errors
from app.agents import local
from tests.unit.agents import living
from tests.unit.agents.prompts import SLOW, prompt

ROOT = Path(__file__).resolve().parents[3]
CANCEL_SECONDS = 20.0

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(bool(local.missing_packages()), reason=local.lacks() or ""),
]


@pytest.fixture
async def backend() -> AsyncIterator[local.LocalBackend]:
    made = local.LocalBackend("local")
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loaded() -> AsyncIterator[local.LocalBackend]:
    """Return one backend for all tests that only send prompts, because loading the model takes longer than they do."""
    made = local.LocalBackend("local")
    yield made
    await made.close()


speaking_only = pytest.mark.asyncio(loop_scope="module")


async def test_the_model_is_loaded_at_the_first_prompt_and_once(backend: local.LocalBackend) -> None:
    """The first prompts start one model process together, and later prompts use the same process."""
    before = living.children()
    replies = await asyncio.gather(*(backend.prompt(prompt(f"Say the number {n}.")) for n in range(3)))
    loaded = living.children() - before
    await backend.prompt(prompt())

    assert all(reply.text and reply.error is None for reply in replies)
    assert len(loaded) == 1
    assert living.children() - before == loaded
    assert "xllamacpp" not in sys.modules


@speaking_only
async def test_a_reply_counts_its_tokens(loaded: local.LocalBackend) -> None:
    """A reply counts the tokens read and written, and keeps its limit of tokens."""
    reply = await loaded.prompt(prompt("Tell a long story.", max_tokens=7))

    assert reply.usage is not None
    assert reply.usage.output_tokens == 7
    assert (reply.usage.input_tokens or 0) > 5


@pytest.mark.slow
@speaking_only
async def test_the_standing_instruction_reaches_the_model(loaded: local.LocalBackend) -> None:
    """A system text changes the reply of the model."""
    plain = await loaded.prompt(prompt("Who are you?", max_tokens=20))
    told = await loaded.prompt(prompt("Who are you?", system="You are Mira, a harbour pilot.", max_tokens=20))

    assert plain.text != told.text


@pytest.mark.slow
@speaking_only
async def test_a_reply_is_held_to_its_schema(loaded: local.LocalBackend) -> None:
    """A reply fits its schema, even if the prompt asks for another form."""
    schema = {
        "type": "object",
        "properties": {
            "outcome": {"enum": ["approved", "rejected"]},
            "findings": {"type": "array", "items": {"type": "string", "maxLength": 30}, "maxItems": 2},
        },
        "required": ["outcome", "findings"],
        "additionalProperties": False,
    }
    reply = await loaded.prompt(prompt("Write a poem about rain.", reply_schema=schema, max_tokens=None))

    answer = json.loads(reply.text)
    assert answer["outcome"] in ("approved", "rejected")
    assert set(answer) == {"outcome", "findings"}


@pytest.mark.slow
@speaking_only
async def test_a_reply_at_its_token_limit_has_finish_reason_length(loaded: local.LocalBackend) -> None:
    """A JSON reply that reached its limit of tokens has the finish reason `length`."""
    schema = {"type": "object", "properties": {"story": {"type": "string", "minLength": 200}}, "required": ["story"]}
    reply = await loaded.prompt(prompt("Tell a story.", reply_schema=schema, max_tokens=10))

    assert (reply.error, reply.finish, reply.usage and reply.usage.output_tokens) == (None, "length", 10)


@pytest.mark.slow
@speaking_only
async def test_a_schema_that_cannot_be_kept_is_refused(loaded: local.LocalBackend) -> None:
    """A schema that the library does not support is refused, and the next prompt is answered."""
    refused = await loaded.prompt(prompt(reply_schema={"type": "nonsense"}))
    answered = await loaded.prompt(prompt())

    assert refused.error is not None
    assert refused.error.code == "prompt_refused"
    assert answered.error is None


@pytest.mark.parametrize(("words", "max_tokens"), [(9_000, 10), (8_100, 200)])
@speaking_only
async def test_a_prompt_too_long_is_refused_with_its_numbers(
    loaded: local.LocalBackend, words: int, max_tokens: int
) -> None:
    """A prompt is refused with its numbers if it, or the reply after it, exceeds the context."""
    reply = await loaded.prompt(prompt("count " * words, max_tokens=max_tokens))

    assert reply.error is not None
    assert reply.error.code == "prompt_too_long"
    assert reply.error.detail["prompt_tokens"] > words
    assert reply.error.detail["context_tokens"] == local.CONTEXT_TOKENS
    assert str(local.CONTEXT_TOKENS) in reply.error.message


async def test_a_model_that_is_not_there_is_refused(backend: local.LocalBackend) -> None:
    """A prompt for an unknown model is refused; every tier is the local model."""
    with pytest.raises(errors.AgentFailed) as failed:
        await backend.prompt(prompt(model="gpt-9"))

    assert failed.value.code == "unknown_model"
    assert {backend.resolve_model(tier) for tier in ("haiku", "sonnet", "opus")} == {local.MODEL}


@pytest.mark.parametrize(
    ("begun", "text", "after_seconds"),
    [
        pytest.param(False, SLOW, 0.05, id="loading", marks=pytest.mark.slow),
        pytest.param(True, "Tell a long story about a fortress.", 1.0, id="writing"),
    ],
)
async def test_a_cancellation_stops_the_generation(
    backend: local.LocalBackend, begun: bool, text: str, after_seconds: float
) -> None:
    """A cancellation stops loading or generating, and the next prompt is answered."""
    before = living.children()
    if begun:
        await backend.prompt(prompt())
    speaking = asyncio.ensure_future(backend.prompt(prompt(text, max_tokens=4_000)))
    await asyncio.wait([speaking], timeout=after_seconds)
    speaking.cancel()
    done, _ = await asyncio.wait([speaking], timeout=CANCEL_SECONDS)

    assert done
    assert speaking.cancelled()
    assert living.children() == before
    assert (await backend.prompt(prompt())).error is None


@pytest.mark.slow
@speaking_only
async def test_a_cancelled_wait_does_not_disturb_the_open_prompt(loaded: local.LocalBackend) -> None:
    """A prompt cancelled while it waits for its turn does not disturb the one under way."""
    speaking = asyncio.ensure_future(loaded.prompt(prompt("Tell a story.", max_tokens=60)))
    waiting = asyncio.ensure_future(loaded.prompt(prompt("Sing a song.")))
    await asyncio.sleep(0)
    waiting.cancel()
    reply = await speaking

    assert waiting.cancelled()
    assert reply.error is None


@pytest.mark.slow
async def test_a_killed_model_fails_the_prompt_and_comes_back(backend: local.LocalBackend) -> None:
    """A model process killed during a prompt fails that prompt; one killed while idle is replaced."""
    before = living.children()
    await backend.prompt(prompt())
    await _kill_the_model(before)
    replaced = await backend.prompt(prompt())
    (pid,) = living.children() - before
    idle = living.spent(pid)
    speaking = asyncio.ensure_future(backend.prompt(prompt(SLOW, max_tokens=4_000)))
    while living.spent(pid) < idle + 10:
        await asyncio.wait([speaking], timeout=0.01)
    await _kill_the_model(before)

    assert replaced.error is None
    with pytest.raises(errors.AgentFailed) as failed:
        await speaking
    assert failed.value.code == "model_crashed"
    assert (await backend.prompt(prompt())).error is None


async def _kill_the_model(before: set[int]) -> None:
    (pid,) = living.children() - before
    handle = os.pidfd_open(pid)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    await asyncio.to_thread(living.ended_within, handle, 5)
    os.close(handle)


async def test_an_unloadable_model_is_backend_unavailable(
    backend: local.LocalBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A damaged model file is `backend_unavailable` with the library's reason, and leaves no process."""
    damaged = tmp_path / "model.gguf"
    damaged.write_bytes(b"not a model")
    monkeypatch.setattr(local, "_model_file", lambda: damaged)
    before = living.children()
    with pytest.raises(errors.AgentFailed) as failed:
        await backend.prompt(prompt())

    assert failed.value.code == "backend_unavailable"
    assert "Traceback" not in failed.value.detail["stderr"]
    # The library's lines about the file come from a thread of its own, before or after this one.
    assert "RuntimeError: Failed to init server, please check the input params." in failed.value.detail["stderr"]
    assert living.children() == before


SERVICE = """
import asyncio
from app.agents import local
from tests.unit.agents import living, prompts

async def main():
    backend = local.LocalBackend("local")
    await backend.prompt(prompts.prompt())
    print(*living.children(), flush=True)
    await backend.prompt(prompts.prompt(prompts.SLOW, max_tokens=4000))

asyncio.run(main())
"""


@pytest.mark.slow
def test_the_model_dies_with_a_service_that_is_killed() -> None:
    """A SIGKILL of the service while the model works leaves no model process."""
    service = subprocess.Popen([sys.executable, "-c", SERVICE], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    handle = os.pidfd_open(int(service.stdout.readline()))
    service.kill()
    service.communicate()

    assert living.ended_within(handle, 30)
    os.close(handle)


def test_the_model_process_ends_with_its_standard_input() -> None:
    """The end of standard input ends the model process in the middle of an answer."""
    file = str(local._model_file())
    helper = subprocess.Popen(
        [sys.executable, "-m", "app.agents.local_model", str(os.getpid()), file, "4096"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert helper.stdin is not None
    assert helper.stdout is not None
    ready = json.loads(helper.stdout.readline())
    question = {"messages": [{"role": "user", "content": SLOW}], "max_tokens": 4_000, "schema": None}
    question |= {"most_prompt_tokens": 4_096}
    helper.stdin.write(json.dumps(question).encode() + b"\n")
    helper.stdin.close()

    assert ready == {"ready": True}
    assert helper.wait(60) == 0
    helper.stdout.close()
