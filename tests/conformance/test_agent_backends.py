"""What every backend promises about conversations, tools, models, costs and failures, held against each of them.

The real programs speak with a fake model, in a network namespace that has only loopback where one can be had.
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
from tests.conformance import agent_houses
from tests.conformance.agent_houses import House

CANCEL_SECONDS = 30.0
SLACK_SECONDS = 15.0
Case = TypeVar("Case", bound=Callable[..., Any])

MEGABYTE = "".join(f"line {n:07} of it\n" for n in range(50_000))
HANGING = 'python3 -c \'import threading; open("begun.txt", "w").close(); threading.Event().wait(600)\''


def needs(ability: Callable[[agent_houses.Abilities], Any]) -> Callable[[Case], Case]:
    """Try a case on those backends only that can do what it is about."""

    def marked(case: Case) -> Case:
        case.needs = ability  # type: ignore[attr-defined]
        return case

    return marked


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try each case on every backend that declares what it needs."""
    needed = getattr(metafunc.function, "needs", lambda _: True)
    plans = [(name, plan) for name, plan in agent_houses.PLANS.items() if needed(plan.abilities)]
    parameters = [pytest.param(name, marks=_marks(name, plan)) for name, plan in plans]
    metafunc.parametrize("house", parameters, indirect=True)


def _marks(name: str, plan: agent_houses.Plan) -> list[pytest.MarkDecorator]:
    if name == "local":
        return [pytest.mark.model, pytest.mark.skipif(bool(local.missing_packages()), reason=local.lacks() or "")]
    if plan.program is None:
        return []
    found = installed.find(plan.program)
    absent = found if isinstance(found, str) else ""
    return [pytest.mark.programs, pytest.mark.skipif(bool(absent), reason=absent), pytest.mark.timeout(300)]


@pytest.fixture
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    async with agent_houses.built(agent_houses.PLANS[request.param], tmp_path) as made:
        yield made


@dataclass(frozen=True)
class Outcome:
    """What came of a prompt: a reply or the code of an error, and how long it took."""

    text: str
    code: str | None
    session: str | None
    usage: Any
    seconds: float
    told: str


async def ask(house: House, text: str = "Say PONG.", **given: Any) -> Outcome:
    """Send a prompt; a raised error and one within a reply are the same here."""
    started = time.monotonic()
    try:
        reply = await house.backend.prompt(house.prompt(text, **given))
    except errors.AgentFailed as failed:
        return Outcome("", failed.code, None, None, time.monotonic() - started, f"{failed} {failed.detail}")
    error = reply.error
    code, told = (None, "") if error is None else (error.code, f"{error.message} {error.detail}")
    return Outcome(reply.text, code, reply.agent_session_id, reply.usage, time.monotonic() - started, told)


def new_session() -> dict[str, Any]:
    """Return what makes a prompt the first one of a conversation."""
    return {"agent_session_id": str(uuid.uuid4()), "session_created": False}


async def test_a_new_conversation_is_begun(house: House) -> None:
    """The first prompt of a conversation reaches the model once, and the reply says which conversation it was."""
    if house.abilities.is_told:
        house.say(Reply(text="PONG-ONE"))
    session = new_session()

    outcome = await ask(house, "Say the word QUINCE.", **session, max_tokens=12)

    assert outcome.code is None, outcome.told
    assert outcome.text.strip()
    if house.abilities.is_told:
        assert outcome.text.strip() == "PONG-ONE"
    if house.model.asked:
        assert len(house.model.asked) == 1
        assert "QUINCE" in house.model.asked[0].said
    assert bool(outcome.session) == house.abilities.tells_session
    assert house.workers() == {}


async def test_a_prompt_without_a_past_needs_no_conversation(house: House) -> None:
    """Without a session the prompt is answered all the same."""
    if house.abilities.is_told:
        house.say(Reply(text="PONG-ONE"))

    outcome = await ask(house, max_tokens=12)

    assert outcome.code is None, outcome.told
    assert outcome.text.strip()


