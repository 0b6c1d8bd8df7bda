"""The recipe listing: the last list of recipes, cached until a file that it depends on has changed.

Reading all recipes takes four parsers and every tool; most commands need the same list as the one before.
"""

# The cache has only facts that depend on files: whether a backend or program exists is checked each time. A second
# change within one clock tick is not detectable, so a list is cached only if its newest file has not changed lately.

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app import __version__, resources, settings
from app.storage import layout_version

FIELDS = ("recipe_id", "dialect", "layer", "label", "valid", "flaws")
"""Fields of a recipe that depend only on files."""

REST_SECONDS = 2.0  # Time for which the newest file must be unchanged before a list is cached.

_PASSING = ("unreadable", "dialect_fault")
_MOST_DEPTH = 8


def listed(config: settings.Settings, read: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return all recipes, with the fields `FIELDS`.

    Args:
        read: Reads the recipes; called if they may have changed.
    """
    file, (signature, changed_at) = _cache_file(config), _signature(config)
    known = _kept(file, signature)
    if known is not None:
        return known
    found = [{name: recipe[name] for name in FIELDS} for recipe in read()]
    # If a file changed while the recipes were read, the list may have its old content.
    now = time.time()  # noqa: TID251 - the injected clock brings the event loop, which takes as long as all of this
    rests = changed_at < now - REST_SECONDS and _signature(config)[0] == signature
    if rests and not any(flaw["code"] in _PASSING for recipe in found for flaw in recipe["flaws"]):
        _keep(file, {"signature": signature, "recipes": found})
    return found


def _signature(config: settings.Settings) -> tuple[str, float]:
    """Return a signature that changes with any file that the list depends on, and the time of the newest change."""
    project, marks, newest = config.project, hashlib.sha256(), 0
    facts = [__version__, sys.version, *(str(part) for part in (project.project, project.data_directory, project.home))]
    marks.update(json.dumps(facts).encode())
    places = [
        Path(settings.__file__).parent,
        resources.bundled("recipes"),
        project.project / ".amplifier" / "agents",
        project.home / ".control-room" / "prompts",
        *(project.data_directory / name for name in (layout_version.FILE, "agents.json", "prompts", "recipes")),
    ]
    for place in places:
        for path, found in _found(str(place), _MOST_DEPTH):
            # Both times and the inode: a file may be replaced by one of the same size and age.
            mark = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode) if found else ()
            marks.update(f"{path}\0{mark}\n".encode(errors="surrogateescape"))
            newest = max(newest, *mark[:2], 0)
    return marks.hexdigest(), newest / 1e9


def _found(path: str, depth: int) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield a file, or a folder and all its content, each with its state; None if it does not exist."""
    try:
        found = os.stat(path)
        inside = sorted(os.listdir(path)) if depth and stat.S_ISDIR(found.st_mode) else []
    except OSError:
        yield path, None
        return
    yield path, found
    for name in inside:
        if name != "__pycache__":
            yield from _found(f"{path}/{name}", depth - 1)


def _cache_file(config: settings.Settings) -> Path:
    """Return the cache file of a project's list, in the user's own cache."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    caches = Path(given) if os.path.isabs(given) else settings.user_home() / ".cache"
    place = hashlib.sha256(os.fsencode(config.project.data_directory.absolute())).hexdigest()
    return caches / "control-room" / f"recipes-{place[:32]}.json"


def _kept(file: Path, signature: str) -> list[dict[str, Any]] | None:
    try:
        kept = json.loads(file.read_bytes())
        rows = kept["recipes"] if kept["signature"] == signature else None
        return rows if rows is None or all(set(FIELDS) <= set(row) for row in rows) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _keep(file: Path, content: dict[str, Any]) -> None:
    # Without a cache, every command reads the recipes again.
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(content), encoding="utf-8")
        fresh.replace(file)
