"""Backups: made while a service works, restored whole or not at all, and sound."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.storage import backup, data_directory, restoring
from app.storage.disk import os_disk
from app.storage.journal import commit_records
from tests.acceptance import programs

DYING = """
import os, sys
from pathlib import Path
from app.storage import backup, restoring
kind, source, target, last = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
count = 0
def hook(event, args):
    global count
    opens = event == "open" and any(mark in str(args[1]) for mark in "wx+") and isinstance(args[0], (str, Path))
    if opens or event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link"):
        count += 1
        if count == last:
            os.kill(os.getpid(), 9)
sys.addaudithook(hook)
(backup.write if kind == "backup" else restoring.read)(source, target)
print(count)
"""


def project_with_runs(tmp_path: Path) -> tuple[programs.Project, list[str]]:
    """Return a project with a few runs, a label, an issue and a plan."""
    project = programs.make_project(tmp_path / "project")
    with programs.service(project) as service:
        runs = [service.start_run() for _ in range(3)]
        for run_id in runs:
            service.wait(run_id)
        with service.http() as http:
            http.patch(f"/api/runs/{runs[0]}", json={"labels": {"book": "one"}, "pinned": True})
            http.post("/api/issues", json={"title": "The lantern"})
            http.put("/api/retention", json={"rules": [{"older_than_seconds": 9}]})
    return project, runs


def died(kind: str, source: Path, target: Path, last: int) -> int | None:
    """Make or restore a backup in a process that is killed at its nth change.

    Return the number of changes at the end, None if the process was killed.
    """
    words = [sys.executable, "-c", DYING, kind, str(source), str(target), str(last)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, -9), done.stderr
    return int(done.stdout) if done.returncode == 0 else None


def test_a_backup_of_a_working_service_is_sound(tmp_path: Path) -> None:
    """Runs that work during their backup continue from the restored folder, and all runs pass verification."""
    project, done = project_with_runs(tmp_path)
    other = programs.make_project(tmp_path / "other")
    shutil.rmtree(other.data)
    project.say(draft=[{"hang": True}, "at the second try"])
    with programs.service(project, CONTROL_ROOM_MAX_RUNNING="8") as service:
        working = [service.start_run() for _ in range(6)]
        for number in range(3):
            copied = programs.asked("backup", tmp_path / f"{number}.tar.gz", project=project)
    restored = programs.asked("restore", tmp_path / "2.tar.gz", project=other)
    with programs.service(other) as service, service.http() as http:
        rows = {row["run_id"]: row for row in http.get("/api/runs").json()}
        elsewhere = [service.wait(run_id, "paused", "failed")["error"]["code"] for run_id in working]
    with programs.service(other, CONTROL_ROOM_ALLOWED_ROOTS=str(project.path)) as service, service.http() as http:
        ended = [service.wait(run_id) for run_id in rows]
        issues, policy = http.get("/api/issues").json(), http.get("/api/retention").json()
        receipts = http.get(f"/api/audit/receipts?run_id={done[0]}").json()
    verified = programs.asked("runs", "verify", "--all", project=other)

    assert copied["skipped"] == []
    assert restored["verification"]["ok"], restored
    assert set(rows) == {*done, *working}
    assert elsewhere == ["workspace_not_allowed"] * len(working)
    assert [(run["status"], run["error"]) for run in ended] == [("done", None)] * len(rows)
    assert rows[done[0]]["labels"]["book"] == "one"
    assert [issue["title"] for issue in issues] == ["The lantern"]
    assert len(policy["rules"]) == 1
    assert receipts
    assert verified["ok"], verified


@pytest.mark.slow
def test_no_kill_leaves_half_a_backup_or_half_a_folder(tmp_path: Path) -> None:
    """Wherever the process dies, the file or folder is whole or missing, and the next attempt succeeds."""
    project, _ = project_with_runs(tmp_path)
    data, whole = project.data, tmp_path / "whole.tar.gz"
    changes = died("backup", data, whole, 0)
    assert changes is not None
    for last in range(1, changes + 1):
        target = tmp_path / f"{last}.tar.gz"
        if died("backup", data, target, last) is None and target.exists():
            assert died("restore", target, tmp_path / f"of{last}" / "data", 0) is not None
    total = died("restore", whole, tmp_path / "all" / "data", 0)
    assert total is not None
    for last in range(1, total + 1, max(1, total // 12)):
        folder = tmp_path / f"restored{last}" / "data"
        killed = died("restore", whole, folder, last)
        assert killed is None or last == total
        if not folder.exists():
            assert died("restore", whole, folder, 0) is not None
        names = sorted(path.relative_to(folder) for path in folder.rglob("*"))
        assert names == sorted(path.relative_to(tmp_path / "all/data") for path in (tmp_path / "all/data").rglob("*"))
        assert [path.name for path in folder.parent.iterdir()] == ["data"]


def packed(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return an archive of members."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.type = len(content), kind if name != "backup.json" else tarfile.REGTYPE
            info.linkname = "/etc/passwd"
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def end(**changed: Any) -> tuple[str, bytes]:
    """Return the last member of a backup."""
    return "backup.json", json.dumps(
        {"format": 1, "layout": 2, "runs": 0, "files": 1, "skipped": []} | changed
    ).encode()


def described(**facts: str) -> bytes:
    """Return an archive whose first member has extended headers."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (FILE, end()):
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(content), facts if name != "backup.json" else {}
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def headers(kind: bytes, size: int, content: bytes = b"", count: int = 1) -> bytes:
    """Return an archive that begins with raw headers of a kind, each of which declares the given size."""
    info = tarfile.TarInfo("header")
    info.type, info.size = kind, size
    raw = info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)
    return gzip.compress(raw * count + gzip.decompress(packed(FILE, end())), mtime=0)


