"""The folder of finished task files: emptying, archiving, and refused folders."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest

from app import errors
from app.cli.orchestrate import places, processed, running, workflows


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> places.Place:
    """Change to a workspace with a folder beside it."""
    (tmp_path / "work").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "keep").write_text("kept")
    monkeypatch.delenv("ORCHESTRATE_STATE_DIR", raising=False)
    monkeypatch.chdir(tmp_path / "work")
    return places.of(None)


def workflow(place: places.Place, folder: str = "processed", name: str = "flow.yaml") -> workflows.Workflow:
    """Return a workflow with a folder of finished task files."""
    file = place.workspace / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'version: "1.1"\nprocessed_dir: "{folder}"\nsteps: [{{name: A, command: [echo]}}]\n')
    return workflows.read(Path(name), place)


def fill(folder: Path, outside: Path) -> None:
    """Put files, folders and links into a folder."""
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "deeper" / "a.task").write_text("a")
    (folder / "b.task").write_text("b")
    (folder / "out").symlink_to(outside)
    (folder / ".hidden").write_text("h")


def test_cleaning_empties_the_folder_and_follows_no_link(place: places.Place):
    """Cleaning removes the content of the folder and its links, but not the folder or the targets of links."""
    folder, outside = place.workspace / "processed", place.workspace.parent / "outside"
    fill(folder, outside)
    processed.of(workflow(place), place).clean()

    assert list(folder.iterdir()) == []
    assert (outside / "keep").read_text() == "kept"


def test_cleaning_a_missing_folder_creates_none(place: places.Place):
    """Cleaning a folder that does not exist creates none."""
    processed.of(workflow(place), place).clean()

    assert not (place.workspace / "processed").exists()


def test_a_link_that_stays_inside_is_followed(place: places.Place):
    """A folder that is a link to a folder of the workspace is emptied, and the link stays."""
    (place.workspace / "real").mkdir()
    (place.workspace / "real" / "a").touch()
    (place.workspace / "processed").symlink_to("real")
    processed.of(workflow(place), place).clean()

    assert list((place.workspace / "real").iterdir()) == []
    assert (place.workspace / "processed").is_symlink()


def test_a_folder_outside_the_workspace_is_refused(place: places.Place):
    """A folder outside the workspace, or the workspace itself, is refused under any name."""
    links = {"up": "..", "here": ".", "out": "../outside", "loop": "loop"}
    for name, target in links.items():
        (place.workspace / name).symlink_to(target)
    (place.workspace / "file").touch()
    refusals = []
    for named in [*links, ".", "./", "up/outside", "file"]:
        with pytest.raises(errors.RequestInvalid) as refused:
            processed.of(workflow(place, named), place)
        refusals.append(refused.value.code)

    assert set(refusals) == {"processed_dir_refused"}


@pytest.mark.parametrize("named", ["flows", ".orchestrate", ".orchestrate/runs", "kept"])
def test_a_folder_with_runs_or_the_workflow_is_refused(place: places.Place, named: str):
    """A folder that contains the runs or the workflow is refused."""
    kept = places.of(Path("kept/state")) if named == "kept" else place
    with pytest.raises(errors.RequestInvalid, match="is the folder of the"):
        processed.of(workflow(place, named, "flows/flow.yaml"), kept)


def test_an_archive_holds_everything_and_links_as_links(place: places.Place):
    """An archive contains files of all depths, folders and links once each, with links as links."""
    folder, outside = place.workspace / "processed", place.workspace.parent / "outside"
    fill(folder, outside)
    target = place.workspace / "archives" / "done.zip"
    processed.of(workflow(place), place).archive(target)
    with zipfile.ZipFile(target) as archive:
        names = sorted(archive.namelist())
        link = archive.getinfo("processed/out")

        assert names == [
            f"processed/{name}" for name in (".hidden", "b.task", "deep/", "deep/deeper/", "deep/deeper/a.task", "out")
        ]
        assert archive.read("processed/deep/deeper/a.task") == b"a"
        assert (archive.read("processed/out").decode(), stat.S_ISLNK(link.external_attr >> 16)) == (str(outside), True)
    assert [path.name for path in target.parent.iterdir()] == ["done.zip"]


def test_an_archive_takes_the_place_of_an_older_one_whole(place: places.Place, monkeypatch: pytest.MonkeyPatch):
    """An archive that cannot be completed leaves the older one unchanged."""
    fill(place.workspace / "processed", place.workspace.parent / "outside")
    target = place.workspace / "done.zip"
    target.write_text("older")
    found = processed.of(workflow(place), place)
    (found.folder / "gone").symlink_to("x" * 200)
    monkeypatch.setattr(zipfile.ZipFile, "writestr", _refuse)
    with pytest.raises(OSError, match="no room"):
        found.archive(target)

    assert target.read_text() == "older"
    assert [path.name for path in place.workspace.glob(".done*")] == []


def test_an_archive_of_nothing_is_an_empty_one(place: places.Place):
    """An archive of an empty folder is an empty archive."""
    processed.of(workflow(place), place).archive(place.workspace / "done.zip")

    assert zipfile.ZipFile(place.workspace / "done.zip").namelist() == []


@pytest.mark.parametrize("asked", ["processed/done.zip", "processed", "in/done.zip", "folder"])
def test_an_archive_inside_its_own_folder_is_refused(place: places.Place, asked: str):
    """An archive inside the folder that it archives is refused before the run starts, also behind a link."""
    for name in ("processed", "folder"):
        (place.workspace / name).mkdir()
    (place.workspace / "in").symlink_to("processed")

    with pytest.raises(errors.RequestInvalid) as refused:
        running.Queue(archive=asked).plan(workflow(place), place)
    assert refused.value.code == "archive_refused"


def test_an_archive_replaces_only_an_archive(place: places.Place):
    """An archive replaces an older one, and no other file, such as the workflow or a device."""
    older, notes = place.workspace / "older.zip", place.workspace / "notes.txt"
    processed.of(workflow(place), place).archive(older)
    notes.write_text("mine")

    assert running.Queue(archive="older.zip").plan(workflow(place), place)[1] == older
    for asked in ("notes.txt", "/dev/null"):
        with pytest.raises(errors.RequestInvalid, match="is not an archive") as refused:
            running.Queue(archive=asked).plan(workflow(place), place)
        assert refused.value.code == "archive_refused"


def test_an_uncleanable_folder_matters_only_when_used(place: places.Place):
    """A folder that could not be cleaned does not matter unless cleaning or an archive is requested."""
    assert running.Queue().plan(workflow(place, "."), place) == (None, None)


def _refuse(*_: object) -> None:
    raise OSError("no room")
