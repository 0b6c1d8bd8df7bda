"""Faults of object storage, and refused configurations, with a server on loopback that speaks S3."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app import environment_values, errors, settings
from app.domain.records import BlobRef
from app.storage import layout
from app.storage.objects import bucket, mark
from app.storage.runs import collection
from app.storage.runs.folder_log import FolderLog
from tests import object_server
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, ObjectStoreHarness

pytest.importorskip("obstore", reason="the extra objects is not installed")

CONTENT = b"x" * 70_000
URL = "s3://runs/of/tests"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[object_server.ObjectServer]:
    """Yield a server, and direct the environment to it."""
    with object_server.serving() as made:
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        # Without retries, a fault is over as soon as the test lifts it.
        monkeypatch.setitem(bucket._RETRIES, "max_retries", 0)
        yield made


@pytest.fixture
async def kept(
    tmp_path: Path, migrated: bytes, server: object_server.ObjectServer
) -> AsyncIterator[ObjectStoreHarness]:
    """Yield a store whose blobs are on that server."""
    made = ObjectStoreHarness(tmp_path, migrated, URL)
    yield made
    server.fault = None
    await made.store.close()


async def named(harness: ObjectStoreHarness) -> tuple[FolderLog, BlobRef]:
    """Begin a run with a line that names a blob."""
    log = await store_harness.begun(harness)
    blob = await log.put_blob(CONTENT, text=True)
    facts = {"output_hash": f"sha256:{blob.sha256}", "blob": blob.to_json(), "output": None}
    await log.append_step(store_harness.step("a") | facts)
    return log, blob


def key(blob: BlobRef, run_id: str = RUN) -> str:
    """Return the name of a blob's object on the server."""
    return f"of/tests/runs/{run_id}/blobs/{blob.sha256}"


@pytest.mark.parametrize("fault", ["refused", "stored"])
async def test_a_blob_that_was_not_confirmed_is_named_by_no_line(
    kept: ObjectStoreHarness, server: object_server.ObjectServer, fault: str
) -> None:
    """A put that fails, or seems to fail, is a storage fault; repeated, it succeeds and stores the content once."""
    log = await store_harness.begun(kept)
    server.fault = fault
    with pytest.raises(errors.StorageFault):
        await log.put_blob(CONTENT, text=True)
    server.fault = None
    blob = await log.put_blob(CONTENT, text=True)

    assert await log.get_blob(blob) == CONTENT.decode()
    assert [name for name in server.objects if "/blobs/" in name] == [key(blob)]


@pytest.mark.parametrize("fault", ["refused", "cut", "denied", "no bucket"])
async def test_a_blob_that_cannot_be_read_is_not_missing(
    kept: ObjectStoreHarness, server: object_server.ObjectServer, fault: str
) -> None:
    """A blob that cannot be read now makes its run unreadable, not damaged, and is readable later."""
    log, blob = await named(kept)
    await store_harness.end(log)
    await log.close()
    server.fault = fault
    with pytest.raises(errors.Unreadable):
        await kept.store.read_blob(RUN, blob)
    report = await kept.store.maintenance.verify(RUN)
    server.fault = None

    assert report["state"] == "unreadable"
    assert report["advice"] is None or "delete" not in report["advice"]
    assert await kept.store.read_blob(RUN, blob) == CONTENT.decode()
    assert (await kept.store.maintenance.verify(RUN))["state"] == "sound"


@pytest.mark.parametrize(("damage", "reason"), [("gone", "is missing"), ("changed", "is not what its name says")])
async def test_verification_distinguishes_missing_and_changed_objects(
    kept: ObjectStoreHarness, server: object_server.ObjectServer, damage: str, reason: str
) -> None:
    """Verification distinguishes a missing object from a changed one."""
    log, blob = await named(kept)
    await store_harness.end(log)
    await log.close()
    body, at = server.objects.pop(key(blob))
    if damage == "changed":
        server.objects[key(blob)] = body.replace(b"x", b"y"), at
    report = await kept.store.maintenance.verify(RUN)

    assert report["state"] == "damaged"
    assert any(reason in (file["reason"] or "") for file in report["files"])


