"""Asking: put a run's questions to the person at the terminal while the command follows the run."""

# Without a person at the terminal the command ends with 1 and prints the command that answers each gate, unless every
# open gate has a default: then an answer could come only from its own process.

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextlib import aclosing

from app import errors, printable
from app.cli import halting, terminal, use_cases
from app.cli.client import Client, JsonObject
from app.services import gate_inbox, gates

_ALIASES = {"y": "approve", "yes": "approve", "n": "deny", "no": "deny"}
_NEWS_SECONDS = 0.1  # Time in which an event may still answer a question before it is asked.


class Asker:
    """Let a waiting run continue, by the answers of a person or by the defaults of its gates.

    Args:
        live: Whether a person can be asked.
        clear: Clears the last line of the terminal.
    """

    def __init__(self, client: Client, run_id: str, *, live: bool, clear: Callable[[], None]) -> None:
        self._client = client
        self._run_id = run_id
        self._live = live
        self._clear = clear
        self._reported: set[str] = set()
        self._asked = ""

    async def goes_on(self, held: Sequence[JsonObject], after: int) -> bool:
        """Do what this process can do about a run that waits or halts, and return whether it may continue.

        Args:
            held: Runs that hold it up, itself or those it waits for; none: another step of it moves.
            after: Number of the last event of the run that was seen.
        """
        asking = [detail["run_id"] for detail in held] or [self._run_id]
        found = [gate for run_id in asking for gate in await halting.open_gates(self._client, run_id)]
        if not found:
            return all(detail["status"] != "paused" for detail in held)
        if self._live:
            return await self._ask(found[0], after)
        # This process cannot answer a gate that another process holds open; a default answers it in both cases.
        if not self._client.executes or not await halting.expires(self._client, held):
            return False
        if held:
            self._report_times(found)
        return True

    def _report_times(self, found: Sequence[JsonObject]) -> None:
        for gate in found:
            if gate["gate_id"] not in self._reported:
                self._reported.add(gate["gate_id"])
                terminal.warn(
                    f"{gate['key']}: no terminal to ask at; {gate['default']!r} is decided at {gate['expires_at']}"
                )

    async def _ask(self, gate: JsonObject, after: int) -> bool:
        is_own = gate["run_id"] == self._run_id
        async with aclosing(self._client.follow(gate["run_id"], after if is_own else 0)) as stream:
            news = asyncio.ensure_future(anext(stream, None))
            try:
                # Events from before the question come first; those of the run itself may report that it is answered.
                while (await asyncio.wait({news}, timeout=_NEWS_SECONDS))[0]:
                    if is_own or news.result() is None:
                        return news.result() is not None
                    news = asyncio.ensure_future(anext(stream, None))
                if not is_own and (await self._client.call(use_cases.show_gate, gate["gate_id"]))["status"] != "open":
                    return True
                return await self._until_answered(gate, news)
            finally:
                news.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await news

    async def _until_answered(self, gate: JsonObject, news: asyncio.Future[JsonObject | None]) -> bool:
        """Ask until there is an answer, or until an event of the run arrives."""
        if gate["gate_id"] != self._asked:
            # A line typed at the question before must not answer one that the person has not seen.
            terminal.discard_typed()
            self._asked = gate["gate_id"]
        self._clear()
        terminal.say("")
        terminal.say_block(printable.quoted(gate["prompt"]))
        while True:
            terminal.prompt(f"[{' / '.join(gate['options'])}] ")
            line = asyncio.ensure_future(terminal.read_line())
            await asyncio.wait((line, news), return_when=asyncio.FIRST_COMPLETED)
            if not line.done():
                line.cancel()
                terminal.say("")
                return news.result() is not None
            said = line.result()
            if said is None:
                terminal.say("")
                return False
            if await self._answered(gate, said):
                return True

    async def _answered(self, gate: JsonObject, said: str) -> bool:
        decision, message = understood(said, gate["options"])
        if decision is None:
            if said.strip():
                terminal.say(f"say one of {', '.join(gate['options'])}, and behind it what you want to add")
            return False
        reply = gates.Reply(decision=decision, message=message, shown_sha256=gate["shown_sha256"])
        try:
            # Bound to the shown content, so that the service refuses the answer if the question has changed meanwhile.
            await self._client.call(use_cases.answer_gate, gate["gate_id"], reply)
        except errors.Conflict as conflict:
            terminal.warn(f"{conflict.message} [{conflict.code}]")
        return True


async def gates_of_session(client: Client, session_id: str) -> list[JsonObject]:
    """Return the open gates of the runs of a work session."""
    return await client.call(use_cases.list_gates, gate_inbox.GateQuery(session_id=session_id))


def understood(said: str, options: Sequence[str]) -> tuple[str | None, str]:
    """Return the decision at the beginning of a line, and the message after it; None if the line names no option,
    or several.
    """
    word, _, message = said.strip().partition(" ")
    lowered = word.lower()
    named = [option for option in options if option.lower() == lowered]
    named = named or [option for option in options if option == _ALIASES.get(lowered)]
    named = named or [option for option in options if lowered and option.lower().startswith(lowered)]
    return (named[0], message.strip()) if len(named) == 1 else (None, "")
