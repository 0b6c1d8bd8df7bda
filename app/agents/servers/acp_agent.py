"""A running agent of the Agent Client Protocol: its process, which the supervisor owns, and the connection to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from app import clock, errors, printable
from app.agents.configuration import Supervisor
from app.agents.servers import acp_connection, acp_turns
from app.domain import plain
from app.processes import commands

if TYPE_CHECKING:
    import acp
    from acp import schema


OPENING_SECONDS = 120.0  # Longest time until an agent answers a request other than a prompt.
PARTING_SECONDS = 3.0  # Time that an agent has to end by itself after its last turn.
CANCEL_SECONDS = 1.0  # Time that it has to end a cancelled turn before it is ended.

_TAIL_CHARACTERS = 2_000

T = TypeVar("T")


class Agent:
    """A running agent."""

    def __init__(
        self,
        name: str,
        line: acp_connection.Line,
        turn: acp_turns.Turn,
        connection: acp.ClientSideConnection,
        ending: asyncio.Task[commands.Ended],
        clock: clock.Clock,
    ) -> None:
        self._name = name
        self._line = line
        self._ending = ending
        self._clock = clock
        self._parting_seconds = PARTING_SECONDS
        self._started_at = clock.monotonic()
        self.turn = turn  # The turn, as the agent reports it.
        self.connection = connection  # The protocol's connection.

    async def ask(self, what: Awaitable[T]) -> T:
        """Wait for the answer to a request other than a prompt, as long as the agent runs."""
        return await self._answer(what, OPENING_SECONDS, None)

    async def prompt(
        self, session_id: str, text: str, limit_seconds: float, idle_seconds: float | None
    ) -> schema.PromptResponse:
        """Send a prompt and wait for the end of the turn; a cancellation is sent to the agent before it is ended.

        Args:
            limit_seconds: Longest time since the agent was started.
        """
        import acp

        saying = self.connection.prompt(session_id, [acp.text_block(text)])
        try:
            seconds_left = limit_seconds - (self._clock.monotonic() - self._started_at)
            return await self._answer(saying, seconds_left, idle_seconds)
        except BaseException as error:
            # The agent may end its turn by itself within a second, which lets it save its session. `part` ends it in
            # any case.
            self._parting_seconds = CANCEL_SECONDS
            if isinstance(error, asyncio.CancelledError | errors.AgentFailed):
                with contextlib.suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(CANCEL_SECONDS):
                        await self.connection.cancel(session_id)
            raise

    async def part(self) -> None:
        """Close the connection, and make sure that no process of the agent remains."""
        with contextlib.suppress(ConnectionError):
            await self.connection.close()
        await asyncio.wait([self._ending], timeout=self._parting_seconds)
        await _end(self._ending)

    async def _answer(self, what: Awaitable[T], seconds: float, idle_seconds: float | None) -> T:
        work = asyncio.ensure_future(what)
        begun = self._clock.monotonic()
        # Wait for three things at once: the answer, the limits, and a tool that the agent must not use.
        try:
            while not work.done():
                wait = self._wait_seconds(begun, seconds, idle_seconds)
                if wait <= 0:
                    raise self._silent(begun, seconds, idle_seconds)
                both: list[asyncio.Future[Any]] = [work, self.turn.alarm]
                await asyncio.wait(both, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                if self.turn.alarm.done():
                    raise self._out_of_hand(self.turn.alarm.result())
            return work.result()
        except ConnectionError as error:
            raise await self._parted() from error
        except ValueError as error:
            # The package builds its values from the agent's messages; a message that does not fit is the agent's fault.
            raise _unreadable(self._name, plain.preview(str(error))) from error
        finally:
            work.cancel()

    def _wait_seconds(self, begun: float, seconds: float, idle_seconds: float | None) -> float:
        now = self._clock.monotonic()
        limits = [begun + seconds - now]
        if idle_seconds is not None:
            limits.append(max(self._line.received_at, begun) + idle_seconds - now)
        return min(limits)

    def _silent(self, begun: float, seconds: float, idle_seconds: float | None) -> errors.AgentFailed:
        if idle_seconds is None or self._clock.monotonic() >= begun + seconds:
            message = f"The agent {self._name} did not answer within {seconds:.3g} seconds."
            return errors.AgentFailed(message, code="agent_timeout", detail={"timeout_seconds": seconds})
        message = f"The agent {self._name} wrote nothing for {idle_seconds:g} seconds."
        return errors.AgentFailed(message, code="agent_idle", detail={"idle_seconds": idle_seconds})

    def _out_of_hand(self, tool: str) -> errors.AgentFailed:
        message = f"The agent {self._name} used a tool although tools are forbidden here: {tool}."
        return errors.AgentFailed(
            message, code="tools_cannot_be_turned_off", detail={"backend": self._name, "tool": tool}
        )

    async def _parted(self) -> errors.AgentFailed:
        """Return why the agent's output has ended."""
        if self._line.fault is not None:
            return _unreadable(self._name, self._line.fault)
        await asyncio.wait([self._ending], timeout=PARTING_SECONDS)
        if not self._ending.done():
            return _unreadable(self._name, "it closed its output and lived on")
        return self._ended()

    def _ended(self) -> errors.AgentFailed:
        try:
            ended = self._ending.result()
        except commands.NotStarted as error:
            return _not_started(self._name, error)
        reported = ended.stderr.content.decode("utf-8", "replace").strip()[-_TAIL_CHARACTERS:]
        detail = {"exit_code": ended.exit_code, "signal": ended.signal, "stderr": reported, "stray": self._line.stray}
        code, how = "agent_error", f"with exit code {ended.exit_code}"
        if ended.cause == "timeout":
            code, how = "agent_timeout", "because its time was over"
        elif ended.signal is not None:
            code, how = "agent_signalled", f"by signal {ended.signal}"
        message = f"The agent {self._name} ended in the middle of a turn, {how}."
        return errors.AgentFailed(
            message, code=code, detail={name: fact for name, fact in detail.items() if fact not in (None, "", [])}
        )


