"""Object storage of each provider: the same calls over the protocols of S3, Google Cloud Storage and Azure."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.objects import bucket, mark
from app.storage.objects.bucket import Bucket
from tests import object_server

pytest.importorskip("obstore", reason="the extra objects is not installed")

SETTINGS = {"s3": "AWS_SECRET_ACCESS_KEY", "gs": "GOOGLE_SERVICE_ACCOUNT", "az": "AZURE_STORAGE_ACCOUNT_KEY"}


@pytest.fixture(params=list(SETTINGS))
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[object_server.ObjectServer]:
    """Yield a server of each provider, and direct the environment to it."""
    with object_server.serving(request.param) as made:
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setitem(bucket._RETRIES, "max_retries", 0)
        yield made


def address(server: object_server.ObjectServer) -> str:
    """Return the address of the tests' objects."""
    return f"{server.scheme}://runs/of tests"


def test_objects_are_written_read_listed_and_removed(server: object_server.ObjectServer) -> None:
    """Names may contain spaces and symbols, a part is read by its offsets, and removal skips missing objects."""
    kept = Bucket(address(server))
    names = [f"runs/a/{number} ä&<+%.txt" for number in range(30)]
    for name in names:
        kept.put(name, name.encode())
    kept.put("runs/ab/x", b"")
    listed = sorted(found.name for found in kept.all("runs/a"))
    sizes = {found.size_bytes for found in kept.all("runs/ab")}
    read = [kept.get(names[0]), kept.get(names[0], 5, 9), kept.get(names[0], 90, 99), kept.get("runs/ab/x")]
    facts, there = kept.head(names[1]), (kept.has(names[1]), kept.has("runs/b"))
    with pytest.raises(FileNotFoundError):
        kept.get("runs/b")
    kept.remove(["runs/gone", *names[:15], "runs/gone too", *names[15:]])

    assert listed == sorted(names)
    assert sizes == {0}
    assert read == [names[0].encode(), names[0].encode()[5:9], b"", b""]
    assert (facts.name, facts.size_bytes, there) == (names[1], len(names[1].encode()), (True, False))
    assert list(server.objects) == ["of tests/runs/ab/x"]


def overtaken(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Let two new stores begin at one empty place, the second right after the first has found it empty."""
    found = mark._found

    def looked(kept: Bucket) -> Any:
        seen = found(kept)
        monkeypatch.setattr(mark, "_found", found)
        mark.opened(MemoryDisk(), mark.Target(url=place, new_identity="2"), "second")
        return seen

    monkeypatch.setattr(mark, "_found", looked)
    with pytest.raises(errors.ConfigurationError, match="blobs of another store") as refused:
        mark.opened(MemoryDisk(), mark.Target(url=place, new_identity="1"), "first")
    assert refused.value.code == "store_differs"


def test_of_two_stores_that_begin_at_once_a_bucket_has_one(
    server: object_server.ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two stores that begin at once, the slower one is refused with an error about the other store."""
    overtaken(monkeypatch, address(server))


def test_of_two_stores_that_begin_at_once_a_folder_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mounted folder refuses the slower of two stores as a bucket does."""
    overtaken(monkeypatch, f"file://{tmp_path}")


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        ("denied", errno.EACCES, "refuses access"),
        ("refused", errno.EIO, "does not answer as it should"),
        ("silent", errno.EIO, "does not answer as it should"),
    ],
)
def test_faults_are_named_without_secrets(
    server: object_server.ObjectServer, monkeypatch: pytest.MonkeyPatch, fault: str, code: int, says: str
) -> None:
    """The error of every call contains the address, and no credentials."""
    monkeypatch.setitem(bucket._OPTIONS, "timeout", "0.2s")
    kept, server.fault = Bucket(address(server)), fault
    calls: list[Any] = [
        lambda: kept.put("a", b"x"),
        lambda: kept.get("a"),
        lambda: kept.head("a"),
        lambda: list(kept.all("runs")),
        lambda: kept.remove(["a"]),
    ]
    for call in calls:
        with pytest.raises(OSError, match=address(server)) as caught:
            call()
        assert (caught.value.errno, says in str(caught.value)) == (code, True)
        assert object_server.SECRET not in str(caught.value)
        assert object_server.ACCOUNT_KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "code"), [("denied", "blobs_unusable"), ("no bucket", "blobs_unusable"), ("refused", "blobs_away")]
)
def test_a_start_names_the_settings(server: object_server.ObjectServer, fault: str, code: str) -> None:
    """A start that fails names the address, its setting and, if access is denied, the variables of the provider."""
    server.fault = fault
    target = mark.Target(url=address(server), new_identity="blobs_of_a_test")
    with pytest.raises(errors.ConfigurationError, match=address(server)) as caught:
        mark.opened(MemoryDisk(), target, "store")

    assert caught.value.code == code
    assert "CONTROL_ROOM_BLOBS_URL" in caught.value.message
    assert (SETTINGS[server.scheme] in caught.value.message) is (fault == "denied")