FILE = ("agents.json", b"{}")

NO_BACKUPS = {
    "empty": b"",
    "no archive": b"not an archive",
    "compressed words": gzip.compress(b"nothing", mtime=0),
    "without an end": packed(FILE),
    "cut off": packed(FILE, end())[:-40],
    "another count": packed(FILE, end(files=2)),
    "a later layout": packed(FILE, end(layout=99)),
    "another format": packed(FILE, end(format=2)),
    "an end that is none": packed(FILE, ("backup.json", b"[]")),
    "an end without runs": packed(FILE, ("backup.json", b'{"format": 1, "layout": 2, "files": 1}')),
    "an end with a word for runs": packed(FILE, end(runs="all")),
    "a layout that is no number": packed(FILE, end(layout=True)),
    "a long name": packed(("a" * 300, b"x"), end()),
    "a name in no encoding": packed(("a\udcff/../../outside", b"x"), end()),
    "a path outwards": packed(("../outside", b"x"), end()),
    "an absolute path": packed(("/tmp/outside", b"x"), end()),
    "a crooked path": packed(("a/./b", b"x"), end()),
    "an index": packed(("index.db", b"x"), end()),
    "a commit log": packed(("commits/1.log", b"x"), end()),
    "a link": packed(("link", b""), end(), kind=tarfile.SYMTYPE),
    "a file in place of the runs": packed(("runs", b"x"), end()),
    "a sparse file": described(**{"GNU.sparse.map": "0,1", "GNU.sparse.size": "9000000"}),
    "a sparse file with a damaged map": described(**{"GNU.sparse.map": "a,b"}),
    "a sparse file with a damaged size": described(**{"GNU.sparse.size": "large"}),
    "an endless extended header": headers(tarfile.XHDTYPE, 3 << 30),
    "an endless long name": headers(tarfile.GNUTYPE_LONGNAME, 3 << 30),
    "extended headers without end": headers(tarfile.XHDTYPE, 10, b"10 path=a\n", 3000),
    "headers for all members": headers(tarfile.XGLTYPE, 10, b"10 path=a\n"),
    "a file twice": packed(("a", b"x"), ("a", b"y"), end(files=2)),
    "a file as folder": packed(("a", b"x"), ("a/b", b"y"), end(files=2)),
}


