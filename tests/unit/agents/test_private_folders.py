"""Private folders: the next process removes those of killed ones, and none of a living one."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from app import errors
from app.agents.programs import private_folders

HOLDS = """
from app.agents.programs import private_folders
with private_folders.made(True) as folder:
    private_folders.fill(folder, {"prompt": "a secret"})
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files, from which nothing has been removed yet."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    private_folders._remove_left.cache_clear()
    return tmp_path


def _exhausted(_folder: Path) -> int | None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _holding(place: Path) -> tuple[subprocess.Popen[str], Path]:
    environ = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(Path(private_folders.__file__).parents[3])}
    command = [sys.executable, "-c", HOLDS]
    process = subprocess.Popen(command, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_private_and_goes_with_its_call(place: Path) -> None:
    """Only its owner can read it, and it is removed with its content."""
    with private_folders.made(True) as folder:
        assert folder is not None
        private_folders.fill(folder, {"prompt": "x"})
        mode = folder.stat().st_mode & 0o777
        content = private_folders.read(folder, "prompt")

    assert (mode, content, list(place.iterdir())) == (0o700, b"x", [])


def test_what_a_killed_process_has_left_is_removed(place: Path) -> None:
    """The first call of a process removes it; folders of a living process, and those of others, stay."""
    killed, left = _holding(place)
    living, kept = _holding(place)
    foreign = place / "agent-of-another-program"
    foreign.mkdir()
    killed.kill()
    killed.communicate()
    before = {path.name for path in place.iterdir()}
    with private_folders.made(True) as folder:
        assert folder is not None
        during = {path.name for path in place.iterdir()}
    living.communicate("\n")

    assert before == {left.name, kept.name, foreign.name}
    assert during == {folder.name, kept.name, foreign.name}
    assert (living.returncode, list(place.iterdir())) == (0, [foreign])


def test_a_folder_that_a_sweep_takes_before_it_is_locked_is_replaced(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may find a new folder without its lock; then the next one is used."""
    make, made = tempfile.mkdtemp, []

    def taken(prefix: str) -> str:
        made.append(make(prefix=prefix))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", taken)
    with private_folders.made(True) as folder:
        assert (str(folder), len(made)) == (made[1], 2)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_has_private_folders_too(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Nothing is removed there that a living process may use."""
    left = place / "control-room-agent-of-another"
    left.mkdir()

    def refused(_file: int, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    with private_folders.made(True) as folder:
        assert folder is not None
        assert sorted(place.iterdir()) == sorted([folder, left])
    assert list(place.iterdir()) == [left]


def test_a_machine_without_descriptors_leaves_no_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step waits, and the folder that was made for it is gone."""
    monkeypatch.setattr(private_folders, "_locked", _exhausted)
    with pytest.raises(errors.WorkspaceFault), private_folders.made(True):
        pass

    assert list(place.iterdir()) == []
