"""The backend for agents of the Agent Client Protocol: one process per prompt, over standard streams."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping
from datetime import datetime
from importlib import util
from pathlib import Path

from app import clock, errors
from app.agents import configuration, counting, programs
from app.agents.configuration import TIERS, BackendConfig, BackendContext
from app.agents.programs import catalogue, environment, executables, program
from app.agents.servers import acp_agent, acp_opening, acp_tool_policy, acp_turns, services
from app.domain import agent_sessions
from app.engine import agent_ports
from app.processes import commands

DEFAULT_TIMEOUT_SECONDS = 60 * 60.0  # Wall-clock limit of a prompt that sets none.

_PACKAGE, _MODULE, _EXTRA = "agent-client-protocol", "acp", "acp"
# Each load leaves Gemini CLI another, empty file of that conversation; its next start would remove both. This settings
# file keeps them, if root owns it and every folder above it: Gemini CLI ignores any other file of this kind.
_KEEPS = {"GEMINI_CLI_SYSTEM_DEFAULTS_PATH": str(Path(programs.__file__).with_name("gemini_keeps_conversations.json"))}


class AcpBackend:
    """Start an agent for each prompt, speak with it, and answer its requests for permission."""

    def __init__(self, config: BackendConfig, context: BackendContext) -> None:
        self._config = config
        self._context = context

    def get_name(self) -> str:
        return self._config.name

    def resolve_model(self, tier: str) -> str | None:
        """Return the configured model of a tier, None for the agent's own choice; any other name is
        returned unchanged.
        """
        return self._config.models.get(tier) or (None if tier in TIERS else tier)

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        """Start the agent, open the conversation, send the prompt and wait for the end of its turn."""
        if (lack := lacks(self._config, self._context.environ)) is not None:
            raise lack
        stored = await self._stored(prompt)
        wish = self._wish(prompt, stored)
        if stored is not None and stored.begun_at is not None:
            await self._pass_the_minute(clock.instant(stored.begun_at))
        name, supervisor, withheld = self._config.name, self._context.supervisor, frozenset[str]()

        def request(reads: int, writes: int) -> commands.Request:
            nonlocal withheld
            made = self._request(prompt, wish.hold, reads, writes)
            withheld = supervisor.withheld_from(made)
            return made

        async with acp_agent.started(name, supervisor, request, prompt.tools, self._context.clock) as agent:
            return environment.naming_withheld(await self._spoken(agent, prompt, wish), withheld, name)

    async def close(self) -> None:
        """Hold no resources: every agent ends with its prompt."""

    # -- before the agent is started

    async def _stored(self, prompt: agent_ports.AgentPrompt) -> agent_sessions.AgentSession | None:
        if prompt.agent_session_id is None:
            return None
        agent_session_id = prompt.agent_session_id
        return await prompt.retry_until_space(lambda: self._context.sessions.find(agent_session_id))

    def _wish(self, prompt: agent_ports.AgentPrompt, stored: agent_sessions.AgentSession | None) -> acp_opening.Wish:
        hold = None if prompt.tools else acp_tool_policy.of(_words(self._config))
        if hold is None and not prompt.tools:
            raise acp_opening.unheld(self._config.name, "nothing is known that would keep it from that")
        if stored is not None and stored.backend != self._config.name:
            why = f"it belongs to the backend {stored.backend}"
            raise acp_turns.unknown_session(self._config.name, stored.agent_session_id, why)
        certain = prompt.session_created or (stored is not None and stored.created)
        # A conversation that was begun elsewhere has the agent's own name.
        known = stored.program_session_id if stored is not None else None
        return acp_opening.Wish(
            backend=self._config.name,
            cwd=str(prompt.working_dir),
            session_id=known or (prompt.agent_session_id if certain else None),
            certain=certain,
            hold=hold,
            model=prompt.model,
        )

    async def _pass_the_minute(self, begun_at: datetime) -> None:
        # Gemini CLI names the file of a conversation after the minute in which it began, and within that minute it
        # loads the wrong content.
        now = self._context.clock.now()
        if begun_at.replace(second=0, microsecond=0) == now.replace(second=0, microsecond=0):
            await self._context.clock.sleep(60.5 - now.second)

    def _request(
        self, prompt: agent_ports.AgentPrompt, hold: acp_tool_policy.Hold | None, reads: int, writes: int
    ) -> commands.Request:
        own = hold or acp_tool_policy.Hold(name="")
        try:
            cwd = executables.entered(Path(prompt.working_dir))
        except BaseException:
            # The descriptors have no other owner yet: the program would have closed them.
            os.close(reads)
            os.close(writes)
            raise
        defaults = _KEEPS if any(acp_opening.GEMINI in word.lower() for word in _words(self._config)) else {}
        return commands.Request(
            argv=(*_words(self._config), *self._config.arguments, *own.arguments),
            run_id=prompt.run_id,
            cwd=cwd,
            env={**defaults, **environment.cleaned(self._context.environ, prompt.working_dir), **own.env, **prompt.env},
            secrets=environment.secrets(
                catalogue.called(_words(self._config)), self._config, self._context, prompt.model
            ),
            stdin=reads,
            stdout=writes,
            # An agent that is asked to end reports its turn as cancelled; so note first that the time is over.
            timeout_seconds=_limit_seconds(prompt) + acp_agent.PARTING_SECONDS,
            contained=True,
            agent_session_id=prompt.agent_session_id,
        )

    # -- with the agent

    async def _spoken(
        self, agent: acp_agent.Agent, prompt: agent_ports.AgentPrompt, wish: acp_opening.Wish
    ) -> agent_ports.AgentReply:
        import acp

        name, idle_seconds = self._config.name, configuration.with_idle(self._config, prompt).idle_seconds
        session_id, known_as = wish.session_id, ""

        async def begun(conversation: acp_opening.OpenedConversation) -> None:
            nonlocal session_id
            session_id = conversation.session_id
            await self._begin(prompt, conversation)

        try:
            opened = await acp_opening.opened(agent, wish, begun)
            known_as = opened.known_as
            agent.turn.begin(prompt.hear)
            message = program.Turn(prompt=prompt, config=self._config).message()
            response = await agent.prompt(
                opened.session_id, program.as_words(message), _limit_seconds(prompt), idle_seconds
            )
        except acp.RequestError as error:
            reply = agent_ports.AgentReply(
                text="", usage=agent.turn.usage(None, known_as), error=acp_turns.refused(name, error)
            )
        else:
            reply = acp_turns.reply(name, agent.turn, response, opened.known_as)
        return await self._store_turn(prompt, agent.turn, dataclasses.replace(reply, agent_session_id=session_id))

    async def _store_turn(
        self, prompt: agent_ports.AgentPrompt, turn: acp_turns.Turn, reply: agent_ports.AgentReply
    ) -> agent_ports.AgentReply:
        # An agent reports the price of a whole conversation, across all its processes.
        cost = turn.cost_so_far
        sums = None if cost is None else dataclasses.replace(counting.UNTOLD, cost_usd=cost)
        stored = await self._stored(prompt)
        before = counting.before(stored, prompt)
        if prompt.agent_session_id is None:
            before = agent_sessions.NOTHING_SPENT
        elif before is None and turn.cost_before is not None:
            before = dataclasses.replace(counting.UNTOLD, cost_usd=turn.cost_before)
        if stored is None and reply.error is None:
            stored = self._session(prompt, reply.agent_session_id)
        # A conversation that was begun elsewhere has a price before our first turn, if the agent reports one.
        if stored is not None:
            known = dataclasses.replace(stored, created=stored.created or reply.error is None)
            await self._store(prompt, counting.kept(known, prompt, sums, before))
        return counting.counted(reply, sums, before, counting.left_out(stored, prompt))

    async def _begin(self, prompt: agent_ports.AgentPrompt, conversation: acp_opening.OpenedConversation) -> None:
        session_id = conversation.session_id
        stored = await self._stored(prompt) or self._session(prompt, session_id)
        if stored is not None:
            named = None if session_id == stored.agent_session_id else session_id
            begun_at = clock.stamp(self._context.clock.now()) if acp_opening.GEMINI in conversation.known_as else None
            new = dataclasses.replace(stored.anew(), program_session_id=named, names=stored.names, begun_at=begun_at)
            await self._store(prompt, new)

    def _session(self, prompt: agent_ports.AgentPrompt, session_id: str | None) -> agent_sessions.AgentSession | None:
        ours = prompt.agent_session_id
        if ours is None:
            return None
        return agent_sessions.AgentSession(
            agent_session_id=ours,
            backend=self._config.name,
            working_dir=str(prompt.working_dir),
            program_session_id=None if session_id == ours else session_id,
        )

    async def _store(self, prompt: agent_ports.AgentPrompt, session: agent_sessions.AgentSession) -> None:
        if session != await self._stored(prompt):
            await prompt.retry_until_space(lambda: self._context.sessions.keep(session))


def lacks(config: BackendConfig, environ: Mapping[str, str]) -> errors.AgentFailed | None:
    """Return the reason why an agent cannot be used, None if it can, without starting it."""
    if util.find_spec(_MODULE) is None:
        return services.missing(config.name, _PACKAGE, _EXTRA)
    command = _words(config)[0]
    if shutil.which(command, path=environ.get("PATH", os.defpath)) is None:
        message = (
            f"The backend {config.name} names {command!r:.200}, which is not found; install it, or correct `command`."
        )
        return errors.AgentFailed(message, code="agent_missing", detail={"program": command})
    return None


def _limit_seconds(prompt: agent_ports.AgentPrompt) -> float:
    return prompt.timeout_seconds or DEFAULT_TIMEOUT_SECONDS


def _words(config: BackendConfig) -> tuple[str, ...]:
    return tuple(part for part in config.command if isinstance(part, str))
