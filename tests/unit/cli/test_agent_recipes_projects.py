"""The project of a working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import errors
from app.cli.agent_recipes import projects


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a home folder with a data directory, and change to it."""
    monkeypatch.delenv("CONTROL_ROOM_PROJECT", raising=False)
    monkeypatch.setenv("CONTROL_ROOM_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".control-room").mkdir()
    return tmp_path


def project_of(folder: Path | str | None) -> tuple[Path, Path]:
    """Return working directory and project of a folder."""
    found = projects.of(None if folder is None else str(folder))
    return found.working_dir, found.settings().project.project


def test_the_nearest_data_directory_decides(home: Path):
    """The nearest folder at or above the working directory that has a data directory is the project."""
    (home / "outer" / "inner" / "deep").mkdir(parents=True)
    (home / "outer" / ".control-room").mkdir()
    inner = home / "outer" / "inner"
    before = project_of(inner / "deep")
    (inner / ".control-room").mkdir()

    assert before == (inner / "deep", home / "outer")
    assert project_of(inner / "deep") == (inner / "deep", inner)
    assert project_of("outer") == (home / "outer", home / "outer")


def test_a_home_is_not_the_project_of_folders_below(home: Path):
    """The data directory of the home folder does not make it the project of folders below it."""
    (home / "work").mkdir()

    assert project_of("work") == (home / "work", home / "work")
    assert project_of(None) == (home, home)


def test_links_are_followed_first(home: Path):
    """The project of a linked folder is that of its real path."""
    (home / "real" / "deep").mkdir(parents=True)
    (home / "real" / ".control-room").mkdir()
    (home / "link").symlink_to(home / "real" / "deep")

    assert project_of("link") == (home / "real" / "deep", home / "real")


def test_the_environment_goes_before(home: Path, monkeypatch: pytest.MonkeyPatch):
    """A project named in the environment is used for any working directory."""
    (home / "named").mkdir()
    (home / "other" / ".control-room").mkdir(parents=True)
    monkeypatch.setenv("CONTROL_ROOM_PROJECT", str(home / "named"))

    assert project_of("other") == (home / "other", home / "named")


@pytest.mark.parametrize("named", ["nowhere", "", "file", "a\0b", "x" * 5000, "loop"])
def test_an_impossible_working_directory_is_refused(home: Path, named: str):
    """A path that cannot be a working directory is refused with its name."""
    (home / "file").touch()
    (home / "loop").symlink_to(home / "loop")

    with pytest.raises(errors.RequestInvalid, match="is not a folder") as refused:
        projects.of(named)
    assert refused.value.code == "working_dir_missing"


def test_commands_name_the_project_where_they_must(home: Path, monkeypatch: pytest.MonkeyPatch):
    """A printed command names the project only if the current folder and the environment do not imply it."""
    (home / "my work").mkdir()
    elsewhere = projects.of("my work").command("runs", "resume", "r1")
    monkeypatch.chdir(home / "my work")
    here = projects.of(None).command("runs", "resume", "r1")
    monkeypatch.setenv("CONTROL_ROOM_PROJECT", str(home))
    named = projects.of(None).command("runs", "resume", "r1")

    assert elsewhere == f"control-room runs resume r1 --project '{home / 'my work'}'"
    assert here == named == "control-room runs resume r1"
