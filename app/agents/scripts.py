"""Scripts: files of replies, written by a person or by a recording."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from app import errors
from app.agents import entries
from app.domain import plain
from app.engine import ports


class Script:
    """A file of entries, read afresh when it has changed."""

    def __init__(self, path: Path, *, recorded: bool = False) -> None:
        self.path = path
        self._recorded = recorded
        self._seen: tuple[int, int, int] | None = None
        self._entries: tuple[entries.Entry, ...] = ()

    def find(self, prompt: ports.AgentPrompt) -> entries.Entry | None:
        """Return the first entry that answers a prompt.

        Raises:
            errors.AgentFailed: `script_invalid`, with every flaw in `detail`.
        """
        sha256 = entries.prompt_sha256(prompt)
        return next((entry for entry in self._current() if entry.fits(prompt, sha256)), None)

    def append(self, prompt: ports.AgentPrompt, reply: ports.AgentReply) -> None:
        """Add a reply to the end of the file, durably; what a crash has left half written there is cut off.

        Raises:
            OSError: the file system refused.
        """
        line = plain.encode(_recorded_line(prompt, reply)) + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            content = file.read()
            file.seek(entries.whole_lines(content))
            file.truncate()
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        _sync(self.path.parent)

    def _current(self) -> tuple[entries.Entry, ...]:
        seen = _signature(self.path)
        if seen is None and self._recorded:
            return ()
        if seen is None or seen != self._seen:
            try:
                self._entries = entries.read(self.path, recorded=self._recorded)
            except errors.InputRefused as invalid:
                raise _broken(self.path, invalid.flaws) from invalid
            self._seen = seen
        return self._entries


def _recorded_line(prompt: ports.AgentPrompt, reply: ports.AgentReply) -> dict[str, plain.Json]:
    return {
        "key": prompt.key,
        "prompt_sha256": entries.prompt_sha256(prompt),
        "text": plain.plain(reply.text),
        **({"usage": reply.usage.to_json()} if reply.usage else {}),
        **({"agent_session_id": reply.agent_session_id} if reply.agent_session_id else {}),
        **({"finish": reply.finish} if reply.finish else {}),
    }


def _broken(path: Path, flaws: Iterable[errors.Flaw]) -> errors.AgentFailed:
    told = [flaw.to_json() for flaw in flaws]
    return errors.AgentFailed(
        f"The script {path} is not valid: {'; '.join(str(flaw['message']) for flaw in told[:5])}",
        code="script_invalid",
        detail={"file": str(path), "flaws": told},
    )


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