@needs(lambda able: able.remembers)
async def test_a_conversation_goes_on_after_a_restart(house: House) -> None:
    """A resumed conversation knows what was said in it, in a new life of the service too."""
    house.say(Reply(text="NOTED-ONE"), Reply(text="NOTED-TWO"), Reply(text="NOTED-THREE"))
    session = new_session()
    first = await ask(house, "My word is QUINCE.", **session)
    await house.restart()
    session["session_created"] = True
    second = await ask(house, "My other word is MEDLAR.", **session, key="review")
    third = await ask(house, "Which words are mine?", **session, key="commit")

    assert [one.code for one in (first, second, third)] == [None] * 3, (first.told, second.told, third.told)
    assert first.session == second.session == third.session
    if house.model.asked:
        assert [one.text.strip() for one in (first, second, third)] == ["NOTED-ONE", "NOTED-TWO", "NOTED-THREE"]
        heard = house.model.asked[-1].everything
        assert all(word in heard for word in ("QUINCE", "NOTED-ONE", "MEDLAR", "NOTED-TWO", "Which words"))


@needs(lambda able: able.remembers and able.is_told)
async def test_two_conversations_are_kept_apart(house: House) -> None:
    """What is said in one conversation is not heard in another one, in the same folder."""
    house.say(Reply(text="NOTED-ONE"), Reply(text="NOTED-TWO"))
    await ask(house, "My word is QUINCE.", **new_session())
    outcome = await ask(house, "Which word is mine?", **new_session())

    assert outcome.code is None, outcome.told
    assert all("QUINCE" not in one.everything for one in house.model.asked[1:])


@needs(lambda able: able.remembers and able.is_told)
async def test_a_first_prompt_that_was_cut_off_is_sent_again(house: House) -> None:
    """A conversation whose first prompt was cut off can be begun again under its id, whether it exists or not."""
    session = new_session()
    house.say(Hang())
    cut = asyncio.ensure_future(house.backend.prompt(house.prompt("My word is QUINCE.", **session)))
    await _until(lambda: house.model.asked) if not isinstance(house, agent_houses.ScriptedHouse) else None
    cut.cancel()
    await asyncio.wait([cut], timeout=CANCEL_SECONDS)
    assert cut.cancelled()
    await house.restart()
    house.say(Reply(text="NOTED-ONE"))

    outcome = await ask(house, "My word is QUINCE.", **session, attempt=2)

    assert outcome.code is None, outcome.told
    assert outcome.text.strip() == "NOTED-ONE"


@needs(lambda able: able.remembers and able.is_told)
async def test_a_first_prompt_that_was_answered_unrecorded_is_sent_again(house: House) -> None:
    """A conversation that exists although nobody knows of it can be spoken in under its id."""
    session = new_session()
    house.say(Reply(text="NOTED-ONE"), Reply(text="NOTED-TWO"))
    first = await ask(house, "My word is QUINCE.", **session)
    await house.restart()

    outcome = await ask(house, "My word is QUINCE.", **session, attempt=2)

    assert first.code is None, first.told
    assert outcome.code is None, outcome.told
    assert outcome.text.strip() in ("NOTED-TWO", "NOTED-ONE")


@pytest.mark.parametrize("failing", [1, 2])
@needs(lambda able: able.remembers and able.is_told)
async def test_a_prompt_that_failed_is_sent_again(house: House, failing: int) -> None:
    """After a failure in its first prompt, or in its second, a conversation goes on with all that was said before."""
    session = new_session()
    for number, word in enumerate(("QUINCE", "MEDLAR", "SORREL"), start=1):
        key, attempt = f"step-{number}", 1
        if number == failing:
            house.say(Fault(status=400, message="that cannot be"))
            failed = await ask(house, f"My word is {word}.", **session, key=key)
            await house.restart()
            attempt = 2
        house.say(Reply(text=f"NOTED-{word}"))
        again = {"attempt": attempt, "line_attempt": attempt, "recorded": tuple(range(1, attempt))}
        outcome = await ask(house, f"My word is {word}.", **session, key=key, **again)
        assert outcome.code is None, outcome.told
        assert outcome.text.strip() == f"NOTED-{word}"
        session["session_created"] = True

    assert failed.code is not None
    if house.model.asked:
        heard = house.model.asked[-1].everything
        assert all(word in heard for word in ("QUINCE", "NOTED-QUINCE", "MEDLAR", "NOTED-MEDLAR", "SORREL"))


