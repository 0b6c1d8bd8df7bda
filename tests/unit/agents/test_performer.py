"""The agent performer: the prompt that reaches a backend, the logs, and the replies that count as success."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.agents.backends import Backends
from app.agents.configuration import BackendConfig
from app.agents.performer import MAX_PROMPT_BYTES, AgentPerformer
from app.domain import operations, records, states
from app.engine import agent_ports
from tests.unit.agents import around
from tests.unit.calls import Harness


class Noting(Backends):
    """Backends that record the last prompt before they pass it on."""

    noted: agent_ports.AgentPrompt

    def get(self, name: str) -> agent_ports.AgentBackend:
        """Return the backend of that name, wrapped to record prompts."""
        return _Watched(super().get(name), self)


class _Watched:
    def __init__(self, backend: agent_ports.AgentBackend, notes: Noting) -> None:
        self._backend = backend
        self._notes = notes
        self.get_name = backend.get_name
        self.close = backend.close
        self.resolve_model = backend.resolve_model

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        self._notes.noted = prompt
        return await self._backend.prompt(prompt)


class Keeping(Backends):
    """One backend that writes with `retry_until_space`, and then answers or hangs."""

    def __init__(self, *, answers: bool, reply: agent_ports.AgentReply | None = None) -> None:
        super().__init__({}, around.surroundings())
        self.answers = answers
        self.reply = reply or agent_ports.AgentReply(text="Yes.")
        self.kept = asyncio.Event()

    def resolve_model(self, tier: str) -> str | None:
        """Return None: the backend has one model."""
        return None

    def get(self, name: str) -> Any:
        """Return itself."""
        return self

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        """Write, then answer or hang."""

        async def write() -> None:
            """Write no data."""

        await prompt.retry_until_space(write)
        self.kept.set()
        if not self.answers:
            await asyncio.get_running_loop().create_future()
        return self.reply


class Hours:
    """The time of the loop, which the test can advance."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._passed = 0.0
        patch.setattr(self._loop, "time", lambda: self._time() + self._passed)

    async def pass_by(self, hours: float) -> None:
        """Advance the time, and let the tasks that wait for it run."""
        self._passed += hours * 3600
        await asyncio.sleep(0.001)


Backing = Callable[[Mapping[str, Any] | str], Noting]


@pytest.fixture
def backing(tmp_path: Path) -> Backing:
    def build(script: Mapping[str, Any] | str) -> Noting:
        path = tmp_path / "script.json"
        path.write_text(json.dumps({"*": script}))
        config = BackendConfig(name="script", type="scripted", file=path, models={"haiku": "small-1"})
        return Noting({"script": config}, around.surroundings())

    return build


def performing(backends: Backends) -> AgentPerformer:
    """Return a performer in a project where no other run has a conversation."""
    return AgentPerformer(backends, around.conversations())


def speech(**given: Any) -> operations.AgentCall:
    """Return an agent call, with usual values for fields that are not given."""
    usual: dict[str, Any] = {"agent_id": "planner-001", "backend": "script", "prompt": ("Write a brief.",)}
    return operations.AgentCall(**(usual | given))


async def test_a_reply_is_the_output(backing: Backing) -> None:
    """The output of a step is the reply's text, with usage and conversation; prompt and reply are logged."""
    harness = Harness()
    said = {"text": "Kael arrives.", "usage": {"input_tokens": 3, "output_tokens": 2}, "agent_session_id": "s1"}
    call = harness.call(speech(system="You plan."), key="brief", attempt=2)
    result = await performing(backing(said)).perform(call)

    assert result == records.Result(
        output="Kael arrives.", usage=records.Usage(input_tokens=3, output_tokens=2), agent_session_id="s1"
    )
    assert harness.logs == {
        "brief.2.prompt.md": "You plan.\n\n---\n\nWrite a brief.",
        "brief.2.reply.md": "Kael arrives.",
    }


