"""The engine on Temporal without its extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MISSING = 'raise ModuleNotFoundError("No module named \'temporalio\'", name="temporalio")\n'


@pytest.mark.parametrize("command", [["serve", "--port", "0", "--engine", "temporal"], ["worker"]])
def test_a_missing_extra_names_the_command_that_installs_it(tmp_path: Path, command: list[str]) -> None:
    """Service and worker refuse to start, without a traceback, and name the command that installs the extra."""
    package = tmp_path / "packages" / "temporalio"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MISSING)
    path = os.pathsep.join([str(package.parent), str(Path.cwd())])
    environ = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": path, "CONTROL_ROOM_PROJECT": str(tmp_path)}

    ended = subprocess.run(
        [sys.executable, "-m", "app", *command], capture_output=True, text=True, env=environ, cwd=tmp_path, check=False
    )

    assert ended.returncode == 5, ended.stderr
    assert 'pip install "control-room[temporal]"' in ended.stderr
    assert "Traceback" not in ended.stderr
