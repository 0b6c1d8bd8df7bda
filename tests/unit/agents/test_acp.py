"""Agents of the Agent Client Protocol: a real agent in a real process, under the real supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from importlib import util
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import pytest

from app import clock, errors
from app.agents.configuration import BackendConfig
from app.agents.servers import acp_agent, acp_backend, acp_connection, acp_turns
from app.domain import agent_sessions
from app.engine import agent_ports
from app.processes import commands, supervisor
from app.storage.agent_sessions import MemoryAgentSessions
from tests.unit.agents import around, living
from tests.unit.agents.prompts import prompt

if TYPE_CHECKING:
    from acp import schema

PROGRAM = str(Path(__file__).with_name("acp_program.py"))
PLAIN = (sys.executable, "-S", PROGRAM)
WITH_THE_PACKAGE = (sys.executable, PROGRAM, "--package")
OURS = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"

Make = Callable[..., acp_backend.AcpBackend]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[supervisor.Supervisor]:
    environ = {**os.environ, "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "another", "WITHHELD_KEY": "value"}
    started = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), environ)
    yield started
    await started.close()


@pytest.fixture
def sessions() -> MemoryAgentSessions:
    return MemoryAgentSessions()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture(params=[PLAIN, pytest.param(WITH_THE_PACKAGE, marks=pytest.mark.slow)], ids=["plain", "package"])
def make(request: pytest.FixtureRequest, running: supervisor.Supervisor, sessions: MemoryAgentSessions) -> Make:
    """Return a function that makes an agent's backend, once with the protocol's own package."""

    def made(
        *arguments: str,
        kept: agent_sessions.AgentSessions = sessions,
        time: clock.Clock | None = None,
        **given: Any,
    ) -> acp_backend.AcpBackend:
        environ = {**os.environ, "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "another"}
        config = BackendConfig(**{"name": "mine", "type": "acp", "command": (*request.param, *arguments)} | given)
        surrounded = around.surroundings(running=running, sessions=kept, environ=environ, time=time)
        return acp_backend.AcpBackend(config, surrounded)

    return made


@pytest.fixture
def say(store: Path, tmp_path: Path) -> Callable[..., agent_ports.AgentPrompt]:
    def said(text: str, **given: Any) -> agent_ports.AgentPrompt:
        usual: dict[str, Any] = {"tools": True, "working_dir": PurePath(tmp_path), "env": {"ACP_STORE": str(store)}}
        return prompt(text, **usual | given)

    return said


async def failure(work: Any) -> errors.AgentFailed:
    """Return the error of a prompt."""
    with pytest.raises(errors.AgentFailed) as failed:
        await work
    return failed.value


@pytest.fixture
def hanging(store: Path) -> Callable[[], Awaitable[str]]:
    """Return a function that waits until an agent reports that it hangs."""
    pipe = store / "hanging"
    os.mkfifo(pipe)

    async def said() -> str:
        async with asyncio.timeout(60):
            return await asyncio.to_thread(pipe.read_text)

    return said


def names(folder: Path) -> list[str]:
    """Return the names in a folder."""
    return sorted(os.listdir(folder))


class TestTurns:
    """Prompts and replies."""

    async def test_a_prompt_gets_its_reply(self, make: Make, say: Any, tmp_path: Path) -> None:
        """The agent works in the prompt's folder with the prompt's variables, and without those of another agent."""
        reply = await make().prompt(
            say("facts", system="Be brief.", env={"ACP_STORE": str(tmp_path), "CONTROL_ROOM_X": "1"})
        )
        facts = json.loads(reply.text)

        assert reply.error is None
        assert reply.agent_session_id == "its-0"
        assert facts["cwd"] == str(tmp_path)
        assert {name for name in facts["env"] if name.startswith("CLAUDE")} == set()
        assert facts["env"]["CONTROL_ROOM_X"] == "1"
        assert facts["history"] == ["Be brief.\n\n---\n\nfacts"]
        assert reply.usage is not None
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (16, 4)

    async def test_an_allowed_tool_request_is_allowed_once(
        self, make: Make, say: Any, store: Path, tmp_path: Path
    ) -> None:
        """An agent that may use its tools is allowed each request once, not permanently."""
        reply = await make().prompt(say("write made.txt"))

        assert reply.text == "It is written."
        assert (tmp_path / "made.txt").read_text() == "written"
        assert (store / "chosen").read_text() == "id-allow_once"

    async def test_an_agent_of_the_protocols_package_completes_a_turn(
        self, running: supervisor.Supervisor, sessions: MemoryAgentSessions, say: Any, tmp_path: Path
    ) -> None:
        """An agent made with the protocol's own package completes a turn with a permission request and its modes."""
        config = BackendConfig(name="mine", type="acp", command=(*WITH_THE_PACKAGE, "--modes", "plan,ask"))
        backend = acp_backend.AcpBackend(config, around.surroundings(running=running, sessions=sessions))
        reply = await backend.prompt(say("write made.txt"))

        assert (reply.text, reply.error) == ("It is written.", None)
        assert (tmp_path / "made.txt").read_text() == "written"

    @pytest.mark.slow
    async def test_a_mode_that_does_not_ask_is_chosen(self, make: Make, say: Any) -> None:
        """An agent is put into the mode that uses tools without asking, if it offers that mode."""
        offered = await make("--modes", "default,plan,yolo").prompt(say("facts"))
        not_offered = await make("--modes", "plan,ask").prompt(say("facts"))

        assert json.loads(offered.text)["mode"] == "yolo"
        assert json.loads(not_offered.text)["mode"] == "default"

    async def test_a_model_can_be_chosen(self, make: Make, say: Any) -> None:
        """A model is passed to the agent; a model that the agent does not have is an error."""
        backend = make("--models", "small,big", models={"opus": "big"})
        chosen = await backend.prompt(say("facts", model=backend.resolve_model("opus")))
        unknown = await failure(backend.prompt(say("facts", model="huge")))
        without = await failure(make().prompt(say("facts", model="big")))

        assert json.loads(chosen.text)["model"] == "big"
        assert backend.resolve_model("haiku") is None
        assert (unknown.code, unknown.detail["models"]) == ("unknown_model", ["big", "small"])
        assert without.code == "unknown_model"

    async def test_a_long_reply_arrives_whole(self, make: Make, say: Any) -> None:
        """A reply of a megabyte in many pieces is joined in order."""
        reply = await make().prompt(say("long 1000000"))

        assert reply.text == ("All the kings men. " * 60_000)[:1_000_000].strip()

    async def test_a_long_prompt_arrives_whole(self, make: Make, say: Any) -> None:
        """A prompt of three hundred kilobytes is sent as one message."""
        text = "word " * 60_000 + "\nfacts"
        reply = await make().prompt(say(text))

        assert json.loads(reply.text)["history"] == [text]

    async def test_a_prompt_is_sent_as_plain_text_not_as_a_command(self, make: Make, say: Any) -> None:
        """A prompt that begins like a command of the agent is sent as plain text."""
        reply = await make().prompt(say("/help me\nfacts"))

        assert json.loads(reply.text)["history"] == ["Prompt:\n\n/help me\nfacts"]

    @pytest.mark.slow
    async def test_garbage_is_passed_over(self, make: Make, say: Any) -> None:
        """Lines on standard output that are not messages are ignored."""
        reply = await make().prompt(say("garbage"))

        assert (reply.text, reply.error) == ("After all that.", None)

    @pytest.mark.slow
    async def test_a_blank_reply_is_passed_on(self, make: Make, say: Any) -> None:
        """A blank reply is passed on; the backend does not judge it."""
        reply = await make().prompt(say("blank"))

        assert (reply.text, reply.error) == ("", None)

    async def test_a_turn_costs_the_increase_of_the_conversations_price(self, make: Make, say: Any) -> None:
        """A turn costs the increase of the conversation's price, also after a failed turn and a restart."""
        backend = make()
        first = await backend.prompt(say("cost 0.25", agent_session_id=OURS))
        second = await backend.prompt(say("owe 0.75", agent_session_id=OURS, session_created=True, key="next"))
        later = await make().prompt(say("cost 1", agent_session_id=OURS, session_created=True, key="later"))

        assert second.error is not None
        assert [reply.usage and reply.usage.cost_usd for reply in (first, second, later)] == [0.25, 0.5, 0.25]

    @pytest.mark.slow
    async def test_a_price_is_unknown_where_its_beginning_is(self, make: Make, say: Any) -> None:
        """The first price in a conversation begun elsewhere is null, and the next one is that of its turn."""
        begun = await make().prompt(say("cost 0.25", agent_session_id="another"))
        named = {"agent_session_id": begun.agent_session_id, "session_created": True}
        first = await make().prompt(say("cost 0.75", **named))
        second = await make().prompt(say("cost 1", **named, key="later"))

        assert [reply.usage and reply.usage.cost_usd for reply in (first, second)] == [None, 0.25]

    @pytest.mark.slow
    async def test_the_tokens_of_single_requests_are_added_up(self, make: Make, say: Any) -> None:
        """Token counts of single requests are added up for the turn, also if the turn fails."""
        told = [await make().prompt(say(words)) for words in ("spend 5 2, 7 3, Done.", "spend 5 2, fail")]

        assert [(one.usage.input_tokens, one.usage.output_tokens) for one in told if one.usage] == [(12, 5), (5, 2)]


