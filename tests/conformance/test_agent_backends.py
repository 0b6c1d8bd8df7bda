"""The promises of every backend about conversations, tools, models, costs and failures, tested on each of them.

The real programs connect to a fake model, in a network namespace that has only loopback where that is possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from app import errors
from app.agents import local
from tests.agent_programs import installed
from tests.agent_programs.fake_model.asked import Asked
from tests.agent_programs.fake_model.replies import OUTPUT_TOKENS, Fault, Hang, Reply, Shell
from tests.conformance import agent_harness
from tests.conformance.agent_harness import AgentHarness

LOCAL_SMOKES = ("test_a_new_conversation_is_begun", "test_a_reply_reports_tokens_and_price")
"""Tests that always run on the local model, which takes a second each time."""

CANCEL_SECONDS = 30.0
SLACK_SECONDS = 15.0
Case = TypeVar("Case", bound=Callable[..., Any])

MEGABYTE = "".join(f"line {n:07} of it\n" for n in range(50_000))
HANGING = 'python3 -c \'import threading; open("begun.txt", "w").close(); threading.Event().wait(600)\''


def needs(ability: Callable[[agent_harness.Abilities], Any]) -> Callable[[Case], Case]:
    """Run a test only on backends with the ability that it needs."""

    def marked(case: Case) -> Case:
        case.needs = ability  # type: ignore[attr-defined]
        return case

    return marked


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on every backend with the abilities that it needs."""
    needed = getattr(metafunc.function, "needs", lambda _: True)
    plans = [(name, plan) for name, plan in agent_harness.PLANS.items() if needed(plan.abilities)]
    is_smoke = metafunc.function.__name__ in LOCAL_SMOKES
    parameters = [pytest.param(name, marks=_marks(name, plan, is_smoke)) for name, plan in plans]
    metafunc.parametrize("harness", parameters, indirect=True)


def _marks(name: str, plan: agent_harness.Plan, is_smoke: bool) -> list[pytest.MarkDecorator]:
    if name == "local":
        installed_only = pytest.mark.skipif(bool(local.missing_packages()), reason=local.lacks() or "")
        return [pytest.mark.model, installed_only, *([] if is_smoke else [pytest.mark.slow])]
    if plan.program is None:
        return []
    found = installed.find(plan.program)
    absent = found if isinstance(found, str) else ""
    return [pytest.mark.programs, pytest.mark.skipif(bool(absent), reason=absent), pytest.mark.timeout(300)]


@pytest.fixture
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgentHarness]:
    async with agent_harness.built(agent_harness.PLANS[request.param], tmp_path) as made:
        yield made


@dataclass(frozen=True)
class Outcome:
    """The result of a prompt: a reply or the code of an error, and the time that it took."""

    text: str
    code: str | None
    session: str | None
    usage: Any
    seconds: float
    fault: str


async def ask(harness: AgentHarness, text: str = "Say PONG.", **given: Any) -> Outcome:
    """Send a prompt, and return a raised error in the same form as an error within a reply."""
    started = time.monotonic()
    try:
        reply = await harness.backend.prompt(harness.prompt(text, **given))
    except errors.AgentFailed as failed:
        return Outcome("", failed.code, None, None, time.monotonic() - started, f"{failed} {failed.detail}")
    error = reply.error
    code, told = (None, "") if error is None else (error.code, f"{error.message} {error.detail}")
    return Outcome(reply.text, code, reply.agent_session_id, reply.usage, time.monotonic() - started, told)


def new_session() -> dict[str, Any]:
    """Return the fields of a prompt that begins a conversation."""
    return {"agent_session_id": str(uuid.uuid4()), "session_created": False}


async def test_a_new_conversation_is_begun(harness: AgentHarness) -> None:
    """The first prompt of a conversation reaches the model once, and the reply names the conversation."""
    if harness.abilities.is_scripted:
        harness.say(Reply(text="PONG-ONE"))
    session = new_session()

    outcome = await ask(harness, "Say the word QUINCE.", **session, max_tokens=12)

    assert outcome.code is None, outcome.fault
    assert outcome.text.strip()
    if harness.abilities.is_scripted:
        assert outcome.text.strip() == "PONG-ONE"
    if harness.model.asked:
        assert len(harness.model.asked) == 1
        assert "QUINCE" in harness.model.asked[0].said
    assert bool(outcome.session) == harness.abilities.tells_session
    assert harness.workers() == {}


