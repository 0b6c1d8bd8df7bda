"""Programs: how a backend finds one, calls it, and reads its output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from app.agents import reply_forms
from app.agents.configuration import BackendConfig
from app.domain import records
from app.engine import ports

Event = Mapping[str, Any]  # One JSON object that a program has written.


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One prompt to a program, as far as it is decided before it starts."""

    prompt: ports.AgentPrompt  # The prompt.
    session_id: str | None = None  # The program's name of the conversation, continued or new; None: its choice.
    resumes: bool = False  # Whether that conversation continues.
    instructed_otherwise: bool = False  # Whether it began with another standing instruction, or an unknown one.
    config: BackendConfig  # What `agents.json` says of the backend.
    environ: Mapping[str, str] = field(default_factory=dict)  # Environment of this process.
    home: Path = Path("/")  # Home folder of the user.
    folder: Path | None = None  # Private folder for as long as the program runs; None for programs that ask for none.

    def message(self, *, with_system: bool = True, with_schema: bool = True) -> str:
        """Return the message for the agent, with what the program takes no option for before and after it."""
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
    stdin: str | None = None  # What it reads; None: nothing.
    env: Mapping[str, str] = field(default_factory=dict)  # Variables of this call alone.
    files: Mapping[str, str] = field(default_factory=dict)  # Texts by name, written to its private folder.


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a program says went wrong."""

    message: str  # In its own words.
    status: int | None = None  # HTTP status of the model's service.
    reason: str | None = None  # Its own name for it.


@dataclass(slots=True, kw_only=True)
class Tally:
    """Tokens and price, as far as they were reported."""

    input_tokens: int | None = None  # Tokens read, those from a cache included; None if it does not report them.
    output_tokens: int | None = None  # Tokens written.
    cost_usd: float | None = None  # Price.

    def add(self, input_tokens: object = None, output_tokens: object = None, cost_usd: object = None) -> None:
        """Add to the cost; a value that is not a number counts as 0."""
        if isinstance(input_tokens, int) or isinstance(output_tokens, int):
            self.input_tokens = (self.input_tokens or 0) + whole(input_tokens)
            self.output_tokens = (self.output_tokens or 0) + whole(output_tokens)
        if isinstance(cost_usd, int | float) and not isinstance(cost_usd, bool) and 0 <= cost_usd < math.inf:
            self.cost_usd = (self.cost_usd or 0.0) + float(cost_usd)

    def usage(self) -> records.Usage | None:
        """Return it as a value; None if nothing was reported."""
        if self.input_tokens is None and self.cost_usd is None:
            return None
        return records.Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens, cost_usd=self.cost_usd)


@dataclass(slots=True, kw_only=True)
class ParsedOutput:
    """What has been understood of a program's words so far."""

    session_id: str | None = None  # Conversation, by the program's name for it.
    text: str = ""  # The last that the agent said.
    complete: bool = False  # Whether the program has said that the turn has ended.
    cut_off: bool = False  # Whether it reported that the reply reached its limit; its failure is then that reply.
    failure: Failure | None = None  # What it says went wrong.
    turn: Tally = field(default_factory=Tally)  # What it says the turn took.
    sums: Tally = field(default_factory=Tally)  # What it says the whole conversation has taken so far.


def _nothing(_: BackendConfig, __: Mapping[str, str]) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command line of an agent."""

    label: str  # Its name for people.
    commands: tuple[str, ...]  # Names to look for on PATH, in order; none: `agents.json` names the command.
    path_variable: str | None = None  # Environment variable that names its file.
    known_paths: tuple[str, ...] = ()  # Places below the home folder where its own installer puts it.
    install: str = ""  # How to get it.
    invoke: Callable[[Turn], Invocation]  # Return how it is called for a turn.
    parse: Callable[[Event, ParsedOutput], None]  # Understand one of its words, from either output.
    names_sessions: Literal["we", "it"] = "we"  # Who names a new conversation: we, before the prompt, or the program.
    tools_off: bool = True  # Whether it can be kept from using any tool.
    refuses: Callable[[BackendConfig, Mapping[str, str]], str | None] = _nothing  # Why it refuses tools to root.
    resumes: bool = True  # Whether it can continue with a conversation.
    wants_folder: bool = False  # Whether it needs a private folder.
    tells: str | None = None  # File that it leaves there, a JSON object with more of its output; None: it leaves none.
    prints_reply_only: bool = False  # Whether all that it prints is the reply.
    unknown_session: tuple[str, ...] = ()  # Its messages for an unknown conversation, as regular expressions.
    used_session: tuple[str, ...] = ()  # What it says of a name that another conversation has, likewise.
    empty_reply: tuple[str, ...] = ()  # What it says of a model that has said nothing, likewise.
    models: Mapping[str, str] = field(default_factory=dict)  # Models by tier; otherwise the program chooses.
    variables: Mapping[str, str] = field(default_factory=dict)  # Default environment variables.
    endpoint_variable: str | None = None  # Variable that takes the address of the model's service; None: it takes none.
    key_variable: str | None = None  # Variable that takes the key.
    keys: tuple[str, ...] = ()  # Every variable that holds a key of its model's service; no other program gets them.
    shares: tuple[str, ...] = ()  # Secret variables that it gets, too, and that are not its own.
    names_vendors: bool = False  # Whether its models are called `vendor/model`; it then gets the keys of that vendor.
    limit_variable: str | None = None  # Variable that takes the longest reply, in tokens; None: it cannot be limited.
    caps_cost: bool = False  # Whether it can be told the most that a turn may cost.
    fields: frozenset[str] = frozenset()  # Fields of `agents.json` that it takes beside those of every program.


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
    """Return a text that a program with commands of its own takes for words even if it begins with a slash."""
    return f"Prompt:\n\n{text}" if text.lstrip().startswith("/") else text


def whole(value: object) -> int:
    """Return a count; 0 if the value is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def within(value: object, *names: str) -> Any:
    """Return the value at a path of names; None if there is none."""
    for name in names:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