class TestConversations:
    """Conversations that continue in later processes."""

    @pytest.mark.parametrize("way", [(), ("--resume",)], ids=["load", "resume"])
    async def test_a_resumed_conversation_has_its_history(
        self, make: Make, say: Any, sessions: MemoryAgentSessions, way: tuple[str, ...]
    ) -> None:
        """A later process of the service and the agent continues a conversation and repeats none of its prompts."""
        first = await make(*way).prompt(say("facts", agent_session_id=OURS))
        kept = await sessions.find(OURS)
        later = make(*way, kept=sessions.crashed(lose_unsynced=True))
        second = await later.prompt(say("again\nfacts", agent_session_id=OURS, session_created=True))

        assert first.agent_session_id == second.agent_session_id == "its-0"
        assert kept is not None
        assert (kept.program_session_id, kept.created, kept.backend) == ("its-0", True, "mine")
        assert json.loads(second.text)["history"] == ["facts", "again\nfacts"]

    @pytest.mark.slow
    async def test_its_name_is_kept_before_the_first_prompt(
        self, make: Make, say: Any, sessions: MemoryAgentSessions, hanging: Any
    ) -> None:
        """The name of a conversation is stored before its first prompt, so that a retry continues it."""
        backend = make()
        work = asyncio.ensure_future(backend.prompt(say("hang", agent_session_id=OURS)))
        await hanging()
        kept = await sessions.find(OURS)
        work.cancel()
        await asyncio.wait([work])
        reply = await backend.prompt(say("facts", agent_session_id=OURS, attempt=2))

        assert kept is not None
        assert (kept.program_session_id, kept.created) == ("its-0", False)
        assert json.loads(reply.text)["history"] == ["hang", "facts"]

    @pytest.mark.slow
    async def test_a_retry_begins_a_lost_conversation_anew(self, make: Make, say: Any, store: Path) -> None:
        """If the agent has lost the conversation of a first prompt that was cut off, the retry begins another."""
        backend = make()
        await backend.prompt(say("stop cancelled", agent_session_id=OURS))
        (store / "its-0").rename(store / "lost")
        (store / "its-1").touch()
        reply = await backend.prompt(say("facts", agent_session_id=OURS, attempt=2))

        assert reply.agent_session_id == "its-1"
        assert json.loads(reply.text)["history"] == ["facts"]

    @pytest.mark.slow
    async def test_an_unknown_conversation_is_refused(
        self, make: Make, say: Any, store: Path, sessions: MemoryAgentSessions
    ) -> None:
        """To continue a conversation that the agent does not have is an error, by the service's name or the agent's."""
        known = agent_sessions.AgentSession(
            agent_session_id=OURS, backend="mine", working_dir="/", program_session_id="gone", created=True
        )
        await sessions.keep(known)
        ours = await failure(make().prompt(say("facts", agent_session_id=OURS, session_created=True)))
        named = await failure(make().prompt(say("facts", agent_session_id="its-9", session_created=True)))
        unable = await failure(make("--no-load").prompt(say("facts", agent_session_id=OURS, session_created=True)))
        other = await failure(make(name="other").prompt(say("facts", agent_session_id=OURS, session_created=True)))

        gemini = await failure(
            make("--name", "gemini-cli").prompt(say("facts", agent_session_id=OURS, session_created=True))
        )

        assert [error.code for error in (ours, named, unable, other, gemini)] == ["unknown_agent_session"] * 5
        assert ["sessionRetention" in error.message for error in (ours, gemini)] == [False, True]

    async def test_a_foreign_conversation_continues_by_the_agents_name(self, make: Make, say: Any, store: Path) -> None:
        """A conversation that was begun elsewhere can be continued by the agent's own name for it."""
        (store / "its-own").write_text('["before"]')
        reply = await make().prompt(say("facts", agent_session_id="its-own", session_created=True))

        assert json.loads(reply.text)["history"] == ["before", "facts"]

    @pytest.mark.slow
    @pytest.mark.parametrize("restarts", [False, True], ids=["at once", "after a restart"])
    async def test_gemini_is_not_hurried_into_a_loss(
        self, make: Make, say: Any, sessions: MemoryAgentSessions, restarts: bool
    ) -> None:
        """Gemini, which names conversations by the minute, continues one only after the minute of its beginning."""
        fake = clock.FakeClock(datetime(2026, 2, 10, 14, 30, 20, tzinfo=UTC))
        backend = make("--name", "gemini-cli", time=fake)
        await backend.prompt(say("facts", agent_session_id=OURS))
        if restarts:
            backend = make("--name", "gemini-cli", time=fake, kept=sessions.crashed(lose_unsynced=True))
        work = asyncio.ensure_future(backend.prompt(say("facts", agent_session_id=OURS, session_created=True)))
        for _ in range(100):
            await asyncio.sleep(0)
        waits = fake.next_wake_seconds()
        fake.advance(waits or 0)
        reply = await work

        assert waits == 40.5
        assert json.loads(reply.text)["history"] == ["facts", "facts"]

    @pytest.mark.slow
    async def test_the_clean_up_of_gemini_is_off_by_default(self, make: Make, say: Any) -> None:
        """Gemini's clean-up of loaded conversations is off by default; other agents get no such setting."""
        said = [await make("--name", name).prompt(say("facts")) for name in ("gemini-cli", "other")]
        gemini, other = (json.loads(reply.text)["env"].get("GEMINI_CLI_SYSTEM_DEFAULTS_PATH") for reply in said)
        with open(gemini, encoding="utf-8") as file:  # noqa: ASYNC230
            defaults = json.load(file)

        assert defaults == {"general": {"sessionRetention": {"enabled": False}}}
        assert other is None

    @pytest.mark.slow
    async def test_a_conversation_continues_without_a_wait(self, make: Make, say: Any) -> None:
        """Other agents continue a conversation within its first minute, and Gemini without waiting in a later one."""
        fake = clock.FakeClock(datetime(2026, 2, 10, 14, 30, 59, tzinfo=UTC))
        for name, ours, seconds in (("other", OURS, 0), ("gemini-cli", "ours-too", 1)):
            await make("--name", name, time=fake).prompt(say("facts", agent_session_id=ours))
            fake.advance(seconds)
            again = say("facts", agent_session_id=ours, session_created=True)
            reply = await make("--name", name, time=fake).prompt(again)

            assert json.loads(reply.text)["history"] == ["facts", "facts"]