@pytest.mark.parametrize("content", NO_BACKUPS.values(), ids=NO_BACKUPS)
def test_an_invalid_backup_is_refused(tmp_path: Path, content: bytes) -> None:
    """A truncated, hostile or incompatible file is refused by its name, and no file remains."""
    (tmp_path / "project").mkdir()
    file = tmp_path / "backup.tar.gz"
    file.write_bytes(content)
    ended = programs.control_room("restore", file, "--project", tmp_path / "project", code=5)

    assert "Traceback" not in ended.stderr
    assert str(file) in ended.stderr
    assert list((tmp_path / "project").iterdir()) == []
    assert not (tmp_path / "outside").exists()

    programs.control_room("restore", file, "--project", tmp_path / "new" / "project", code=5)
    assert not (tmp_path / "new").exists()


def test_a_file_that_cannot_be_read_or_written_is_named_alone(tmp_path: Path) -> None:
    """An impossible place for a backup, and a missing one, are named with a code and a remedy, and nothing is made."""
    project = programs.make_project(tmp_path / "project")
    (project.data / "runs").mkdir()
    missing = tmp_path / "missing" / "backup.tar.gz"
    unwritable = programs.control_room("backup", missing, project=project, code=5).stderr
    unreadable = programs.control_room("restore", missing, "--project", tmp_path / "new", code=5).stderr

    assert f"{missing} cannot be written: No such file or directory; name a file" in unwritable
    assert f"{missing} cannot be read: No such file or directory; name the file" in unreadable
    assert ("[backup_unwritable]" in unwritable, "[backup_unreadable]" in unreadable) == (True, True)
    assert "partial" not in unwritable
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project"]


def test_an_archive_never_takes_the_memory_that_it_asks_for(tmp_path: Path) -> None:
    """A header that unpacks to hundreds of megabytes is refused by its size, before it is read."""
    file = tmp_path / "backup.tar.gz"
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, 3 << 30
    with gzip.open(file, "wb", compresslevel=1) as made:
        made.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            made.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(errors.ConfigurationError) as refused:
            restoring.read(file, tmp_path / "data")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert refused.value.code == "backup_damaged"
    assert "that a backup never contains" in refused.value.message
    assert most < 8 << 20


def copied_files(folder: Path, file: Path) -> dict[str, bytes]:
    """Back a data directory up and return the files of the copy, in their order."""
    backup.write(folder, file)
    with tarfile.open(file) as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
        found = {name: content.read() for name, content in members.items() if content is not None}
    return {name: content for name, content in found.items() if name != backup.END}


