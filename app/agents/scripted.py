"""The scripted backend: answer from a file, so that a run is repeatable, and record that file if requested."""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from app import clock, errors
from app.agents import entries
from app.domain import plain
from app.engine import agent_ports, workspace_faults


class ScriptedBackend:
    """Answer from a script, by step key and attempt alone: a restart does not change the replies."""

    def __init__(self, name: str, script: Script, clock: clock.Clock, models: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._script = script
        self._clock = clock
        self._models = models or {}

    def get_name(self) -> str:
        return self._name

    def resolve_model(self, tier: str) -> str:
        """Return the configured model of a tier; any other name is returned unchanged."""
        return self._models.get(tier, tier)

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        """Return the first entry that answers the prompt, after its delay."""
        # The file may be on a disk that does not respond, and the loop must not wait for it.
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
        """Hold no resources."""


class RecordingBackend:
    """Answer from a recording, and ask another backend if the recording has no reply; the new reply is durable
    before the caller gets it.

    A recorded reply is found by step key and prompt. Errors and blank replies are not recorded but asked for anew.
    """

    def __init__(self, name: str, script: Script, requested: Callable[[], agent_ports.AgentBackend]) -> None:
        self._name = name
        self._script = script
        self._asked = requested

    def get_name(self) -> str:
        return self._name

    def resolve_model(self, tier: str) -> str | None:
        """Return what the recorded backend resolves the tier to."""
        return self._asked().resolve_model(tier)

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        """Return the recorded reply; otherwise, ask the other backend, and record its reply."""
        entry = await asyncio.to_thread(self._script.find, prompt)
        if entry is not None:
            return _in_conversation(entry.reply, prompt)
        reply = await self._asked().prompt(prompt)
        if reply.error is None and reply.text.strip():
            await self._record(prompt, reply)
        return reply

    async def close(self) -> None:
        """Hold no resources: the other backend is closed under its own name."""

    async def _record(self, prompt: agent_ports.AgentPrompt, reply: agent_ports.AgentReply) -> None:
        # The reply may be paid for: it waits in memory until the disk has space.
        await prompt.retry_until_space(lambda: self._append(prompt, reply))

    async def _append(self, prompt: agent_ports.AgentPrompt, reply: agent_ports.AgentReply) -> None:
        try:
            await asyncio.shield(asyncio.to_thread(self._script.append, prompt, reply))
        except OSError as error:
            if workspace_faults.passes(error.errno):
                raise errors.StorageFault(
                    workspace_faults.reason_of(error), detail=workspace_faults.facts(str(self._script.path), error)
                ) from error
            raise errors.AgentFailed(
                f"The reply could not be recorded: {error.strerror}.",
                code="recording_failed",
                detail={"file": str(self._script.path)},
            ) from error


def _in_conversation(reply: agent_ports.AgentReply, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
    return dataclasses.replace(reply, agent_session_id=reply.agent_session_id or prompt.agent_session_id)


class Script:
    """A file of entries, read again when it has changed."""

    def __init__(self, path: Path, *, recorded: bool = False) -> None:
        self.path = path
        self._recorded = recorded
        self._seen: tuple[int, int, int] | None = None
        self._entries: tuple[entries.Entry, ...] = ()

    def find(self, prompt: agent_ports.AgentPrompt) -> entries.Entry | None:
        """Return the first entry that answers a prompt."""
        sha256 = entries.prompt_sha256(prompt)
        return next((entry for entry in self._current() if entry.fits(prompt, sha256)), None)

    def append(self, prompt: agent_ports.AgentPrompt, reply: agent_ports.AgentReply) -> None:
        """Append a reply to the file, durably; a half line that a crash left there is cut off."""
        line = plain.encode(_recorded_line(prompt, reply)) + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(descriptor, "r+b") as file:
            # Several services may record into one file.
            fcntl.flock(file, fcntl.LOCK_EX)
            content = file.read()
            file.seek(entries.whole_lines(content))
            file.truncate()
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        # A new file is durable only when its folder is synced.
        _sync(self.path.parent)

    def _current(self) -> tuple[entries.Entry, ...]:
        seen = _signature(self.path)
        # A recording begins without a file; the first reply creates it.
        if seen is None and self._recorded:
            return ()
        if seen is None or seen != self._seen:
            try:
                self._entries = entries.read(self.path, recorded=self._recorded)
            except errors.InputRefused as invalid:
                raise _broken(self.path, invalid.flaws) from invalid
            self._seen = seen
        return self._entries


def _recorded_line(prompt: agent_ports.AgentPrompt, reply: agent_ports.AgentReply) -> dict[str, plain.Json]:
    return {
        "key": prompt.key,
        "prompt_sha256": entries.prompt_sha256(prompt),
        "text": plain.plain(reply.text),
        **({"usage": reply.usage.to_json()} if reply.usage else {}),
        **({"agent_session_id": reply.agent_session_id} if reply.agent_session_id else {}),
        **({"finish": reply.finish} if reply.finish else {}),
    }


def _broken(path: Path, flaws: Iterable[errors.Flaw]) -> errors.AgentFailed:
    reported = [flaw.to_json() for flaw in flaws]
    message = f"The script {path} is not valid: {'; '.join(str(flaw['message']) for flaw in reported[:5])}"
    return errors.AgentFailed(message, code="script_invalid", detail={"file": str(path), "flaws": reported})


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