class TestTools:
    """Prompts without tools."""

    async def test_an_agent_that_nothing_holds_is_refused(self, make: Make, say: Any, store: Path) -> None:
        """An agent whose tools cannot be turned off is not started for a prompt without tools, and is named."""
        error = await failure(make().prompt(say("write made.txt", tools=False)))

        assert (error.code, error.detail) == ("tools_cannot_be_turned_off", {"backend": "mine"})
        assert names(store) == []

    async def test_an_agent_under_a_false_name_is_refused(self, make: Make, say: Any, store: Path) -> None:
        """An agent is refused if its own name differs from the one that its command suggests."""
        error = await failure(make("--copilot-like").prompt(say("write made.txt", tools=False)))

        assert error.code == "tools_cannot_be_turned_off"
        assert names(store) == []

    async def test_a_tool_request_without_tools_is_denied(
        self, make: Make, say: Any, store: Path, tmp_path: Path
    ) -> None:
        """An agent without tools that asks for permission is denied once, and its turn continues."""
        reply = await make("--name", "copilot").prompt(say("write made.txt", tools=False))

        assert (reply.text, reply.error) == ("I was not allowed to.", None)
        assert (store / "chosen").read_text() == "id-reject_once"
        assert not (tmp_path / "made.txt").exists()

    async def test_an_agent_that_acts_without_permission_is_stopped(self, make: Make, say: Any, store: Path) -> None:
        """An agent that uses a tool without asking is stopped, and the error names the tool."""
        error = await failure(make("--name", "copilot", "--acts").prompt(say("write made.txt", tools=False)))

        assert (error.code, error.detail["tool"]) == ("tools_cannot_be_turned_off", "write made.txt")

    @pytest.mark.slow
    async def test_each_agent_is_held_in_its_own_way(self, make: Make, say: Any) -> None:
        """Tools are turned off with each agent's own arguments, modes and fields beside the protocol."""
        claude = await make("--name", "claude-agent-acp", "--modes", "plan,default,yolo").prompt(
            say("facts", tools=False)
        )
        gemini = await make("--name", "gemini-cli", "--modes", "yolo,default").prompt(say("facts", tools=False))
        facts = [json.loads(reply.text) for reply in (claude, gemini)]

        assert [fact["mode"] for fact in facts] == ["default", "default"]
        assert facts[0]["meta"]["claudeCode"] == {"options": {"tools": []}}
        assert any(argument.startswith("--admin-policy=") for argument in facts[1]["argv"])


