"""Run the tests of processes, files and permissions as a user without rights over the machine, by README's command.

    python3 scripts/ordinary_user.py

They run once on the machine as usual and once without namespaces, which a filter of system calls denies to these tests
alone. If the machine does not allow this, the script skips it with the reason; a failing test fails the script.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import environment

NOBODY = 65534
"""The user, and the group, that owns no files of the machine."""

COPIED = ("app", "bench", "docs", "migrations", "openapi", "recipes", "scripts", "tests", ".control-room")
"""Folders of the project that tests need; the files beside them are copied as well."""

CONTAINMENT = ("tests/unit/processes", "tests/acceptance/test_agent_containment.py")
"""Tests of the containment that namespaces provide."""

FILES = ("tests/unit/tools/test_commands.py", "tests/unit/tools/test_workspace.py", "tests/unit/test_settings.py")
"""Tests of files and permissions."""

_CALLS = {"x86_64": (56, 272), "aarch64": (220, 97)}
"""Numbers of `clone` and `unshare`, by machine."""

_CLONE3, _NEW_USER = 435, 0x1000_0000
_LOAD, _IS, _HAS, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000
_EPERM, _ENOSYS = 1, 38
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38


def main() -> None:
    """Run the tests both ways, and end with 1 if either fails."""
    if os.geteuid() != 0:
        print("== as the machine is: skipped, the tests themselves run as an ordinary user here", flush=True)
        sys.exit(_run(environment.ROOT, str(environment.PYTHON), "without namespaces", CONTAINMENT, _deny_namespaces))
    with tempfile.TemporaryDirectory(prefix="ordinary-", dir=environment.memory()) as folder:
        tree = _copied(Path(folder))
        python = next(_interpreters(tree), None)
        if python is None:
            print("== skipped: there is no Python here that an ordinary user may execute", flush=True)
            return
        codes = [
            _run(tree, python, "as the machine is", (*CONTAINMENT, *FILES), None),
            _run(tree, python, "without namespaces", CONTAINMENT, _deny_namespaces),
        ]
    sys.exit(max(codes))


def _copied(folder: Path) -> Path:
    tree = folder / "tree"
    ignored = shutil.ignore_patterns("__pycache__", ".mypy_cache", "*.pyc")
    tree.mkdir()
    for path in environment.ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree)
        elif path.name in COPIED:
            shutil.copytree(path, tree / path.name, ignore=ignored, symlinks=True)
    for name in ("home", "files"):
        (folder / name).mkdir()
    for place in (folder, *folder.rglob("*")):
        os.chown(place, NOBODY, NOBODY, follow_symlinks=False)
    return tree


def _interpreters(tree: Path) -> Iterator[str]:
    """Return interpreters that the user can execute and that the project supports."""
    names = [f"python{version}" for version in environment.TRIED] + ["python3"]
    places = [sys.executable, *(f"{folder}/{name}" for folder in ("/usr/local/bin", "/usr/bin") for name in names)]
    asked = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    for place in places:
        try:
            told = subprocess.run([place, "-c", asked], capture_output=True, text=True, check=True, **_as_nobody(tree))
        except (OSError, subprocess.SubprocessError):
            continue
        if tuple(map(int, told.stdout.split())) >= environment.OLDEST:
            yield place


def _run(tree: Path, python: str, name: str, tests: tuple[str, ...], first: Callable[[], None] | None) -> int:
    print(f"== as an ordinary user, {name}", flush=True)
    command = [python, "scripts/check.py", "--only", "tests", *tests]
    given = _as_nobody(tree) if os.geteuid() == 0 else {}
    try:
        return subprocess.run(command, cwd=tree, check=False, preexec_fn=first, **given).returncode
    except subprocess.SubprocessError as error:
        print(f"== skipped: {error}", flush=True)
        return 0


def _as_nobody(tree: Path) -> dict[str, Any]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    surroundings = {**kept, "HOME": str(tree.parent / "home"), "TMPDIR": str(tree.parent / "files")}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": [], "env": surroundings}


def _deny_namespaces() -> None:
    """Deny namespaces to this process and all its descendants, as container runtimes do."""
    clone, unshare = _CALLS[platform.machine()]
    steps = [
        (_LOAD, 0, 0, 0),
        (_IS, 6, 0, _CLONE3),
        (_IS, 4, 0, unshare),
        (_IS, 0, 2, clone),
        (_LOAD, 0, 0, 16),
        (_HAS, 1, 0, _NEW_USER),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE | _EPERM),
        (_RETURN, 0, 0, _REFUSE | _ENOSYS),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "system calls cannot be filtered")


if __name__ == "__main__":
    main()