async def test_a_prompt_without_a_past_needs_no_conversation(harness: AgentHarness) -> None:
    """The backend answers a prompt without a session."""
    if harness.abilities.is_scripted:
        harness.say(Reply(text="PONG-ONE"))

    outcome = await ask(harness, max_tokens=12)

    assert outcome.code is None, outcome.fault
    assert outcome.text.strip()


@needs(lambda able: able.remembers)
async def test_a_conversation_continues_after_a_restart(harness: AgentHarness) -> None:
    """After a restart of the service, a resumed conversation still contains its earlier turns."""
    harness.say(Reply(text="NOTED-ONE"), Reply(text="NOTED-TWO"), Reply(text="NOTED-THREE"))
    session = new_session()
    first = await ask(harness, "My word is QUINCE.", **session)
    await harness.restart()
    session["session_created"] = True
    second = await ask(harness, "My other word is MEDLAR.", **session, key="review")
    third = await ask(harness, "Which words are mine?", **session, key="commit")

    assert [one.code for one in (first, second, third)] == [None] * 3, (first.fault, second.fault, third.fault)
    assert first.session == second.session == third.session
    if harness.model.asked:
        assert [one.text.strip() for one in (first, second, third)] == ["NOTED-ONE", "NOTED-TWO", "NOTED-THREE"]
        heard = harness.model.asked[-1].everything
        assert all(word in heard for word in ("QUINCE", "NOTED-ONE", "MEDLAR", "NOTED-TWO", "Which words"))


@needs(lambda able: able.remembers and able.is_scripted)
async def test_two_conversations_are_kept_apart(harness: AgentHarness) -> None:
    """Two conversations in the same folder do not see each other's turns."""
    harness.say(Reply(text="NOTED-ONE"), Reply(text="NOTED-TWO"))
    await ask(harness, "My word is QUINCE.", **new_session())
    outcome = await ask(harness, "Which word is mine?", **new_session())

    assert outcome.code is None, outcome.fault
    assert all("QUINCE" not in one.everything for one in harness.model.asked[1:])


@needs(lambda able: able.remembers and able.is_scripted)
async def test_a_first_prompt_that_was_cut_off_is_sent_again(harness: AgentHarness) -> None:
    """A conversation whose first prompt was cancelled can begin again under the same id."""
    session = new_session()
    harness.say(Hang())
    cut = asyncio.ensure_future(harness.backend.prompt(harness.prompt("My word is QUINCE.", **session)))
    await _until(lambda: harness.model.asked) if not isinstance(harness, agent_harness.ScriptedAgentHarness) else None
    cut.cancel()
    await asyncio.wait([cut], timeout=CANCEL_SECONDS)
    assert cut.cancelled()
    await harness.restart()
    harness.say(Reply(text="NOTED-ONE"))

    outcome = await ask(harness, "My word is QUINCE.", **session, attempt=2)

    assert outcome.code is None, outcome.fault
    assert outcome.text.strip() == "NOTED-ONE"


@needs(lambda able: able.remembers and able.is_scripted)
async def test_a_first_prompt_that_was_answered_unrecorded_is_sent_again(harness: AgentHarness) -> None:
    """A first prompt that was answered, but not recorded, can be sent again under the same id."""
    session = new_session()
    harness.say(Reply(text="NOTED-ONE"), Reply(text="NOTED-TWO"))
    first = await ask(harness, "My word is QUINCE.", **session)
    await harness.restart()

    outcome = await ask(harness, "My word is QUINCE.", **session, attempt=2)

    assert first.code is None, first.fault
    assert outcome.code is None, outcome.fault
    assert outcome.text.strip() in ("NOTED-TWO", "NOTED-ONE")


@pytest.mark.parametrize("failing", [1, 2])
@needs(lambda able: able.remembers and able.is_scripted)
async def test_a_prompt_that_failed_is_sent_again(harness: AgentHarness, failing: int) -> None:
    """After its first or second prompt fails, a conversation continues with all its earlier turns."""
    session = new_session()
    for number, word in enumerate(("QUINCE", "MEDLAR", "SORREL"), start=1):
        key, attempt = f"step-{number}", 1
        if number == failing:
            harness.say(Fault(status=400, message="that cannot be"))
            failed = await ask(harness, f"My word is {word}.", **session, key=key)
            await harness.restart()
            attempt = 2
        harness.say(Reply(text=f"NOTED-{word}"))
        again = {"attempt": attempt, "line_attempt": attempt, "recorded": tuple(range(1, attempt))}
        outcome = await ask(harness, f"My word is {word}.", **session, key=key, **again)
        assert outcome.code is None, outcome.fault
        assert outcome.text.strip() == f"NOTED-{word}"
        session["session_created"] = True

    assert failed.code is not None
    if harness.model.asked:
        heard = harness.model.asked[-1].everything
        assert all(word in heard for word in ("QUINCE", "NOTED-QUINCE", "MEDLAR", "NOTED-MEDLAR", "SORREL"))