async def test_every_part_of_a_call_reaches_the_backend(backing: Backing) -> None:
    """Instruction, tier, schema, limits and identity reach the backend; the prompt's parts are joined, blobs read."""
    harness, backends = Harness(working_dir=Path("/work")), backing("ok")
    operation = speech(
        prompt=("Read:\n", harness.blob("the scene"), "\n", harness.blob({"b": 1, "a": None}), "."),
        system="You plan.",
        model="haiku",
        reply_schema={"type": "object"},
        max_tokens=50,
        timeout_seconds=30.0,
        tools=True,
    )
    await performing(backends).perform(harness.call(operation))
    noted = backends.noted

    assert noted.text == 'Read:\nthe scene\n{"a":null,"b":1}.'
    assert (noted.system, noted.model, noted.tools, noted.max_tokens) == ("You plan.", "small-1", True, 50)
    assert (noted.timeout_seconds, noted.reply_schema) == (30.0, {"type": "object"})
    assert (str(noted.working_dir), noted.key, noted.attempt) == ("/work", "brief", 1)


@pytest.mark.parametrize("text", ["\ud800", "Fine.\udfff", "\udc00\ud83d"])
async def test_a_reply_with_half_a_character_is_a_failure(text: str) -> None:
    """A reply with half a surrogate pair fails the step, and its usage is counted."""
    reply = agent_ports.AgentReply(text=text, usage=records.Usage(input_tokens=9))
    result = await performing(Keeping(answers=True, reply=reply)).perform(Harness().call(speech()))

    assert result.error is not None
    assert (result.error.code, result.output) == ("lone_surrogate", None)
    assert result.usage == records.Usage(input_tokens=9)


@pytest.mark.parametrize("text", ["", " ", "\n\t\n", "\u200b\u00a0", "```\n```", "**  **"])
async def test_a_blank_reply_is_a_failure(backing: Backing, text: str) -> None:
    """An empty or blank reply fails the step, and its usage is counted."""
    result = await performing(backing({"text": text, "usage": {"input_tokens": 9}})).perform(Harness().call(speech()))

    assert result.status is states.StepState.FAILED
    assert result.error is not None
    assert result.error.code == "empty_reply"
    assert result.output is None
    assert result.usage == records.Usage(input_tokens=9, output_tokens=None)


@pytest.mark.parametrize(
    "text",
    [
        "I cannot help with that.",
        "I'm sorry, but I can't assist with that request.",
        "Unfortunately, I am unable to write this scene.",
        "As an AI language model, I cannot create such content.",
        "**Sorry, I won’t continue with this.**",
    ],
)
async def test_a_refusal_is_a_failure(backing: Backing, text: str) -> None:
    """A refusal fails the step with the agent's words in the message; in a conversation it is an output."""
    failed = await performing(backing(text)).perform(Harness().call(speech()))
    answer = await performing(backing(text)).perform(Harness().call(speech(agent_session_id="ses_1")))

    assert failed.error is not None
    assert (failed.error.code, failed.output) == ("reply_refused", None)
    assert failed.error.message.endswith(text)
    assert answer.output == text


@pytest.mark.parametrize(
    "text",
    [
        "I cannot help but wonder why she came.",
        "“I cannot help with that,” she said.",
        "I cannot find a contradiction.",
        "I cannot write down every flaw, but pacing is the first.",
        "She told him: I cannot do that.",
        "I cannot do this, she thought. " + " ".join(f"Boat {number} lay still on the mud." for number in range(20)),
    ],
)
async def test_words_like_those_of_a_refusal_are_a_reply(backing: Backing, text: str) -> None:
    """Words that resemble a refusal within a story or a report are an output."""
    result = await performing(backing(text)).perform(Harness().call(speech()))

    assert result.output == text