@asynccontextmanager
async def started(
    name: str, supervisor: Supervisor, request: Callable[[int, int], commands.Request], tools: bool, clock: clock.Clock
) -> AsyncIterator[Agent]:
    """Run an agent for the block; afterwards, no process of it remains.

    Args:
        request: Makes the request for its process, from the descriptors that it reads from and writes to.
    """
    import acp

    hears, writes = socket.socketpair()
    says, reads = socket.socketpair()

    async def run() -> commands.Ended:
        return await supervisor.run(request(reads.detach(), writes.detach()))

    ending = asyncio.ensure_future(run())
    # The caller notices the end by the missing reply; perhaps no caller awaits the task any longer.
    ending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    agent = None
    try:
        turn = acp_turns.Turn(tools=tools)
        line = await acp_connection.Line.over(hears, says, clock, turn.feed)
        person = cast("Any", acp_turns.Person(tools=tools))
        agent = Agent(name, line, turn, acp.connect_to_agent(person, line), ending, clock)
        yield agent
    finally:
        try:
            # A cancellation must not interrupt this: the agent would continue to work in the workspace, unsupervised.
            await _shielded(agent.part() if agent is not None else _end(ending))
        finally:
            # Descriptors that were passed on have other owners, and ours belong to the connection if it exists.
            for own in (reads, writes, *((hears, says) if agent is None else ())):
                own.close()


async def _end(ending: asyncio.Task[commands.Ended]) -> None:
    ending.cancel()
    await asyncio.wait([ending])
    if not ending.cancelled():
        ending.exception()  # the caller has already received it


def _not_started(name: str, error: commands.NotStarted) -> errors.AgentFailed:
    if error.code in ("program_missing", "program_not_executable"):
        message = f"The agent {name} is not installed here: {error.message} Give its `command` in agents.json."
        return errors.AgentFailed(message, code="agent_missing", detail=error.detail)
    message = f"The agent {name} could not be run: {error.message}"
    return errors.AgentFailed(message, code=error.code, detail=error.detail)


def _unreadable(name: str, why: str) -> errors.AgentFailed:
    message = printable.sentence(f"The output of the agent {name} is not the Agent Client Protocol: {why}")
    return errors.AgentFailed(message, code="reply_unreadable")


async def _shielded(work: Awaitable[None]) -> None:
    """Complete a piece of work even if the caller is cancelled, and raise the cancellation afterwards."""
    task = asyncio.ensure_future(work)
    cancelled = False
    # Every further cancellation is postponed as well.
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()
