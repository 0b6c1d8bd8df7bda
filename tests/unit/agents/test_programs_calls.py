"""Calls of programs: arguments, the place of the program, and additions to its environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from app import errors, resources
from app.agents import backends, roster
from app.agents.configuration import TIERS, BackendConfig
from app.agents.programs import catalogue, environment, executables, gemini
from app.agents.programs.program import Invocation, Turn
from tests.unit.agents import around
from tests.unit.agents.prompts import prompt

ID = "550e8400-e29b-41d4-a716-446655440000"
SYSTEM = "/f/system.txt"
MESSAGE = "Be brief.\n\n---\n\nSay PONG."
COPILOT = [
    "--output-format", "json", "--no-color", "--no-ask-user", "--no-auto-update", "--disable-client-telemetry",
]  # fmt: skip


def called(
    type_name: str, config: dict[str, Any] | None = None, turn: dict[str, Any] | None = None, **given: Any
) -> Invocation:
    """Return how a program is called."""
    usual: dict[str, Any] = {"tools": True, "model": "m", "system": "Be brief.", "run_id": "run", "key": "step"}
    return catalogue.PROGRAMS[type_name].invoke(
        Turn(
            prompt=prompt("Say PONG.", **(usual | given)),
            config=BackendConfig(name="one", type=type_name, **(config or {})),
            **({"session_id": ID} | (turn or {})),
        )
    )


@pytest.mark.parametrize(
    ("type_name", "new", "resumed"),
    [
        (
            "claude-code",
            ["--print", "--output-format", "json", "--dangerously-skip-permissions", "--model", "m", "--session-id", ID,
             "--append-system-prompt-file", SYSTEM],
            ["--print", "--output-format", "json", "--dangerously-skip-permissions", "--model", "m", "--resume", ID,
             "--append-system-prompt-file", SYSTEM],
        ),
        (
            "codex",
            ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--model", "m",
             "-"],
            ["exec", "resume", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
             "--model", "m", ID, "-"],
        ),
        (
            "gemini",
            ["--output-format", "json", "--skip-trust", "--yolo", "--model", "m", "--session-id", ID],
            ["--output-format", "json", "--skip-trust", "--yolo", "--model", "m", "--resume", ID],
        ),
        (
            "opencode",
            ["run", "--format", "json", "--auto", "--model", "m", "--title", "run step"],
            ["run", "--format", "json", "--auto", "--model", "m", "--session", ID],
        ),
        (
            "github-copilot",
            [*COPILOT, "--allow-all", "--model", "m", "--session-id", ID],
            [*COPILOT, "--allow-all", "--model", "m", f"--resume={ID}"],
        ),
        (
            "cursor",
            ["--print", "--output-format", "stream-json", "--trust", "--force", "--model", "m"],
            ["--print", "--output-format", "stream-json", "--trust", "--force", "--model", "m", "--resume", ID],
        ),
        (
            "qwen",
            ["--yolo", "--output-format", "json", "--model", "m", "--session-id", ID],
            ["--yolo", "--output-format", "json", "--model", "m", "--resume", ID],
        ),
    ],
)  # fmt: skip
def test_a_program_is_called_as_it_wants(type_name: str, new: list[str], resumed: list[str]) -> None:
    """Each program gets its expected arguments, without any word of the prompt, and the prompt on standard input."""
    folder = Path("/f") if type_name == "claude-code" else None
    begun, continued = (called(type_name, turn={"folder": folder, "resumes": resumes}) for resumes in (False, True))
    in_file = begun.files == continued.files == {"system.txt": "Be brief."}

    assert list(begun.arguments) == new
    assert list(continued.arguments) == resumed
    assert begun.stdin == continued.stdin == ("Say PONG." if in_file else MESSAGE)


@pytest.mark.parametrize("type_name", catalogue.PROGRAMS)
def test_a_plain_call_has_no_optional_arguments(type_name: str) -> None:
    """A call without model, instruction and conversation has no options for them, and the prompt is unchanged."""
    invocation = called(type_name, turn={"session_id": None, "folder": Path("/f")}, model=None, system=None)

    assert not {"--model", "--session-id", "--resume", "--append-system-prompt-file"} & set(invocation.arguments)
    assert (invocation.stdin, invocation.files) == ("Say PONG.", {})


@pytest.mark.parametrize("type_name", sorted(set(catalogue.PROGRAMS) - {"cursor"}))
def test_without_tools_nothing_is_allowed_unasked(type_name: str) -> None:
    """A prompt without tools never has an option that lets the program act without asking."""
    arguments = called(type_name, tools=False).arguments
    unasked = {"--dangerously-skip-permissions", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "--auto"}

    assert not (unasked | {"--allow-all", "--force"}) & set(arguments)


class TestClaudeCode:
    """Claude Code."""

    def test_without_tools_none_is_offered(self) -> None:
        """Without tools, no tool of the program or of a server is offered, and every request is denied."""
        arguments = called("claude-code", tools=False).arguments
        at = arguments.index("--tools")

        assert arguments[at : at + 5] == ("--tools", "", "--permission-mode", "dontAsk", "--strict-mcp-config")

    def test_named_tools_take_the_place_of_all(self) -> None:
        """With `allowed_tools`, the program may use those without asking and no others, so that root may call it."""
        arguments = called("claude-code", {"allowed_tools": ("Bash(git *)", "Write")}).arguments
        at = arguments.index("--allowedTools")

        assert arguments[at : at + 5] == ("--allowedTools", "Bash(git *)", "Write", "--permission-mode", "dontAsk")
        assert "--dangerously-skip-permissions" not in arguments

    def test_a_foreign_conversation_gets_its_new_instruction(self) -> None:
        """A conversation begun with another instruction gets the new one in the message."""
        turn = {"resumes": True, "instructed_otherwise": True, "folder": Path("/f")}
        invocation = called("claude-code", turn=turn)

        assert (invocation.stdin, invocation.files) == (MESSAGE, {})
        assert "--append-system-prompt-file" not in invocation.arguments

    def test_a_schema_is_an_argument(self) -> None:
        """A schema is passed as an argument."""
        arguments = called("claude-code", reply_schema={"type": "object"}).arguments

        assert arguments[-2:] == ("--json-schema", '{"type":"object"}')


class TestCodex:
    """Codex."""

    def test_without_tools_its_sandbox_holds(self, tmp_path: Path) -> None:
        """Without tools, the sandbox is read-only, and the shell tool and all configured servers are off."""
        (tmp_path / ".codex").mkdir()
        (tmp_path / ".codex" / "config.toml").write_text('[mcp_servers.files]\ncommand = "x"\n[mcp_servers."a b"]\n')
        arguments = called("codex", tools=False, turn={"home": tmp_path}).arguments
        settings = {arguments[at + 1] for at, part in enumerate(arguments) if part == "--config"}

        assert {'sandbox_mode="read-only"', 'approval_policy="never"', "features.shell_tool=false"} <= settings
        assert {'mcp_servers."files".enabled=false', 'mcp_servers."a b".enabled=false'} <= settings

    def test_an_invalid_conversation_id_is_not_passed_on(self) -> None:
        """A conversation name that is not a UUID is replaced by an unknown id, so that Codex does not begin another."""
        arguments = called("codex", turn={"resumes": True, "session_id": "my-chat"}).arguments

        assert arguments[-2] == "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("type_name", ["claude-code", "qwen"])
def test_a_slash_begins_no_command(type_name: str) -> None:
    """A prompt that begins with a slash is prefixed, so that the program does not read it as a command."""
    for text in ("/help", "\n/help"):
        turn = Turn(prompt=prompt(text, tools=True), config=BackendConfig(name="one", type=type_name))

        assert catalogue.PROGRAMS[type_name].invoke(turn).stdin == f"Prompt:\n\n{text}"


class TestOthers:
    """Peculiarities of the other programs."""

    def test_gemini_gets_a_policy(self) -> None:
        """The policy that denies Gemini every tool is a file of the `gemini` module."""
        arguments = called("gemini", tools=False).arguments
        (policy,) = [part.partition("=")[2] for part in arguments if part.startswith("--admin-policy=")]

        assert tomllib.loads(Path(policy).read_text())["rule"] == [
            {"toolName": "*", "decision": "deny", "priority": 999}
        ]
        assert Path(policy).parent == Path(gemini.__file__).parent

    def test_opencode_gets_an_agent_without_tools(self) -> None:
        """The OpenCode agent without tools is added to the configuration that the user has set."""
        environ = {"OPENCODE_CONFIG_CONTENT": '{"share": "disabled", "agent": {"mine": {}}}'}
        invocation = called("opencode", tools=False, turn={"environ": environ})
        configured = json.loads(invocation.env["OPENCODE_CONFIG_CONTENT"])
        name = invocation.arguments[invocation.arguments.index("--agent") + 1]

        assert configured["share"] == "disabled"
        assert set(configured["agent"]) == {"mine", name}
        assert configured["agent"][name]["tools"] == {"*": False}
        assert configured["agent"][name]["permission"] == {"*": "deny"}

    def test_copilot_leaves_its_usage_in_a_file(self, tmp_path: Path) -> None:
        """Copilot writes its usage to a file in its private folder."""
        arguments = called("github-copilot", turn={"folder": tmp_path}).arguments
        at = arguments.index("--usage-output-file")

        assert arguments[at + 1] == str(tmp_path / str(catalogue.PROGRAMS["github-copilot"].more_output))

    @pytest.mark.parametrize(("cap_usd", "told"), [(1.5, "1.500000"), (0.0, "0.000001")])
    def test_claude_code_gets_the_cap_of_a_call(self, cap_usd: float, told: str) -> None:
        """The reservation of a call becomes Claude Code's own cap; a cap of zero becomes the smallest amount."""
        arguments = called("claude-code", cap_usd=cap_usd).arguments

        assert arguments.count("--max-budget-usd") == 1
        assert arguments[arguments.index("--max-budget-usd") + 1] == told

    @pytest.mark.parametrize("type_name", catalogue.PROGRAMS)
    def test_no_other_program_gets_a_cap(self, type_name: str) -> None:
        """Other programs, and calls without a cap, get no cap option."""
        capped = called(type_name, cap_usd=1.5).arguments
        free = called(type_name).arguments

        assert "--max-budget-usd" not in free
        assert (capped == free) == (type_name != "claude-code")

    @pytest.mark.parametrize("type_name", ["claude-code", "gemini", "qwen"])
    def test_a_limit_of_silence_asks_for_words(self, type_name: str) -> None:
        """With an idle limit, Claude Code, Gemini and Qwen are asked for streamed output."""
        assert "stream-json" in called(type_name, {"idle_seconds": 5.0}).arguments
        assert "stream-json" not in called(type_name).arguments

    @pytest.mark.parametrize("type_name", catalogue.PROGRAMS)
    def test_further_arguments_are_passed_on(self, type_name: str) -> None:
        """Further arguments of `agents.json` come before those that allow or forbid tools."""
        arguments = called(type_name, {"arguments": ("--extra", "x y")}).arguments
        at = arguments.index("--extra")

        assert arguments[at + 1] == "x y"
        assert at < len(arguments) - 2