def data_of(tmp_path: Path, *names: str, content: str = "{}\n") -> Path:
    """Return a data directory with these files."""
    folder = tmp_path / "data"
    for name in ("runs/.none", *names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def test_what_a_step_writes_before_its_line_is_copied_after_it(tmp_path: Path) -> None:
    """Issues, conversations and proofs are copied after the runs, whose lines may be newer than a first look."""
    conversation, receipts = "sessions/agents/a/session.json", "audit/sessions/s/tool_receipts.jsonl"
    effects = ("issues/i.json", conversation, "audit/orders.jsonl", receipts)
    folder = data_of(tmp_path, *effects, "sessions/sp_1/plan.json", "triggers/t.json", "runs/one/run.json")
    names = list(copied_files(folder, tmp_path / "backup.tar.gz"))

    assert sorted(names[-4:]) == sorted(effects)
    assert names[-5] == "runs/one/run.json"


def test_only_files_that_grow_are_cut_at_their_last_line(tmp_path: Path) -> None:
    """Files of people and of recipes keep a last line without a newline; a journal loses one that is not whole yet."""
    kept = ("replies.jsonl", "runs/one/artifacts/steps.jsonl")
    folder = data_of(tmp_path, *kept, "audit/orders.jsonl", "runs/one/events.jsonl", content="first\nlast")
    found = copied_files(folder, tmp_path / "backup.tar.gz")

    assert {name for name, content in found.items() if content == b"first\nlast"} == set(kept)
    assert {content for name, content in found.items() if name not in kept} == {b"first\n"}


def test_links_are_copied_as_what_they_lead_to(tmp_path: Path) -> None:
    """Files and folders behind links are in the copy, and links that lead upwards are not followed."""
    folder = data_of(tmp_path, "prompts/p.md")
    (tmp_path / "shared" / "recipes").mkdir(parents=True)
    (tmp_path / "shared" / "recipes" / "one.json").write_text("{}\n")
    (tmp_path / "shared" / "agents.json").write_text("{}\n")
    for name, target in (("recipes", "shared/recipes"), ("agents.json", "shared/agents.json")):
        (folder / name).symlink_to(tmp_path / target)
    (folder / "gone.json").symlink_to(tmp_path / "gone.json")
    (tmp_path / "shared" / "recipes" / "up").symlink_to(folder)
    (folder / "prompts" / "recipes").symlink_to("../recipes")
    (tmp_path / "shared" / "recipes" / "prompts").symlink_to(folder / "prompts")
    found = copied_files(folder, tmp_path / "backup.tar.gz")
    once = {"agents.json", "prompts/p.md", "recipes/one.json"}

    assert set(found) == once | {"recipes/prompts/p.md", "prompts/recipes/one.json"}
    assert restoring.read(tmp_path / "backup.tar.gz", tmp_path / "restored")["files"] == len(found)


def test_a_backup_within_its_own_folder_is_refused(tmp_path: Path) -> None:
    """A backup in the data directory would be in each later one; it is refused, also behind a link."""
    folder = data_of(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    for target in (folder / "a.tar.gz", tmp_path / "link" / "a.tar.gz"):
        with pytest.raises(errors.ConfigurationError, match="is inside of") as refused:
            backup.write(folder, target)
        assert refused.value.code == "backup_impossible"
    assert not (folder / "a.tar.gz").exists()


def test_a_backup_waits_for_the_recovery_after_a_power_cut(tmp_path: Path) -> None:
    """Lines that only the commit log has cannot be copied, so the backup is refused until a service has started."""
    folder, file = data_of(tmp_path), tmp_path / "backup.tar.gz"
    log = folder / "commits" / "1.log"
    log.parent.mkdir()
    log.write_bytes(commit_records.head("an earlier boot"))
    with pytest.raises(errors.Conflict, match="start the service once") as refused:
        backup.write(folder, file)
    lock = os_disk.lock(str(log.parent))
    assert lock is not None
    backup.write(folder, tmp_path / "during.tar.gz")
    lock.release()
    log.write_bytes(commit_records.head(os_disk.OsDisk(folder).boot_id()))
    backup.write(folder, file)

    assert refused.value.code == "source_in_use"


def test_a_backup_without_files_is_an_empty_folder(tmp_path: Path) -> None:
    """A data directory without files is restored, with rights for its owner only."""
    (tmp_path / "data" / "runs").mkdir(parents=True)
    backup.write(tmp_path / "data", tmp_path / "backup.tar.gz")
    found = restoring.read(tmp_path / "backup.tar.gz", tmp_path / "restored")

    assert found["files"] == 0
    assert list((tmp_path / "restored").iterdir()) == []
    assert (tmp_path / "restored").stat().st_mode & 0o777 == 0o700


def test_a_place_without_room_is_named(tmp_path: Path) -> None:
    """A restore without enough disk space leaves no files, and its error names the folder."""
    file, project = tmp_path / "backup.tar.gz", tmp_path / "project"
    project.mkdir()
    file.write_bytes(packed(("agents.json", b"x" * 100_000), end()))
    script = 'ulimit -f 16; exec "$0" -m app restore "$1" --project "$2"'
    limited = ["sh", "-c", script, sys.executable, str(file), str(project)]
    environ = programs.environment(None)
    ended = subprocess.run(limited, env=environ, capture_output=True, text=True, check=False, timeout=100)

    assert ended.returncode == 5
    assert f"{project / '.control-room'} cannot be used: no space is left on its disk; make room" in ended.stderr
    assert "[no_room]" in ended.stderr
    assert list(project.iterdir()) == []


def test_a_second_restore_takes_nothing_from_the_first(tmp_path: Path) -> None:
    """A restore beside another one into the same folder is refused; what a dead one has left is removed."""
    file, project = tmp_path / "backup.tar.gz", tmp_path / "project"
    file.write_bytes(packed(FILE, end()))
    first = project / ".restoring-data-1"
    first.mkdir(parents=True)
    (first / "agents.json").write_text("{}")
    lock = os_disk.lock(str(first))
    assert lock is not None
    with pytest.raises(errors.ConfigurationError, match="another restore works on") as refused:
        restoring.read(file, project / "data")
    kept = (first / "agents.json").exists()
    lock.release()
    restoring.read(file, project / "data")

    assert (refused.value.code, kept) == ("data_directory_busy", True)
    assert [path.name for path in project.iterdir()] == ["data"]
    assert os_disk.lock(str(project / "data")) is not None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A restore below a file is refused by the folder, with a code and without the name of a temporary folder."""
    file = tmp_path / "backup.tar.gz"
    file.write_bytes(packed(FILE, end()))
    with pytest.raises(errors.ConfigurationError, match=r"new/data cannot be used: Not a directory") as refused:
        restoring.read(file, file / "new" / "data")

    assert refused.value.code == "data_directory_unusable"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A restore refuses a folder that is not empty, and a backup refuses an existing name."""
    project, _ = project_with_runs(tmp_path)
    file = tmp_path / "one.tar.gz"
    programs.asked("backup", file, project=project)
    before = file.read_bytes()
    again = programs.control_room("backup", file, project=project, code=None)
    over = programs.control_room("restore", file, project=project, code=None)
    lock = data_directory.DataDirectory(project.data, clock=clock.SystemClock(), ids=clock.RandomIds()).lock_service()
    under = programs.control_room("restore", file, project=project, code=None)
    lock.release()

    assert again.returncode != 0
    assert "choose another name, e.g. one-$(date +%F).tar.gz" in again.stderr
    assert over.returncode != 0
    assert "is not empty; restore into another project, or move that folder away first" in over.stderr
    assert f"or stop its service (process {os.getpid()}) and move that folder away first" in under.stderr
    assert file.read_bytes() == before
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_run_waits_for_its_folder(tmp_path: Path) -> None:
    """A run whose working folder is missing at its recovery is paused, and continues once the folder is back."""
    project = programs.make_project(tmp_path / "project")
    folder, away = project.path / "Part", tmp_path / "away"
    folder.mkdir()
    project.say(draft=[{"hang": True}, "at the second try"])
    with programs.service(project) as service:
        run_id = service.start_run(working_dir="Part")
        service.wait_for_step(run_id, "draft")
    folder.rename(away)
    with programs.service(project) as service, service.http() as http:
        parked = service.wait(run_id, "paused", "failed")
        too_early = http.post(f"/api/runs/{run_id}/unpause")
        still = service.wait(run_id, "paused", "failed")
        away.rename(folder)
        http.post(f"/api/runs/{run_id}/unpause")
        ended = service.wait(run_id)

    assert (parked["status"], parked["error"]["code"]) == ("paused", "workspace_missing")
    assert "CONTROL_ROOM_ALLOWED_ROOTS" in parked["error"]["message"]
    assert too_early.status_code < 500
    assert (still["status"], still["error"]["code"]) == ("paused", "workspace_missing")
    assert ended["status"] == "done"
