"""Workspaces: only inside the allowed folders, by their real paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import errors
from app.services import workspaces


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project folder with a data directory, chapters, and a link out."""
    project = tmp_path / "project"
    (project / ".control-room" / "runs").mkdir(parents=True)
    (project / "chapters").mkdir()
    (project / ".git" / "hooks").mkdir(parents=True)
    (project / "chapters" / ".orchestrate" / "runs").mkdir(parents=True)
    (project / "innocent").symlink_to(".git")
    (project / "file.md").write_text("text")
    (tmp_path / "elsewhere").mkdir()
    (project / "way-out").symlink_to(tmp_path / "elsewhere")
    (project / "round").symlink_to(project / "round")
    return project


def chooser(project: Path, *roots: Path) -> workspaces.Workspaces:
    """Return the workspaces of a project."""
    return workspaces.Workspaces(project=project, allowed_roots=roots, data_directory=project / ".control-room")


def test_the_project_is_the_default(project: Path) -> None:
    """A run without a folder works in the project, and a relative folder is below the project."""
    assert chooser(project).choose(None) == str(project)
    assert chooser(project).choose("chapters") == str(project / "chapters")
    assert chooser(project).choose(str(project / "chapters" / "..")) == str(project)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("/etc", "working_dir_refused"),
        ("/no/such/place", "working_dir_refused"),
        ("..", "working_dir_refused"),
        ("chapters/../../elsewhere", "working_dir_refused"),
        ("way-out", "working_dir_refused"),
        ("way-out/deeper", "working_dir_refused"),
        (".control-room", "working_dir_refused"),
        (".control-room/runs", "working_dir_refused"),
        (".git/hooks", "working_dir_refused"),
        ("chapters/.orchestrate/runs", "working_dir_refused"),
        ("innocent", "working_dir_refused"),
        ("/proc/self/root/proc", "working_dir_refused"),
        ("nul\0byte", "working_dir_refused"),
        ("missing", "working_dir_missing"),
        ("file.md", "working_dir_missing"),
        ("x" * 5000, "working_dir_missing"),
    ],
)
def test_a_folder_outside_is_refused(project: Path, asked: str, code: str) -> None:
    """A folder outside, a missing one, or one in the service's data is refused with its code."""
    with pytest.raises(errors.RequestInvalid) as caught:
        chooser(project).choose(asked)

    assert caught.value.code == code
    assert caught.value.flaws[0].path == "$.working_dir"


def test_a_circle_of_links_is_refused(project: Path) -> None:
    """A link to itself is refused."""
    with pytest.raises(errors.RequestInvalid):
        chooser(project).choose("round")


def test_a_folder_name_that_is_not_utf8_is_refused(project: Path) -> None:
    """A folder whose name is not UTF-8 is refused, also behind a link."""
    strange = project / "strange\udcff"
    strange.mkdir()
    (project / "link").symlink_to(strange)
    with pytest.raises(errors.RequestInvalid) as caught:
        chooser(project).choose("link")

    assert caught.value.code == "working_dir_refused"


def test_further_roots_are_allowed(project: Path, tmp_path: Path) -> None:
    """A folder inside another allowed root is accepted, also through a link."""
    allowed = chooser(project, tmp_path / "elsewhere")

    assert allowed.choose(str(tmp_path / "elsewhere")) == str(tmp_path / "elsewhere")
    assert allowed.choose("way-out") == str(tmp_path / "elsewhere")
