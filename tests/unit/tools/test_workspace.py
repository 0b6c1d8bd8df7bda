"""The workspace: reading, listing and looking without leaving its folder."""

from __future__ import annotations

import hashlib
import os
import resource
import socket
import threading
from pathlib import Path

import pytest

from app import errors
from app.tools.scanning import Limits
from app.tools.workspace import Workspace
from tests.unit.tools import stories


@pytest.fixture
def outside(tmp_path):
    """Return a folder with a secret beside the workspace."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.md").write_text("secret")
    return folder


@pytest.fixture
def root(tmp_path):
    """Return the folder of the workspace."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def refusal(action, *args) -> errors.ToolFailed:
    """Return the failure of an action."""
    with pytest.raises(errors.ToolFailed) as caught:
        action(*args)
    return caught.value


def test_a_text_is_read_by_its_relative_path(root):
    """A file below the root is read as text."""
    workspace = stories.write(root, {"Story/scene.md": "Dusk came early."})

    assert workspace.read_text("Story/scene.md") == "Dusk came early."
    assert workspace.read_text("./Story//scene.md") == "Dusk came early."


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "//etc/passwd",
        "../outside/secret.md",
        "Story/../../outside/secret.md",
        "Story/..",
        "..",
        "~/secret.md",
        "~",
        "a\0b",
        "\0",
        "a/\ud800.md",
        ".git/config",
        "deep/.git/hooks/pre-commit",
        ".GIT/config",
        ".control-room/runs/x/run.json",
        ".Control-Room",
        "/".join(["a"] * 65),
    ],
)
def test_a_path_that_could_lead_outside_is_refused_by_every_door(root, outside, path):
    """Every method refuses absolute, reserved and overlong paths, parent folders, NUL bytes and half surrogates."""
    workspace = stories.write(root, {"Story/scene.md": "x"})

    for door in (workspace.read_text, workspace.exists, workspace.existing_sha256, workspace.scan, workspace.kind):
        assert refusal(door, path).code == "path_outside_workspace"
    assert refusal(workspace.write_text, path, "x").code == "path_outside_workspace"
    assert sorted(entry.name for entry in outside.iterdir()) == ["secret.md"]


def test_a_refusal_shows_the_path_short_and_printable(root):
    """The error of a hostile path is short and printable."""
    failure = refusal(Workspace(root).read_text, "../" + "x" * 5000 + "\ud800")

    assert len(failure.message) < 400
    assert failure.to_json()["detail"]["path"].startswith("../xxx")
    failure.message.encode()


@pytest.mark.parametrize("target", ["../outside", "/etc", "{outside}", "..", "sub/../../outside"])
def test_a_link_out_of_the_workspace_is_refused(root, outside, target):
    """The target of a link out of the workspace is neither read nor listed nor written."""
    (root / "sub").mkdir()
    os.symlink(target.format(outside=outside), root / "way")
    workspace = Workspace(root)

    for path in ("way/secret.md", "way/passwd", "way"):
        assert refusal(workspace.read_text, path).code == "path_outside_workspace"
        assert refusal(workspace.exists, path).code == "path_outside_workspace"
    assert refusal(workspace.write_text, "way/new.md", "x").code == "path_outside_workspace"
    assert workspace.scan().files == ()
    assert sorted(entry.name for entry in outside.iterdir()) == ["secret.md"]


def test_a_file_that_is_a_link_out_is_refused(root, outside):
    """A file that is a link out of the workspace is refused."""
    os.symlink(outside / "secret.md", root / "innocent.md")

    assert refusal(Workspace(root).read_text, "innocent.md").code == "path_outside_workspace"


def test_links_inside_the_workspace_work(root):
    """Relative and absolute links inside the workspace are followed, chains of them too."""
    workspace = stories.write(root, {"Story/Scenes/one.md": "one"})
    os.symlink("Story/Scenes", root / "scenes")
    os.symlink(root / "Story", root / "absolute")
    os.symlink("../scenes/./one.md", root / "Story" / "chained.md")

    assert workspace.read_text("scenes/one.md") == "one"
    assert workspace.read_text("absolute/Scenes/one.md") == "one"
    assert workspace.read_text("Story/chained.md") == "one"
    assert workspace.exists("scenes/one.md")
    assert workspace.kind("scenes") == "folder"


def test_a_link_to_the_root_itself_stays_inside(root):
    """A link to the root of the workspace is followed."""
    workspace = stories.write(root, {"one.md": "one", "sub/two.md": "two"})
    os.symlink(root, root / "sub" / "home")
    os.symlink("..", root / "sub" / "up")

    assert workspace.read_text("sub/home/one.md") == "one"
    assert workspace.read_text("sub/up/one.md") == "one"