class TestModels:
    """Tiers of models."""

    @pytest.mark.parametrize("type_name", [*catalogue.PROGRAMS, "template"])
    def test_a_tier_is_configured_or_left_to_the_program(self, type_name: str) -> None:
        """A tier is its configured model, else the program's choice; another name is a model's name."""
        config = BackendConfig(name="one", type=type_name, command=("true",), models={"haiku": "small"})
        made = backends.Backends({"one": config}, around.surroundings()).get("one")
        own = {tier: tier for tier in TIERS} if type_name == "claude-code" else {}

        assert made.resolve_model("haiku") == "small"
        assert made.resolve_model("opus") == own.get("opus")
        assert made.resolve_model("gpt-x") == "gpt-x"


def test_the_keys_of_each_program_are_documented() -> None:
    """The table of docs/reference/agents.md lists for each program exactly the keys that it gets."""
    text = (resources.bundled("recipes").parent / "docs" / "reference" / "agents.md").read_text()
    table = text.split("| Type | Keys of its own |")[1].split("\n\n")[0]
    rows = {row[0]: set(row[1:]) for line in table.splitlines()[2:] if (row := re.findall(r"`([\w-]+)`", line))}

    for name, program in catalogue.PROGRAMS.items():
        assert {*program.keys, *program.shares} == {key for key in rows[name] if not key.startswith("VENDOR")}


