"""The README's screenshots come from the real pages."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), reason="no Chromium")
def test_the_script_makes_the_screenshots_of_the_readme(tmp_path: Path) -> None:
    """`scripts/screenshots.py` makes a light picture of a run and a dark one of the home page, named as in the docs."""
    command = [sys.executable, str(ROOT / "scripts" / "screenshots.py"), "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert done.returncode == 0, done.stdout + done.stderr
    assert set(made) == {path.name for path in (ROOT / "docs" / "screenshots").iterdir()}
    assert {struct.unpack(">II", picture[16:24]) for picture in made.values()} == {(1200, 750)}
    assert all(10_000 < len(picture) < 200_000 for picture in made.values())
