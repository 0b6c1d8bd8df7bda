"""Programs as processes: stub programs under the real supervisor, their input and their ends."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.agents import backends
from app.agents.programs import catalogue
from app.domain import agent_sessions
from app.engine import agent_ports
from app.storage.agent_sessions import MemoryAgentSessions
from tests.unit.agents.conftest import Speaking
from tests.unit.agents.prompts import prompt
from tests.unit.agents.stub_programs import Stub, claude_answer, codex_answer

OURS = "550e8400-e29b-41d4-a716-446655440000"
THREAD = "01a1ffcd-0000-7000-8000-000000000000"
OTHER = "01a1ffcd-0000-7000-8000-000000000001"


@pytest.fixture
def claude(tmp_path: Path) -> Stub:
    return Stub(tmp_path / "bin", "claude")


@pytest.fixture
def codex(tmp_path: Path) -> Stub:
    return Stub(tmp_path / "bin", "codex")


def asked(work: Path, text: str = "Say PONG.", **given: Any) -> agent_ports.AgentPrompt:
    """Return a prompt that allows tools, in the folder."""
    usual: dict[str, Any] = {"tools": True, "working_dir": work, "max_tokens": None, "timeout_seconds": 60.0}
    return prompt(text, **(usual | given))


def code_of(reply: agent_ports.AgentReply) -> str | None:
    """Return the code of a reply's error."""
    return reply.error.code if reply.error else None