@needs(lambda able: able.breaks_loops)
async def test_a_turn_that_a_program_broke_off_has_failed(harness: AgentHarness) -> None:
    """A program that ends because its model is in a loop returns an error with the reason, and can be asked again."""
    session = new_session()
    harness.say(Reply(tool=Shell(command="echo made > made.txt")))
    broken = await ask(harness, "My word is QUINCE.", **session)
    harness.say(Reply(text="NOTED"))
    again = await ask(harness, "My word is QUINCE.", **session, attempt=2)

    assert (broken.code, broken.text) == ("agent_error", "")
    assert "loop" in broken.fault.lower()
    assert (again.code, again.text.strip()) == (None, "NOTED"), again.fault


@needs(lambda able: able.remembers and able.is_program)
async def test_a_conversation_outlives_a_kill(harness: AgentHarness) -> None:
    """After a program is killed during the second prompt, the conversation continues from the first one."""
    session = new_session()
    harness.say(Reply(text="NOTED-ONE"))
    first = await ask(harness, "My word is QUINCE.", **session)
    session["session_created"] = True
    harness.say(Hang())
    asked = len(harness.model.asked)
    cut = asyncio.ensure_future(ask(harness, "My other word is MEDLAR.", **session, key="review"))
    await _until(lambda: len(harness.model.asked) > asked)
    for pid in harness.workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    killed = await cut
    await harness.restart()
    harness.say(Reply(text="NOTED-TWO"))
    again = await ask(harness, "My other word is MEDLAR.", **session, key="review", attempt=2)

    assert first.code is None, first.fault
    assert killed.code is not None
    assert (again.code, again.text.strip()) == (None, "NOTED-TWO"), again.fault
    assert all(word in harness.model.asked[-1].everything for word in ("QUINCE", "NOTED-ONE", "MEDLAR"))


@needs(lambda able: able.remembers and able.is_asked)
async def test_an_unknown_conversation_is_an_error(harness: AgentHarness) -> None:
    """Resuming an unknown conversation returns an error with a code of its own, and does not ask the model."""
    harness.say(Reply(text="PONG"))

    outcome = await ask(harness, agent_session_id=str(uuid.uuid4()), session_created=True)

    assert outcome.code in harness.abilities.unknown, outcome
    assert harness.model.asked == []


@needs(lambda able: able.acts)
async def test_a_tool_really_acts_in_the_working_folder(harness: AgentHarness) -> None:
    """A tool that the model calls writes a file in the prompt's folder, and the reply follows it."""
    harness.say(Reply(text="I act.", tool=Shell(command="echo made > made.txt; pwd")), Reply(text="It is done."))

    outcome = await ask(harness, "Make the file.", **new_session())

    assert outcome.code is None, outcome.fault
    assert (harness.workspace / "made.txt").read_text() == "made\n"
    assert outcome.text.strip().endswith("It is done.")
    results = [turn.text for turn in harness.model.asked[-1].turns if turn.role == "tool"]
    assert any(str(harness.workspace) in result for result in results)
    assert harness.workers() == {}


async def test_with_tools_off_an_agent_speaks(harness: AgentHarness) -> None:
    """With its tools off an agent still answers; a backend that cannot turn them off refuses, and names itself."""
    if harness.abilities.is_scripted:
        harness.say(Reply(text="PONG"))

    outcome = await ask(harness, **new_session(), tools=False, max_tokens=12)

    assert outcome.code == harness.abilities.tools_off, outcome
    if outcome.code is None:
        assert outcome.text.strip()
    else:
        assert harness.config.name in outcome.fault
        assert harness.model.asked == []


