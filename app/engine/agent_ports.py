"""Agent ports: one prompt to an agent, its reply, and the files written while the agent works."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Protocol, TypeVar

from app.domain import plain
from app.domain.records import BlobRef, Finish, StepError, Usage
from app.engine.live_steps import LiveStep

T = TypeVar("T")


class RetryUntilSpace(Protocol):
    """Repeats a write until the disk has space for it."""

    async def __call__(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write, and repeat the write as long as it ends with a `StorageFault`, which the run shows meanwhile.

        Raises:
            errors.InterruptionFault: the process stops.
        """


async def write_once(write: Callable[[], Awaitable[T]]) -> T:
    """Write once, for callers without a run that could wait."""
    return await write()


def unheard(_: str) -> None:
    """Discard the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A prompt of a run and the reply to it, as the run's journal records them."""

    prompt: tuple[plain.Json, ...]  # Parts in order: a text, or `{"blob": <blob reference>}`.
    reply: plain.Json  # The reply; None where `blob` is set.
    blob: BlobRef | None = None  # Handle of a reply that is stored outside the journal.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPrompt:
    """One prompt to an agent."""

    text: str  # The full text of the prompt.
    system: str | None  # System prompt, appended to the backend's own.
    model: str | None  # Model of the backend; None: its default.
    tools: bool  # Whether the agent may use its own tools.
    working_dir: PurePath  # Folder that the agent works in.
    agent_session_id: str | None
    """Id of the conversation, chosen by Control Room before the first prompt; None: a single prompt without history."""
    session_created: bool
    """Whether the conversation exists and is resumed; if False and `attempt` is above 1, it may exist nevertheless."""
    reply_schema: Mapping[str, plain.Json] | None  # JSON Schema that the reply must fit.
    max_tokens: int | None  # Longest reply; None: the backend's default.
    keeps_cut_off: bool = False  # Whether a reply that reached the length limit is accepted.
    timeout_seconds: float | None  # Wall-clock limit; None: the backend's default.
    idle_seconds: float | None = None  # Longest time without output; None: the backend's default.
    run_id: str  # Run that sends the prompt.
    key: str  # Step that sends the prompt.
    attempt: int  # Number of the attempt.
    env: Mapping[str, str] = field(default_factory=dict)  # Variables set for an agent that is a program.
    cap_usd: float | None = None
    """Most that the prompt may cost, for programs with a cap of their own; None: no limit."""
    line_attempt: int = 1
    """Number of the attempt in the run's journal; `attempt` also counts those that were cut off within it."""
    recorded: tuple[int, ...] = ()  # Earlier attempts of the step that left a line in the journal.
    retry_until_space: RetryUntilSpace = field(default=write_once, compare=False, repr=False)
    """Repeats the write of the conversation's record until it succeeds: the reply may have cost money."""
    hear: Callable[[str], None] = field(default=unheard, compare=False, repr=False)
    """Receives, in pieces, the agent's output while the agent works."""
    live: LiveStep = field(default_factory=LiveStep, compare=False, repr=False)
    """The signs of life that the step shows meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReply:
    """The answer of an agent, or the reason why there is none."""

    text: str  # The reply; empty on an error.
    agent_session_id: str | None = None  # Conversation of the reply, under the backend's own id.
    usage: Usage | None = None  # Tokens and price of this turn; None if the backend reports neither.
    finish: Finish | None = None  # `length` if the backend reports that the reply reached the length limit.
    covers: int | None = None
    """Earlier attempt of the step, without a line, whose usage is included in this turn's; None: no attempt."""
    error: StepError | None = None
    """Why there is no reply; the conversation and the usage are still set if they are known."""


class AgentBackend(Protocol):
    """A way to reach an agent."""

    def get_name(self) -> str:
        """Return the backend's name."""

    def resolve_model(self, tier: str) -> str | None:
        """Return the model for haiku, sonnet or opus, None for the default; any other name is returned unchanged."""

    async def prompt(self, prompt: AgentPrompt) -> AgentReply:
        """Send one prompt and wait for the reply; a cancellation stops the agent."""

    async def close(self) -> None:
        """Release the resources of the backend."""