@needs(lambda able: able.breaks_loops)
async def test_a_turn_that_a_program_broke_off_has_failed(house: House) -> None:
    """A program that finds its model in a loop and ends has not answered: it says why, and can be asked again."""
    session = new_session()
    house.say(Reply(tool=Shell(command="echo made > made.txt")))
    broken = await ask(house, "My word is QUINCE.", **session)
    house.say(Reply(text="NOTED"))
    again = await ask(house, "My word is QUINCE.", **session, attempt=2)

    assert (broken.code, broken.text) == ("agent_error", "")
    assert "loop" in broken.told.lower()
    assert (again.code, again.text.strip()) == (None, "NOTED"), again.told


@needs(lambda able: able.remembers and able.is_program)
async def test_a_conversation_outlives_a_kill(house: House) -> None:
    """A program that is killed in the second prompt goes on with the first one, or says that the past is lost."""
    session = new_session()
    house.say(Reply(text="NOTED-ONE"))
    first = await ask(house, "My word is QUINCE.", **session)
    session["session_created"] = True
    house.say(Hang())
    asked = len(house.model.asked)
    cut = asyncio.ensure_future(ask(house, "My other word is MEDLAR.", **session, key="review"))
    await _until(lambda: len(house.model.asked) > asked)
    for pid in house.workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    killed = await cut
    await house.restart()
    house.say(Reply(text="NOTED-TWO"))
    again = await ask(house, "My other word is MEDLAR.", **session, key="review", attempt=2)

    assert first.code is None, first.told
    assert killed.code is not None
    if house.abilities.forgets_when_killed:
        assert again.code == "unknown_agent_session", again
    else:
        assert (again.code, again.text.strip()) == (None, "NOTED-TWO"), again.told
        assert all(word in house.model.asked[-1].everything for word in ("QUINCE", "NOTED-ONE", "MEDLAR"))


@needs(lambda able: able.remembers and able.is_asked)
async def test_an_unknown_conversation_is_told(house: House) -> None:
    """A conversation that is to be resumed and does not exist is an error with a code of its own."""
    house.say(Reply(text="PONG"))

    outcome = await ask(house, agent_session_id=str(uuid.uuid4()), session_created=True)

    assert outcome.code in house.abilities.unknown, outcome
    assert house.model.asked == []


@needs(lambda able: able.acts)
async def test_a_tool_really_acts_in_the_working_folder(house: House) -> None:
    """A tool that the model calls writes a file in the folder that the prompt names, and the reply comes after it."""
    house.say(Reply(text="I act.", tool=Shell(command="echo made > made.txt; pwd")), Reply(text="It is done."))

    outcome = await ask(house, "Make the file.", **new_session())

    assert outcome.code is None, outcome.told
    assert (house.workspace / "made.txt").read_text() == "made\n"
    assert outcome.text.strip().endswith("It is done.")
    results = [turn.text for turn in house.model.asked[-1].turns if turn.role == "tool"]
    assert any(str(house.workspace) in result for result in results)
    assert house.workers() == {}


async def test_with_tools_off_an_agent_speaks(house: House) -> None:
    """With its tools off an agent still answers; where they cannot be turned off it refuses, by its name."""
    if house.abilities.is_told:
        house.say(Reply(text="PONG"))

    outcome = await ask(house, **new_session(), tools=False, max_tokens=12)

    assert outcome.code == house.abilities.tools_off, outcome
    if outcome.code is None:
        assert outcome.text.strip()
    else:
        assert house.config.name in outcome.told
        assert house.model.asked == []


@needs(lambda able: able.acts and able.tools_off is None)
async def test_with_tools_off_nothing_is_done(house: House) -> None:
    """With its tools off an agent does nothing, even if its model insists, and in a resumed conversation too."""
    session = new_session()
    insisting = Shell(command="echo made > made.txt", insist=house.shell)
    house.say(Reply(text="I act.", tool=insisting), Reply(text="NOTED-ONE"))
    first = await ask(house, "My word is QUINCE.", **session, tools=False)
    house.say(Reply(text="NOTED-TWO"))
    session["session_created"] = first.code is None
    second = await ask(house, "Which word is mine?", **session, attempt=2)
    session["session_created"] = True
    house.say(Reply(text="I act.", tool=insisting), Reply(text="NOTED-THREE"))
    third = await ask(house, "Make the file.", **session, tools=False, key="review")

    assert (first.code, second.code, third.code) == (house.abilities.insists, None, house.abilities.insists), (
        first,
        second,
        third,
    )
    assert list(house.workspace.iterdir()) == []


