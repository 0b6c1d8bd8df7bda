"""The data directory: private, outside of the project's history, and served by one process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import app
from app import clock, errors
from app.storage import layout_version
from app.storage.data_directory import DataDirectory
from tests.architecture import sources
from tests.conformance import store_harness
from tests.unit.storage import writer_processes


def directory_in(place: Path) -> DataDirectory:
    """Return a data directory."""
    return DataDirectory(place, clock=clock.FakeClock(), ids=clock.RandomIds(random.Random(1)))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run another process that serves the directory `d`."""
    program = (
        "import sys; from pathlib import Path; from tests.unit.storage.test_directory import directory_in;"
        "lock = directory_in(Path(sys.argv[1])).lock_service(); lock.announce('http://127.0.0.1:1'); print(flush=True);"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "d")]
    with subprocess.Popen(
        command, cwd=sources.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_every_folder_is_accessible_to_its_owner_only(tmp_path: Path) -> None:
    """Folders are 0700, even the first one if a checkout made it for all users."""
    (tmp_path / "d").mkdir(mode=0o755)
    directory_in(tmp_path / "d").prepare()
    folders = [tmp_path / "d", *(path for path in (tmp_path / "d").rglob("*") if path.is_dir())]

    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    assert {folder.name for folder in folders} >= {"runs", ".trash", "audit", "sessions", "issues"}


@pytest.mark.parametrize(("mode", "refused"), [(0o2770, False), (0o775, True), (0o701, True)])
def test_a_folder_of_another_user_must_be_closed_to_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, refused: bool
) -> None:
    """A folder of root and of the service's group is accepted; one open to all users is refused with a remedy."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(mode)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(errors.ConfigurationError) if refused else contextlib.nullcontext() as caught:
        directory_in(tmp_path / "d").prepare()

    if caught is not None:
        assert f"is open to all users (mode {mode:04o})" in caught.value.message
        assert "chmod it to 700" in caught.value.message


async def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    """Every file of a run and of the index is 0600."""
    store = writer_processes.store_in(tmp_path / "d")
    await store.start()
    await store.create(store_harness.start())
    log = await store.open(store_harness.RUN)
    await log.put_blob(b"x" * 70_000, text=True)
    await log.write_log("a.txt", "x")
    await log.add_receipt(await log.append_step(store_harness.proven("a")))
    await log.flush()
    await store.issues.open({"issue_id": "iss_1"})
    files = [path for path in (tmp_path / "d").rglob("*") if path.is_file()]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in files}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "d").rglob("*") if path.is_dir()}
    await store.close()

    assert len(files) > 10
    assert modes == {0o600}
    assert folders == {0o700}


@pytest.mark.slow
def test_processes_that_come_first_together_agree_on_the_identity(tmp_path: Path) -> None:
    """Processes that start together agree on one identity, without links, which some file systems do not have."""
    program = (
        "import os, sys; from pathlib import Path; from tests.unit.storage.test_directory import directory_in;"
        "os.link = None; from app import clock; directory = directory_in(Path(sys.argv[1]));"
        "directory._ids = clock.RandomIds(); print(flush=True); sys.stdin.readline(); print(directory.prepare())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "d")]
    pipe = subprocess.PIPE
    comers = [subprocess.Popen(command, cwd=sources.ROOT, text=True, stdin=pipe, stdout=pipe) for _ in range(4)]
    for comer in comers:
        assert comer.stdout is not None
        comer.stdout.readline()
    told = {comer.communicate("\n", timeout=60)[0] for comer in comers}

    assert told == {(tmp_path / "d/data_directory_id").read_text()}


@pytest.mark.parametrize("refused", [errno.EBADF, errno.ENOLCK])
def test_a_file_system_that_cannot_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    """The refusal of a file system that cannot lock folders, such as NFS, gives the cause and the remedy."""
    directory_in(tmp_path).prepare()

    def refuse(descriptor: int, how: int) -> None:
        raise OSError(refused, os.strerror(refused))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(errors.ConfigurationError, match=r"perhaps NFS, cannot lock folders .* use a local disk") as it:
        directory_in(tmp_path).lock_service()

    assert it.value.code == "data_directory_unusable"


def test_git_sees_only_the_projects_own_files(tmp_path: Path) -> None:
    """git sees only the project's own recipes, prompts and agents."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    place = tmp_path / ".control-room"
    directory_in(place).prepare()
    own = ("recipes/a.json", "prompts/prompts.json", "agents.json")
    for name in (*own, "runs/x/run.json", "audit/a", "index.db-wal"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("{}")
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, env={**os.environ, "HOME": str(tmp_path)})
    seen = subprocess.run(["git", "ls-files"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert set(seen.split()) == {f".control-room/{name}" for name in own}


def test_a_persons_gitignore_is_left_alone(tmp_path: Path) -> None:
    """The .gitignore is written on first use only."""
    directory_in(tmp_path).prepare()
    (tmp_path / ".gitignore").write_text("mine")
    directory_in(tmp_path).prepare()

    assert (tmp_path / ".gitignore").read_text() == "mine"


def test_the_gitignore_of_an_earlier_version_is_completed(tmp_path: Path) -> None:
    """Missing entries of an earlier version's .gitignore are added, and a person's lines are kept."""
    directory_in(tmp_path).prepare()
    lines = (tmp_path / ".gitignore").read_text().splitlines()
    (tmp_path / ".gitignore").write_text("\n".join([*(line for line in lines if line != "/layout.json"), "/mine"]))
    directory_in(tmp_path).prepare()

    assert set((tmp_path / ".gitignore").read_text().splitlines()) == {*lines, "/mine"}


def test_only_the_service_raises_the_layout(tmp_path: Path) -> None:
    """Only a service raises the layout, since a running older one must not meet a mark that it does not know."""
    directory_in(tmp_path).prepare()
    before = json.loads((tmp_path / "layout.json").read_text())["layout"]
    directory_in(tmp_path).lock_service().release()

    assert (before, json.loads((tmp_path / "layout.json").read_text())["layout"]) == (1, 2)


def test_a_process_that_is_overtaken_keeps_the_mark_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that finds no mark, and meets one when it writes its own, keeps that of the other process."""
    check, found = layout_version.check, []

    def overtaken(*place: Any) -> int | None:
        found.append(seen := check(*place))
        if len(found) == 1:
            directory_in(tmp_path).lock_service().release()
        return seen

    monkeypatch.setattr(layout_version, "check", overtaken)
    identity = directory_in(tmp_path).prepare()

    assert (found[0], json.loads((tmp_path / "layout.json").read_text())["layout"]) == (None, 2)
    assert identity == (tmp_path / "data_directory_id").read_text().strip()


def test_a_directory_of_a_later_version_is_refused(tmp_path: Path) -> None:
    """The refusal names both layouts and the version, and writes no file; a directory without a mark is accepted."""
    directory_in(tmp_path / "ours").prepare()
    (tmp_path / "ours" / "layout.json").unlink()
    directory_in(tmp_path / "ours").prepare()
    later = tmp_path / "later"
    later.mkdir()
    (later / "layout.json").write_text(json.dumps({"layout": 3, "written_by": "0.9.0", "more": []}))
    with pytest.raises(errors.ConfigurationError) as caught:
        directory_in(later).lock_service()

    assert json.loads((tmp_path / "ours" / "layout.json").read_text()) == {"layout": 1, "written_by": app.__version__}
    assert caught.value.code == "data_directory_newer"
    assert caught.value.detail == {"layout": 3, "written_by": "0.9.0", "known": 2}
    assert "Control Room 0.9.0 or later" in caught.value.message
    assert [file.name for file in later.iterdir()] == ["layout.json"]


@pytest.mark.parametrize("mark", ["", "1", "[]", '{"layout": true}', '{"layout": 0}', '{"layout": "1"}', "[" * 9_999])
def test_a_damaged_mark_is_refused(tmp_path: Path, mark: str) -> None:
    """A damaged mark is refused, and neither guessed nor overwritten."""
    (tmp_path / "layout.json").write_text(mark)
    with pytest.raises(errors.ConfigurationError) as caught:
        directory_in(tmp_path).prepare()

    assert (caught.value.code, (tmp_path / "layout.json").read_text()) == ("data_directory_unusable", mark)
    assert str(tmp_path / "layout.json") in caught.value.message


def test_a_directory_keeps_its_identity(tmp_path: Path) -> None:
    """The identity is created once and read by every later process."""
    first = directory_in(tmp_path).prepare()
    second = DataDirectory(tmp_path, clock=clock.FakeClock(), ids=clock.RandomIds()).prepare()

    assert first == second
    assert first.startswith("dir_")
    assert directory_in(tmp_path).identity == first


def test_an_unusable_directory_is_a_configuration_error(tmp_path: Path) -> None:
    """A file in place of the directory is a configuration error that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.ConfigurationError) as caught:
        directory_in(tmp_path / "file").prepare()

    assert caught.value.code == "data_directory_unusable"
    assert str(tmp_path / "file") in caught.value.message


def test_a_second_service_is_refused(tmp_path: Path, service: subprocess.Popen[str]) -> None:
    """The second process learns which service holds the directory, since when, and where it listens."""
    with pytest.raises(errors.DataDirectoryBusy) as caught:
        directory_in(tmp_path / "d").lock_service()

    assert caught.value.detail == {
        "pid": service.pid,
        "host": socket.gethostname(),
        "since": "2026-02-10T14:30:00.000Z",
        "url": "http://127.0.0.1:1",
    }
    assert str(service.pid) in caught.value.message
    assert directory_in(tmp_path / "d").service() == caught.value.detail


def test_a_killed_service_is_none(tmp_path: Path, service: subprocess.Popen[str]) -> None:
    """The lock of a service ends with its process, even if the process left its files."""
    service.kill()
    service.wait()
    nobody = directory_in(tmp_path / "d").service()
    lock = directory_in(tmp_path / "d").lock_service()
    told = json.loads((tmp_path / "d" / "service.json").read_text())
    lock.release()

    assert nobody is None
    assert told["pid"] == os.getpid()
    assert directory_in(tmp_path / "d").service() is None
    assert not (tmp_path / "d" / "service.json").exists()


def test_a_missing_directory_has_no_service(tmp_path: Path) -> None:
    """A directory that does not exist has no service."""
    assert directory_in(tmp_path / "none").service() is None


def test_an_unreadable_note_does_not_hide_the_holder(tmp_path: Path) -> None:
    """The second service is refused even if the holder's note cannot be read."""
    lock = directory_in(tmp_path).lock_service()
    (tmp_path / "service.json").write_text("{")
    with pytest.raises(errors.DataDirectoryBusy) as caught:
        directory_in(tmp_path).lock_service()
    lock.release()

    assert caught.value.detail == {"pid": None, "host": None, "since": None, "url": None}


def holding(place: Path) -> subprocess.Popen[bytes]:
    """Start a process that has the run open."""
    program = (
        "import asyncio, sys; from pathlib import Path; from tests.unit.storage import writer_processes\n"
        "async def hold():\n"
        "    store = writer_processes.store_in(Path(sys.argv[1]))\n"
        "    await store.start(serve=False); await store.open(sys.argv[2])\n"
        "    print(flush=True); sys.stdin.read()\n"
        "asyncio.run(hold())"
    )
    command = [sys.executable, "-c", program, str(place), store_harness.RUN]
    process = subprocess.Popen(command, cwd=sources.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    return process


async def test_another_process_cannot_write_a_run(tmp_path: Path) -> None:
    """A run that one process writes is busy for another, and free after that process is killed."""
    store = writer_processes.store_in(tmp_path / "d")
    await store.start()
    await store.create(store_harness.start())
    await store.close()
    await store.start()
    with holding(tmp_path / "d") as other:
        with pytest.raises(errors.Conflict) as caught:
            await store.open(store_harness.RUN)
        other.kill()
    log = await store.open(store_harness.RUN)
    await log.close()
    await store.close()

    assert caught.value.code == "run_busy"
