"""Programs: the description from which a backend finds a program, calls it, and reads its output."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from app.agents import reply_forms
from app.agents.configuration import BackendConfig
from app.domain import records
from app.engine import agent_ports

Event = Mapping[str, Any]  # One JSON object that a program has written.

_MOST_NAME = 1000
# A program reads a hyphen as the beginning of an option; half of a surrogate pair is not text.
_NAME = re.compile(r"(?!-)[^\x00-\x1f\x7f\ud800-\udfff]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One prompt to a program, with all decisions made before the start."""

    prompt: agent_ports.AgentPrompt  # The prompt.
    session_id: str | None = None  # The program's name for the conversation, continued or new; None: its choice.
    resumes: bool = False  # Whether the turn continues that conversation.
    instructed_otherwise: bool = False  # Whether it began with another standing instruction, or an unknown one.
    config: BackendConfig  # The backend's configuration in `agents.json`.
    environ: Mapping[str, str] = field(default_factory=dict)  # Environment of this process.
    home: Path = Path("/")  # Home folder of the user.
    folder: Path | None = None  # Private folder while the program runs; None for programs that need none.

    def message(self, *, with_system: bool = True, with_schema: bool = True) -> str:
        """Return the message for the agent, including the parts for which the program has no option."""
        system, schema = self.prompt.system, self.prompt.reply_schema
        parts = [system] if system and with_system else []
        parts.append(self.prompt.text)
        if schema is not None and with_schema:
            parts.append(reply_forms.in_words(schema))
        return reply_forms.BREAK.join(parts).encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How a program is called."""

    arguments: tuple[str, ...]  # Arguments after the program's own.
    stdin: str | None = None  # Text for its standard input; None: no input.
    env: Mapping[str, str] = field(default_factory=dict)  # Variables of this call alone.
    files: Mapping[str, str] = field(default_factory=dict)  # Texts by name, written to its private folder.


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure that a program reports."""

    message: str  # The program's own message.
    status: int | None = None  # HTTP status of the model's service.
    reason: str | None = None  # The program's own name for the failure.
    is_cut_off: bool = False  # Whether the failure is that the reply reached its limit.


@dataclass(slots=True, kw_only=True)
class Tally:
    """Tokens and price, as far as the program reports them."""

    input_tokens: int | None = None  # Tokens read, including those from a cache; None if not reported.
    output_tokens: int | None = None  # Tokens written.
    cost_usd: float | None = None  # Price.

    def add(self, input_tokens: object = None, output_tokens: object = None, cost_usd: object = None) -> None:
        """Add tokens and cost; a value that is not an amount counts as not reported."""
        self.input_tokens = counted(self.input_tokens, input_tokens)
        self.output_tokens = counted(self.output_tokens, output_tokens)
        if (price := records.amount(cost_usd, int, float)) is not None:
            self.cost_usd = (self.cost_usd or 0.0) + price

    def usage(self) -> records.Usage | None:
        """Return the tally as a value; None if the program reported none."""
        if self == Tally():
            return None
        return records.Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens, cost_usd=self.cost_usd)


@dataclass(slots=True, kw_only=True)
class ParsedOutput:
    """The result of parsing a program's output so far."""

    session_id: str | None = None  # The program's name for the conversation, as it prints it.
    text: str = ""  # The agent's last text.
    unreadable: str = ""  # Why the text cannot be read; empty if unknown.
    complete: bool = False  # Whether the program has reported the end of the turn.
    cut_off: bool = False  # Whether it reported that an answer of the model reached its limit.
    failure: Failure | None = None  # The failure that it reports.
    turn: Tally = field(default_factory=Tally)  # Usage that it reports for the turn.
    sums: Tally = field(default_factory=Tally)  # Usage that it reports for the whole conversation so far.

    @property
    def is_cut_off(self) -> bool:
        """Return whether the reply reached its limit, and nothing else failed."""
        return self.cut_off if self.failure is None else self.failure.is_cut_off

    def conversation(self) -> str | None:
        """Return the program's name for the conversation; None if it is not one that a call can name."""
        return self.session_id if self.session_id is not None and is_name(self.session_id) else None


