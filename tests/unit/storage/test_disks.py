"""Disks: the machine's disk and the one in memory behave alike, and the one in memory forgets unsynced data."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.disk.os_disk import OsDisk


@pytest.fixture(params=["os", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    """Return an empty disk with one folder."""
    made: Disk = OsDisk(tmp_path) if request.param == "os" else MemoryDisk()
    made.add_folder("a")
    return made


def test_a_file_grows_at_its_end(files: Disk) -> None:
    """Appended content is read back in order, from any offset."""
    file = files.append_to("a/f")
    file.write(b"one")
    file.write(b"two")
    file.sync()
    file.close()

    assert files.read("a/f") == b"onetwo"
    assert files.read("a/f", 2, 3) == b"etw"
    assert files.read("a/f", 99) == b""
    assert files.read_synced("a/f") == b"onetwo"
    assert files.size("a/f") == 6


def test_a_closed_file_takes_nothing(files: Disk) -> None:
    """A closed file refuses writes and syncs; closing it again is harmless."""
    file = files.append_to("a/f")
    file.write(b"x")
    file.close()
    file.close()
    for attempt in (lambda: file.write(b"y"), file.sync):
        with pytest.raises(OSError):
            attempt()

    assert files.read("a/f") == b"x"


def test_a_file_is_overwritten_whole(files: Disk) -> None:
    """A write replaces the whole content, whether it was longer or shorter."""
    files.write("a/f", b"long content", sync=False)
    files.write("a/f", b"short", sync=True)

    assert files.read("a/f") == b"short"


def test_a_replaced_file_has_another_signature(files: Disk, tmp_path: Path) -> None:
    """An unchanged file keeps its signature; a replaced, extended or overwritten one has another."""
    files.write("a/f", b"one", sync=True)
    seen = [files.signature("a/f")]
    assert files.signature("a/f") == seen[0]
    disk_port.replace(files, "a/f", b"two", sync=True)
    seen.append(files.signature("a/f"))
    files.write("a/f", b"three", sync=True)
    seen.append(files.signature("a/f"))
    files.write("a/f", b"seven", sync=True)
    if isinstance(files, OsDisk):
        # The clock of a file system may not advance between two writes.
        os.utime(tmp_path / "a/f", (1, 1))
    seen.append(files.signature("a/f"))

    assert len(set(seen)) == 4
    for name in ("a", "a/none", "none/f", "a/f/g"):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            files.signature(name)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nothing")])
def test_reading_a_non_file_is_not_a_refused_sync(tmp_path: Path, make: Any) -> None:
    """Reading something that is not a file is not a refused sync, which would be waited out."""
    make(tmp_path / "f")
    with pytest.raises(OSError) as refused:
        OsDisk(tmp_path).read_synced("f")

    assert not isinstance(refused.value, disk_port.SyncRefused)


def test_replacing_leaves_no_temporary_file(files: Disk) -> None:
    """A replaced file is whole, without a temporary file, and every point was passed in order."""
    points: list[str] = []
    disk_port.replace(files, "a/f", b"1", sync=True, reach=points.append, at="x")
    disk_port.replace(files, "a/f", b"2", sync=False)

    assert files.read("a/f") == b"2"
    assert files.names("a") == ["f"]
    assert points == ["x.before_write", "x.before_rename", "x.after_rename"]


@pytest.mark.parametrize(("content", "kept"), [(b"", b""), (b"a\nb\n", b"a\nb\n"), (b"a\nb", b"a\n"), (b"ab", b"")])
def test_appending_whole_lines_mends_the_end_first(files: Disk, content: bytes, kept: bytes) -> None:
    """An incomplete last line is cut off before lines are appended behind it."""
    if content:
        files.write("a/f", content, sync=True)
    offset = disk_port.append_whole(files, "a/f", b"new\n", sync=True)

    assert files.read("a/f") == kept + b"new\n"
    assert offset == len(kept)


def test_a_long_incomplete_line_is_mended(files: Disk) -> None:
    """The last whole line is found however far back it ends."""
    files.write("a/f", b"first\n" + b"x" * 200_000, sync=True)

    assert disk_port.mend(files, "a/f") == len(b"first\n")
    assert files.read("a/f") == b"first\n"


def test_access_to_a_missing_file_raises(files: Disk) -> None:
    """Access to a missing file raises; a question for names or kinds does not."""
    for attempt in (
        lambda: files.read("a/none"),
        lambda: files.size("none/none"),
        lambda: files.rename("a/none", "a/x"),
        lambda: files.remove("a/none"),
        lambda: files.lock("none"),
        lambda: files.write("none/f", b"", sync=False),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()

    assert files.names("none") == []
    assert not files.has_file("a/none")
    assert not files.has_folder("a/none")


def test_folders_move_and_go_whole(files: Disk) -> None:
    """A folder is renamed and removed with its whole content."""
    files.add_folder("a/b")
    files.write("a/b/f", b"x", sync=True)
    made_again = files.add_folder("a/b")
    files.rename("a/b", "c")
    moved = files.read("c/f")
    files.remove_tree("c")

    assert not made_again
    assert moved == b"x"
    assert not files.has_folder("c")
    assert files.names("a") == []


def test_a_folder_is_held_once(files: Disk) -> None:
    """A held folder cannot be taken until it is released, and a second release is harmless."""
    lock = files.lock("a")
    assert lock is not None

    assert files.lock("a") is None
    lock.release()
    lock.release()
    again = files.lock("a")
    assert again is not None
    again.release()


def test_a_file_is_shortened(files: Disk) -> None:
    """Cutting a file keeps its beginning."""
    files.write("a/f", b"abcdef", sync=True)
    files.cut("a/f", 2)

    assert files.read("a/f") == b"ab"


# -- the machine's disk


def test_folders_and_files_are_their_owners_alone(tmp_path: Path) -> None:
    """Folders are 0700 and files 0600, for any umask."""
    before = os.umask(0)
    try:
        files = OsDisk(tmp_path)
        files.add_folder("a")
        files.write("a/f", b"", sync=False)
        files.append_to("a/g").write(b"x")
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/f", "a/g")}

    assert modes == {"a": 0o700, "a/f": 0o600, "a/g": 0o600}


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A file that is a symbolic link is neither read nor written."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    files = OsDisk(tmp_path)
    for attempt in (
        lambda: files.read("link"),
        lambda: files.write("link", b"x", sync=False),
        lambda: files.append_to("link").write(b"x"),
        lambda: files.cut("link", 0),
    ):
        with pytest.raises(OSError):
            attempt()

    assert (tmp_path / "secret").read_text() == "secret"
    assert not files.has_file("link")


def test_a_pipe_does_not_hold_up_a_reader(tmp_path: Path) -> None:
    """A named pipe in place of a file is refused at once."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):
        OsDisk(tmp_path).read("pipe")


