"""Properties of confinement: no path and no link reads, lists or changes anything outside the workspace."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from app import errors
from app.tools.workspace import Workspace
from tests.examples import examples

NAMES = ["a", "b", "c", "deep", "x.md", "y.md"]

components = st.sampled_from(
    [*NAMES, "..", ".", "", ".git", ".control-room", "a\0", "~", "é", "\ud800", "project", "outside"]
)
paths = st.one_of(
    st.lists(components, max_size=8).map("/".join),
    st.lists(components, max_size=8).map(lambda parts: "/" + "/".join(parts)),
    st.text(max_size=40),
    st.text(alphabet="./\\~a\0b ", max_size=20),
)

link_targets = st.one_of(
    st.lists(st.sampled_from([*NAMES, "..", "."]), min_size=1, max_size=6).map("/".join),
    st.sampled_from(
        ["/", "/etc", "{outside}", "{outside}/secret.md", "{root}", "{root}/a", "../outside", "../outside/secret.md"]
    ),
)
places = st.lists(st.sampled_from(["a", "b", "c", "deep"]), max_size=3)
layouts = st.lists(
    st.tuples(places, st.sampled_from(NAMES), st.one_of(st.none(), link_targets)), min_size=1, max_size=12
)


def build(base: Path, layout) -> tuple[Path, Path]:
    """Create a project with files and links beside a folder with a secret."""
    root, outside = base / "project", base / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.md").write_text("SECRET")
    (outside / "x.md").write_text("SECRET")
    for folders, name, target in layout:
        place = root.joinpath(*folders)
        # An earlier link may block the path, or lead to a place where no file may be created.
        with suppress(OSError, RuntimeError):
            if root in (place.resolve(), *place.resolve().parents):
                place.mkdir(parents=True, exist_ok=True)
                if target is None:
                    with open(place / name, "x") as file:
                        file.write("INSIDE")
                else:
                    os.symlink(target.format(root=root, outside=outside), place / name)
    return root, outside


def state(folder: Path) -> list[tuple[str, bytes, int]]:
    """Return names, contents and times of the entries of a folder."""
    return sorted((entry.name, entry.read_bytes(), entry.stat().st_mtime_ns) for entry in folder.iterdir())


@settings(max_examples=examples(40), deadline=None)
@given(layout=layouts, path=paths)
@example(layout=[([], "a", "../outside")], path="a/secret.md")
@example(layout=[([], "a", "b"), ([], "b", "{outside}")], path="a/secret.md")
@example(layout=[(["a"], "b", "../../outside/secret.md")], path="a/b")
@example(layout=[([], "x.md", "{outside}/secret.md")], path="x.md")
def test_no_file_outside_the_root_is_read(layout, path):
    """Every read returns a file whose real path is inside the root, and never the secret."""
    with tempfile.TemporaryDirectory() as base:
        root, _ = build(Path(base), layout)
        workspace = Workspace(root)

        for door in (workspace.read_text, workspace.existing_sha256, workspace.kind):
            try:
                found = door(path)
            except errors.ToolFailed:
                continue
            if found is not None:
                real = Path(os.path.realpath(root / path))
                assert real == root or root in real.parents
                assert found != "SECRET"


@settings(max_examples=examples(40), deadline=None)
@given(layout=layouts, path=paths, overwrite=st.booleans())
@example(layout=[([], "a", "../outside")], path="a/secret.md", overwrite=True)
@example(layout=[([], "x.md", "{outside}/secret.md")], path="x.md", overwrite=True)
@example(layout=[([], "x.md", "../outside/new.md")], path="x.md", overwrite=False)
def test_no_file_outside_the_root_is_written(layout, path, overwrite):
    """A write never changes the folder beside the root, and a successful one is whole and inside the root."""
    with tempfile.TemporaryDirectory() as base:
        root, outside = build(Path(base), layout)
        before = state(outside)
        try:
            written = Workspace(root).write_text(path, "DRAFT", overwrite=overwrite)
        except errors.ToolFailed:
            written = None

        assert state(outside) == before
        assert sorted(entry.name for entry in Path(base).iterdir()) == ["outside", "project"]
        if written is not None:
            real = Path(os.path.realpath(root / written.path))
            assert root in real.parents
            assert real.read_text() == "DRAFT"


@settings(max_examples=examples(30), deadline=None)
@given(layout=layouts)
def test_a_scan_lists_real_files_of_the_root_only_and_twice_the_same(layout):
    """A scan lists only regular files inside the root, reached without a link, and lists the same twice."""
    with tempfile.TemporaryDirectory() as base:
        root, _ = build(Path(base), layout)
        workspace = Workspace(root)
        scan = workspace.scan()

        assert workspace.scan() == scan
        for file in scan.files:
            assert os.path.realpath(root / file.path) == str(root / file.path)
            assert workspace.read_text(file.path) == "INSIDE"


@settings(max_examples=examples(30), deadline=None)
@given(
    files=st.sets(st.lists(st.sampled_from(["a", "b", "é", "物"]), min_size=1, max_size=4).map(tuple), max_size=8),
    path=paths,
)
def test_without_links_a_file_is_read_exactly_if_it_is_there(files, path):
    """In a project without links, every plain path to a file can be read."""
    with tempfile.TemporaryDirectory() as base:
        root = Path(base) / "project"
        root.mkdir()
        for parts in sorted(files):
            with suppress(OSError, RuntimeError):
                root.joinpath(*parts).parent.mkdir(parents=True, exist_ok=True)
                root.joinpath(*parts).write_text("INSIDE")
        workspace = Workspace(root)

        for file in root.rglob("*"):
            relative = str(file.relative_to(root))
            assert workspace.exists(relative) == file.is_file()
            assert (workspace.kind(relative) == "folder") == file.is_dir()
        with suppress(errors.ToolFailed):
            assert workspace.read_text(path) == "INSIDE"
