"""Install the real agent programs that the tests marked `programs` run against a fake model server.

    python3 scripts/agent_programs.py [--into FOLDER] [NAME ...]

Each program has a folder of its own below FOLDER, which is $AGENT_PROGRAMS, else a folder in the user's cache. npm
installs it once, in the version of tests/agent_programs/programs.json. All of them together take about 1.6 GB.
The exit code is 0 only if each program shows the pinned version.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PINNED = ROOT / "tests" / "agent_programs" / "programs.json"
VARIABLE = "AGENT_PROGRAMS"
NPM = ["npm", "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel", "error"]
INSTALL_SECONDS = 900
SHOW_SECONDS = 120
MIB = 1024 * 1024


def main() -> None:
    """Install the requested programs, and print the version, size and time of each."""
    pinned: dict[str, dict[str, Any]] = json.loads(PINNED.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=_default_folder(), metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(pinned)}; all by default")
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - set(pinned))
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)}; there are {', '.join(pinned)}")
    if shutil.which("npm") is None:
        sys.exit("npm is not installed; it comes with Node.js 20 or later.")
    names = _with_helpers(asked.names or list(pinned), pinned)
    asked.into.mkdir(parents=True, exist_ok=True)
    with (asked.into / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failed = [name for name in names if not _stands(name, pinned, asked.into.absolute())]
    if failed:
        sys.exit(f"== failed: {', '.join(failed)}")
    _say(f"all of them stand; {VARIABLE}={asked.into.absolute()} leads the tests to them")


def _default_folder() -> Path:
    given = os.environ.get(VARIABLE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache / "control-room" / "agent-programs"


def _with_helpers(names: list[str], pinned: dict[str, dict[str, Any]]) -> list[str]:
    helpers = [pinned[name]["with"] for name in names if "with" in pinned[name]]
    ordered = list(dict.fromkeys([*helpers, *names]))
    usable = platform.system() == "Linux" and platform.machine() == "x86_64"
    return ordered if usable else [name for name in ordered if name != "node"]


def _stands(name: str, pinned: dict[str, dict[str, Any]], into: Path) -> bool:
    """Install a program if it is missing, and return whether it shows its version."""
    program, folder = pinned[name], into / f"{name}-{pinned[name]['version']}"
    started = time.monotonic()
    if not (folder / program["file"]).exists() and not _install(program, folder):
        return False
    shown = _shown([*_runner(program, pinned, into), str(folder / program["file"]), *program["shows"]])
    seconds, mebibytes = time.monotonic() - started, _size_bytes(folder) / MIB
    _say(f"{name} {program['version']}: {mebibytes:.0f} MiB, {seconds:.0f} s, in {folder}")
    if program["version"] not in shown:
        _say(f"{name} shows another version or none: {shown.strip()[:400]!r}")
    return program["version"] in shown


def _install(program: dict[str, Any], folder: Path) -> bool:
    """Install a program into a temporary folder and rename it, so that its own folder is always complete."""
    made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    wanted = f"{program['package']}@{program['version']}"
    command = [*NPM, "--prefix", str(made), wanted]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS, check=False)
    if done.returncode != 0 or not (made / program["file"]).exists():
        _say(f"{wanted} could not be installed; npm's own message is above")
        shutil.rmtree(made, ignore_errors=True)
        return False
    made.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)
    return True


def _runner(program: dict[str, Any], pinned: dict[str, dict[str, Any]], into: Path) -> list[str]:
    """Return the Node command for a program, the installed one or the machine's own; empty if it needs none."""
    if "with" not in program:
        return []
    node = pinned[program["with"]]
    own = into / f"{program['with']}-{node['version']}" / node["file"]
    return [str(own) if own.exists() else "node"]


def _shown(command: list[str]) -> str:
    with tempfile.TemporaryDirectory() as home:
        surroundings = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SHOW_SECONDS,
                check=False, env=surroundings, cwd=home,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return done.stdout + done.stderr


def _size_bytes(folder: Path) -> int:
    """Return the size of a folder; a file with two names counts once."""
    found = [path.lstat() for path in folder.rglob("*")]
    return sum({(one.st_dev, one.st_ino): one.st_size for one in found}.values())


def _say(text: str) -> None:
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    main()
