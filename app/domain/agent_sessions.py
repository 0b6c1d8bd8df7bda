"""Agent sessions: the stored records of conversations with agents, apart from the journals of their runs."""

# Why: docs/decisions/0100.

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from app import clock, errors
from app.domain import plain
from app.domain.records import Usage

NOTHING_SPENT = Usage(cost_usd=0.0)  # Tokens and price of a conversation without any turn.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedUsage:
    """The tokens and the price of a whole conversation, as a backend reported them after a turn."""

    usage: Usage  # The sums; None where the backend never reported them.
    run_id: str  # Run that the turn belongs to.
    key: str  # Step that the turn belongs to.
    attempt: int  # Attempt of the step, as the run's journal counts.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """A conversation, under Control Room's own id."""

    agent_session_id: str  # Own id, derived before the first prompt (a UUID), or named by a person.
    backend: str  # Name of the backend that holds it.
    working_dir: str  # Folder in which it began; some programs find it only from there.
    program_session_id: str | None = None  # Id in the backend, where it differs from ours.
    created: bool = False
    """Whether the backend is known to have the conversation; False: a first prompt was about to be sent."""
    system_sha256: str | None = None
    """Hash of the system prompt that it began with; some programs keep that prompt, even if a later one differs."""
    counted: Usage | None = None
    """Sums of the conversation before the turn of `told`; None: unknown, since it was begun elsewhere."""
    told: ReportedUsage | None = None  # Sums that the backend reported last, if it reports sums.
    names: int = 0
    """Number of our ids that the backend rejected or lost; the present id differs from them."""
    orders: tuple[str, ...] = ()  # Orders of people to begin it again, already carried out.
    begun_at: str | None = None  # When the backend began it; None: unknown or unimportant.

    def spent(self, run_id: str, key: str, recorded: Sequence[int]) -> Usage | None:
        """Return the sums that journals account for when a turn begins; None: unknown.

        Args:
            recorded: Earlier attempts of the step that left a line in the run's journal.
        """
        reported = self.told
        if reported is None or (reported.run_id == run_id and reported.key == key and reported.attempt not in recorded):
            # After a crash between a reply and its line, the cost of that reply is charged to the next turn.
            return self.counted
        return reported.usage

    def anew(self) -> AgentSession:
        """Return the conversation in the state before the backend begins it again, under another id."""
        return dataclasses.replace(
            self,
            program_session_id=None,
            created=False,
            counted=NOTHING_SPENT,
            told=None,
            names=self.names + 1,
            begun_at=None,
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AgentSession:
        """Read a stored record; unknown fields of a later version are ignored.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or of the wrong kind.
        """
        known = {field.name: value[field.name] for field in dataclasses.fields(cls) if field.name in value}
        if known.get("counted") is not None:
            known["counted"] = Usage(**known["counted"])
        if (reported := known.get("told")) is not None:
            known["told"] = ReportedUsage(**{**reported, "usage": Usage(**reported["usage"])})
        session = cls(**{**known, "orders": tuple(known.get("orders", ()))})
        texts = (session.agent_session_id, session.backend, session.working_dir, session.program_session_id or "")
        if not all(isinstance(text, str) for text in (*texts, *session.orders)):
            raise TypeError("a text is of another kind")
        if not isinstance(known.get("created", False), bool) or not isinstance(known.get("names", 0), int):
            raise TypeError("a flag or a number is of another kind")
        if session.begun_at is not None:
            clock.instant(session.begun_at)
        return session


class AgentSessions(Protocol):
    """The store of agent sessions.

    Every method refuses an invalid id (`errors.InputRefused`, `bad_agent_session_id`). A method that reads raises
    `errors.AgentFailed` with the code `agent_session_damaged` for a file that cannot be trusted; the file is kept.
    """

    async def find(self, agent_session_id: str) -> AgentSession | None:
        """Return a session; None if it is unknown."""

    async def keep(self, session: AgentSession) -> None:
        """Replace the stored record of a session; it is durable once this returns.

        Raises:
            errors.StorageFault: it could not be written.
        """

    async def renew(self, session: AgentSession) -> None:
        """Replace the stored record of a session that begins again, and drop its turns.

        Raises:
            errors.StorageFault: it could not be written.
        """

    async def turns(self, agent_session_id: str) -> Sequence[Mapping[str, plain.Json]]:
        """Return the turns so far in order, `{role, text, key, attempt}`, for backends without their own memory."""

    async def add_turns(self, agent_session_id: str, turns: Sequence[Mapping[str, plain.Json]]) -> None:
        """Append turns, all or none; they are durable once this returns.

        Raises:
            errors.StorageFault: they could not be written.
        """

    def hold(self, agent_session_id: str, holder: str) -> AbstractAsyncContextManager[None]:
        """Lock a session during the block, also against other processes; one holder may lock it several times.

        Args:
            holder: Name of the caller, e.g. a run's id.

        Raises:
            errors.Conflict: `session_locked`; the detail names the present holder.
        """

    async def claim(self, agent_session_id: str, run_id: str) -> None:
        """Record that a run has the session from now on, instead of any other; it is durable once this returns.

        Raises:
            errors.StorageFault: it could not be written.
        """

    async def claimant(self, agent_session_id: str) -> str | None:
        """Return the run that claimed the session last, whatever its state; None if no run has."""


def locked(agent_session_id: str, holder: str) -> errors.Conflict:
    """Return the error that names the present holder of a session."""
    return errors.Conflict(
        f"The conversation {agent_session_id:.80} is in use by {holder}, and is free once that has ended.",
        code="session_locked",
        detail={"agent_session_id": agent_session_id, "holder": holder},
    )