def test_links_in_a_circle_are_refused(root):
    """Links in a circle are refused."""
    os.symlink("b", root / "a")
    os.symlink("a", root / "b")

    assert refusal(Workspace(root).read_text, "a/x.md").code == "path_outside_workspace"


def test_a_link_into_a_reserved_folder_is_refused(root):
    """A link into `.git` or `.control-room` is refused."""
    workspace = stories.write(root, {".git/config": "secret", ".control-room/agents.json": "{}"})
    os.symlink(".git", root / "plain")
    os.symlink(".control-room/agents.json", root / "agents.md")

    assert refusal(workspace.read_text, "plain/config").code == "path_outside_workspace"
    assert refusal(workspace.read_text, "agents.md").code == "path_outside_workspace"


def test_a_root_below_a_reserved_folder_is_a_workspace(tmp_path):
    """A workspace may be below a reserved folder, as the example project is below `.control-room`."""
    workspace = stories.write(tmp_path / ".control-room" / "example", {"one.md": "one"})

    assert workspace.read_text("one.md") == "one"


def test_a_root_that_is_a_link_is_followed_once(root, tmp_path):
    """A root may be a link; absolute links to its files are inside under both names of the root."""
    stories.write(root, {"one.md": "one"})
    os.symlink(root, tmp_path / "alias")
    os.symlink(tmp_path / "alias" / "one.md", root / "by_alias.md")
    os.symlink(root / "one.md", root / "by_name.md")
    workspace = Workspace(tmp_path / "alias")

    assert workspace.read_text("by_alias.md") == "one"
    assert workspace.read_text("by_name.md") == "one"


def test_a_folder_swapped_for_a_link_between_two_steps_leads_nowhere(root, outside, monkeypatch):
    """A folder that is replaced by a link just before it is opened is not followed."""
    workspace = stories.write(root, {"Story/secret.md": "mine"})
    real_readlink = os.readlink

    def swapped(name, *, dir_fd=None):
        try:
            return real_readlink(name, dir_fd=dir_fd)
        finally:
            if name == "Story" and not (root / "Story").is_symlink():
                (root / "Story").rename(root / "moved")
                os.symlink(outside, root / "Story")

    monkeypatch.setattr("app.tools.confinement.os.readlink", swapped)
    failure = refusal(workspace.read_text, "Story/secret.md")

    assert failure.code in {"file_not_found", "path_outside_workspace"}


def test_readers_racing_with_a_swapping_link_never_see_the_outside(root, outside):
    """A reader sees its own file or a refusal while another thread swaps the folder with a link."""
    workspace = stories.write(root, {"Story/secret.md": "mine"})
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            (root / "Story").rename(root / "away")
            os.symlink(outside, root / "Story")
            (root / "Story").unlink()
            (root / "away").rename(root / "Story")

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = set()
    try:
        for _ in range(400):
            try:
                seen.add(workspace.read_text("Story/secret.md"))
            except errors.ToolFailed as failure:
                seen.add(failure.code)
    finally:
        stop.set()
        swapping.join()

    assert seen <= {"mine", "file_not_found", "path_outside_workspace"}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("missing.md", "file_not_found"),
        ("one.md/x", "file_not_found"),
        ("x" * 300, "file_not_found"),
        ("sub", "not_a_file"),
    ],
)
def test_each_wrong_kind_of_path_has_its_own_code(root, path, code):
    """A missing file, a file used as a folder and a folder used as a file have their own codes."""
    workspace = stories.write(root, {"one.md": "one", "sub/two.md": "two"})

    assert refusal(workspace.read_text, path).code == code


@pytest.mark.parametrize("path", ["", ".", "./"])
def test_the_root_is_a_folder_and_no_file(root, path):
    """The empty path is the root: a folder, not a file."""
    workspace = Workspace(root)

    assert workspace.kind(path) == "folder"
    assert refusal(workspace.read_text, path).code == "not_a_file"
    assert refusal(workspace.write_text, path, "x").code == "not_a_file"


def test_pipes_sockets_and_devices_are_not_files(root):
    """Named pipes and sockets are not files, and opening them neither waits nor reads."""
    os.mkfifo(root / "pipe.md")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root)
        try:
            server.bind("socket.md")
        finally:
            os.chdir(here)
        workspace = Workspace(root)

        assert refusal(workspace.read_text, "pipe.md").code == "not_a_file"
        assert refusal(workspace.read_text, "socket.md").code == "not_a_file"
        assert not workspace.exists("pipe.md")
        assert workspace.scan().files == ()


@pytest.mark.parametrize(
    "content", [b"\0", b"text\0text", b"x" * 8191 + b"\0", b"\xff\xfe\x00a", b"caf\xe9", b"\x80" * 10]
)
def test_content_that_is_not_utf8_text_is_refused(root, content):
    """A file with NUL bytes near the beginning or bytes that are not UTF-8 is not text."""
    workspace = stories.write(root, {"binary.md": content})

    assert refusal(workspace.read_text, "binary.md").code == "not_text"


