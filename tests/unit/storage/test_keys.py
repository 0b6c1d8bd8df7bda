"""The file of the keys: read strictly, replaced durably, and whole after a machine's death at any write."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.crash_lab.fragile_disk import END, FragileDisk, Operation, Trouble
from app.domain.access import Role
from app.domain.audit import AuditQuery
from app.domain.authors import LOCAL
from app.services.keys import Keys, NewKey
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.keys import FILE, KeyRing
from app.storage.memory_store import MemoryStore

AT = "2026-02-10T14:30:00.000Z"
KEY = {"name": "ada", "role": "viewer", "created_at": AT, "secrets": [{"sha256": "0" * 64}]}


class Dark(BaseException):
    """The power is off."""


def go_dark() -> None:
    """Simulate a loss of power."""
    raise Dark


async def opened(disk: MemoryDisk) -> tuple[MemoryStore, Keys]:
    """Return a store over a disk, and its keys."""
    time = clock.FakeClock()
    store = MemoryStore(clock=time, disk=disk)
    await store.start(serve=False)
    ring = KeyRing(Path("data"), time, store.checked_disk)
    return store, Keys(ring, store.audit, time, clock.RandomIds(), has_token=True)


async def live(disk: MemoryDisk, states: list[Any]) -> None:
    """Make four changes, and record the keys after each confirmed one."""
    store, keys = await opened(disk)
    states.append(seen(keys))
    for change in (
        lambda: keys.add(NewKey(name="ada", role=Role.ADMIN), LOCAL),
        lambda: keys.rotate("ada", LOCAL, 60),
        lambda: keys.add(NewKey(name="bob", labels=("book:one",)), LOCAL),
        lambda: keys.revoke("ada", LOCAL),
    ):
        try:
            await change()
        except (errors.WriteFailed, errors.NotFound, errors.ConfigurationError):
            continue
        states.append(seen(keys))
    await store.close()


def seen(keys: Keys) -> list[Any]:
    """Return the keys that the list shows."""
    return [(key.name, key.rotates_until) for key in keys.list()]


def writes() -> list[Operation]:
    """Return the operations of an undisturbed life on the two files."""
    disk = FragileDisk()
    asyncio.run(live(disk, []))
    # The operations before these make the folders of a new data directory.
    first = next(number for number, each in enumerate(disk.story) if "orders" in each.path)
    found = disk.story[first:]
    assert len(found) > 12
    return found


WHOLE = [[], [("ada", None)], [("ada", "later")], [("ada", "later"), ("bob", None)], [("bob", None)]]


def shape(state: list[Any]) -> list[Any]:
    """Return a state without its instants."""
    return [(name, until and "later") for name, until in state]


@pytest.mark.parametrize("at", [*writes(), END], ids=str)
@pytest.mark.parametrize("trouble", [Trouble.POWER_LOSS, Trouble.ENOSPC, Trouble.EIO])
def test_confirmed_changes_survive_any_trouble(trouble: Trouble, at: Operation) -> None:
    """After a loss of power or a refused write, every confirmed change is kept, and each change has its entry."""
    states: list[Any] = []
    disk = FragileDisk(trouble, at, go_dark)
    try:
        asyncio.run(live(disk, states))
    except Dark:
        assert trouble is Trouble.POWER_LOSS
    left = disk.left if disk.left is not None else disk.crashed(lose_unsynced=True)

    async def look() -> tuple[list[Any], int, list[Any]]:
        store, keys = await opened(left)
        entries, _ = await store.audit.page(AuditQuery())
        found = (await store.maintenance.verify_page("audit/", 9)).reports
        return seen(keys), len(entries), [report["ok"] for report in found]

    found, entries, sound = asyncio.run(look())
    confirmed = len(states) - 1
    if disk.left is not None:
        assert shape(found) in WHOLE[confirmed : confirmed + 2]
        assert entries >= WHOLE.index(shape(found))
    else:
        assert found == states[-1]
        assert entries >= confirmed
    assert sound in ([], [True])


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("{", "$"),
        ('{"version": 2, "keys": []}', "$.version"),
        (json.dumps({"version": 1, "keys": [KEY | {"role": "boss"}]}), "$.keys[0].role"),
        (json.dumps({"version": 1, "keys": [KEY | {"secret": "x"}]}), "$.keys[0].secret"),
        (json.dumps({"version": 1, "keys": [KEY | {"secrets": [{"sha256": "x"}]}]}), "$.keys[0].secrets[0].sha256"),
        (json.dumps({"version": 1, "keys": [KEY | {"expires_at": "soon"}]}), "$.keys[0].expires_at"),
        (json.dumps({"version": 1, "keys": [KEY, KEY]}), "two keys have the same name"),
        ("[" * 100_000, "$"),
    ],
)
def test_a_broken_file_is_refused_with_the_place(tmp_path: Path, content: str, place: str) -> None:
    """A service does not start with a broken file, and reports the flaw and its place."""
    (tmp_path / FILE).write_text(content)
    with pytest.raises(errors.ConfigurationError, match=r"keys\.json") as refused:
        KeyRing(tmp_path, clock.FakeClock()).check()

    assert refused.value.code == "keys_invalid"
    assert place in refused.value.message


def test_a_file_that_cannot_be_read_now_changes_nothing(tmp_path: Path) -> None:
    """Known keys remain valid while the file cannot be read or is broken; afterwards the keys follow the file."""
    time = clock.FakeClock()
    ring = KeyRing(tmp_path, time)
    (tmp_path / FILE).write_text(json.dumps({"version": 1, "keys": [KEY]}))
    ring.check()
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    ring.reload()
    while_unreadable = ring.caller("0" * 64)
    (tmp_path / FILE).rmdir()
    (tmp_path / FILE).write_text("{")
    ring.reload()
    while_broken = ring.caller("0" * 64)
    (tmp_path / FILE).unlink()
    ring.reload()

    assert while_unreadable is not None
    assert while_broken is not None
    assert ring.caller("0" * 64) is None
    assert ring.is_locked
