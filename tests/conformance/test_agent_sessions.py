"""The records of conversations, in a folder of the machine and in memory, with and without a power cut."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from app import errors
from app.domain.agent_sessions import AgentSession
from app.storage import layout
from app.storage.agent_sessions import ID_CHARACTERS, StoredAgentSessions
from app.storage.disk.disk_port import Disk
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.disk.os_disk import OsDisk
from app.storage.disk.worker_threads import NextTurnWorker, WorkerThreads
from tests.conformance.store_harness import Faults, FaultyDisk

TALK = "550e8400-e29b-51d4-a716-446655440000"
SAID = {"role": "user", "text": "Hello.\n\u2028Næste linje.", "key": "implement", "attempt": 1}
ANSWERED = {"role": "assistant", "text": "Hello to you.", "key": "implement", "attempt": 1}
HOSTILE = (
    "../../etc/passwd",
    ".",
    "..",
    "a/b",
    "plan.json",
    "CON",
    "Ä" * 300,
    "%2e%2e",
    "A",
    "a b",
    "-rf",
    "session.json",
)


class Cabin:
    """The sessions of one process, and the data that a crash leaves to the next one."""

    def __init__(self, place: Path | None, *, lose_unsynced: bool = False) -> None:
        self._place = place
        self._lose = lose_unsynced
        self._memory = MemoryDisk()
        self.faults = Faults()
        self._made: list[StoredAgentSessions] = []
        self.sessions = self.beside()

    @property
    def disk(self) -> Disk:
        """Return the disk, for inspection and tampering."""
        return self._memory if self._place is None else OsDisk(self._place)

    def beside(self) -> StoredAgentSessions:
        """Return the same sessions in another process."""
        workers = NextTurnWorker() if self._place is None else WorkerThreads(1, "sessions")
        made = StoredAgentSessions(FaultyDisk(self.disk, self.faults), workers)
        self._made.append(made)
        return made

    def crash(self) -> StoredAgentSessions:
        """Kill the process and start another."""
        if self._place is None:
            self._memory = self._memory.crashed(lose_unsynced=self._lose)
        self.sessions = self.beside()
        return self.sessions

    def close(self) -> None:
        """Close all sessions."""
        for made in self._made:
            made.close()

    def path(self, name: str, talk: str = TALK) -> str:
        """Return the path of a file of a conversation."""
        return f"{layout.agent_session_folder(talk)}/{name}"


@pytest.fixture(params=["folder", "memory", "memory after a power cut"])
def cabin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cabin]:
    """Yield sessions on a disk of each kind."""
    made = Cabin(tmp_path if request.param == "folder" else None, lose_unsynced="power" in request.param)
    yield made
    made.close()


def session(talk: str = TALK, **facts: Any) -> AgentSession:
    """Return a conversation with defaults for the missing fields."""
    return AgentSession(**({"agent_session_id": talk, "backend": "codex", "working_dir": "/work"} | facts))


async def test_a_conversation_without_prompts_is_unknown(cabin: Cabin) -> None:
    """A conversation without prompts is unknown and has neither turns nor a run; looking it up writes no files."""
    assert await cabin.sessions.find(TALK) is None
    assert await cabin.sessions.turns(TALK) == []
    assert await cabin.sessions.claimant(TALK) is None
    assert cabin.disk.names("") == []


async def test_a_kept_session_survives_a_crash(cabin: Cabin) -> None:
    """Once `keep` has returned, the next process finds the latest state of a session."""
    await cabin.sessions.keep(session())
    await cabin.sessions.keep(session(created=True, program_session_id="thread_1"))

    assert await cabin.crash().find(TALK) == session(created=True, program_session_id="thread_1")


async def test_a_first_prompt_about_to_be_sent_is_on_record(cabin: Cabin) -> None:
    """After a crash during the first prompt, the id of its conversation is on record, but not as created."""
    await cabin.sessions.keep(session())
    found = await cabin.crash().find(TALK)

    assert found is not None
    assert not found.created


async def test_a_session_of_an_earlier_version_is_read(cabin: Cabin) -> None:
    """Fields that an earlier version did not record get their defaults."""
    await cabin.sessions.keep(session(begun_at="2026-02-10T14:30:20.000Z"))
    kept = json.loads(cabin.disk.read(cabin.path("session.json")))
    earlier = {name: kept[name] for name in ("agent_session_id", "backend", "working_dir", "created")}
    cabin.disk.write(cabin.path("session.json"), json.dumps(earlier).encode(), sync=True)

    assert kept["begun_at"] == "2026-02-10T14:30:20.000Z"
    assert await cabin.crash().find(TALK) == session()


async def test_turns_outlive_a_crash_in_their_order(cabin: Cabin) -> None:
    """Turns survive crashes in their order, even if several processes added them."""
    await cabin.sessions.add_turns(TALK, [SAID, ANSWERED])
    await cabin.crash().add_turns(TALK, [ANSWERED | {"attempt": 2}])

    assert await cabin.crash().turns(TALK) == [SAID, ANSWERED, ANSWERED | {"attempt": 2}]


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
async def test_a_torn_line_is_cut_off(cabin: Cabin, kept: int) -> None:
    """A crash in the middle of added turns loses all of them, and the next turns begin on a new line."""
    await cabin.sessions.add_turns(TALK, [SAID])
    before = cabin.disk.size(cabin.path("turns.jsonl"))
    await cabin.sessions.add_turns(TALK, [ANSWERED, SAID])
    whole = cabin.disk.size(cabin.path("turns.jsonl"))
    cabin.disk.cut(cabin.path("turns.jsonl"), whole - 1 if kept < 0 else before + kept)
    sessions = cabin.crash()

    assert await sessions.turns(TALK) == [SAID]
    await sessions.add_turns(TALK, [ANSWERED])
    assert await cabin.crash().turns(TALK) == [SAID, ANSWERED]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("session.json", b""),
        ("session.json", b"{"),
        ("session.json", b"[]"),
        ("session.json", b"{}"),
        ("session.json", b"\xff\xfe"),
        ("session.json", b"[" * 100_000),
        ("session.json", b'{"agent_session_id": "other", "backend": "b", "working_dir": "/", "created": true}'),
        ("session.json", b'{"agent_session_id": 7, "backend": "b", "working_dir": "/"}'),
        (
            "session.json",
            b'{"agent_session_id": "%s", "backend": "b", "working_dir": "/", "begun_at": 7}' % TALK.encode(),
        ),
        (
            "session.json",
            b'{"agent_session_id": "%s", "backend": "b", "working_dir": "/", "begun_at": "noon"}' % TALK.encode(),
        ),
        ("turns.jsonl", b"{}\n"),
        ("turns.jsonl", b"[1]\n"),
        ("turns.jsonl", b'[{"role": "user"\n[]\n'),
        ("claim.json", b"nobody"),
        ("claim.json", b'{"agent_session_id": "other", "run_id": "r"}'),
    ],
)
async def test_a_damaged_session_file_is_an_error(cabin: Cabin, name: str, content: bytes) -> None:
    """Reading a damaged file raises an error that names the file, and leaves the file unchanged."""
    await cabin.sessions.keep(session())
    cabin.disk.write(cabin.path(name), content, sync=True)
    reading = {
        "session.json": cabin.sessions.find,
        "turns.jsonl": cabin.sessions.turns,
        "claim.json": cabin.sessions.claimant,
    }
    with pytest.raises(errors.AgentFailed) as told:
        await reading[name](TALK)

    assert (told.value.code, told.value.detail["file"]) == ("agent_session_damaged", cabin.path(name))
    assert cabin.disk.read(cabin.path(name)) == content


async def test_turns_behind_damage_are_not_lost(cabin: Cabin) -> None:
    """Turns added after a damaged line are readable once a person has repaired it."""
    await cabin.sessions.add_turns(TALK, [SAID])
    good = cabin.disk.read(cabin.path("turns.jsonl"))
    cabin.disk.write(cabin.path("turns.jsonl"), b"?" + good, sync=True)
    await cabin.sessions.add_turns(TALK, [ANSWERED])
    cabin.disk.write(cabin.path("turns.jsonl"), cabin.disk.read(cabin.path("turns.jsonl"))[1:], sync=True)

    assert await cabin.sessions.turns(TALK) == [SAID, ANSWERED]


@pytest.mark.parametrize("talk", HOSTILE)
async def test_no_id_leads_elsewhere(cabin: Cabin, talk: str) -> None:
    """The files of a conversation are in one folder below `sessions/agents`, even with a hostile id."""
    await cabin.sessions.keep(session(talk))
    await cabin.sessions.add_turns(talk, [SAID])
    (folder,) = cabin.disk.names(layout.AGENT_SESSIONS)
    found = await cabin.crash().find(talk)

    assert found == session(talk)
    assert cabin.disk.names(f"{layout.AGENT_SESSIONS}/{folder}") == ["session.json", "turns.jsonl"]
    assert cabin.disk.names("") == ["sessions"]


@pytest.mark.parametrize("talk", ["", "a\0b", "a\nb", "\ud800", "x" * (ID_CHARACTERS + 1)])
async def test_an_id_that_none_can_have_is_refused(cabin: Cabin, talk: str) -> None:
    """Empty, overlong and unprintable ids are refused, and no file is written."""
    async with AsyncExitStack() as holding:
        for asking in (
            cabin.sessions.find(talk),
            cabin.sessions.keep(session(talk)),
            cabin.sessions.turns(talk),
            cabin.sessions.add_turns(talk, [SAID]),
            cabin.sessions.claim(talk, "run"),
            cabin.sessions.claimant(talk),
            holding.enter_async_context(cabin.sessions.hold(talk, "run")),
        ):
            with pytest.raises(errors.InputRefused) as refused:
                await asking
            assert refused.value.code == "bad_agent_session_id"

    assert cabin.disk.names("") == []


@hypothesis.given(strategies.text(max_size=40), strategies.text(max_size=40))
def test_two_ids_never_share_a_folder(one: str, other: str) -> None:
    """Different ids have different folders, also on file systems that ignore case."""
    folders = {layout.agent_session_folder(talk).lower() for talk in (one, other)}

    assert len(folders) == len({one, other})


async def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    """Only the owner can read the files of conversations."""
    cabin = Cabin(tmp_path)
    await cabin.sessions.keep(session())
    await cabin.sessions.add_turns(TALK, [SAID])
    async with cabin.sessions.hold(TALK, "run"):
        modes = _modes(tmp_path)
    cabin.close()

    assert modes == {("file", 0o600), ("folder", 0o700)}


@pytest.mark.parametrize("operation", ["write", "sync"])
async def test_a_full_disk_is_a_fault_and_changes_nothing(cabin: Cabin, operation: str) -> None:
    """A write that cannot be made durable is refused, and the earlier records stay."""
    await cabin.sessions.keep(session())
    await cabin.sessions.add_turns(TALK, [SAID])
    cabin.faults.refuse(operation, "", errno.ENOSPC)
    for asking in (cabin.sessions.keep(session(created=True)), cabin.sessions.add_turns(TALK, [ANSWERED])):
        with pytest.raises(errors.StorageFault):
            await asking
    cabin.faults.lift()

    assert await cabin.sessions.turns(TALK) == [SAID]
    if operation == "write":
        assert await cabin.sessions.find(TALK) == session()
    await cabin.sessions.add_turns(TALK, [ANSWERED])
    assert await cabin.crash().turns(TALK) == [SAID, ANSWERED]


async def test_a_held_conversation_refuses_a_second_holder(cabin: Cabin) -> None:
    """A conversation refuses a second holder and names the first, which may hold it again until its last block ends."""
    async with cabin.sessions.hold(TALK, "run-a"):
        async with cabin.sessions.hold(TALK, "run-a"):
            pass
        with pytest.raises(errors.Conflict) as refused:
            async with cabin.sessions.hold(TALK, "run-b"):
                pass
    async with cabin.sessions.hold(TALK, "run-b"):
        pass

    assert refused.value.code == "session_locked"
    assert refused.value.detail == {"agent_session_id": TALK, "holder": "run-a"}
    assert "run-a" in refused.value.message


async def test_another_process_holds_a_conversation(cabin: Cabin) -> None:
    """A second process cannot hold the same conversation until its holder leaves it, but can hold another one."""
    other = cabin.beside()
    async with cabin.sessions.hold(TALK, "run-a"):
        with pytest.raises(errors.Conflict) as refused:
            async with other.hold(TALK, "run-c"):
                pass
        async with other.hold("another", "run-b"):
            pass
    async with other.hold(TALK, "run-b"):
        pass

    assert (refused.value.code, refused.value.detail["holder"]) == ("session_locked", "run-a")


async def test_a_hold_ends_with_its_block(cabin: Cabin) -> None:
    """A block that ends with an exception frees the conversation, and leaves no file of the holder."""
    with pytest.raises(KeyError):
        async with cabin.sessions.hold(TALK, "run-a"):
            raise KeyError
    async with cabin.sessions.hold(TALK, "run-b"):
        pass

    assert cabin.disk.names(layout.agent_session_folder(TALK)) == []


async def test_an_unrecorded_hold_leaves_the_conversation_free(cabin: Cabin) -> None:
    """If the disk refuses to record the holder, the conversation stays free."""
    cabin.faults.refuse("write", "holder")
    with pytest.raises(errors.StorageFault):
        async with cabin.sessions.hold(TALK, "run-a"):
            pass
    cabin.faults.lift()
    async with cabin.beside().hold(TALK, "run-b"):
        pass


async def test_the_last_claim_counts(cabin: Cabin) -> None:
    """The latest claim on a conversation survives a crash, and does not create the conversation."""
    await cabin.sessions.claim(TALK, "run-a")
    await cabin.sessions.claim(TALK, "run-b")
    sessions = cabin.crash()

    assert await sessions.claimant(TALK) == "run-b"
    assert await sessions.find(TALK) is None


def _modes(place: Path) -> set[tuple[str, int]]:
    return {("file" if path.is_file() else "folder", path.stat().st_mode & 0o777) for path in place.rglob("*")}