async def test_the_chosen_model_is_asked(house: House) -> None:
    """A tier leads to the model that is configured for it, and that model is asked."""
    if house.abilities.chosen is None:
        outcome = await ask(house, model="a-model-of-its-own", max_tokens=12)

        assert outcome.code == house.abilities.refuses_model
        return
    wanted, asked = house.abilities.chosen
    house.say(Reply(text="PONG"))
    model = house.backend.resolve_model("haiku")

    outcome = await ask(house, model=model)

    assert model == wanted
    assert outcome.code is None, outcome.told
    assert asked in house.model.asked[0].model


@needs(lambda able: able.is_asked)
async def test_the_standing_instruction_reaches_the_model(house: House) -> None:
    """What a person wants said before everything else is heard by the model."""
    house.say(Reply(text="PONG"))

    outcome = await ask(house, system="Speak like MARLOWE.", **new_session())

    assert outcome.code is None, outcome.told
    assert "Speak like MARLOWE." in house.model.asked[0].everything


@needs(lambda abilities: abilities.cut_off)
async def test_a_reply_at_its_longest_is_told(house: House) -> None:
    """What there is of a reply that the model could not end comes with the reason, or the program's loss of it does."""
    house.say(Reply(text="The rain falls on the", cut=True))
    reply = await house.backend.prompt(house.prompt("Tell it."))
    code = reply.error.code if reply.error else None

    assert (reply.finish, code in house.abilities.cut_off) == ("length", True), reply
    assert reply.text == ("" if code else "The rain falls on the")


@needs(lambda abilities: abilities.limits)
async def test_a_limit_reaches_the_model(house: House) -> None:
    """The longest reply that a step allows is what the model is asked for."""
    house.say(Reply(text="PONG"))
    await house.backend.prompt(house.prompt("Say it.", max_tokens=777))

    limits = {house.model.asked[-1].body.get(name) for name in ("max_tokens", "max_completion_tokens")}
    assert limits - {None} == {777}


async def test_tokens_and_price_are_told(house: House) -> None:
    """A reply brings the tokens that its requests took, and the price where the backend knows one."""
    if not house.abilities.is_told:
        outcome = await ask(house, max_tokens=12)

        assert outcome.usage.input_tokens > 0
        assert outcome.usage.output_tokens > 0
        return
    house.say(Reply(text="I act.", tool=Shell(command="echo made > made.txt")), Reply(text="Done."))
    outcome = await ask(house, "Make the file.")
    requests = max(len(house.model.asked), 1) if house.abilities.adds_up else 1

    assert outcome.code is None, outcome.told
    if house.abilities.input_tokens is None:
        assert outcome.usage is None
    else:
        told = (requests * house.abilities.input_tokens, requests * OUTPUT_TOKENS)
        assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (
            told if house.abilities.adds_up else (None, None)
        )
        assert (outcome.usage.cost_usd is not None) == house.abilities.tells_cost


@needs(lambda able: able.remembers and able.is_told and able.input_tokens is not None)
async def test_equal_turns_take_the_same(house: House) -> None:
    """Three equal turns of a conversation take the same, over a restart too, and together what the model counted."""
    house.say(Reply(text="PONG"))
    session = new_session()
    turns = []
    for key in ("one", "two", "three"):
        turns.append((await ask(house, f"Turn {key}.", **session, key=key)).usage)
        session["session_created"] = True
        await house.restart()

    assert turns[0] == turns[1] == turns[2]
    assert (turns[0].input_tokens, turns[0].output_tokens) == (house.abilities.input_tokens, OUTPUT_TOKENS)
    assert (turns[0].cost_usd is not None) == house.abilities.tells_cost


