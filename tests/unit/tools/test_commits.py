"""Committing a text into the workspace: whole, durable, confined, and never over another file unless asked."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app import errors
from app.tools.workspace import Workspace
from tests.unit.tools import stories

PROJECT = Path(__file__).parents[3]


def failure(workspace, *args, **options) -> errors.ToolFailed:
    """Return the failure of a write."""
    with pytest.raises(errors.ToolFailed) as caught:
        workspace.write_text(*args, **options)
    return caught.value


def names(folder: Path) -> list[str]:
    """Return the names of all entries of a folder, hidden ones too."""
    return sorted(entry.name for entry in folder.iterdir())


def test_a_text_is_written_with_its_folders(tmp_path):
    """A write creates missing folders, returns path, hash and size, and leaves no temporary file."""
    written = Workspace(tmp_path).write_text("Story/Scenes/SCN-new.md", "Dämmerung\r\n")

    content = "Dämmerung\r\n".encode()
    assert (tmp_path / "Story/Scenes/SCN-new.md").read_bytes() == content
    assert (written.path, written.size_bytes) == ("Story/Scenes/SCN-new.md", len(content))
    assert written.sha256 == hashlib.sha256(content).hexdigest()
    assert names(tmp_path / "Story/Scenes") == ["SCN-new.md"]


def test_the_recorded_path_is_the_plain_one(tmp_path):
    """The recorded path has no dots and no doubled slashes."""
    assert Workspace(tmp_path).write_text("./a//b.md", "x").path == "a/b.md"


def test_an_existing_file_is_not_replaced_unasked(tmp_path):
    """Without `overwrite`, an existing file is not changed."""
    workspace = stories.write(tmp_path, {"a.md": "mine"})

    assert failure(workspace, "a.md", "theirs").code == "file_exists"
    assert (tmp_path / "a.md").read_text() == "mine"
    assert names(tmp_path) == ["a.md"]


def test_with_overwrite_the_file_is_replaced_and_keeps_its_mode(tmp_path):
    """With `overwrite`, the file has the new content and keeps its permissions."""
    workspace = stories.write(tmp_path, {"a.md": "old"})
    (tmp_path / "a.md").chmod(0o640)

    workspace.write_text("a.md", "new", overwrite=True)

    assert (tmp_path / "a.md").read_text() == "new"
    assert (tmp_path / "a.md").stat().st_mode & 0o777 == 0o640


def test_overwrite_also_makes_a_file_that_is_not_there(tmp_path):
    """`overwrite` also creates a file that does not exist yet."""
    Workspace(tmp_path).write_text("a.md", "new", overwrite=True)

    assert (tmp_path / "a.md").read_text() == "new"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_at_the_path_is_never_replaced(tmp_path, overwrite):
    """A folder at the path is never replaced."""
    workspace = stories.write(tmp_path, {"a/b.md": "x"})

    assert failure(workspace, "a", "x", overwrite=overwrite).code in {"not_a_file", "file_exists"}
    assert names(tmp_path) == ["a"]


def test_a_path_through_a_file_cannot_be_written(tmp_path):
    """A path through a file cannot be written."""
    workspace = stories.write(tmp_path, {"a.md": "x"})

    assert failure(workspace, "a.md/b.md", "x").code == "file_not_found"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_link_at_the_path_is_never_written_through(tmp_path, overwrite):
    """A link at the path is refused or replaced, dangling or not; its target outside is untouched."""
    outside = tmp_path / "outside.md"
    outside.write_text("theirs")
    root = tmp_path / "project"
    root.mkdir()
    os.symlink(outside, root / "there.md")
    os.symlink(tmp_path / "nowhere.md", root / "dangling.md")
    workspace = Workspace(root)

    for name in ("there.md", "dangling.md"):
        if overwrite:
            workspace.write_text(name, "mine", overwrite=True)
            assert not (root / name).is_symlink()
        else:
            assert failure(workspace, name, "mine").code == "file_exists"

    assert outside.read_text() == "theirs"
    assert not (tmp_path / "nowhere.md").exists()


def test_a_text_with_half_a_surrogate_pair_is_refused(tmp_path):
    """A text that UTF-8 cannot encode is refused."""
    assert failure(Workspace(tmp_path), "a.md", "x\ud800").code == "not_text"
    assert names(tmp_path) == []


def test_an_empty_text_makes_an_empty_file(tmp_path):
    """An empty text creates an empty file."""
    assert Workspace(tmp_path).write_text("a.md", "").size_bytes == 0
    assert (tmp_path / "a.md").read_bytes() == b""


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    """A failed sync leaves the old file unchanged and removes the temporary one."""
    workspace = stories.write(tmp_path, {"a.md": "old"})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.tools.commits.os.fsync", full)
    with pytest.raises(errors.WorkspaceFault, match="No space left on device"):
        workspace.write_text("a.md", "new", overwrite=True)
    with pytest.raises(errors.WorkspaceFault, match="No space left on device"):
        workspace.write_text("b.md", "new")

    assert (tmp_path / "a.md").read_text() == "old"
    assert names(tmp_path) == ["a.md"]


def test_a_file_system_without_hard_links_is_served_by_renaming(tmp_path, monkeypatch):
    """On a file system without hard links, a new file is created and an existing one is kept."""

    def refused(*args, **options):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("app.tools.commits.os.link", refused)
    workspace = Workspace(tmp_path)
    workspace.write_text("a.md", "one")

    assert (tmp_path / "a.md").read_text() == "one"
    assert failure(workspace, "a.md", "two").code == "file_exists"
    assert names(tmp_path) == ["a.md"]


def test_a_file_made_at_the_last_moment_is_not_replaced(tmp_path, monkeypatch):
    """A file that another writer creates between the check and the link is kept."""
    workspace = Workspace(tmp_path)
    real_link = os.link

    def late(*args, **options):
        (tmp_path / "a.md").write_text("theirs")
        return real_link(*args, **options)

    monkeypatch.setattr("app.tools.commits.os.link", late)

    assert failure(workspace, "a.md", "mine").code == "file_exists"
    assert (tmp_path / "a.md").read_text() == "theirs"
    assert names(tmp_path) == ["a.md"]


def test_the_next_write_removes_a_dead_processs_file(tmp_path):
    """The next write removes the temporary file of a dead process."""
    (tmp_path / ".control-room-commit.tmp").write_text("half")

    Workspace(tmp_path).write_text("a.md", "whole")

    assert names(tmp_path) == ["a.md"]


def test_writers_of_one_folder_take_turns(tmp_path):
    """Several threads that write into one folder at the same time each get their whole file."""
    workspace = Workspace(tmp_path)
    failed: list[BaseException] = []

    def write(number):
        try:
            workspace.write_text(f"{number}.md", str(number) * 20_000)
        except errors.ToolFailed as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    assert names(tmp_path) == [f"{number}.md" for number in range(8)]
    assert all((tmp_path / f"{number}.md").read_text() == str(number) * 20_000 for number in range(8))


def test_of_many_writers_of_one_name_exactly_one_wins(tmp_path):
    """Of several writers without `overwrite`, exactly one creates the file."""
    workspace = Workspace(tmp_path)
    results: list[str] = []

    def write(number):
        try:
            workspace.write_text("one.md", str(number))
            results.append(str(number))
        except errors.ToolFailed as error:
            results.append(error.code)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results)[1:] == ["file_exists"] * 7
    assert (tmp_path / "one.md").read_text() == min(results)


@pytest.mark.parametrize("call", ["fsync", "replace", "rename", "link", "unlink"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_process_killed_within_a_write_leaves_the_old_file_or_the_whole_new_one(tmp_path, call, existing):
    """A write killed before any of its system calls leaves the old file or the whole new one, and can be repeated."""
    workspace = stories.write(tmp_path, {"a.md": "old"}) if existing else Workspace(tmp_path)
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from app.tools import commits\n"
        "from app.tools.workspace import Workspace\n"
        f"real = os.{call}\n"
        "def dying(*args, **options):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"commits.os.{call} = dying\n"
        "Workspace(Path(sys.argv[1])).write_text('a.md', 'new' * 10_000, overwrite=sys.argv[2] == 'True')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path), str(existing)], cwd=PROJECT, check=False)

    place = tmp_path / "a.md"
    assert ended.returncode in {0, -signal.SIGKILL}
    assert (place.read_text() if place.exists() else None) in {"old" if existing else None, "new" * 10_000}
    workspace.write_text("a.md", "newer", overwrite=True)
    assert place.read_text() == "newer"
    assert names(tmp_path) == ["a.md"]


def test_a_repeated_commit_recognises_its_own_file(tmp_path):
    """A retry after a crash recognises its own file by the hash, and not one edited by a person."""
    workspace = Workspace(tmp_path)
    written = workspace.write_text("a.md", "draft")

    assert workspace.existing_sha256("a.md") == written.sha256
    (tmp_path / "a.md").write_text("edited by a person")
    assert workspace.existing_sha256("a.md") != written.sha256