class TestWhatItIsGiven:
    """Arguments, folder, environment and input."""

    async def test_a_prompt_is_read(self, speaking: Speaking, claude: Stub, work: Path) -> None:
        """The program starts in the working folder and reads its whole prompt."""
        claude.answer(claude_answer("PONG", OURS))
        text = 'Say "PONG".\n$HOME `x` é'
        reply = await speaking("claude-code").prompt(asked(work, text))
        (call,) = claude.calls()

        assert (reply.text, reply.agent_session_id, reply.error) == ("PONG", OURS, None)
        assert reply.usage is not None
        assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cost_usd) == (5, 3, 0.5)
        assert call["cwd"] == str(work)
        assert call["stdin"] == text

    @pytest.mark.parametrize("text", ["Sesame", "--help\n- an item\n\0" + "x" * 300_000], ids=["short", "hostile"])
    @pytest.mark.parametrize("type_name", catalogue.PROGRAMS)
    async def test_a_prompt_is_in_no_argument_and_no_variable(
        self, speaking: Speaking, tmp_path: Path, work: Path, type_name: str, text: str
    ) -> None:
        """Prompt and instruction reach the program, and neither its arguments nor its environment contain them."""
        stub = Stub(tmp_path / "bin", catalogue.PROGRAMS[type_name].commands[0])
        await speaking(type_name).prompt(asked(work, text, system="Open."))
        (call,) = stub.calls()

        assert call["stdin"].endswith(text)
        assert "Open." in (call["stdin"][:5], *call.get("files", {}).values())
        assert not any(word in shown for word in (text, "Open.") for shown in [*call["argv"], *call["env"].values()])

    @pytest.mark.parametrize(
        ("given", "code"),
        [
            ({"model": "--yolo"}, "unknown_model"),
            ({"model": "m\0"}, "unknown_model"),
            ({"agent_session_id": "-x", "session_created": True}, "unknown_agent_session"),
        ],
    )
    @pytest.mark.parametrize("type_name", catalogue.PROGRAMS)
    async def test_no_value_becomes_an_option(
        self, speaking: Speaking, tmp_path: Path, work: Path, type_name: str, given: dict[str, Any], code: str
    ) -> None:
        """A model or conversation that resembles an option, or cannot be an argument, starts no program."""
        stub = Stub(tmp_path / "bin", catalogue.PROGRAMS[type_name].commands[0])
        with pytest.raises(errors.AgentFailed) as failed:
            await speaking(type_name).prompt(asked(work, **given))

        assert (failed.value.code, stub.calls()) == (code, [])

    @pytest.mark.parametrize(
        ("command", "argv"),
        [
            (("aider", "{prompt}"), ["\n--yes"]),
            (("aider", "-m", "{prompt}", "--sys", "{system}"), ["-m", "\n--yes", "--sys", "\n-v"]),
            (("aider", "--message={prompt}"), ["--message=--yes"]),
            (("aider", "--", "{prompt}"), ["--", "--yes"]),
        ],
    )
    async def test_a_prompt_of_a_template_becomes_no_option(
        self, speaking: Speaking, tmp_path: Path, work: Path, command: tuple[str, ...], argv: list[str]
    ) -> None:
        """A prompt or instruction that begins with a hyphen gets a line end before it where it could be an option."""
        stub = Stub(tmp_path / "bin", "aider")
        backend = speaking("template", command=command, tools_off=())
        await backend.prompt(asked(work, "--yes", tools=False, system="-v" if "{system}" in command else None))

        assert stub.calls()[0]["argv"] == argv

    async def test_the_environment_is_cleaned(self, speaking: Speaking, claude: Stub, work: Path) -> None:
        """Variables of another agent are removed; keys, endpoints, folders and settings of the user remain."""
        left = dict.fromkeys(
            ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_CHILD_SESSION"], "x"
        )
        left |= dict.fromkeys(["CLAUDE_CODE_SSE_PORT", "CLAUDE_PID", "CLAUDE_EFFORT", "AI_AGENT"], "x")
        kept = {
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": "u",
            "CLAUDE_CONFIG_DIR": "c",
            "DISABLE_AUTOUPDATER": "0",
        }
        claude.answer(claude_answer("PONG"))
        backend = speaking("claude-code", environ={**left, **kept})
        await backend.prompt(asked(work, env={"CONTROL_ROOM_RUN_ID": "r", "CONTROL_ROOM_DEPTH": "1"}))
        env = claude.calls()[0]["env"]

        assert not left.keys() & env.keys()
        assert kept.items() <= env.items()
        assert (env["CONTROL_ROOM_RUN_ID"], env["CONTROL_ROOM_DEPTH"]) == ("r", "1")
        assert env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"

    async def test_address_and_key_are_handed_over(self, speaking: Speaking, claude: Stub, work: Path) -> None:
        """Address and key of the backend replace those of the environment."""
        claude.answer(claude_answer("PONG"))
        backend = speaking(
            "claude-code",
            environ={"MY_KEY": "secret", "ANTHROPIC_API_KEY": "other"},
            base_url="http://h:1",
            api_key_env="MY_KEY",
        )
        await backend.prompt(asked(work))
        env = claude.calls()[0]["env"]

        assert (env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_API_KEY"]) == ("http://h:1", "secret")

    @pytest.mark.parametrize("type_name", [*catalogue.PROGRAMS, "template"])
    async def test_a_program_gets_only_its_own_keys(
        self, speaking: Speaking, tmp_path: Path, work: Path, type_name: str
    ) -> None:
        """A program gets its own keys and those that `secrets` of its backend names, and no other secrets."""
        known = catalogue.PROGRAMS.get(type_name)
        stub = Stub(tmp_path / "bin", known.commands[0] if known else "mine")
        others = ["NPM_TOKEN", "DB_PASSWORD", "DEPLOY_KEY_ID", "DEPLOY_KEY", "PLAIN"]
        environ = dict.fromkeys([*backends.key_variables(), *others], "value")
        command = {} if known else {"command": ("mine",)}
        await speaking(type_name, environ=environ, secrets=("DEPLOY_*",), **command).prompt(asked(work))
        (call,) = stub.calls()

        own = {*known.keys} if known else set()
        assert environ.keys() & call["env"].keys() == own | {"DEPLOY_KEY_ID", "DEPLOY_KEY", "PLAIN"}

    @pytest.mark.parametrize(
        ("said", "withheld"),
        [
            ("Missing environment variable: `DEPLOY_KEY`.", ["DEPLOY_KEY"]),
            ("set MY_TOKEN or DEPLOY_KEY", ["DEPLOY_KEY", "MY_TOKEN"]),
            ("set GIVEN_KEY or ABSENT_KEY", None),
            ("set MY_TOKEN_FILE", None),
        ],
    )
    async def test_a_withheld_key_is_named(
        self, speaking: Speaking, codex: Stub, work: Path, said: str, withheld: list[str] | None
    ) -> None:
        """A failure that names a withheld variable explains how the program gets that variable."""
        codex.answer({"stdout": [{"type": "turn.failed", "error": {"message": said}}], "exit_code": 1})
        environ = dict.fromkeys(["DEPLOY_KEY", "MY_TOKEN", "GIVEN_KEY"], "value")
        reply = await speaking("codex", environ=environ, secrets=("GIVEN_*",)).prompt(asked(work))

        assert reply.error is not None
        assert reply.error.message.startswith(f"Codex failed: {said.rstrip('.')}")
        assert ("unless `secrets` of the backend one in agents.json lists it" in reply.error.message) is (
            withheld is not None
        )
        assert reply.error.detail.get("withheld") == withheld

    @pytest.mark.parametrize(
        ("model", "keys"),
        [
            ("anthropic/claude", {"ANTHROPIC_API_KEY"}),
            ("google/gemini", {"GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"}),
            ("*/model", set()),
            (None, set()),
        ],
    )
    async def test_a_vendor_of_the_model_has_its_key(
        self, speaking: Speaking, tmp_path: Path, work: Path, model: str | None, keys: set[str]
    ) -> None:
        """OpenCode, whose models name their vendor, gets the keys of that vendor only."""
        stub = Stub(tmp_path / "bin", "opencode")
        environ = dict.fromkeys([*backends.key_variables(), "GOOGLE_GENERATIVE_AI_API_KEY"], "value")
        await speaking("opencode", environ=environ).prompt(asked(work, model=model))

        assert environ.keys() & stub.calls()[0]["env"].keys() == keys | {"OPENCODE_API_KEY"}

    async def test_a_missing_key_fails_the_prompt_before_the_program(
        self, speaking: Speaking, claude: Stub, work: Path
    ) -> None:
        """A key that is not in the environment fails the prompt before the program starts."""
        with pytest.raises(errors.AgentFailed) as failed:
            await speaking("claude-code", api_key_env="MY_KEY").prompt(asked(work))

        assert (failed.value.code, failed.value.detail) == ("missing_secrets", {"missing_secrets": ["MY_KEY"]})
        assert claude.calls() == []

    async def test_the_folder_of_a_prompt_file_is_private_and_gone(
        self, speaking: Speaking, tmp_path: Path, work: Path
    ) -> None:
        """A template's prompt file exists while the program runs, and its folder is removed afterwards."""
        stub = Stub(tmp_path / "bin", "aider")
        stub.answer({"stdout": ["Done."]})
        backend = speaking("template", command=("aider", "--file", "{prompt_file}", ("--model", "{model}")))
        reply = await backend.prompt(asked(work, "é" * 200_000))
        (call,) = stub.calls()

        assert reply.text == "Done."
        assert call["argv"] == ["--file", call["argv"][1]]
        assert call["files"] == {call["argv"][1]: "é" * 200_000}
        assert not Path(call["argv"][1]).parent.exists()

    async def test_a_template_is_filled(self, speaking: Speaking, tmp_path: Path, work: Path) -> None:
        """A template fills its placeholders once, leaves out groups without a value and inserts the tools' options."""
        stub = Stub(tmp_path / "bin", "aider")
        stub.answer({"stdout": ["Done."]})
        backend = speaking(
            "template",
            command=("aider", "{tools}", ("--model", "{model}"), ("--id={session_id}",), '{"a": 1}', "{prompt}"),
            tools_on=("--yes",),
            tools_off=("--no",),
        )
        await backend.prompt(asked(work, "Use {model}.", model="m"))
        await backend.prompt(asked(work, "Say it.", tools=False, agent_session_id=OURS))
        first, second = stub.calls()

        assert first["argv"] == ["--yes", "--model", "m", '{"a": 1}', "Use {model}."]
        assert second["argv"] == ["--no", f"--id={OURS}", '{"a": 1}', "Say it."]


class TestHowItEnds:
    """Success, silence, limits and cancellation."""

    async def test_a_megabyte_comes_back_whole(self, speaking: Speaking, claude: Stub, work: Path) -> None:
        """A reply of a megabyte is not cut."""
        text = "0123456789abcdef" * 65_536
        claude.answer(claude_answer(text))

        assert (await speaking("claude-code").prompt(asked(work))).text == text

    async def test_the_end_of_long_output_is_read(self, speaking: Speaking, codex: Stub, work: Path) -> None:
        """A reply after many megabytes of events is found."""
        said = codex_answer("PONG", THREAD)
        noise = {"type": "item.completed", "item": {"type": "command_execution", "aggregated_output": "x" * 1_000_000}}
        said["stdout"][1:1] = [noise] * 20
        codex.answer(said)

        assert (await speaking("codex").prompt(asked(work))).text == "PONG"

    async def test_silence_is_a_failure(self, speaking: Speaking, claude: Stub, work: Path) -> None:
        """Exit code 0 without output is an error."""
        assert code_of(await speaking("claude-code").prompt(asked(work))) == "reply_unreadable"

    async def test_an_error_has_the_exit_code_and_stderr(self, speaking: Speaking, claude: Stub, work: Path) -> None:
        """An error has the exit code and the text of standard error."""
        claude.answer({"stdout": [], "stderr": "first\nError: out of paper\n", "exit_code": 7})
        reply = await speaking("claude-code").prompt(asked(work))

        assert reply.error is not None
        assert (reply.error.code, reply.error.message) == ("agent_error", "Claude Code failed: Error: out of paper")
        assert reply.error.detail == {"exit_code": 7, "stderr": "first\nError: out of paper"}

    async def test_a_limit_of_silence_is_kept(self, speaking: Speaking, claude: Stub, work: Path) -> None:
        """A program that writes no output for its idle limit is ended, and is asked for streamed output."""
        claude.answer({"stdout": [{"type": "system", "session_id": OURS}], "hangs": True})
        reply = await speaking("claude-code", idle_seconds=1.0).prompt(asked(work))

        assert (code_of(reply), reply.agent_session_id) == ("agent_idle", OURS)
        assert reply.error is not None
        assert reply.error.message == "Claude Code wrote nothing for 1 seconds."
        assert reply.error.detail["idle_seconds"] == 1.0
        assert "stream-json" in claude.calls()[0]["argv"]

    async def test_a_limit_of_time_is_kept(self, speaking: Speaking, claude: Stub, work: Path) -> None:
        """A program that exceeds the time-out is ended."""
        claude.answer({"stdout": [], "hangs": True})
        reply = await speaking("claude-code").prompt(asked(work, timeout_seconds=1.0))

        assert code_of(reply) == "agent_timeout"
        assert reply.error is not None
        assert reply.error.message == "Claude Code did not answer within 1 seconds."
        assert reply.error.detail["timeout_seconds"] == 1.0

    async def test_a_cancellation_leaves_nothing(self, speaking: Speaking, claude: Stub, work: Path) -> None:
        """A cancelled prompt ends the program and the processes that it started."""
        claude.answer({"stdout": [], "hangs": True, "child": 567})
        prompting = asyncio.ensure_future(speaking("claude-code").prompt(asked(work)))
        await until(lambda: any("sleep 567" in line for line in lines_of(work)))
        prompting.cancel()
        await asyncio.wait([prompting])

        assert prompting.cancelled()
        assert lines_of(work) == []


class TestConversations:
    """Names of conversations, and their stored state."""

    async def test_we_name_it_before_its_first_prompt(
        self, speaking: Speaking, claude: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """A new conversation is stored before the program starts, and marked as created after its first answer."""
        claude.answer({"stdout": [], "hangs": True}, claude_answer("PONG", OURS))
        backend = speaking("claude-code")
        prompting = asyncio.ensure_future(backend.prompt(asked(work, agent_session_id=OURS)))
        await until(claude.calls)
        before = await sessions.find(OURS)
        prompting.cancel()
        await asyncio.wait([prompting])
        await backend.prompt(asked(work, agent_session_id=OURS, attempt=2))

        assert before == session(work, created=False)
        assert await known(sessions) == session(work, created=True)
        assert [flag(call, "--session-id", "--resume") for call in claude.calls()] == [
            ("--session-id", OURS),
            ("--resume", OURS),
        ]

    async def test_a_first_prompt_that_never_arrived_is_sent_anew(
        self, speaking: Speaking, claude: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """If the program does not know the conversation of an interrupted first prompt, the prompt begins it."""
        await sessions.keep(session(work, created=False))
        unknown = {"stdout": [], "stderr": f"No conversation found with session ID: {OURS}", "exit_code": 1}
        claude.answer(unknown, claude_answer("PONG", OURS))
        reply = await speaking("claude-code").prompt(asked(work, agent_session_id=OURS, attempt=2))

        assert reply.text == "PONG"
        assert [flag(call, "--session-id", "--resume")[0] for call in claude.calls()] == ["--resume", "--session-id"]

    async def test_a_name_that_is_taken_and_unknown_is_left(
        self, speaking: Speaking, claude: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """A conversation whose name the program holds but cannot resume gets another name permanently."""
        await sessions.keep(session(work, created=False))
        unknown = {"stdout": [], "stderr": f"No conversation found with session ID: {OURS}", "exit_code": 1}
        claude.answer(unknown, claude_answer("PONG", ""), claude_answer("PONG-TWO", ""))
        backend = speaking("claude-code")
        first = await backend.prompt(asked(work, agent_session_id=OURS, attempt=2))
        second = await backend.prompt(asked(work, agent_session_id=OURS, session_created=True, key="next"))
        names = [flag(call, "--session-id", "--resume") for call in claude.calls()]

        assert (first.text, second.text) == ("PONG", "PONG-TWO")
        assert [option for option, _ in names] == ["--resume", "--session-id", "--resume"]
        assert names[0][1] == OURS
        assert names[1][1] == names[2][1] != OURS

    async def test_a_name_that_is_taken_is_gone_on_with(self, speaking: Speaking, claude: Stub, work: Path) -> None:
        """If the program knows a conversation that is not stored here, the retry continues it."""
        used = {"stdout": [], "stderr": f"Error: Session ID {OURS} is already in use.", "exit_code": 1}
        claude.answer(used, claude_answer("PONG", OURS))
        reply = await speaking("claude-code").prompt(asked(work, agent_session_id=OURS, attempt=2))

        assert reply.text == "PONG"
        assert [flag(call, "--session-id", "--resume")[0] for call in claude.calls()] == ["--session-id", "--resume"]

    async def test_a_lost_conversation_is_not_begun_in_silence(
        self, speaking: Speaking, claude: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """A created conversation that the program no longer knows is an error, and no other one is begun."""
        await sessions.keep(session(work, created=True))
        claude.answer({"stdout": [], "stderr": "No conversation found with session ID: x", "exit_code": 1})
        reply = await speaking("claude-code").prompt(asked(work, agent_session_id=OURS, session_created=True))

        assert code_of(reply) == "unknown_agent_session"
        assert len(claude.calls()) == 1

    async def test_its_own_name_is_kept_while_it_runs(
        self, speaking: Speaking, codex: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """The program's name for a conversation is stored as soon as it is printed, and survives a cancelled prompt."""
        hanging = {"stdout": [{"type": "thread.started", "thread_id": THREAD}], "hangs": True}
        codex.answer(hanging, codex_answer("PONG", THREAD))
        backend = speaking("codex")
        prompting = asyncio.ensure_future(backend.prompt(asked(work, agent_session_id=OURS)))
        while (kept := await sessions.find(OURS)) is None or kept.program_session_id is None:
            await asyncio.wait([prompting], timeout=0.02)
        prompting.cancel()
        await asyncio.wait([prompting])
        reply = await backend.prompt(asked(work, agent_session_id=OURS, attempt=2))
        second = codex.calls()[1]["argv"]

        assert kept == session(work, created=False, program_session_id=THREAD)
        assert second[:2] == ["exec", "resume"]
        assert THREAD in second
        assert reply.text == "PONG"
        assert await known(sessions) == session(work, created=True, program_session_id=THREAD)

    async def test_its_own_name_is_kept_of_a_turn_that_fails(
        self, speaking: Speaking, codex: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """A turn that fails also stores the program's name for the conversation."""
        failed = {"type": "turn.failed", "error": {"message": "unexpected status 401 Unauthorized"}}
        codex.answer({"stdout": [{"type": "thread.started", "thread_id": THREAD}, failed], "exit_code": 1})
        reply = await speaking("codex").prompt(asked(work, agent_session_id=OURS))

        assert code_of(reply) == "unauthorized"
        assert await known(sessions) == session(work, created=False, program_session_id=THREAD)

    async def test_a_first_prompt_without_a_name_is_sent_anew(
        self, speaking: Speaking, codex: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """A retry of a first prompt that was cut off before the conversation had a name begins another one."""
        await sessions.keep(session(work, created=False))
        codex.answer(codex_answer("PONG", THREAD))
        await speaking("codex").prompt(asked(work, agent_session_id=OURS, attempt=2))

        assert "resume" not in codex.calls()[0]["argv"]
        assert await known(sessions) == session(work, created=True, program_session_id=THREAD)

    async def test_a_reply_from_another_conversation_fails(
        self, speaking: Speaking, codex: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """A program that begins another conversation instead of continuing fails, and the stored name stays."""
        await sessions.keep(session(work, created=True, program_session_id=THREAD))
        codex.answer(codex_answer("PONG", OTHER))
        reply = await speaking("codex").prompt(asked(work, agent_session_id=OURS, session_created=True))

        assert code_of(reply) == "unknown_agent_session"
        assert await known(sessions) == session(work, created=True, program_session_id=THREAD)

    async def test_a_failure_in_another_conversation_leaves_the_stored_name(
        self, speaking: Speaking, codex: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """A program that begins another conversation and then fails is asked to continue the known one again."""
        await sessions.keep(session(work, created=True, program_session_id=THREAD))
        failed = {"type": "turn.failed", "error": {"message": "unexpected status 529 Overloaded"}}
        begun = {"stdout": [{"type": "thread.started", "thread_id": OTHER}, failed], "exit_code": 1}
        codex.answer(begun, codex_answer("PONG", THREAD))
        backend = speaking("codex")
        replies = [await backend.prompt(asked(work, agent_session_id=OURS, session_created=True)) for _ in range(2)]

        assert [code_of(reply) for reply in replies] == ["backend_unavailable", None]
        assert all(THREAD in call["argv"] for call in codex.calls())
        assert await known(sessions) == session(work, created=True, program_session_id=THREAD)

    async def test_a_named_conversation_continues(
        self, speaking: Speaking, codex: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """A person may name a conversation of the program; its instruction is then part of the message."""
        codex.answer(codex_answer("PONG", THREAD))
        backend = speaking("codex")
        await backend.prompt(asked(work, agent_session_id=THREAD, session_created=True, system="Be brief."))
        first = codex.calls()[0]
        kept = await sessions.find(THREAD)
        second = await backend.prompt(asked(work, agent_session_id=THREAD, session_created=True))

        assert (first["argv"][-2:], first["stdin"]) == ([THREAD, "-"], "Be brief.\n\n---\n\nSay PONG.")
        assert kept is not None
        assert (kept.created, kept.program_session_id) == (True, THREAD)
        assert (second.text, THREAD in codex.calls()[1]["argv"]) == ("PONG", True)

    async def test_a_new_instruction_is_sent_with_the_message(
        self, speaking: Speaking, claude: Stub, work: Path
    ) -> None:
        """An instruction other than the conversation's first one is sent with the message."""
        claude.answer(claude_answer("PONG", OURS))
        backend = speaking("claude-code")
        await backend.prompt(asked(work, agent_session_id=OURS, system="Be brief."))
        await backend.prompt(asked(work, agent_session_id=OURS, system="Be brief.", session_created=True))
        await backend.prompt(asked(work, agent_session_id=OURS, system="Be kind.", session_created=True))
        *same, third = claude.calls()

        assert [(*call["files"].values(), call["stdin"]) for call in same] == [("Be brief.", "Say PONG.")] * 2
        assert ("files" in third, third["stdin"]) == (False, "Be kind.\n\n---\n\nSay PONG.")

    async def test_a_conversation_of_another_backend_is_refused(
        self, speaking: Speaking, claude: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """A conversation of another backend is refused, and no program starts."""
        await sessions.keep(agent_sessions.AgentSession(agent_session_id=OURS, backend="b", working_dir="/"))
        with pytest.raises(errors.AgentFailed) as failed:
            await speaking("claude-code").prompt(asked(work, agent_session_id=OURS))

        assert failed.value.code == "unknown_agent_session"
        assert claude.calls() == []

    async def test_a_name_without_a_uuid_gets_a_constant_one(
        self, speaking: Speaking, claude: Stub, work: Path, sessions: MemoryAgentSessions
    ) -> None:
        """A conversation whose name is not a UUID gets the same UUID at every try."""
        claude.answer({"stdout": [], "exit_code": 1}, {"stdout": [], "exit_code": 1})
        backend = speaking("claude-code")
        await backend.prompt(asked(work, agent_session_id="chat"))
        await backend.prompt(asked(work, agent_session_id="chat", attempt=2))
        given = [flag(call, "--session-id", "--resume")[1] for call in claude.calls()]
        kept = await sessions.find("chat")

        assert given[0] == given[1] != "chat"
        assert kept is not None
        assert kept.program_session_id == given[0]

    async def test_a_template_without_resume_refuses_to_continue(
        self, speaking: Speaking, tmp_path: Path, work: Path
    ) -> None:
        """A template without `resume` begins conversations and refuses to continue one, with the backend's name."""
        stub = Stub(tmp_path / "bin", "aider")
        stub.answer({"stdout": ["Done."]})
        backend = speaking("template", command=("aider",))
        await backend.prompt(asked(work, agent_session_id=OURS))
        with pytest.raises(errors.AgentFailed, match="The backend one") as failed:
            await backend.prompt(asked(work, agent_session_id=OURS, session_created=True))

        assert failed.value.code == "unknown_agent_session"
        assert len(stub.calls()) == 1


class TestRefusals:
    """Prompts that are refused before a program starts."""

    @pytest.mark.parametrize("type_name", catalogue.PROGRAMS)
    async def test_a_missing_program_is_named_with_its_installation(
        self, speaking: Speaking, work: Path, type_name: str
    ) -> None:
        """The error of a missing program names the way to install it and the variable for its path."""
        program = catalogue.PROGRAMS[type_name]
        with pytest.raises(errors.AgentFailed) as failed:
            await speaking(type_name, environ={"PATH": "/nowhere"}).prompt(asked(work))

        assert failed.value.code == "agent_missing"
        assert program.install in failed.value.message
        assert str(program.path_variable) in failed.value.message

    @pytest.mark.parametrize("type_name", ["cursor", "template"])
    async def test_tools_that_cannot_be_turned_off(
        self, speaking: Speaking, tmp_path: Path, work: Path, type_name: str
    ) -> None:
        """A program whose tools cannot be turned off is not started for a prompt without tools."""
        stub = Stub(tmp_path / "bin", "cursor-agent")
        command = {"command": ("cursor-agent",)} if type_name == "template" else {}
        with pytest.raises(errors.AgentFailed, match="one") as failed:
            await speaking(type_name, **command).prompt(asked(work, tools=False))

        assert failed.value.code == "tools_cannot_be_turned_off"
        assert stub.calls() == []

    @pytest.mark.parametrize(
        ("environ", "config", "tools", "refused"),
        [
            ({"IS_SANDBOX": ""}, {}, True, True),
            ({"IS_SANDBOX": "0"}, {}, True, True),
            ({"IS_SANDBOX": "1"}, {}, True, False),
            ({"IS_SANDBOX": "", "CLAUDE_CODE_BUBBLEWRAP": "1"}, {}, True, False),
            ({"IS_SANDBOX": ""}, {"allowed_tools": ("Bash", "Write")}, True, False),
            ({"IS_SANDBOX": ""}, {}, False, False),
        ],
    )
    async def test_claude_code_as_root_is_refused_with_the_remedies(
        self,
        speaking: Speaking,
        claude: Stub,
        work: Path,
        monkeypatch: pytest.MonkeyPatch,
        environ: dict[str, str],
        config: dict[str, Any],
        tools: bool,
        refused: bool,
    ) -> None:
        """As root, Claude Code is not started with all tools unless in a sandbox, and the error names the ways out."""
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        claude.answer(claude_answer("PONG"))
        backend = speaking("claude-code", environ=environ, **config)
        (outcome,) = await asyncio.gather(backend.prompt(asked(work, tools=tools)), return_exceptions=True)
        code = outcome.code if isinstance(outcome, errors.AgentFailed) else None

        assert (code, len(claude.calls())) == (("agent_refused_root", 0) if refused else (None, 1))
        assert not refused or all(way in str(outcome) for way in ("another user", "IS_SANDBOX=1", "allowed_tools"))

    async def test_a_prompt_too_long_for_a_template(self, speaking: Speaking, tmp_path: Path, work: Path) -> None:
        """A template that takes the prompt as an argument refuses a long one, and the error names `{prompt_file}`."""
        stub = Stub(tmp_path / "bin", "aider")
        with pytest.raises(errors.AgentFailed, match="prompt_file") as failed:
            await speaking("template", command=("aider", "{prompt}")).prompt(asked(work, "x" * 100_001))

        assert failed.value.code == "prompt_too_large"
        assert stub.calls() == []


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(60):
        while True:
            if holds():
                return
            await asyncio.sleep(0.02)


def session(work: Path, **given: Any) -> agent_sessions.AgentSession:
    """Return the stored state of the conversation."""
    usual: dict[str, Any] = {"agent_session_id": OURS, "backend": "one", "counted": agent_sessions.NOTHING_SPENT}
    return agent_sessions.AgentSession(working_dir=str(work), **(usual | given))


async def known(sessions: MemoryAgentSessions) -> agent_sessions.AgentSession:
    """Return the stored state of the conversation without the usage of its turns."""
    found = await sessions.find(OURS)
    assert found is not None
    return dataclasses.replace(found, told=None)


def flag(call: dict[str, Any], *names: str) -> tuple[str, str]:
    """Return the one of these options in a call, and its value."""
    (found,) = [(part, call["argv"][at + 1]) for at, part in enumerate(call["argv"]) if part in names]
    return found


def lines_of(work: Path) -> list[str]:
    """Return the command lines of living processes whose working folder is this one."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and os.readlink(place / "cwd") == str(work):
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
        except OSError:
            continue
    return [line for line in found if line]