class TestTrouble:
    """Agents that fail."""

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("unauthorized", "unauthorized"),
            ("refuse 401", "unauthorized"),
            ("refuse -32603", "rate_limited"),
            ("stop refusal", "prompt_refused"),
            ("stop max_turn_requests", "agent_error"),
            ("stop cancelled", "agent_error"),
        ],
    )
    async def test_a_turn_without_its_usual_end_is_an_error(self, make: Make, say: Any, text: str, code: str) -> None:
        """A turn without its usual end is an error, and the reply names its conversation."""
        reply = await make().prompt(say(text, agent_session_id=OURS))

        assert reply.error is not None
        assert (reply.error.code, reply.text, reply.agent_session_id) == (code, "", "its-0")

    @pytest.mark.slow
    async def test_a_turn_cut_off_for_length_has_its_finish_reason(self, make: Make, say: Any) -> None:
        """A reply that reached its maximum length has the finish reason `length`."""
        reply = await make().prompt(say("stop max_tokens", agent_session_id=OURS))

        assert (reply.error, reply.finish, reply.agent_session_id) == (None, "length", "its-0")

    async def test_a_withheld_key_is_named(self, make: Make, say: Any) -> None:
        """A refusal that names a withheld variable explains how the agent gets that variable."""
        reply = await make().prompt(say("lack WITHHELD_KEY"))

        assert reply.error is not None
        assert reply.error.message.startswith("The agent mine refused: ")
        assert "unless `secrets` of the backend mine in agents.json lists it" in reply.error.message
        assert reply.error.detail["withheld"] == ["WITHHELD_KEY"]

    async def test_a_required_login_fails_the_prompt(self, make: Make, say: Any, store: Path) -> None:
        """An agent that requires a login fails the prompt before a conversation exists."""
        (store / "refuse-new").touch()
        reply = await make().prompt(say("facts"))

        assert reply.error is not None
        assert (reply.error.code, reply.agent_session_id) == ("unauthorized", None)

    @pytest.mark.parametrize(
        ("name", "text", "code"),
        [
            ("Copilot", "Error: Authentication failed with provider (401)", "unauthorized"),
            ("Copilot", "Error: Sorry, you've hit a rate limit", "rate_limited"),
            ("Copilot", "Error: 500 Internal", "agent_error"),
            ("other", "Error: Authentication failed", "unauthorized"),
            ("other", "Error: it is what you asked me to write.", None),
        ],
    )
    async def test_an_error_in_the_place_of_a_reply_is_one(self, name: str, text: str, code: str | None) -> None:
        """An error message in place of the reply text is an error, even if the turn ended as usual."""
        turn = acp_turns.Turn(tools=True)
        content = {"type": "text", "text": text}
        notice = {"type": "text", "text": "Info: Request failed due to a transient API error. Retrying..."}
        turn.feed("s", {"sessionUpdate": "agent_message_chunk", "content": notice})
        turn.feed("s", {"sessionUpdate": "agent_message_chunk", "content": content})
        reply = acp_turns.reply("mine", turn, _ended(), name.lower())

        assert (reply.error.code if reply.error else None) == code

    async def test_a_character_in_two_pieces_is_one(self) -> None:
        """A character whose surrogates come in two pieces is whole in the reply; half of one stays half."""
        turn = acp_turns.Turn(tools=True)
        for text in ("One \ud83d", "\ude00", " two \ud83d"):
            turn.feed("s", {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})

        assert acp_turns.reply("mine", turn, _ended(), "").text == "One \U0001f600 two \ud83d"

    @pytest.mark.parametrize("update", ["agent_thought_chunk", "tool_call_update", "plan"])
    async def test_every_update_is_a_sign_of_life(self, update: str) -> None:
        """An agent that thinks, or whose tool prints, is not silent, although nothing of it is its reply."""
        heard: list[str] = []
        turn = acp_turns.Turn(tools=True)
        turn.begin(heard.append)
        turn.feed("s", {"sessionUpdate": update, "toolCallId": "t", "content": {"type": "text", "text": "Hm."}})

        assert heard == [""]
        assert turn.text() == ""

    @pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1])
    async def test_a_price_that_is_none_is_not_kept(self, amount: float) -> None:
        """A price that is not an amount counts as not reported."""
        turn = acp_turns.Turn(tools=True)
        turn.feed("s", {"sessionUpdate": "usage_update", "cost": {"amount": amount, "currency": "USD"}})

        assert turn.cost_so_far is None

    async def test_a_mode_notice_is_removed_from_the_reply(self) -> None:
        """A notice of Gemini's mode is removed from the reply."""
        turn = acp_turns.Turn(tools=True)
        content = {"type": "text", "text": "[MODE_UPDATE] yolo\nYes."}
        turn.feed("s", {"sessionUpdate": "agent_message_chunk", "content": content})
        tokens = {"quota": {"token_count": {"input_tokens": 3, "output_tokens": 2}}}
        response = _ended(field_meta=tokens)
        reply = acp_turns.reply("mine", turn, response, "gemini-cli")

        assert reply.text == "Yes."
        assert reply.usage is not None
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 2)

    @pytest.mark.parametrize(("how", "code"), [("", "agent_error"), ("signal", "agent_signalled")])
    async def test_a_crashed_agent_is_an_error_with_its_stderr(self, make: Make, say: Any, how: str, code: str) -> None:
        """An agent that crashes in a turn is an error with its exit and its last lines of standard error."""
        error = await failure(make().prompt(say(f"crash {how}")))

        assert error.code == code
        assert "it burns" in error.detail["stderr"]

    @pytest.mark.parametrize("how", ["", "lines"])
    async def test_a_flood_is_stopped(self, make: Make, say: Any, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A line that is too long, or too many stray lines, end the agent."""
        monkeypatch.setattr(acp_connection, "MAX_LINE_BYTES", 1_000_000)
        error = await failure(make().prompt(say(f"flood {how}")))

        assert error.code == "reply_unreadable"

    async def test_an_agent_that_falls_mute_is_ended(
        self, make: Make, say: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An agent that closes its output and does not exit is ended."""
        monkeypatch.setattr(acp_agent, "PARTING_SECONDS", 0.2)
        error = await failure(make().prompt(say("mute")))

        assert error.code == "reply_unreadable"

    async def test_a_silent_agent_is_ended_at_its_idle_limit(self, make: Make, say: Any) -> None:
        """An agent that writes no message for longer than its idle limit is ended."""
        error = await failure(make(idle_seconds=0.5).prompt(say("hang")))

        assert (error.code, error.detail) == ("agent_idle", {"idle_seconds": 0.5})
        assert error.message.endswith("wrote nothing for 0.5 seconds.")

    async def test_an_agent_beyond_its_time_limit_is_cancelled(
        self, make: Make, say: Any, store: Path, hanging: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An agent that exceeds the time-out is cancelled, and its last reply does not count."""
        # The process has this much longer to start and to hang, because the clock of its turn is stopped.
        monkeypatch.setattr(acp_agent, "PARTING_SECONDS", 60.0)
        time = clock.FakeClock()
        work = asyncio.ensure_future(make(time=time).prompt(say("hang", timeout_seconds=0.2)))
        await hanging()
        time.advance(1)
        error = await failure(work)

        assert error.code == "agent_timeout"
        assert "cancelled" in names(store)

    async def test_a_program_without_the_protocol_is_ended(
        self, make: Make, say: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A program that does not speak the protocol is ended after the opening time-out."""
        monkeypatch.setattr(acp_agent, "OPENING_SECONDS", 0.3)
        monkeypatch.setattr(acp_agent, "PARTING_SECONDS", 0.1)
        error = await failure(make(command=("sleep", "1000")).prompt(say("facts")))

        assert (error.code, error.detail) == ("agent_timeout", {"timeout_seconds": 0.3})

    async def test_a_program_that_exits_at_once_is_an_error(self, make: Make, say: Any) -> None:
        """A program that prints another text and exits is an error with its exit code and that text."""
        error = await failure(make(command=("sh", "-c", "echo usage; exit 2")).prompt(say("facts")))

        assert (error.code, error.detail["exit_code"], error.detail["stray"]) == ("agent_error", 2, ["usage"])

    async def test_a_missing_command_is_agent_missing(self, make: Make, say: Any, tmp_path: Path) -> None:
        """A command that does not exist or cannot be executed is `agent_missing`, and a check names a missing one."""
        (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
        (tmp_path / "broken").chmod(0o755)
        missing = BackendConfig(name="mine", type="acp", command=("no-such-agent",))
        lack = acp_backend.lacks(missing, os.environ)
        error = await failure(make(command=("no-such-agent",)).prompt(say("facts")))
        broken = await failure(make(command=(str(tmp_path / "broken"),)).prompt(say("facts")))

        assert [found.code for found in (error, broken)] == ["agent_missing"] * 2
        assert lack is not None
        assert "no-such-agent" in lack.message

    async def test_a_missing_protocol_package_is_named_in_the_error(
        self, make: Make, say: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A prompt without the protocol's package fails, and the error names the extra to install."""
        monkeypatch.setattr(util, "find_spec", lambda _: None)
        error = await failure(make().prompt(say("facts")))

        assert error.code == "agent_missing"
        assert "control-room[acp]" in error.message

    async def test_a_missing_working_folder_has_its_own_code(self, make: Make, say: Any) -> None:
        """A missing working folder keeps its own code."""
        error = await failure(make().prompt(say("facts", working_dir=PurePath("/no/such/folder"))))

        assert error.code == "cwd_missing"


class TestEnds:
    """Processes after a cancellation or the end of a turn."""

    @pytest.mark.parametrize("text", ["hang", "stubborn"])
    async def test_a_cancellation_leaves_nothing(
        self, make: Make, say: Any, store: Path, text: str, hanging: Any
    ) -> None:
        """A cancelled prompt ends the agent and all processes that it started, stubborn ones too."""
        before = os.listdir("/proc/self/fd")
        work = asyncio.ensure_future(make().prompt(say(text)))
        pids = [int(pid) for pid in (await hanging()).split()]
        handles = [os.pidfd_open(pid) for pid in outside(store)]
        begun = asyncio.get_running_loop().time()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        took = asyncio.get_running_loop().time() - begun

        assert pids
        assert handles
        assert all(living.ended_within(handle, 0) for handle in handles)
        assert took < 30
        assert (store / "cancelled").exists() or text == "stubborn"
        for handle in handles:
            os.close(handle)
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 4

    async def test_an_agent_that_dies_with_the_launcher_is_launcher_lost(
        self, make: Make, say: Any, running: supervisor.Supervisor, hanging: Any
    ) -> None:
        """A prompt whose agent dies with the launcher ends as `LauncherLost`, not as a failure of the agent."""
        work = asyncio.ensure_future(make().prompt(say("hang")))
        await hanging()
        os.kill(running.launcher_pid or 0, signal.SIGKILL)

        with pytest.raises(commands.LauncherLost):
            await work

    async def test_an_agent_that_does_not_go_is_ended(
        self, make: Make, say: Any, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An agent that does not exit after its reply is ended with its children, and the reply counts."""
        monkeypatch.setattr(acp_agent, "PARTING_SECONDS", 0.2)
        reply = await make("--lingers").prompt(say("facts"))

        assert reply.error is None
        assert outside(store) == []


def outside(store: Path) -> list[int]:
    """Return the processes that have the store in their environment, by their ids outside the namespace."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"ACP_STORE={store}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _ended(**given: Any) -> schema.PromptResponse:
    # Not at the top: each pytest worker collects this file, and loading the package takes a second.
    from acp import schema

    return schema.PromptResponse(stop_reason="end_turn", **given)
