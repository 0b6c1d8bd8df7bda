"""Agent sessions: the stored record of a conversation with an agent, apart from the journals of its runs."""

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

NOTHING_SPENT = Usage(cost_usd=0.0)  # Tokens and price of a conversation in which nothing was said.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedUsage:
    """The tokens and the price of a whole conversation that a backend told after a turn."""

    usage: Usage  # The sums; None where they were never told.
    run_id: str  # Run that the turn belongs to.
    key: str  # Its step.
    attempt: int  # Which try of the step, as the run's journal counts them.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """A conversation, by the id that we gave it."""

    agent_session_id: str  # Our id, derived before the first prompt (a UUID), or one that a person named.
    backend: str  # Name of the backend that it is held through.
    working_dir: str  # Folder that it began in; some programs find it from there only.
    program_session_id: str | None = None  # What the backend itself calls it, where that differs from our id.
    created: bool = False
    """Whether the backend is known to have it; False: a first prompt was about to be sent."""
    system_sha256: str | None = None
    """Hash of the standing instruction that it was begun with; some programs keep to that whatever is said later."""
    counted: Usage | None = None
    """Sums of the conversation before the turn of `told`; None: unknown, since it was begun elsewhere."""
    told: ReportedUsage | None = None  # Sums that the backend reported last, if it reports sums.
    names: int = 0
    """How many names of ours the backend did not take, or has lost; the present one differs from them."""
    orders: tuple[str, ...] = ()  # Orders of people to begin it again that were carried out.
    begun_at: str | None = None  # When the backend began it; None: unknown, or of no importance.

    def spent(self, run_id: str, key: str, recorded: Sequence[int]) -> Usage | None:
        """Return the sums that journals account for when a turn begins; None: unknown.

        Args:
            recorded: Earlier attempts of the step that left a line in the run's journal.
        """
        told = self.told
        if told is None or (told.run_id == run_id and told.key == key and told.attempt not in recorded):
            # A crash between a reply and its line left what was paid for it to the next turn.
            return self.counted
        return told.usage

    def anew(self) -> AgentSession:
        """Return the conversation as it is before it is begun again with the backend, under another name."""
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
            KeyError, TypeError, ValueError: a field is missing, or of the wrong kind.
        """
        known = {field.name: value[field.name] for field in dataclasses.fields(cls) if field.name in value}
        if known.get("counted") is not None:
            known["counted"] = Usage(**known["counted"])
        if (told := known.get("told")) is not None:
            known["told"] = ReportedUsage(**{**told, "usage": Usage(**told["usage"])})
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
    """Where agent sessions are kept.

    Every method refuses an id that none can have (`errors.InputRefused`, `bad_agent_session_id`), and what reads says
    `errors.AgentFailed` with the code `agent_session_damaged` of a file that cannot be trusted; nothing of it is lost.
    """

    async def find(self, agent_session_id: str) -> AgentSession | None:
        """Return a session; None if it is unknown."""

    async def keep(self, session: AgentSession) -> None:
        """Put a session in the place of what was known of it; it is durable once this returns.

        Raises:
            errors.StorageFault: it could not be written.
        """

    async def renew(self, session: AgentSession) -> None:
        """Put a session that begins again in the place of what was known of it, and forget what was said in it.

        Raises:
            errors.StorageFault: it could not be written.
        """

    async def turns(self, agent_session_id: str) -> Sequence[Mapping[str, plain.Json]]:
        """Return what was said so far, for backends without a memory of their own: `{role, text, key, attempt}`, in
        order.
        """

    async def add_turns(self, agent_session_id: str, turns: Sequence[Mapping[str, plain.Json]]) -> None:
        """Append turns, all or none; they are durable once this returns.

        Raises:
            errors.StorageFault: they could not be written.
        """

    def hold(self, agent_session_id: str, holder: str) -> AbstractAsyncContextManager[None]:
        """Lock a session for the block, against other processes too; a holder may hold it
        several times over.

        Args:
            holder: Who asks, e.g. a run's id.

        Raises:
            errors.Conflict: `session_locked`; the detail names the present holder.
        """

    async def claim(self, agent_session_id: str, run_id: str) -> None:
        """Note that a run has the session from now on, in the place of any other; it is durable once this returns.

        Raises:
            errors.StorageFault: it could not be written.
        """

    async def claimant(self, agent_session_id: str) -> str | None:
        """Return the run that claimed the session last, whatever has become of it; None if no run has."""


def locked(agent_session_id: str, holder: str) -> errors.Conflict:
    """Make the error that says who has a session."""
    return errors.Conflict(
        f"The conversation {agent_session_id:.80} is in use by {holder}.",
        code="session_locked",
        detail={"agent_session_id": agent_session_id, "holder": holder},
    )
