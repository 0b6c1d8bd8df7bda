"""The scripted backend: says what a file holds, so that a run can be repeated exactly; and can fill that file from
another backend's replies.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping

from app import clock, errors
from app.agents.scripts import Script
from app.engine import ports, workspace_faults


class ScriptedBackend:
    """Answer from a script, by step key and attempt alone: a restart changes nothing."""

    def __init__(self, name: str, script: Script, clock: clock.Clock, models: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._script = script
        self._clock = clock
        self._models = models or {}

    def get_name(self) -> str:
        """Return the backend's name."""
        return self._name

    def resolve_model(self, tier: str) -> str:
        """Return the configured model of a tier; a name stands for itself otherwise."""
        return self._models.get(tier, tier)

    async def prompt(self, prompt: ports.AgentPrompt) -> ports.AgentReply:
        """Say the first entry that answers the prompt, after its delay, in its own conversation or in that of the
        prompt.

        Raises:
            errors.AgentFailed: `no_scripted_reply` or `script_invalid`.
        """
        entry = await asyncio.to_thread(self._script.find, prompt)
        if entry is None:
            raise errors.AgentFailed(
                f"The script {self._script.path.name} has no reply to {prompt.key}, attempt {prompt.attempt}.",
                code="no_scripted_reply",
                detail={"file": str(self._script.path), "key": prompt.key, "attempt": prompt.attempt},
            )
        await self._clock.sleep(entry.delay_seconds)
        if entry.hang:
            await asyncio.get_running_loop().create_future()
        return _in_conversation(entry.reply, prompt)

    async def close(self) -> None:
        """Nothing is held."""


class RecordingBackend:
    """Answer from a recording, and ask another backend for what is not in it yet; that reply is durable once it is
    seen.

    A recorded reply is found by step key and prompt. Errors and blank replies are not recorded but asked for anew.
    """

    def __init__(self, name: str, script: Script, asked: Callable[[], ports.AgentBackend]) -> None:
        self._name = name
        self._script = script
        self._asked = asked

    def get_name(self) -> str:
        """Return the backend's name."""
        return self._name

    def resolve_model(self, tier: str) -> str | None:
        """Return what the recorded backend makes of it."""
        return self._asked().resolve_model(tier)

    async def prompt(self, prompt: ports.AgentPrompt) -> ports.AgentReply:
        """Return the recorded reply, or the other backend's after recording it.

        Raises:
            errors.AgentFailed: as the other backend does, `script_invalid`, or `recording_failed`.
        """
        entry = await asyncio.to_thread(self._script.find, prompt)
        if entry is not None:
            return _in_conversation(entry.reply, prompt)
        reply = await self._asked().prompt(prompt)
        if reply.error is None and reply.text.strip():
            await self._record(prompt, reply)
        return reply

    async def close(self) -> None:
        """Nothing is held: the other backend is closed with its own name."""

    async def _record(self, prompt: ports.AgentPrompt, reply: ports.AgentReply) -> None:
        # The reply may be paid for: it waits in memory until there is room.
        await prompt.insist(lambda: self._append(prompt, reply))

    async def _append(self, prompt: ports.AgentPrompt, reply: ports.AgentReply) -> None:
        try:
            await asyncio.shield(asyncio.to_thread(self._script.append, prompt, reply))
        except OSError as error:
            if workspace_faults.passes(error.errno):
                raise errors.StorageFault(
                    workspace_faults.told(error), detail=workspace_faults.facts(str(self._script.path), error)
                ) from error
            raise errors.AgentFailed(
                f"The reply could not be recorded: {error.strerror}.",
                code="recording_failed",
                detail={"file": str(self._script.path)},
            ) from error


def _in_conversation(reply: ports.AgentReply, prompt: ports.AgentPrompt) -> ports.AgentReply:
    return dataclasses.replace(reply, agent_session_id=reply.agent_session_id or prompt.agent_session_id)
