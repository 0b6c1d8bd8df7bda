"""Places: the workspace of a workflow, and the folder that stores its runs."""

# `.orchestrate` is a data directory under another name, so that every reader of data directories can read it. With
# `--state-dir X` the data directory is `X/.orchestrate`, and `X` gets a link to each run.

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from app import errors, settings
from app.cli import options

DATA = ".orchestrate"
"""Name of the data directory, in the workspace or in the given state directory."""
RUNS = "runs"  # Folder of the runs in the data directory.
STATE_DIR = "ORCHESTRATE_STATE_DIR"  # Environment variable with the state directory.
STATE = "state.json"  # The state file in a run's folder.
LATEST = "latest"  # Name of the link to the newest run.

_GRACE = settings.PREFIX + "STOP_GRACE_SECONDS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(options.Place):
    """The workspace and the data directory of a command."""

    workspace: Path  # Folder that paths of workflows are relative to, absolute and without links.
    data: Path  # Data directory, absolute.
    shown: Path | None  # Folder that gets a link to each run; None: the runs need no links.

    def run_root(self, run_id: str) -> Path:
        """Return a run's folder."""
        return self.data / RUNS / run_id

    def shown_root(self, run_id: str) -> str:
        """Return a run's folder for display: relative to the workspace, if it is in there."""
        return self.shown_path(self.run_root(run_id) if self.shown is None else self.shown / run_id)

    def shown_path(self, path: Path) -> str:
        """Return a path relative to the workspace; unchanged if it is outside."""
        return str(path.relative_to(self.workspace) if path.is_relative_to(self.workspace) else path)

    def command(self, *words: str) -> str:
        """Return a command line that uses the same runs from the workspace."""
        usual = os.environ.get(STATE_DIR) or None
        is_usual = _data(self.workspace, Path(usual) if usual else None)[0] == self.data
        place = () if is_usual else ("--state-dir", self.shown_path(self.shown or self.data / RUNS))
        return shlex.join(["orchestrate", *words, *place])

    def led(self, order: str) -> str:
        """Return a command line of `control-room` for the folder of these runs."""
        return f"{settings.PREFIX}DATA_DIRECTORY={shlex.quote(self.shown_path(self.data))} {order}"


def of(state_dir: Path | None) -> Place:
    """Return the place of the current folder.

    Args:
        state_dir: Folder instead of `.orchestrate/runs`.

    Raises:
        errors.RequestInvalid: `state_dir_refused`.
    """
    workspace = Path.cwd().resolve()
    data, shown = _data(workspace, state_dir)
    laid = {
        "PROJECT": str(workspace),
        "DATA_DIRECTORY": str(data),
        # The index and store of a service do not belong to this folder.
        "DATABASE_URL": "",
        "STORE_URL": "",
        "BLOBS_URL": "",
    }
    # A command has no service that could continue the run, so it stops at once unless a grace period is set.
    if not os.environ.get(_GRACE):
        laid["STOP_GRACE_SECONDS"] = "0"
    return Place(workspace=workspace, data=data, shown=shown, environ=options.laid_over(**laid))


def resolved(path: Path) -> Path:
    """Return a path without links, existing or not.

    Raises:
        OSError: links form a cycle, which each Python version reports differently.
    """
    try:
        found = path.resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found.stat()
    return found


def _data(workspace: Path, state_dir: Path | None) -> tuple[Path, Path | None]:
    if state_dir is None:
        return workspace / DATA, None
    try:
        folder = resolved(workspace / state_dir)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError
    except (OSError, ValueError) as error:
        message = f"--state-dir {str(state_dir)!r:.200} is not a folder"
        raise errors.RequestInvalid(message, code="state_dir_refused") from error
    if folder.name == RUNS and folder.parent.name == DATA:
        return folder.parent, None
    return folder / DATA, folder