def test_a_byte_order_mark_is_dropped_and_line_ends_are_kept(root):
    """The text of a file has no byte order mark, and keeps its line ends."""
    workspace = stories.write(root, {"bom.md": b"\xef\xbb\xbfone\r\ntwo"})

    assert workspace.read_text("bom.md") == "one\r\ntwo"


def test_a_file_over_the_limit_is_refused_with_its_size(root):
    """A file at the limit is read; one byte more is refused with the file's size."""
    workspace = stories.write(root, {"fits.md": "x" * 100, "large.md": "x" * 101}, Limits(file_bytes=100))

    assert len(workspace.read_text("fits.md")) == 100
    failure = refusal(workspace.read_text, "large.md")
    assert failure.code == "file_too_large"
    assert failure.detail == {"path": "large.md", "size_bytes": 101, "limit_bytes": 100}


def test_a_file_that_grows_while_it_is_read_is_read_to_the_limit_only(root, monkeypatch):
    """A file that grows while it is read is refused at the limit."""
    (root / "growing.md").write_text("x" * 50)
    real_fstat = os.fstat

    def grown_after(descriptor):
        status = real_fstat(descriptor)
        with open(root / "growing.md", "a") as file:
            file.write("x" * 40)
        return status

    monkeypatch.setattr("app.tools.workspace.os.fstat", grown_after)
    failure = refusal(Workspace(root, Limits(file_bytes=100)).read_text, "growing.md")

    assert failure.code == "file_too_large"
    assert failure.detail["size_bytes"] == 101


def test_a_file_with_unreadable_content_is_file_unreadable():
    """A file whose content cannot be read fails with `file_unreadable`, as `/proc/self/mem` does at address zero."""
    workspace = Workspace(Path("/proc/self"))

    for door in (workspace.read_text, workspace.existing_sha256):
        failure = refusal(door, "mem")
        assert (failure.code, failure.detail["errno"]) == ("file_unreadable", "EIO")


def test_a_file_swapped_for_a_pipe_is_not_waited_for(root, monkeypatch):
    """A file that is replaced by a named pipe before it is opened is refused without waiting."""
    workspace = stories.write(root, {"a.md": "x"})
    real_stat = os.stat

    def swapping(name, **options):
        status = real_stat(name, **options)
        if name == "a.md":
            (root / "a.md").unlink()
            os.mkfifo(root / "a.md")
        return status

    monkeypatch.setattr("app.tools.confinement.os.stat", swapping)

    assert refusal(workspace.read_text, "a.md").code == "not_a_file"


def test_a_file_that_vanishes_during_a_scan_is_left_out(root, monkeypatch):
    """A file that vanishes during a scan is left out."""
    workspace = stories.write(root, {"a.md": "x", "b.md": "x"})
    real_stat = os.stat

    def vanishing(name, **options):
        if name == "a.md":
            (root / "a.md").unlink(missing_ok=True)
        return real_stat(name, **options)

    monkeypatch.setattr("app.tools.scanning.os.stat", vanishing)

    assert [file.path for file in workspace.scan().files] == ["b.md"]


def test_a_folder_made_by_another_writer_at_the_same_moment_is_used(root, monkeypatch):
    """A write uses a folder that another writer creates at the same moment."""
    real_mkdir = os.mkdir

    def first_by_another(name, **options):
        real_mkdir(name, **options)
        return real_mkdir(name, **options)

    monkeypatch.setattr("app.tools.confinement.os.mkdir", first_by_another)
    Workspace(root).write_text("new/a.md", "x")

    assert (root / "new" / "a.md").read_text() == "x"


def test_an_input_error_of_the_disk_is_file_unreadable(root, monkeypatch):
    """An input error of the disk fails the tool with `file_unreadable` and the system's name for the error."""
    workspace = stories.write(root, {"one.md": "x"})

    def broken(*args, **kwargs):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("app.tools.confinement.os.stat", broken)
    failure = refusal(workspace.read_text, "one.md")

    assert failure.code == "file_unreadable"
    assert failure.detail["errno"] == "EIO"


def test_a_missing_workspace_has_its_own_code(tmp_path):
    """A missing workspace fails with its own code."""
    workspace = Workspace(tmp_path / "gone")

    assert refusal(workspace.read_text, "x.md").code == "workspace_missing"
    assert refusal(workspace.exists, "x.md").code == "workspace_missing"
    assert refusal(workspace.scan).code == "workspace_missing"
    assert str(tmp_path / "gone") in refusal(workspace.scan).message