@needs(lambda able: able.acts and able.tools_off is None)
async def test_with_tools_off_nothing_is_done(harness: AgentHarness) -> None:
    """With its tools off an agent runs none, even if its model insists, and also in a resumed conversation."""
    session = new_session()
    insisting = Shell(command="echo made > made.txt", insist=harness.shell)
    harness.say(Reply(text="I act.", tool=insisting), Reply(text="NOTED-ONE"))
    first = await ask(harness, "My word is QUINCE.", **session, tools=False)
    harness.say(Reply(text="NOTED-TWO"))
    session["session_created"] = first.code is None
    second = await ask(harness, "Which word is mine?", **session, attempt=2)
    session["session_created"] = True
    harness.say(Reply(text="I act.", tool=insisting), Reply(text="NOTED-THREE"))
    third = await ask(harness, "Make the file.", **session, tools=False, key="review")

    assert (first.code, second.code, third.code) == (harness.abilities.insists, None, harness.abilities.insists), (
        first,
        second,
        third,
    )
    assert list(harness.workspace.iterdir()) == []


async def test_the_chosen_model_is_asked(harness: AgentHarness) -> None:
    """A tier selects its configured model, and the backend asks that model."""
    if harness.abilities.chosen is None:
        outcome = await ask(harness, model="a-model-of-its-own", max_tokens=12)

        assert outcome.code == harness.abilities.refuses_model
        return
    wanted, asked = harness.abilities.chosen
    harness.say(Reply(text="PONG"))
    model = harness.backend.resolve_model("haiku")

    outcome = await ask(harness, model=model)

    assert model == wanted
    assert outcome.code is None, outcome.fault
    assert asked in harness.model.asked[0].model


@needs(lambda able: able.is_asked)
async def test_the_standing_instruction_reaches_the_model(harness: AgentHarness) -> None:
    """The system prompt of a request reaches the model."""
    harness.say(Reply(text="PONG"))

    outcome = await ask(harness, system="Speak like MARLOWE.", **new_session())

    assert outcome.code is None, outcome.fault
    assert "Speak like MARLOWE." in harness.model.asked[0].everything


@needs(lambda abilities: abilities.cut_off)
async def test_a_reply_at_its_length_limit_has_its_reason(harness: AgentHarness) -> None:
    """A reply at its length limit has a reason and its partial text, or an error if the text is lost."""
    harness.say(Reply(text="The rain falls on the", cut=True))
    reply = await harness.backend.prompt(harness.prompt("Tell it."))
    code = reply.error.code if reply.error else None

    assert (reply.finish, code in harness.abilities.cut_off) == ("length", True), reply
    assert reply.text == ("" if code else "The rain falls on the")


@needs(lambda abilities: abilities.limits)
async def test_a_limit_reaches_the_model(harness: AgentHarness) -> None:
    """The reply limit of a step is sent to the model."""
    harness.say(Reply(text="PONG"))
    await harness.backend.prompt(harness.prompt("Say it.", max_tokens=777))

    limits = {harness.model.asked[-1].body.get(name) for name in ("max_tokens", "max_completion_tokens")}
    assert limits - {None} == {777}


async def test_a_reply_reports_tokens_and_price(harness: AgentHarness) -> None:
    """A reply reports the tokens of all its requests, and the price if the backend knows one."""
    if not harness.abilities.is_scripted:
        outcome = await ask(harness, max_tokens=12)

        assert outcome.usage.input_tokens > 0
        assert outcome.usage.output_tokens > 0
        return
    harness.say(Reply(text="I act.", tool=Shell(command="echo made > made.txt")), Reply(text="Done."))
    outcome = await ask(harness, "Make the file.")
    requests = max(len(harness.model.asked), 1) if harness.abilities.adds_up else 1

    assert outcome.code is None, outcome.fault
    if harness.abilities.input_tokens is None:
        assert outcome.usage is None
    else:
        told = (requests * harness.abilities.input_tokens, requests * OUTPUT_TOKENS)
        assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (
            told if harness.abilities.adds_up else (None, None)
        )
        assert (outcome.usage.cost_usd is not None) == harness.abilities.tells_cost


@needs(lambda able: able.remembers and able.is_scripted and able.input_tokens is not None)
async def test_equal_turns_take_the_same(harness: AgentHarness) -> None:
    """Three equal turns of a conversation report the same usage, across restarts, and it equals the model's count."""
    harness.say(Reply(text="PONG"))
    session = new_session()
    turns = []
    for key in ("one", "two", "three"):
        turns.append((await ask(harness, f"Turn {key}.", **session, key=key)).usage)
        session["session_created"] = True
        await harness.restart()

    assert turns[0] == turns[1] == turns[2]
    assert (turns[0].input_tokens, turns[0].output_tokens) == (harness.abilities.input_tokens, OUTPUT_TOKENS)
    assert (turns[0].cost_usd is not None) == harness.abilities.tells_cost