class TestPlaces:
    """Places of programs."""

    def executable(self, path: Path) -> str:
        """Create an executable."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    def find(self, tmp_path: Path, **given: Any) -> tuple[str, ...]:
        """Find Claude Code."""
        config = BackendConfig(name="one", type="claude-code", **given.pop("config", {}))
        environ = {"PATH": str(tmp_path / "bin"), **given}
        return executables.find(catalogue.PROGRAMS["claude-code"], config, environ, tmp_path)

    def test_each_place_comes_before_the_next(self, tmp_path: Path) -> None:
        """The command of `agents.json` wins over the variable, that over the installer's folder, and that over PATH."""
        found = []
        on_path = self.executable(tmp_path / "bin" / "claude")
        found.append(self.find(tmp_path))
        local = self.executable(tmp_path / ".claude" / "local" / "claude")
        found.append(self.find(tmp_path))
        named = self.executable(tmp_path / "mine")
        found.append(self.find(tmp_path, CLAUDE_CLI_PATH=named))
        own = self.executable(tmp_path / "bin" / "own")
        found.append(self.find(tmp_path, CLAUDE_CLI_PATH=named, config={"command": ("own", "-x")}))

        assert found == [(on_path,), (local,), (named,), (own, "-x")]

    @pytest.mark.parametrize("named", ["/nowhere", "/" + "x" * 300], ids=["nowhere", "unreachable"])
    def test_an_invalid_path_variable_is_an_error(self, tmp_path: Path, named: str) -> None:
        """A variable that names no program is an error, and no other program is used."""
        self.executable(tmp_path / "bin" / "claude")
        with pytest.raises(errors.AgentFailed, match=f"CLAUDE_CLI_PATH names {named}") as failed:
            self.find(tmp_path, CLAUDE_CLI_PATH=named)

        assert failed.value.code == "agent_missing"

    def test_the_check_reports_missing_programs(self, tmp_path: Path) -> None:
        """The check reports each backend whose program is missing, with the way to install it."""
        configs = {name: BackendConfig(name=name, type=name) for name in catalogue.PROGRAMS}
        configs["mine"] = BackendConfig(name="mine", type="template", command=("no-such-program",))
        place = around.surroundings(environ={"PATH": str(tmp_path)}, home=tmp_path)
        told = dict(backends.Backends(configs, place).check())

        assert set(told) == set(configs)
        assert "npm install -g @openai/codex" in told["codex"]
        assert "no-such-program" in told["mine"]

    def test_the_check_reports_a_missing_key(self, tmp_path: Path) -> None:
        """The check reports a key that is not in the environment."""
        self.executable(tmp_path / "codex")
        config = BackendConfig(name="one", type="codex", api_key_env="MY_KEY")
        place = around.surroundings(environ={"PATH": str(tmp_path)}, home=tmp_path)

        assert "MY_KEY" in dict(backends.Backends({"one": config}, place).check())["one"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"type": "codex", "command": ["codex", ["-x"]]}, [("$.backends.x.command", "type")]),
        ({"type": "codex", "base_url": "http://h/"}, [("$.backends.x.base_url", "unknown")]),
        ({"type": "codex", "allowed_tools": ["Bash"]}, [("$.backends.x.allowed_tools", "unknown")]),
        ({"type": "codex", "idle_seconds": 0}, [("$.backends.x.idle_seconds", "exclusiveMinimum")]),
        ({"type": "template"}, [("$.backends.x", "missing")]),
        ({"type": "template", "command": [["a"]]}, [("$.backends.x.command[0]", "type")]),
        ({"type": "template", "command": ["a", 5]}, [("$.backends.x.command[1]", "anyOf")]),
        ({"type": "template", "command": ["a"], "resume": ["b"]}, [("$.backends.x.resume", "choice")]),
        ({"type": "template", "command": ["a"], "reply": {"txt": "x"}}, [
            ("$.backends.x.reply", "missing"), ("$.backends.x.reply.txt", "unknown"),
        ]),
    ],
)  # fmt: skip
def test_an_invalid_entry_is_a_flaw_with_its_place(
    tmp_path: Path, entry: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """A field that does not fit a program's backend is a flaw of `agents.json` with its place."""
    (tmp_path / "agents.json").write_text(json.dumps({"backends": {"x": entry}}))
    (broken,) = roster.load([tmp_path / "agents.json"]).broken

    assert [(flaw.path, flaw.code) for flaw in broken.flaws] == expected


def test_the_examples_of_the_document_are_valid(tmp_path: Path) -> None:
    """Every example of backends in docs/reference/agents.md is valid."""
    document = Path(__file__).parents[3] / "docs" / "reference" / "agents.md"
    examples = [
        text for text in re.findall(r"```json\n(.*?)```", document.read_text(), re.DOTALL) if '"backends"' in text
    ]
    for number, text in enumerate(examples):
        (tmp_path / f"{number}.json").write_text(text)
        found = roster.load([resources.bundled("recipes", "agents.json"), tmp_path / f"{number}.json"])

        assert found.broken == ()
    assert len(examples) >= 3


def test_the_variables_of_the_document_are_those_in_use() -> None:
    """The tables of docs/reference/agents.md list programs, commands, and the variables of address and key."""
    text = (Path(__file__).parents[3] / "docs" / "reference" / "agents.md").read_text()
    for name, program in catalogue.PROGRAMS.items():
        variables = [
            f"`{variable}`" if variable else "" for variable in (program.endpoint_variable, program.key_variable)
        ]
        fields = ", ".join(f"`{field}`" for field in sorted(program.fields))
        cells = [f"`{name}`", f"`{program.commands[0]}`: {program.label}", fields, *variables]

        assert f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |") in text
        assert f"`{program.path_variable}`" in text
        assert (
            f"| `{name}` | {f'`{program.limit_variable}`' if program.limit_variable else 'cannot be limited'} |" in text
        )
        assert all(f"`~/{known}`" in text for known in program.known_paths)


class TestWorktrees:
    """The issue database of a linked worktree."""

    @pytest.fixture
    def linked(self, tmp_path: Path) -> Path:
        """Return a linked worktree of a new repository."""
        environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        who = ["-c", "user.name=k", "-c", "user.email=k@example.com"]
        for arguments in (
            ["init", "-q", "main"],
            ["-C", "main", *who, "commit", "-q", "--allow-empty", "-m", "x"],
            ["-C", "main", "worktree", "add", "-q", "../side"],
        ):
            subprocess.run(["git", *arguments], cwd=tmp_path, env=environ, check=True)
        for folder in ("main", "side"):
            (tmp_path / folder / ".beads-local").mkdir()
            (tmp_path / folder / ".beads-local" / "local.db").touch()
            (tmp_path / folder / "src").mkdir()
        return tmp_path / "side"

    def test_a_linked_worktree_has_its_own(self, linked: Path) -> None:
        """A linked worktree uses the database beside its files, also in folders below it; the main one uses none."""
        database = linked / ".beads-local" / "local.db"

        assert environment.beads_database(linked) == database
        assert environment.beads_database(linked / "src") == database
        assert environment.beads_database(linked.parent / "main") is None
        assert environment.beads_database(linked.parent) is None

    def test_without_the_file_there_is_none(self, linked: Path) -> None:
        """A linked worktree without a database uses none."""
        (linked / ".beads-local" / "local.db").unlink()

        assert environment.beads_database(linked) is None


@pytest.mark.parametrize("given", [(), ("--auth-type", "anthropic"), ("--auth-type=anthropic",)])
def test_qwen_gets_its_authentication_option_once(given: tuple[str, ...]) -> None:
    """Qwen gets `--auth-type` once: that of the arguments, or the one that a configured address implies."""
    arguments = called("qwen", {"base_url": "http://127.0.0.1:1/v1", "arguments": given}).arguments
    told = [part for part in arguments if part.startswith("--auth-type")]

    assert len(told) == 1
    assert ("openai" in arguments) == (not given)