async def test_logs_of_an_ended_run_are_objects(kept: ObjectStoreHarness, server: object_server.ObjectServer) -> None:
    """Logs are files while a run writes, objects after its end, and files again after it is opened again."""
    log, _ = await named(kept)
    await log.append_log("a.log", "one\n")
    before = [name for name in server.objects if "/logs/" in name]
    await store_harness.end(log)
    await log.close()
    part = await kept.store.read_log_part(RUN, "a.log", 1, 2)
    file = kept.place / "runs" / RUN / "logs" / "a.log"

    assert before == []
    assert not file.exists()
    assert [name for name in server.objects if "/logs/" in name] == [f"of/tests/runs/{RUN}/logs/a.log"]
    assert await kept.store.list_logs(RUN) == ["a.log"]
    assert (part.content, part.size_bytes) == (b"ne", 4)

    log = await kept.store.open(RUN)
    await log.append_log("a.log", "two\n")
    await log.close()

    assert await kept.store.read_log(RUN, "a.log") == b"one\ntwo\n"


async def test_a_deleted_run_leaves_no_object(kept: ObjectStoreHarness, server: object_server.ObjectServer) -> None:
    """Deleting a run removes its objects once its folder is swept."""
    log, _ = await named(kept)
    await store_harness.end(log)
    await log.close()
    await kept.store.delete(RUN)
    await kept.store.sweep()

    assert not [name for name in server.objects if "/runs/" in name]


async def test_only_unnamed_old_objects_are_collected(
    kept: ObjectStoreHarness, server: object_server.ObjectServer
) -> None:
    """Collection removes only old objects of ended or deleted runs, and none that a journal line names."""
    log, blob = await named(kept)
    lost = await log.put_blob(CONTENT + b"!", text=True)
    gone = f"of/tests/runs/20200101T000000Z-gone00/blobs/{blob.sha256}"
    server.objects[gone] = server.objects[key(blob)]
    collect = kept.store.maintenance.collect

    def aged() -> None:
        old = kept.clock.now() - timedelta(days=8)
        server.objects |= {name: (body, old) for name, (body, _) in server.objects.items()}

    server.objects |= {
        name: (body, kept.clock.now() - timedelta(seconds=1)) for name, (body, _) in server.objects.items()
    }
    young = await collect(7 * 86400, dry_run=False)
    aged()
    unfinished = await collect(7 * 86400, dry_run=False)
    await store_harness.end(log)
    await log.close()
    aged()
    counted = await collect(7 * 86400, dry_run=True)
    there = set(server.objects)
    removed = await collect(7 * 86400, dry_run=False)

    assert young["unnamed"] == 0
    assert unfinished["removed"] == 1
    assert gone not in there
    assert (counted["unnamed"], counted["removed"]) == (1, 0)
    assert key(lost) in there
    assert removed["removed"] == 1
    assert key(lost) not in server.objects
    assert await kept.store.read_blob(RUN, blob) == CONTENT.decode()