@needs(lambda able: able.acts and able.remembers and able.sums and able.adds_up)
async def test_usage_of_a_failed_turn_is_counted_once(harness: AgentHarness) -> None:
    """The usage before a failed turn's error is reported by that turn or by the next one, never by both."""
    session = new_session()
    act = Reply(text="I act.", tool=Shell(command="echo made > made.txt"))
    harness.say(Reply(text="PONG"), act, Fault(status=400, message="that cannot be"))
    turns = [await ask(harness, **session, key="one")]
    session["session_created"] = True
    turns.append(await ask(harness, **session, key="two"))
    harness.say(Reply(text="PONG"))
    turns.append(await ask(harness, **session, key="two", attempt=2, line_attempt=2, recorded=(1,)))
    spent = [turn.usage for turn in turns if turn.usage is not None]

    assert [turn.code is None for turn in turns] == [True, False, True]
    assert sum(usage.input_tokens for usage in spent) == 3 * (harness.abilities.input_tokens or 0)
    assert sum(usage.output_tokens for usage in spent) == 3 * OUTPUT_TOKENS


@needs(lambda able: able.is_scripted)
async def test_a_refused_key_is_an_error(harness: AgentHarness) -> None:
    """A service that refuses the key leads to an error within the time limit, never to a reply."""
    harness.say(Fault(status=401, message="the key is not taken"))

    outcome = await ask(harness, timeout_seconds=harness.abilities.wait_seconds)

    assert outcome.code in harness.abilities.unauthorized, outcome
    assert outcome.text == ""
    assert outcome.seconds < harness.abilities.wait_seconds + SLACK_SECONDS
    assert harness.workers() == {}


@pytest.mark.parametrize("status", [429, 500])
@needs(lambda able: able.is_scripted)
async def test_endless_trouble_ends_at_a_limit(harness: AgentHarness, status: int) -> None:
    """A service that is always too busy or broken leads to an error, at the prompt's time limit at the latest."""
    # Services are retried after the delay that they ask for; programs choose the delay themselves.
    headers = {} if harness.abilities.is_program else {"Retry-After-Ms": "20"}
    harness.say(Fault(status=status, message="there is trouble", headers=headers))

    outcome = await ask(harness, timeout_seconds=harness.abilities.wait_seconds)

    assert outcome.code in (harness.abilities.busy if status == 429 else harness.abilities.broken), outcome
    assert outcome.text == ""
    assert outcome.seconds < harness.abilities.wait_seconds + SLACK_SECONDS
    assert harness.workers() == {}


@needs(lambda able: able.is_scripted)
async def test_an_empty_reply_is_not_made_up(harness: AgentHarness) -> None:
    """An empty reply of the model leads to an empty text, or to an error for empty replies."""
    harness.say(Reply(text=""))

    outcome = await ask(harness, timeout_seconds=harness.abilities.wait_seconds)

    assert outcome.text.strip() == ""
    assert outcome.code in harness.abilities.empty, outcome


@needs(lambda able: able.is_asked)
async def test_a_megabyte_reply_arrives_unchanged(harness: AgentHarness) -> None:
    """A reply of a megabyte arrives unchanged."""
    harness.say(Reply(text=f"{MEGABYTE}END"))

    outcome = await ask(harness)

    assert outcome.code is None, outcome.fault
    assert outcome.text.strip() == f"{MEGABYTE}END"


async def test_a_long_prompt_arrives_whole(harness: AgentHarness) -> None:
    """A prompt of three hundred thousand bytes reaches the model whole, and no shell interprets it."""
    words = f"FIRST {'plain words of a long prompt, ' * 10_000} 'quoted' $HOME `date` \\n LAST"
    if harness.abilities.is_scripted:
        harness.say(Reply(text="PONG"))

    outcome = await ask(harness, words, max_tokens=12)

    assert outcome.code == harness.abilities.too_long, outcome
    if harness.model.asked:
        assert words in harness.model.asked[0].said


@pytest.mark.parametrize(
    "text", ["--help", "-x", "/help", "@file", "!ls", "# 'a' \"b\" $(c) `d`", "é 雨 🙂\nzwei\n\nlines"]
)
@needs(lambda able: able.is_program)
async def test_a_prompt_is_words_and_nothing_else(harness: AgentHarness, text: str) -> None:
    """A prompt that looks like an option, a command or a file name is passed on unchanged."""
    harness.say(Reply(text="PONG"))

    outcome = await ask(harness, text)

    assert outcome.code is None, outcome.fault
    assert outcome.text.strip() == "PONG"
    assert text in harness.model.asked[0].said


