"""Harnesses: a backend of any type with its own workspace, and a fake model behind it if it accepts one."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app import clock
from app.agents.backends import Backends
from app.agents.configuration import BackendConfig, BackendContext
from app.domain import agent_sessions
from app.engine import agent_ports
from app.processes import supervisor
from app.storage.agent_sessions import MemoryAgentSessions
from tests.agent_programs import installed, loopback, pointed, stub_agent
from tests.agent_programs.fake_model import replies
from tests.agent_programs.fake_model.server import FakeModel

RUN = "20260210T143000Z-abc123"


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The abilities of a backend, and the error code that it returns where an ability is missing."""

    is_program: bool = True
    """Whether it is a program, which can be killed."""
    is_scripted: bool = True
    """Whether a test can choose its answers."""
    is_asked: bool = True
    """Whether it asks a model, which records its requests."""
    remembers: bool = True
    """Whether it keeps conversations."""
    tells_session: bool = True
    """Whether a reply names its conversation."""
    acts: bool = True
    """Whether its agent works with tools."""
    tools_off: str | None = None
    """Code of the refusal if its tools cannot be turned off; None: they can."""
    insists: str | None = None
    """Error code when the model calls a tool although tools are off; None: the call fails, and the turn continues."""
    chosen: tuple[str, str] | None = None
    """A model to choose, and the name under which the fake model is then asked; None: it has only one model."""
    refuses_model: str | None = None
    """Code of the refusal of another model if it has only one."""
    input_tokens: int | None = replies.INPUT_TOKENS
    """Tokens that it reports for one request; None: it reports none."""
    adds_up: bool = True
    """Whether it reports the tokens of a turn with several requests."""
    breaks_loops: bool = False
    """Whether it ends a turn in which the model calls the same tool again and again."""
    sums: bool = False
    """Whether it reports the sums of a conversation, which reveal the usage of a failed turn with the next turn."""
    tells_cost: bool = False
    """Whether it reports a price."""
    unauthorized: tuple[str, ...] = ("unauthorized",)
    """Codes of the error when the service refuses the key."""
    busy: tuple[str, ...] = ("rate_limited", "agent_timeout")
    """Codes of the error when the service is always too busy."""
    broken: tuple[str, ...] = ("agent_error", "agent_timeout")
    """Codes of the error when the service always fails."""
    empty: tuple[str | None, ...] = (None, "empty_reply", "agent_error", "agent_timeout")
    """Codes of the error for an empty reply; None: the backend passes the reply on, and its caller judges it."""
    unknown: tuple[str, ...] = ("unknown_agent_session",)
    """Codes of the error for an unknown conversation."""
    cut_off: tuple[str | None, ...] = ()
    """Codes for a reply at its length limit; None: the backend passes its text on; empty: it does not report it."""
    limits: bool = False
    """Whether it can limit the length of replies."""
    wait_seconds: float = 30.0
    """How long the tests wait for a service that is always busy or broken."""
    limit_seconds: float = 12.0
    """A time limit after which the backend has surely asked its model."""
    prompt_bytes: int = 300_000
    """The longest prompt that the tests send to it."""
    too_long: str | None = None
    """Code of the refusal of a prompt of that length; None: it accepts the prompt."""


