"""The installed program: a wheel contains the files that a checkout has beside the package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from app import resources
from tests.architecture import sources


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Build the wheel and unpack it as an installation would."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        folder,
    ]
    subprocess.run([*command, sources.ROOT], check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def test_wheel_carries_every_bundled_file(installed: Path) -> None:
    """The wheel contains all recipes, migrations and examples of the checkout."""
    for name in ("recipes", "migrations", ".control-room/example", ".control-room/example-code"):
        beside = {path.relative_to(sources.ROOT / name) for path in _files(sources.ROOT / name)}
        inside = {
            path.relative_to(installed / "app" / "bundled" / name)
            for path in _files(installed / "app" / "bundled" / name)
        }

        assert beside
        assert inside == beside


def test_wheel_holds_the_package_alone(installed: Path) -> None:
    """The wheel contains only the package and its metadata."""
    names = {path.name for path in installed.iterdir()}

    assert {name for name in names if not name.endswith(".dist-info")} == {"app"}


def test_installed_program_finds_its_bundled_files(installed: Path, tmp_path: Path) -> None:
    """An installed package looks for its files inside itself, a checkout beside itself."""
    code = "from app import resources; print(resources.bundled('recipes'))"
    told = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(installed)!r}); {code}"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert Path(told.stdout.strip()) == installed / "app" / "bundled" / "recipes"
    assert resources.bundled("recipes") == sources.ROOT / "recipes"


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
