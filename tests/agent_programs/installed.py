"""The agent programs that `scripts/agent_programs.py` has installed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PINNED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("programs.json").read_text(encoding="utf-8"))
COMMAND = "python3 scripts/agent_programs.py"
_ENVIRON = dict(os.environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installed program."""

    name: str
    """Its name in `programs.json`."""
    version: str
    """Its pinned version."""
    file: Path
    """The file to execute."""
    path: str
    """The PATH that it needs."""
    unpacked: Path
    """Folder for the files that it unpacks at its first start, so that not every test unpacks them."""


def find(name: str) -> Installed | str:
    """Return a program, or the reason why it is not usable."""
    pinned = PINNED[name]
    file = _file(name)
    if not file.exists():
        return f"{pinned['package']} {pinned['version']} is not installed: {COMMAND} {name}"
    node = _file(pinned["with"]) if "with" in pinned else None
    own = node is not None and node.exists()
    if not own and shutil.which("node") is None:
        return "Node.js is not installed"
    folders = [str(node.parent)] if node is not None and own else []
    path = os.pathsep.join([*folders, _ENVIRON.get("PATH", os.defpath)])
    unpacked = _folder() / f"{name}-{pinned['version']}" / "unpacked"
    return Installed(name=name, version=pinned["version"], file=file, path=path, unpacked=unpacked)


def _file(name: str) -> Path:
    return _folder() / f"{name}-{PINNED[name]['version']}" / str(PINNED[name]["file"])


def _folder() -> Path:
    given = _ENVIRON.get("AGENT_PROGRAMS")
    cache = Path(_ENVIRON.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache / "control-room" / "agent-programs"