class AgentHarness:
    """A backend, with its supervisor, model, sessions and workspace."""

    def __init__(self, folder: Path, abilities: Abilities, config: BackendConfig, model: FakeModel) -> None:
        self.folder = folder
        self.abilities = abilities
        self.config = config
        self.model = model
        self.workspace = folder / "workspace"
        self.home = folder / "home"
        self.environ: Mapping[str, str] = dict(os.environ)
        self.shell = "bash"
        self.usual_model: str | None = None
        self.sessions: agent_sessions.AgentSessions = MemoryAgentSessions()
        self.others: list[BackendConfig] = []
        self._supervisor: supervisor.Supervisor | None = None
        self._backends: Backends | None = None
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(exist_ok=True)

    @property
    def backend(self) -> agent_ports.AgentBackend:
        """Return the backend; the first call creates it."""
        if self._backends is None:
            self._supervisor = supervisor.Supervisor(self.folder / "processes", clock.RandomIds(), self.environ)
            around = BackendContext(
                clock=clock.SystemClock(),
                supervisor=self._supervisor,
                sessions=self.sessions,
                environ=self.environ,
                home=self.home,
            )
            self._backends = Backends({one.name: one for one in (self.config, *self.others)}, around)
        return self._backends.get(self.config.name)

    def lacks(self) -> list[tuple[str, str]]:
        """Return the flaws that the check of the configuration finds."""
        self.backend.get_name()
        assert self._backends is not None
        return self._backends.check()

    async def restart(self) -> None:
        """Release everything except the files, as a new start of the service does."""
        if self._backends is not None:
            await self._backends.close()
        if self._supervisor is not None:
            await self._supervisor.close()
        self._backends = self._supervisor = None

    def say(self, *answers: replies.Answer) -> None:
        """Let the agent give these answers; the last one is repeated."""
        self.model.say(*answers)

    def prompt(self, text: str = "Say PONG.", **given: Any) -> agent_ports.AgentPrompt:
        """Return a prompt with defaults for the missing fields."""
        usual: dict[str, Any] = {
            "text": text,
            "system": None,
            "model": self.usual_model,
            "tools": True,
            "working_dir": self.workspace,
            "agent_session_id": None,
            "session_created": False,
            "reply_schema": None,
            "max_tokens": None,
            "timeout_seconds": 90.0,
            "run_id": RUN,
            "key": "implement",
            "attempt": 1,
        }
        return agent_ports.AgentPrompt(**(usual | given))

    def living(self) -> dict[int, str]:
        """Return every living process with its workspace or home below the folder, with its command line."""
        return dict(_living(self.folder))

    def workers(self) -> dict[int, str]:
        """Return those of them that do not belong to the supervisor."""
        return {pid: line for pid, line in self.living().items() if "app.processes" not in line}


class ScriptedAgentHarness(AgentHarness):
    """A harness for a backend that reads its replies from a file."""

    def say(self, *answers: replies.Answer) -> None:
        """Write the answers to the file."""
        entries = [_entry(answer) for answer in answers]
        assert self.config.file is not None
        self.config.file.write_text(json.dumps({"*": entries}), encoding="utf-8")