STATUS_CODES: Mapping[int, str] = {
    401: "unauthorized",
    403: "unauthorized",
    413: "prompt_too_large",
    429: "rate_limited",
    **dict.fromkeys((502, 503, 504, 529), "backend_unavailable"),
}
"""Codes of errors by the HTTP status with which the model's service refuses a call; 529 means that it is overloaded."""


def _nothing(_: BackendConfig, __: Mapping[str, str]) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Description of a command-line agent."""

    label: str  # Display name.
    commands: tuple[str, ...]  # Names to look for on PATH, in order; empty: `agents.json` names the command.
    path_variable: str | None = None  # Environment variable with the path of its executable.
    known_paths: tuple[str, ...] = ()  # Paths below the home folder to which its own installer writes.
    install: str = ""  # How to install it.
    invoke: Callable[[Turn], Invocation]  # Return the invocation for a turn.
    parse: Callable[[Event, ParsedOutput], None]  # Parse one event of either output.
    names_sessions: Literal["we", "it"] = "we"  # Who names a new conversation: we, before the prompt, or the program.
    tools_off: bool = True  # Whether all its tools can be switched off.
    refuses: Callable[[BackendConfig, Mapping[str, str]], str | None] = _nothing  # Why it refuses tools to root.
    resumes: bool = True  # Whether it can continue a conversation.
    wants_folder: bool = False  # Whether it needs a private folder.
    more_output: str | None = None  # JSON file with more output that it writes into that folder; None: none.
    prints_reply_only: bool = False  # Whether its whole output is the reply.
    unknown_session: tuple[str, ...] = ()  # Regular expressions of its messages for an unknown conversation.
    used_session: tuple[str, ...] = ()  # Regular expressions of its messages for a name that another conversation has.
    empty_reply: tuple[str, ...] = ()  # Regular expressions of its messages for an empty reply of the model.
    models: Mapping[str, str] = field(default_factory=dict)  # Models by tier; for other tiers, the program chooses.
    variables: Mapping[str, str] = field(default_factory=dict)  # Default values of environment variables.
    endpoint_variable: str | None = None  # Variable for the address of the model's service; None: it has none.
    key_variable: str | None = None  # Variable for the key.
    keys: tuple[str, ...] = ()  # All variables that hold a key of its model's service; no other program gets them.
    shares: tuple[str, ...] = ()  # Further secret variables that it gets, but that are not its own.
    names_vendors: bool = False  # Whether its models are called `vendor/model`; it then gets the keys of that vendor.
    limit_variable: str | None = None  # Variable for the longest reply, in tokens; None: it cannot be limited.
    caps_cost: bool = False  # Whether it takes a cap for the cost of a turn.
    fields: frozenset[str] = frozenset()  # Fields of `agents.json` that it takes, besides those of every program.


def arguments(
    turn: Turn,
    leading: Sequence[str],
    *,
    tools: Sequence[str],
    without: Sequence[str] = (),
    begin: str | None = "--session-id",
    resume: str = "--resume",
) -> list[str]:
    """Return the arguments of a turn: the program's own, the user's, those for tools, model and conversation.

    Args:
        begin: Option that names a new conversation; None: the program names it.
    """
    prompt, option = turn.prompt, resume if turn.resumes else begin
    listed = [*leading, *turn.config.arguments, *(tools if prompt.tools else without)]
    if prompt.model is not None:
        listed += ["--model", prompt.model]
    if turn.session_id is not None and option is not None:
        listed += [option + turn.session_id] if option.endswith("=") else [option, turn.session_id]
    return listed


def as_words(text: str) -> str:
    """Return a text that a program with slash commands reads as a prompt, even if it begins with a slash."""
    return f"Prompt:\n\n{text}" if text.lstrip().startswith("/") else text


def is_name(value: str) -> bool:
    """Return whether a value can name a model or a conversation in the arguments of a program."""
    return len(value) <= _MOST_NAME and _NAME.fullmatch(value) is not None


def counted(*values: object) -> int | None:
    """Return the sum of the values that are counts; None if none is one."""
    return records.total([records.amount(value, int) for value in values])


def within(value: object, *names: str) -> Any:
    """Return the value at a path of names; None if there is none."""
    for name in names:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