def test_existence_means_a_regular_file(root):
    """`exists` is true for regular files only."""
    workspace = stories.write(root, {"one.md": "x", "sub/two.md": "x", "empty.md": ""})

    assert workspace.exists("one.md")
    assert workspace.exists("empty.md")
    assert not workspace.exists("sub")
    assert not workspace.exists("none.md")
    assert not workspace.exists("none/none.md")


def test_the_hash_of_an_existing_file_is_that_of_its_bytes(root):
    """Any file has the hash of its bytes, binary and large ones too; a missing file has none."""
    content = os.urandom(3 * 1024 * 1024)
    workspace = stories.write(root, {"large.bin": content})

    assert workspace.existing_sha256("large.bin") == hashlib.sha256(content).hexdigest()
    assert workspace.existing_sha256("none.md") is None
    assert workspace.existing_sha256("") is None


def test_a_scan_lists_files_in_one_order_and_leaves_out_the_hidden(root):
    """A scan lists each folder's own files first, by name, without hidden files, hidden folders and links."""
    workspace = stories.write(
        root,
        {
            "b.md": "bb", "a.md": "a", "sub/z.md": "", "sub/deep/y.md": "", "another/x.md": "",
            ".hidden.md": "", ".git/config": "", ".control-room/runs/r/run.json": "", ".obsidian/app.json": "",
        },
    )  # fmt: skip
    os.symlink("a.md", root / "link.md")
    os.symlink("sub", root / "linked")

    scan = workspace.scan()

    assert [file.path for file in scan.files] == ["a.md", "b.md", "another/x.md", "sub/z.md", "sub/deep/y.md"]
    assert [file.size_bytes for file in scan.files][:2] == [1, 2]
    assert not scan.truncated


def test_a_scan_can_begin_in_a_folder(root):
    """Paths found below a folder are relative to the root."""
    workspace = stories.write(root, {"sub/deep/y.md": "", "sub/z.md": "", "a.md": ""})

    assert [file.path for file in workspace.scan("sub").files] == ["sub/z.md", "sub/deep/y.md"]
    assert [file.path for file in workspace.scan("./sub/deep").files] == ["sub/deep/y.md"]
    assert refusal(workspace.scan, "none").code == "file_not_found"
    assert refusal(workspace.scan, "a.md").code == "file_not_found"


@pytest.mark.parametrize(
    ("limits", "found"),
    [(Limits(scan_files=2), 2), (Limits(scan_bytes=25), 2), (Limits(scan_entries=3), 3), (Limits(), 5)],
)
def test_a_scan_stops_at_its_limits_as_truncated(root, limits, found):
    """A scan stops at its limits of files, bytes and entries, and is marked as truncated."""
    workspace = stories.write(root, {f"{name}.md": "x" * 10 for name in "abcde"}, limits)

    scan = workspace.scan()

    assert len(scan.files) == found
    assert scan.truncated == (found < 5)


def test_names_that_are_not_utf8_are_left_out_of_scans(root):
    """A scan leaves out names that are not UTF-8."""
    (root / "fine.md").write_text("x")
    with open(os.path.join(os.fsencode(root), b"bad\xff.md"), "wb"):
        pass

    assert [file.path for file in Workspace(root).scan().files] == ["fine.md"]


def test_unicode_names_are_ordinary_names(root):
    """Names in any script are listed, read and written unchanged."""
    workspace = stories.write(root, {"Szenen/Ankunft-über-Nacht.md": "eins", "物語/場面.md": "二"})

    assert workspace.read_text("物語/場面.md") == "二"
    assert [file.path for file in workspace.scan().files] == ["Szenen/Ankunft-über-Nacht.md", "物語/場面.md"]
    assert workspace.write_text("物語/新.md", "三").path == "物語/新.md"


def test_no_descriptor_stays_open(root, outside):
    """Reads, refusals, scans and writes leave no descriptor open."""
    workspace = stories.write(root, {"a/b/c.md": "x"})
    os.symlink(outside, root / "way")
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(20):
        workspace.read_text("a/b/c.md")
        refusal(workspace.read_text, "way/secret.md")
        refusal(workspace.read_text, "a/b")
        workspace.scan()
        workspace.write_text("a/b/d.md", "x", overwrite=True)
        workspace.existing_sha256("a/b/c.md")

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lack_of_descriptors_passes(tmp_path: Path) -> None:
    """Without free descriptors, reads and writes raise a fault instead of a result, and no file is created."""
    (tmp_path / "a.md").write_text("a")
    workspace = Workspace(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(errors.WorkspaceFault) as read:
            workspace.read_text("a.md")
        with pytest.raises(errors.WorkspaceFault) as written:
            workspace.write_text("b.md", "b")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert [caught.value.detail["errno"] for caught in (read, written)] == ["EMFILE", "EMFILE"]
    assert {path.name for path in tmp_path.iterdir()} == {"a.md"}