async def test_one_collection_is_bounded(
    kept: ObjectStoreHarness, server: object_server.ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One collection removes at most its limit of objects, and reports that more remain."""
    monkeypatch.setattr(collection, "_MOST", 2)
    log, blob = await named(kept)
    await log.close()
    old = kept.clock.now() - timedelta(days=8)
    gone = [f"of/tests/runs/20200101T000000Z-gone00/blobs/{number:064}" for number in range(3)]
    server.objects |= {name: (server.objects[key(blob)][0], old) for name in gone}
    first = await kept.store.maintenance.collect(7 * 86400, dry_run=False)
    second = await kept.store.maintenance.collect(7 * 86400, dry_run=False)

    assert (first["removed"], first["more"]) == (2, True)
    assert (second["removed"], second["more"]) == (1, False)
    assert not server.objects.keys() & set(gone)


async def test_blobs_from_before_are_read_where_they_are(
    tmp_path: Path, migrated: bytes, server: object_server.ObjectServer
) -> None:
    """A store with runs can begin to use object storage, and cannot silently stop using it."""
    harness = ObjectStoreHarness(tmp_path, migrated, URL)
    harness.store = store_harness.FolderStoreHarness._built(harness)
    log, blob = await named(harness)
    await log.close()
    await harness.store.close()
    harness.store = harness._built()
    store = await harness.open()

    assert await store.read_blob(RUN, blob) == CONTENT.decode()
    assert key(blob) not in server.objects
    await store.close()
    with pytest.raises(errors.ConfigurationError, match="set CONTROL_ROOM_BLOBS_URL") as caught:
        await store_harness.FolderStoreHarness._built(harness).start()
    assert caught.value.code == "store_differs"
    assert caught.value.detail["address"] == URL


@pytest.mark.parametrize("other", ["emptied", "another bucket", "another store"])
async def test_another_place_is_refused_by_name(
    kept: ObjectStoreHarness, server: object_server.ObjectServer, tmp_path: Path, migrated: bytes, other: str
) -> None:
    """A store refuses a bucket other than its own, and a bucket of another store, by its address."""
    await kept.open()
    await kept.store.close()
    if other == "emptied":
        server.objects.clear()
    elif other == "another bucket":
        (tmp_path / "second").mkdir()
        second = ObjectStoreHarness(tmp_path / "second", migrated, "s3://runs/of/others")
        await second.open()
        await second.store.close()
        kept.url = second.url
        kept.store = kept._built()
    else:
        (tmp_path / "second").mkdir()
        kept.store = ObjectStoreHarness(tmp_path / "second", migrated, URL).store
    with pytest.raises(errors.ConfigurationError) as caught:
        await kept.open()

    assert caught.value.code == "store_differs"
    assert "s3://runs/of/" in caught.value.message


@pytest.mark.parametrize(
    ("fault", "code"), [("denied", "blobs_unusable"), ("refused", "blobs_away"), ("no bucket", "blobs_unusable")]
)
async def test_an_unusable_bucket_is_reported_at_the_start(
    kept: ObjectStoreHarness,
    server: object_server.ObjectServer,
    caplog: pytest.LogCaptureFixture,
    fault: str,
    code: str,
) -> None:
    """The error at the start names the address; neither the error nor the log contains credentials."""
    server.fault = fault
    with pytest.raises(errors.ConfigurationError, match=URL) as caught:
        await kept.open()

    assert caught.value.code == code
    told = f"{caught.value.message} {json.dumps(caught.value.detail)} {caught.value.__cause__} {caplog.text}"
    assert object_server.SECRET not in told
    assert object_server.ACCESS not in told


async def test_a_missing_library_is_reported_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message contains the command that installs the missing library."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(errors.ConfigurationError, match=r'pip install "control-room\[objects\]"'):
        bucket.Bucket(URL)


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/sys").exists(), reason="no folder refuses root here")
async def test_an_unwritable_folder_is_refused_with_its_address() -> None:
    """A folder that the system does not let the store write is refused as unusable, with its address."""
    place = "file:///proc/sys/objects"
    with pytest.raises(errors.ConfigurationError, match=place) as caught:
        mark.opened(store_harness.MemoryStoreHarness(lose_unsynced=False).files(), mark.Target(url=place), "store")

    assert caught.value.code == "blobs_unusable"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://runs/of",
        "s3:/runs",
        "file://host/runs",
        "file:///",
        "s3://key:word@runs/of",
        "az://runs?sig=word",
        "http://[",
    ],
)
def test_an_address_with_a_flaw_is_refused_without_being_repeated(url: str) -> None:
    """Unknown schemes, and credentials in an address, are refused without being repeated."""
    flaw = environment_values.flaw_of_bucket(url)
    remarks: list[Any] = [remark for remark in settings.check(settings.load({}, blobs_url=url), {}) if remark.fatal]

    assert flaw is not None
    assert "word" not in flaw
    assert [remark.setting for remark in remarks] == ["CONTROL_ROOM_BLOBS_URL"]


def test_a_bucket_with_a_damaged_mark_is_refused(tmp_path: Path) -> None:
    """A store refuses a bucket whose mark is damaged."""
    (tmp_path / layout.BUCKET_MARK).write_text("[]")
    disk = store_harness.MemoryStoreHarness(lose_unsynced=False).files()
    with pytest.raises(errors.ConfigurationError, match="put it back"):
        mark.opened(disk, mark.Target(url=f"file://{tmp_path}"), "store")