@needs(lambda able: able.is_program)
async def test_a_killed_program_is_an_error(harness: AgentHarness) -> None:
    """A program that is terminated during a call returns an error, not a reply."""
    harness.say(Hang())
    asking = asyncio.ensure_future(ask(harness))
    await _until(lambda: harness.model.asked)
    for pid in _outermost(harness):
        # The end of one process may end the others.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    outcome = await asyncio.wait_for(asking, SLACK_SECONDS * 2)

    assert outcome.code is not None
    assert outcome.code in ("agent_signalled", "agent_error", "reply_unreadable"), outcome
    assert outcome.text == ""
    assert harness.workers() == {}


@needs(lambda able: able.is_program)
async def test_a_limit_of_time_is_kept(harness: AgentHarness) -> None:
    """At the time limit, the backend gives up a model that never answers, and leaves no process of the program."""
    harness.say(Hang(begin="I thi"))

    outcome = await ask(harness, timeout_seconds=harness.abilities.limit_seconds)

    assert outcome.code == "agent_timeout", outcome
    assert outcome.seconds < harness.abilities.limit_seconds + SLACK_SECONDS
    assert harness.workers() == {}


@needs(lambda able: able.is_scripted)
async def test_a_cancellation_while_the_model_thinks_leaves_nothing(harness: AgentHarness) -> None:
    """A cancelled prompt ends soon and leaves no process, and the backend answers the next prompt."""
    harness.say(Hang())
    asking = asyncio.ensure_future(harness.backend.prompt(harness.prompt(**new_session())))
    if isinstance(harness, agent_harness.ScriptedAgentHarness):
        await asyncio.wait([asking], timeout=0.3)
    else:
        await _until(lambda: harness.model.asked)
    asking.cancel()
    await asyncio.wait([asking], timeout=CANCEL_SECONDS)

    assert asking.cancelled()
    assert harness.workers() == {}
    harness.say(Reply(text="PONG"))
    assert (await ask(harness)).text.strip() == "PONG"


@needs(lambda able: able.acts)
async def test_a_cancellation_while_a_tool_works_leaves_nothing(harness: AgentHarness) -> None:
    """Cancelling a prompt also ends its running tool, which has a session and a process group of its own."""
    harness.say(Reply(tool=Shell(command=HANGING)), Reply(text="Done."))
    asking = asyncio.ensure_future(harness.backend.prompt(harness.prompt("Begin.", **new_session())))
    await _until(lambda: (harness.workspace / "begun.txt").exists() or asking.done())
    assert not asking.done(), asking.result()
    assert any("begun.txt" in line for line in harness.workers().values())
    asking.cancel()
    await asyncio.wait([asking], timeout=CANCEL_SECONDS)

    assert asking.cancelled()
    assert harness.workers() == {}


@needs(lambda able: able.is_asked)
async def test_prompts_at_once_get_their_own_replies(harness: AgentHarness) -> None:
    """Two agents that work at the same time with one home get their own replies."""
    harness.model.script = _echo
    outcomes = await asyncio.gather(*(ask(harness, f"Say WORD-{n}.", **new_session(), key=f"k{n}") for n in range(2)))

    assert [one.text.strip() for one in outcomes] == ["I say WORD-0.", "I say WORD-1."], outcomes


async def test_a_backend_that_works_lacks_nothing(harness: AgentHarness) -> None:
    """The check of the configuration finds no flaw in a working backend."""
    assert harness.lacks() == []


@needs(lambda able: able.is_program)
async def test_a_missing_program_is_an_error_and_found_by_the_check(harness: AgentHarness) -> None:
    """A missing program leads to the error `agent_missing`, and the check of the configuration finds it as well."""
    harness.config = dataclasses.replace(
        harness.config, command=(str(harness.folder / "nowhere"), *harness.config.command[1:])
    )

    outcome = await ask(harness)

    assert outcome.code == "agent_missing", outcome
    assert [name for name, _ in harness.lacks()] == [harness.config.name]


def _echo(asked: Asked) -> Reply:
    return Reply(text="I say WORD-0." if "WORD-0" in asked.said else "I say WORD-1.")


async def _until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - the condition depends on other processes
            await asyncio.sleep(0.02)


def _outermost(harness: AgentHarness) -> set[int]:
    """Return the processes of the program whose parents do not belong to it."""
    workers = set(harness.workers())
    return {pid for pid in workers if _parent(pid) not in workers}


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