# -- the disk in memory


def test_a_power_cut_takes_unsynced_content_and_names() -> None:
    """A power cut takes content behind the last sync, names in unsynced folders, and locks."""
    files = MemoryDisk()
    files.add_folder("a")
    files.sync_folder("")
    file = files.append_to("a/kept")
    file.write(b"synced")
    file.sync()
    file.write(b" and not")
    files.sync_folder("a")
    files.write("a/nameless", b"x", sync=True)
    files.lock("a")
    left = files.crashed(lose_unsynced=True)

    assert left.read("a/kept") == b"synced"
    assert left.names("a") == ["kept"]
    assert left.lock("a") is not None


def test_a_killed_process_leaves_everything_written() -> None:
    """A kill without a power cut keeps all written data, and the dead process can no longer write."""
    files = MemoryDisk()
    file = files.append_to("f")
    file.write(b"x")
    left = files.crashed(lose_unsynced=False)
    file.write(b"y")

    assert left.read("f") == b"x"


def test_an_unsynced_rename_is_taken_back() -> None:
    """A file that was renamed without a sync of its folder is the old one again after a power cut."""
    files = MemoryDisk()
    files.write("f", b"old", sync=True)
    files.sync_folder("")
    disk_port.replace(files, "f", b"new", sync=False)
    left = files.crashed(lose_unsynced=True)

    assert left.read("f") == b"old"
