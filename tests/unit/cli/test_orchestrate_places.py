"""The folders in which workflows run, and in which their runs are stored and linked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app import errors
from app.cli.orchestrate import command, links, places


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, and remove the program's variables."""
    for name in list(os.environ):
        if name.startswith(("ORCHESTRATE_", "CONTROL_ROOM_")):
            monkeypatch.delenv(name)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def made(place: places.Place, *run_ids: str) -> None:
    """Create folders of runs."""
    for run_id in run_ids:
        place.run_root(run_id).mkdir(parents=True)
        links.point(place, run_id)


def test_runs_are_kept_in_the_workspace(workspace: Path):
    """Without a state directory, the data directory is `.orchestrate` in the current folder."""
    place = places.of(None)

    assert place.settings().project.data_directory == workspace / ".orchestrate"
    assert place.settings().project.project == workspace
    assert place.shown_root("r1") == ".orchestrate/runs/r1"
    assert place.command("resume", "r1") == "orchestrate resume r1"


def test_a_state_directory_takes_their_place(workspace: Path, tmp_path: Path):
    """With a state directory, the data directory is below it; messages name its links, and commands the option."""
    place = places.of(tmp_path / "state")

    assert place.data == tmp_path / "state" / ".orchestrate"
    assert place.shown_root("r1") == str(tmp_path / "state" / "r1")
    assert place.command("resume", "r1") == f"orchestrate resume r1 --state-dir {tmp_path / 'state'}"


def test_the_runs_of_a_data_directory_are_a_state_directory(workspace: Path):
    """Naming `.orchestrate/runs` as the state directory has the same effect as the default."""
    place = places.of(Path(".orchestrate/runs"))

    assert (place.data, place.shown) == (workspace / ".orchestrate", None)


def test_a_command_omits_a_state_directory_of_the_environment(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """A printed command names the state directory only if the environment does not."""
    monkeypatch.setenv("ORCHESTRATE_STATE_DIR", "usual")

    assert places.of(Path("usual")).command("resume", "r1") == "orchestrate resume r1"
    assert places.of(Path("other")).command("resume", "r1") == "orchestrate resume r1 --state-dir other"


@pytest.mark.parametrize("named", ["file", "a\0b", "loop", "loop/below"])
def test_an_impossible_state_directory_is_refused(workspace: Path, named: str):
    """A state directory that is a file or cannot exist is refused with its own code."""
    (workspace / "file").touch()
    (workspace / "loop").symlink_to("loop")

    with pytest.raises(errors.RequestInvalid) as refused:
        places.of(Path(named))
    assert refused.value.code == "state_dir_refused"


def test_a_service_of_the_machine_is_left_alone(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """The project and database of a service in the environment are not used."""
    monkeypatch.setenv("CONTROL_ROOM_PROJECT", str(workspace.parent))
    monkeypatch.setenv("CONTROL_ROOM_DATABASE_URL", "postgresql://somewhere/else")
    chosen = places.of(None).settings()

    assert chosen.project.project == workspace
    assert chosen.project.database_url is None


def test_ctrl_c_gives_no_grace_unless_it_is_asked_for(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """Programs get no grace at Ctrl-C unless the environment sets a time."""
    at_once = places.of(None).settings().pool.stop_grace_seconds
    monkeypatch.setenv("CONTROL_ROOM_STOP_GRACE_SECONDS", "3")

    assert (at_once, places.of(None).settings().pool.stop_grace_seconds) == (0.0, 3.0)


def test_latest_is_a_relative_link_to_the_newest_run(workspace: Path, tmp_path: Path):
    """`latest` is a relative link to the newest run; a state directory has it too, with a link to each run."""
    place = places.of(tmp_path / "state")
    made(place, "r1", "r2")
    names = {path.name: os.readlink(path) for path in (tmp_path / "state").iterdir() if path.is_symlink()}

    assert os.readlink(place.data / "runs" / "latest") == "r2"
    assert names == {"latest": "r2", "r1": ".orchestrate/runs/r1", "r2": ".orchestrate/runs/r2"}
    assert links.newest(place) == "r2"


def test_links_of_removed_runs_are_removed(workspace: Path, tmp_path: Path):
    """Links of removed runs are removed, and `latest` leads to the newest remaining run."""
    place = places.of(tmp_path / "state")
    made(place, "r1", "r2")
    place.run_root("r2").rmdir()
    links.forget(place, ["r2"], "r1")

    assert links.newest(place) == "r1"
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [".orchestrate", "latest", "r1"]


def test_an_empty_folder_has_no_newest_run(workspace: Path):
    """The newest run of an empty folder is not found."""
    with pytest.raises(errors.NotFound):
        links.newest(places.of(None))


def test_a_failed_link_is_a_warning(workspace: Path, capsys: pytest.CaptureFixture[str]):
    """A link that cannot be made is a warning, not an error."""
    place = places.of(None)
    (place.data / "runs" / "latest" / "taken").mkdir(parents=True)
    links.point(place, "r1")

    assert "no link to the run" in capsys.readouterr().err
    assert [path.name for path in (place.data / "runs").iterdir()] == ["latest"]


def test_the_hint_about_an_unknown_run_lists_the_runs_of_this_folder(
    workspace: Path, capsys: pytest.CaptureFixture[str]
):
    """The hint names the folder of the runs, without which the command would list those of a project."""
    (workspace / ".orchestrate" / "runs").mkdir(parents=True)

    assert command.execute(["resume", "nope"]) == 2
    assert "CONTROL_ROOM_DATA_DIRECTORY=.orchestrate control-room runs list" in capsys.readouterr().err