@needs(lambda able: able.acts and able.remembers and able.sums and able.adds_up)
async def test_what_a_failed_turn_took_is_counted_once(house: House) -> None:
    """What the model answered before a turn failed is on its bill or on that of the next turn, and never on both."""
    session = new_session()
    act = Reply(text="I act.", tool=Shell(command="echo made > made.txt"))
    house.say(Reply(text="PONG"), act, Fault(status=400, message="that cannot be"))
    turns = [await ask(house, **session, key="one")]
    session["session_created"] = True
    turns.append(await ask(house, **session, key="two"))
    house.say(Reply(text="PONG"))
    turns.append(await ask(house, **session, key="two", attempt=2, line_attempt=2, recorded=(1,)))
    spent = [turn.usage for turn in turns if turn.usage is not None]

    assert [turn.code is None for turn in turns] == [True, False, True]
    assert sum(usage.input_tokens for usage in spent) == 3 * (house.abilities.input_tokens or 0)
    assert sum(usage.output_tokens for usage in spent) == 3 * OUTPUT_TOKENS


@needs(lambda able: able.is_told)
async def test_a_key_that_is_not_taken_is_told(house: House) -> None:
    """A service that refuses the key is an error, never a reply, and it comes soon."""
    house.say(Fault(status=401, message="the key is not taken"))

    outcome = await ask(house, timeout_seconds=house.abilities.patience_seconds)

    assert outcome.code in house.abilities.unauthorized, outcome
    assert outcome.text == ""
    assert outcome.seconds < house.abilities.patience_seconds + SLACK_SECONDS
    assert house.workers() == {}


@pytest.mark.parametrize("status", [429, 500])
@needs(lambda able: able.is_told)
async def test_endless_trouble_ends_at_a_limit(house: House, status: int) -> None:
    """A service that is too busy, or broken, for ever ends in an error, at the prompt's limit at the latest."""
    # Those that try again wait as long as they are asked to; programs decide that themselves.
    headers = {} if house.abilities.is_program else {"Retry-After-Ms": "20"}
    house.say(Fault(status=status, message="there is trouble", headers=headers))

    outcome = await ask(house, timeout_seconds=house.abilities.patience_seconds)

    assert outcome.code in (house.abilities.busy if status == 429 else house.abilities.broken), outcome
    assert outcome.text == ""
    assert outcome.seconds < house.abilities.patience_seconds + SLACK_SECONDS
    assert house.workers() == {}


@needs(lambda able: able.is_told)
async def test_an_empty_reply_is_not_made_up(house: House) -> None:
    """A model that says nothing leads to no text, or to an error that says so."""
    house.say(Reply(text=""))

    outcome = await ask(house, timeout_seconds=house.abilities.patience_seconds)

    assert outcome.text.strip() == ""
    assert outcome.code in house.abilities.empty, outcome


@needs(lambda able: able.is_asked)
async def test_a_megabyte_is_told_whole(house: House) -> None:
    """A reply of a megabyte arrives as it was said."""
    house.say(Reply(text=f"{MEGABYTE}END"))

    outcome = await ask(house)

    assert outcome.code is None, outcome.told
    assert outcome.text.strip() == f"{MEGABYTE}END"


async def test_a_long_prompt_arrives_whole(house: House) -> None:
    """A prompt of three hundred thousand bytes is heard from its first word to its last, and no shell sees it."""
    words = f"FIRST {'plain words of a long prompt, ' * 10_000} 'quoted' $HOME `date` \\n LAST"
    if house.abilities.is_told:
        house.say(Reply(text="PONG"))

    outcome = await ask(house, words, max_tokens=12)

    assert outcome.code == house.abilities.too_long, outcome
    if house.model.asked:
        assert words in house.model.asked[0].said


@pytest.mark.parametrize(
    "text", ["--help", "-x", "/help", "@file", "!ls", "# 'a' \"b\" $(c) `d`", "é 雨 🙂\nzwei\n\nlines"]
)
@needs(lambda able: able.is_program)
async def test_a_prompt_is_words_and_nothing_else(house: House, text: str) -> None:
    """A prompt that looks like an option, a command or a file name is passed on as it is."""
    house.say(Reply(text="PONG"))

    outcome = await ask(house, text)

    assert outcome.code is None, outcome.told
    assert outcome.text.strip() == "PONG"
    assert text in house.model.asked[0].said


