"""Run the unit, conformance and replay tests on every version of Python that is installed here.

    .venv/bin/python scripts/versions.py [--only 3.14 ...] [pytest arguments ...]

Each version gets its own environment from requirements-dev.lock, below the user's cache. The last line names the
versions that the tests ran on and those that are not installed; the exit code is 1 if the tests fail on one.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import environment

DEPENDENT = (
    "tests/integration/test_memory_of_runs.py",
    "tests/integration/test_notifications_tls.py",
    "tests/integration/test_ws_hostile.py::test_bad_messages",
    "tests/acceptance/test_backups.py::test_an_archive_never_takes_the_memory_that_it_asks_for",
)
"""Tests whose results have differed between versions."""

TESTS = ("tests/unit", "tests/conformance", "tests/replay", *DEPENDENT, "-m", "not slow and not programs and not model")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "control-room" / "versions"


def main() -> None:
    """Run the tests on each version, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="VERSION", help="a version to try; by default each")
    chosen, arguments = parser.parse_known_args()
    pythons = {version: _find(version) for version in chosen.only or environment.TRIED}
    tried = {version: _passes(version, python, arguments or [*TESTS]) for version, python in pythons.items() if python}
    results = [f"{version} {'passed' if passed else 'FAILED'}" for version, passed in tried.items()]
    missing = [f"{version} is not installed" for version, python in pythons.items() if python is None]
    print(f"== versions: {', '.join([*results, *missing])}", flush=True)
    sys.exit(0 if all(tried.values()) else 1)


def _find(version: str) -> str | None:
    """Return an interpreter that works, which a shim of pyenv may not."""
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *map(str, reversed(pyenv))):
        if (
            candidate
            and subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode == 0
        ):
            return candidate
    return None


def _passes(version: str, python: str, arguments: list[str]) -> bool:
    lock = environment.ROOT / environment.DEV
    folder = CACHE / f"{version}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    ready = folder / ".ready"
    if not ready.exists():
        print(f"== {version}: making an environment", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(lock)]
        if subprocess.run(pip, check=False).returncode != 0:
            return False
        ready.touch()
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *arguments]
    print(f"== {version}: {' '.join(command[1:])}", flush=True)
    return subprocess.run(command, cwd=environment.ROOT, check=False).returncode == 0


if __name__ == "__main__":
    main()