async def test_a_blank_reply_may_be_one(backing: Backing) -> None:
    """A call that allows blank replies or abstentions gets them as output."""
    performer = performing(backing({"text": " "}))
    blank = await performer.perform(Harness().call(speech(may_be_blank=True)))
    abstained = await performing(backing("ABSTAIN: no")).perform(Harness().call(speech(may_abstain=True)))

    assert (blank.status, blank.output) == (states.StepState.DONE, " ")
    assert (abstained.status, abstained.output) == (states.StepState.DONE, "ABSTAIN: no")


async def test_a_conversation_reaches_the_backend_and_comes_back(backing: Backing) -> None:
    """The backend gets the conversation's id, its state and the run's id, and the result names the conversation."""
    backends = backing("ok")
    operation = speech(agent_session_id="ses_1", session_created=True)
    result = await performing(backends).perform(Harness().call(operation, attempt=3))
    noted = backends.noted

    assert (noted.agent_session_id, noted.session_created, noted.attempt) == ("ses_1", True, 3)
    assert noted.env == {"CONTROL_ROOM_RUN_ID": "20260210T143000Z-abc123", "CONTROL_ROOM_DEPTH": "0"}
    assert result.agent_session_id == "ses_1"


async def test_an_error_of_the_backend_is_a_failure(backing: Backing) -> None:
    """An error from the backend fails the step with that error."""
    said = {"error": {"code": "overloaded", "message": "Too many.", "detail": {"status": 529}}}
    result = await performing(backing(said)).perform(Harness().call(speech()))

    assert result.status is states.StepState.FAILED
    assert result.error == records.StepError(code="overloaded", message="Too many.", detail={"status": 529})


async def test_an_agent_that_never_answers_times_out(backing: Backing) -> None:
    """A backend that exceeds the operation's time-out fails the step."""
    operation = speech(timeout_seconds=0.05)
    with pytest.raises(errors.AgentFailed) as failed:
        await performing(backing({"hang": True})).perform(Harness().call(operation))

    assert failed.value.code == "agent_timeout"
    assert failed.value.detail == {"timeout_seconds": 0.05}