def _entry(answer: replies.Answer) -> dict[str, Any]:
    if isinstance(answer, replies.Hang):
        return {"hang": True}
    if isinstance(answer, replies.Fault):
        code = {401: "unauthorized", 429: "rate_limited"}.get(answer.status, "agent_error")
        return {"error": {"code": code, "message": answer.message}}
    return {"text": answer.text, "usage": {"input_tokens": 101, "output_tokens": 23, "cost_usd": 0.25}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a harness is built."""

    abilities: Abilities
    """The abilities of its backend."""
    build: Callable[[Path, Abilities, FakeModel], AgentHarness]
    """Builds the harness."""
    program: str | None = None
    """Program that must be installed; None: it needs none."""


@contextlib.asynccontextmanager
async def built(plan: Plan, folder: Path) -> AsyncIterator[AgentHarness]:
    """Build a harness that sees only loopback, and end all its processes afterwards."""
    with loopback.alone(), FakeModel() as model:
        harness = plan.build(folder, plan.abilities, model)
        try:
            yield harness
        finally:
            await harness.restart()
            for pid in harness.living():
                os.kill(pid, signal.SIGKILL)


def _program(name: str, type_name: str, **given: Any) -> Callable[[Path, Abilities, FakeModel], AgentHarness]:
    def build(folder: Path, abilities: Abilities, model: FakeModel) -> AgentHarness:
        found = installed.find(name)
        assert not isinstance(found, str), found
        return of_program(
            pointed.point(found, folder / "home", model.address), type_name, folder, abilities, model, given
        )

    return build


def of_program(
    one: pointed.Pointed,
    type_name: str,
    folder: Path,
    abilities: Abilities,
    model: FakeModel,
    given: Mapping[str, Any],
) -> AgentHarness:
    """Build the harness of a program that is configured for the fake model."""
    models = {"sonnet": one.model, "opus": one.model, "haiku": (abilities.chosen or (one.model,))[0]}
    command = (*one.command, *given.get("leading", ()))
    if one.name == "gemini" and type_name == "acp":
        # As docs/reference/agents.md recommends: the program trusts the defaults of root alone.
        file = one.home / ".gemini" / "settings.json"
        settings = json.loads(file.read_text())
        settings["general"]["sessionRetention"] = {"enabled": False}
        file.write_text(json.dumps(settings))
    # A command of Node.js and a file does not show the ACP backend whose keys it needs.
    secrets = tuple(name for name in one.environ if name.endswith("_KEY")) if type_name == "acp" else ()
    config = BackendConfig(name=type_name, type=type_name, command=command, models=models, secrets=secrets)
    harness = AgentHarness(folder, abilities, config, model)
    harness.environ = one.environ
    harness.shell = one.shell
    if one.name == "gemini" and type_name == "gemini":
        # Without a named model it asks a model which model to use.
        harness.usual_model = one.model
    return harness


def _stub(type_name: str, **given: Any) -> Callable[[Path, Abilities, FakeModel], AgentHarness]:
    def build(folder: Path, abilities: Abilities, model: FakeModel) -> AgentHarness:
        command = (sys.executable, "-S", stub_agent.__file__)
        one = pointed.Pointed(
            name=type_name,
            command=command,
            home=folder / "home",
            environ={**os.environ, "HOME": str(folder / "home"), "STUB_MODEL_URL": model.address},
            model="fake-model",
            shell="bash",
        )
        return of_program(one, type_name, folder, abilities, model, given)

    return build


def _template(folder: Path, abilities: Abilities, model: FakeModel) -> AgentHarness:
    harness = _stub("template")(folder, abilities, model)
    options = (*harness.config.command, "{tools}", ("--model", "{model}"), ("--system", "{system}"))
    harness.config = dataclasses.replace(
        harness.config,
        command=(*options, ("--session-id", "{session_id}")),
        resume=(*options, ("--resume", "{session_id}")),
        tools_on=("--force",),
        tools_off=(),
        reply={
            "text": "result",
            "error": "error.message",
            "input_tokens": "usage.input_tokens",
            "output_tokens": "usage.output_tokens",
        },
    )
    return harness


def _service(type_name: str, path: str) -> Callable[[Path, Abilities, FakeModel], AgentHarness]:
    def build(folder: Path, abilities: Abilities, model: FakeModel) -> AgentHarness:
        models = {"sonnet": "fake-model", "opus": "fake-model", "haiku": "other-model"}
        address = f"{model.address}{path}"
        config = BackendConfig(name=type_name, type=type_name, base_url=address, api_key_env="FAKE_KEY", models=models)
        harness = AgentHarness(folder, abilities, config, model)
        harness.environ = {**os.environ, "FAKE_KEY": pointed.KEY, "NO_PROXY": "127.0.0.1"}
        return harness

    return build


def _scripted(folder: Path, abilities: Abilities, model: FakeModel) -> AgentHarness:
    config = BackendConfig(name="scripted", type="scripted", file=folder / "replies.json")
    harness = ScriptedAgentHarness(folder, abilities, config, model)
    harness.say(replies.Reply(text="PONG"))
    return harness


def _local(folder: Path, abilities: Abilities, model: FakeModel) -> AgentHarness:
    return AgentHarness(folder, abilities, BackendConfig(name="local", type="local"), model)


_OFF = "tools_cannot_be_turned_off"
_SERVICE = Abilities(
    is_program=False,
    acts=False,
    chosen=("other-model", "other-model"),
    busy=("rate_limited",),
    broken=("agent_error",),
    cut_off=(None,),
    limits=True,
    wait_seconds=60.0,
)

PLANS: Mapping[str, Plan] = {
    "claude-code": Plan(
        program="claude",
        abilities=Abilities(
            chosen=("haiku", "haiku"),
            tells_cost=True,
            sums=True,
            input_tokens=replies.INPUT_TOKENS + replies.CACHED_TOKENS,
            cut_off=("reply_cut_off",),
            limits=True,
        ),
        build=_program("claude", "claude-code"),
    ),
    "codex": Plan(
        program="codex",
        abilities=Abilities(chosen=("other-model", "other-model"), sums=True, cut_off=(None,)),
        build=_program("codex", "codex"),
    ),
    "gemini": Plan(
        program="gemini",
        abilities=Abilities(chosen=("gemini-2.5-pro", "gemini-2.5-pro"), breaks_loops=True),
        build=_program("gemini", "gemini"),
    ),
    "opencode": Plan(
        program="opencode",
        abilities=Abilities(
            chosen=("fake/other-model", "other-model"), tells_cost=True, cut_off=(None,), limits=True
        ),
        build=_program("opencode", "opencode"),
    ),
    "github-copilot": Plan(
        program="copilot",
        abilities=Abilities(chosen=("other-model", "other-model"), sums=True, limits=True),
        build=_program("copilot", "github-copilot"),
    ),
    "qwen": Plan(
        program="qwen",
        abilities=Abilities(chosen=("other-model", "other-model"), sums=True, breaks_loops=True, limits=True),
        build=_program("qwen", "qwen"),
    ),
    "acp opencode": Plan(
        program="opencode",
        abilities=Abilities(
            chosen=("fake/other-model", "other-model"),
            tells_cost=True,
            adds_up=False,
            insists=_OFF,
            # It passes on the message of its service, but not the status.
            unauthorized=("unauthorized", "agent_error"),
        ),
        build=_program("opencode", "acp", leading=("acp",)),
    ),
    "acp qwen": Plan(
        program="qwen",
        abilities=Abilities(refuses_model="unknown_model", sums=True),
        build=_program("qwen", "acp", leading=("--acp", "--auth-type", "openai", "-m", "fake-model")),
    ),
    "acp gemini": Plan(
        program="gemini",
        abilities=Abilities(refuses_model="unknown_model"),
        build=_program("gemini", "acp", leading=("--acp", "--skip-trust", "-m", "gemini-2.5-flash")),
    ),
    "acp copilot": Plan(
        program="copilot",
        abilities=Abilities(refuses_model="unknown_model"),
        build=_program("copilot", "acp", leading=("--acp", "--no-auto-update")),
    ),
    "cursor": Plan(
        abilities=Abilities(
            chosen=("other-model", "other-model"), tools_off=_OFF, busy=("rate_limited",), limit_seconds=3.0
        ),
        build=_stub("cursor"),
    ),
    "template": Plan(
        abilities=Abilities(
            chosen=("other-model", "other-model"),
            # The backend cannot interpret the messages of an unknown program.
            unauthorized=("unauthorized", "agent_error"),
            busy=("rate_limited", "agent_error"),
            unknown=("agent_error", "unknown_agent_session"),
            limit_seconds=3.0,
        ),
        build=_template,
    ),
    "openai": Plan(abilities=_SERVICE, build=_service("openai", "/v1")),
    "anthropic": Plan(
        abilities=dataclasses.replace(_SERVICE, input_tokens=replies.INPUT_TOKENS + replies.CACHED_TOKENS),
        build=_service("anthropic", ""),
    ),
    "scripted": Plan(
        abilities=Abilities(is_program=False, is_asked=False, acts=False, tells_cost=True), build=_scripted
    ),
    "local": Plan(
        abilities=Abilities(
            is_program=False, is_scripted=False, is_asked=False, remembers=False, tells_session=False, acts=False,
            refuses_model="unknown_model", input_tokens=None, too_long="prompt_too_long",
        ),
        build=_local,
    ),
}  # fmt: skip
"""Every harness, by the type of its backend."""


def _living(folder: Path) -> Iterator[tuple[int, str]]:
    needle = os.fsencode(folder)
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        try:
            works_there = os.fsencode(os.readlink(place / "cwd")).startswith(needle)
            lives_there = b"=" + needle in (place / "environ").read_bytes()
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if (works_there or lives_there or str(folder) in line) and state not in ("Z", "X"):
            yield int(place.name), line
