"""Samples: puts small projects that come with the program into a folder, to try the program on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from app import errors, resources

SAMPLES: Mapping[str, str] = {"story": "example", "code": "example-code"}
"""Folder of each sample below `.control-room/` of the checkout, by name."""

_RENAMED = {PurePosixPath("README.md"): PurePosixPath("EXAMPLE.md")}  # Files of which a project has its own.

_LEFT_OUT = frozenset({".gitignore"})
_WRITTEN = frozenset({"Drafts", "reports"})  # Folders to which recipes of the samples write.
_OF_PROJECT = ".control-room"
_BELONGING = frozenset({"recipes", "prompts"})
"""The contents of a sample's data directory; a checkout may have runs, keys, triggers and agents of its user beside."""

_MOST_NAMED = 10


def add_sample(project: Path, name: str) -> list[str]:
    """Put a sample into a project and return its files, relative to the project; existing files are not changed.

    Raises:
        errors.ConfigurationError: `sample_in_the_way`, the project has files with other content; `sample_unwritable`, a
            file cannot be written. In the first case, no file is written.
    """
    files = _files(resources.sample(SAMPLES[name]))
    # Checked before the first write: all files are written or none.
    differing = [path for path, content in files.items() if _is_other(project / path, content)]
    if differing:
        named = ", ".join(differing[:_MOST_NAMED])
        raise errors.ConfigurationError(
            f"the example {name} was not written: the project has other files at {named}",
            code="sample_in_the_way",
            detail={"paths": differing},
        )
    written = [path for path in files if not os.path.lexists(project / path)]
    try:
        for path in written:
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_bytes(files[path])
    except OSError as error:
        message = f"the example {name} was not written completely: {error.strerror}: {path}"
        raise errors.ConfigurationError(message, code="sample_unwritable", detail={"path": path}) from error
    return list(files)


def _files(folder: Path) -> dict[str, bytes]:
    found = (
        (PurePosixPath(path.relative_to(folder).as_posix()), path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in _LEFT_OUT and path.suffix != ".pyc"
    )
    return {str(_RENAMED.get(name, name)): path.read_bytes() for name, path in found if _belongs(name)}


def _belongs(name: PurePosixPath) -> bool:
    if name.parts[0] == _OF_PROJECT:
        return name.parts[1] in _BELONGING
    return name.parts[0] not in _WRITTEN


def _is_other(path: Path, content: bytes) -> bool:
    if not os.path.lexists(path):
        return False
    try:
        return path.is_symlink() or path.read_bytes() != content
    except OSError:
        return True