@pytest.mark.parametrize("answers", [True, False])
async def test_waiting_for_room_takes_nothing_of_the_time(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time-out stops while the backend waits for disk space, and continues afterwards."""
    backends, hours = Keeping(answers=answers), Hours(monkeypatch)

    async def patient(write: Callable[[], Any]) -> Any:
        await hours.pass_by(10)
        return await write()

    call = dataclasses.replace(Harness().call(speech(timeout_seconds=3600.0)), retry_until_space=patient)
    asked = asyncio.ensure_future(performing(backends).perform(call))
    await asyncio.wait([asked, asyncio.ensure_future(backends.kept.wait())], return_when=asyncio.FIRST_COMPLETED)
    await hours.pass_by(0.9)
    in_time = not asked.done()
    await hours.pass_by(0.2)
    await asyncio.wait([asked])

    if answers:
        assert asked.result().output == "Yes."
    else:
        assert in_time
        assert getattr(asked.exception(), "code", None) == "agent_timeout"


async def test_without_a_limit_a_day_is_enough(backing: Backing) -> None:
    """A step without a time-out has one of twenty-four hours."""
    backends = backing("ok")
    await performing(backends).perform(Harness().call(speech()))

    assert backends.noted.timeout_seconds == 86_400


async def test_a_cancellation_reaches_the_backend(backing: Backing) -> None:
    """A cancelled step is cancelled at once and has no result."""
    harness = Harness()
    asked = asyncio.ensure_future(performing(backing({"hang": True})).perform(harness.call(speech())))
    await asyncio.wait([asked], timeout=0.05)
    asked.cancel()
    await asyncio.wait([asked], timeout=60)

    assert asked.cancelled()
    assert "brief.1.prompt.md" in harness.logs


async def test_a_prompt_over_the_limit_is_refused_unread(backing: Backing) -> None:
    """Parts of more than 16 MiB together are refused by their sizes, before a blob is read."""
    harness = Harness()
    blob = records.BlobRef(sha256="absent", size_bytes=MAX_PROMPT_BYTES, text=True)
    operation = speech(prompt=("x", {"blob": blob.to_json()}))
    with pytest.raises(errors.AgentFailed) as failed:
        await performing(backing("ok")).perform(harness.call(operation))

    assert failed.value.code == "prompt_too_large"
    assert failed.value.detail == {"size_bytes": MAX_PROMPT_BYTES + 1, "limit_bytes": MAX_PROMPT_BYTES}
    assert harness.logs == {}


async def test_an_unknown_backend_fails_the_step(backing: Backing) -> None:
    """A backend that is no longer configured fails the step, and the error names the nearest one."""
    with pytest.raises(errors.AgentFailed) as failed:
        await performing(backing("ok")).perform(Harness().call(speech(backend="scrip")))

    assert failed.value.code == "unknown_backend"
    assert "did you mean script?" in failed.value.message


@pytest.mark.parametrize("reply", ["**ABSTAIN:** not mine", "ABSTAIN — not mine", "```\nABSTAIN: not mine\n```"])
async def test_marks_around_an_abstention_make_it_no_reply(backing: Backing, reply: str) -> None:
    """An abstention in bold, in a code block or with a dash fails the step with its reason."""
    result = await performing(backing(reply)).perform(Harness().call(speech()))

    assert result.error is not None
    assert (result.error.code, result.error.message) == ("abstained", "The agent abstained: not mine")


CUT = {"text": "Kael comes to the", "finish": "length", "usage": {"input_tokens": 3, "output_tokens": 4}}


async def test_a_reply_that_reached_its_longest_fails(backing: Backing) -> None:
    """A cut-off reply fails the step with its limit and usage, and the result has the finish reason."""
    harness = Harness()
    result = await performing(backing(CUT)).perform(harness.call(speech(max_tokens=4), key="draft"))

    assert result.error is not None
    assert (result.error.code, result.output, result.finish) == ("reply_cut_off", None, "length")
    assert result.error.detail == {"max_tokens": 4, "output_tokens": 4, "size_bytes": 17}
    assert (result.usage, harness.logs["draft.1.reply.md"]) == (
        records.Usage(input_tokens=3, output_tokens=4),
        "Kael comes to the",
    )


async def test_a_reply_that_reached_its_longest_is_kept_where_it_may(backing: Backing) -> None:
    """With `on_cut_off: keep` a cut-off reply is the output with its finish reason, unless it has a schema."""
    kept = await performing(backing(CUT)).perform(Harness().call(speech(on_cut_off="keep")))
    bound = await performing(backing(CUT)).perform(Harness().call(speech(on_cut_off="keep", reply_schema={})))

    assert (kept.output, kept.error, kept.finish) == ("Kael comes to the", None, "length")
    assert bound.error is not None
    assert bound.error.code == "reply_cut_off"


@pytest.mark.parametrize(
    "said",
    ["You plan the work of others, and nothing else.", "The rain falls on the town. " * 30],
    ids=["echo", "loop"],
)
async def test_a_degenerate_reply_fails(backing: Backing, said: str) -> None:
    """An echo of the role and an endless repetition fail the step, even with `on_cut_off: keep`."""
    call = speech(system="You plan the work of others, and nothing else.", on_cut_off="keep")
    result = await performing(backing({"text": said, "finish": "length"})).perform(Harness().call(call))

    assert result.error is not None
    assert (result.error.code, result.output) == ("reply_degenerate", None)


async def test_an_unreported_price_is_null(backing: Backing) -> None:
    """Usage without a reported price has the price null, and a sum adds only the reported prices."""
    said = {"text": "Yes.", "usage": {"input_tokens": 3, "output_tokens": 2}}
    result = await performing(backing(said)).perform(Harness().call(speech()))

    assert result.usage is not None
    assert result.usage.to_json()["cost_usd"] is None
    assert result.usage.plus(result.usage).cost_usd is None
    assert result.usage.plus(records.Usage(cost_usd=0.25)).cost_usd == 0.25