@needs(lambda able: able.is_program)
async def test_a_program_that_is_killed_is_told(house: House) -> None:
    """A program that somebody ends in the middle of a call has not answered, whatever its exit code says."""
    house.say(Hang())
    asking = asyncio.ensure_future(ask(house))
    await _until(lambda: house.model.asked)
    for pid in _outermost(house):
        # The end of one may be the end of the others.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    outcome = await asyncio.wait_for(asking, SLACK_SECONDS * 2)

    assert outcome.code is not None
    assert outcome.code in ("agent_signalled", "agent_error", "reply_unreadable"), outcome
    assert outcome.text == ""
    assert house.workers() == {}


@needs(lambda able: able.is_program)
async def test_a_limit_of_time_is_kept(house: House) -> None:
    """A model that never answers is given up at the limit, and nothing is left of the program."""
    house.say(Hang(begin="I thi"))

    outcome = await ask(house, timeout_seconds=house.abilities.limit_seconds)

    assert outcome.code == "agent_timeout", outcome
    assert outcome.seconds < house.abilities.limit_seconds + SLACK_SECONDS
    assert house.workers() == {}


@needs(lambda able: able.is_told)
async def test_a_cancellation_while_the_model_thinks_leaves_nothing(house: House) -> None:
    """A cancelled prompt ends soon, no process of it is left, and the backend goes on answering."""
    house.say(Hang())
    asking = asyncio.ensure_future(house.backend.prompt(house.prompt(**new_session())))
    if isinstance(house, agent_houses.ScriptedHouse):
        await asyncio.wait([asking], timeout=0.3)
    else:
        await _until(lambda: house.model.asked)
    asking.cancel()
    await asyncio.wait([asking], timeout=CANCEL_SECONDS)

    assert asking.cancelled()
    assert house.workers() == {}
    house.say(Reply(text="PONG"))
    assert (await ask(house)).text.strip() == "PONG"


@needs(lambda able: able.acts)
async def test_a_cancellation_while_a_tool_works_leaves_nothing(house: House) -> None:
    """A cancelled prompt also ends the tool that is at work, though it has a session and a group of its own."""
    house.say(Reply(tool=Shell(command=HANGING)), Reply(text="Done."))
    asking = asyncio.ensure_future(house.backend.prompt(house.prompt("Begin.", **new_session())))
    await _until(lambda: (house.workspace / "begun.txt").exists() or asking.done())
    assert not asking.done(), asking.result()
    assert any("begun.txt" in line for line in house.workers().values())
    asking.cancel()
    await asyncio.wait([asking], timeout=CANCEL_SECONDS)

    assert asking.cancelled()
    assert house.workers() == {}


@needs(lambda able: able.is_asked)
async def test_prompts_at_once_get_their_own_replies(house: House) -> None:
    """Two agents that work at once with one home do not mix up what they hear."""
    house.model.script = _echo
    outcomes = await asyncio.gather(*(ask(house, f"Say WORD-{n}.", **new_session(), key=f"k{n}") for n in range(2)))

    assert [one.text.strip() for one in outcomes] == ["I say WORD-0.", "I say WORD-1."], outcomes


async def test_a_backend_that_works_lacks_nothing(house: House) -> None:
    """The check of the configuration finds nothing wrong with what works."""
    assert house.lacks() == []


@needs(lambda able: able.is_program)
async def test_a_missing_program_is_told(house: House) -> None:
    """A program that is not there is an error that says what to install, and the check finds it too."""
    house.config = dataclasses.replace(house.config, command=(str(house.folder / "nowhere"), *house.config.command[1:]))

    outcome = await ask(house)

    assert outcome.code == "agent_missing", outcome
    assert [name for name, _ in house.lacks()] == [house.config.name]


def _echo(asked: Asked) -> Reply:
    return Reply(text="I say WORD-0." if "WORD-0" in asked.said else "I say WORD-1.")


async def _until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.02)


def _outermost(house: House) -> set[int]:
    """Return the processes of the program whose parents are none."""
    workers = set(house.workers())
    return {pid for pid in workers if _parent(pid) not in workers}


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
