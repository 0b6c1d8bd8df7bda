"""Arguments that name files: what a step would find wrong with them, before the run begins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from app import errors
from app.domain import plain
from app.tools import failures, reserved, workspace

_PATTERN = re.compile(r"[*?\[]")


def flaws(
    args: Mapping[str, plain.Json], named: Mapping[str, bool], working_dir: str, hidden: reserved.Reserved
) -> Iterator[errors.Flaw]:
    """Yield the paths that lead out of the workspace, or at which nothing is although a step reads them.

    Args:
        named: Arguments that name files, and whether a step reads them.
        hidden: What in the working folder no step looks at.
    """
    files = workspace.Workspace(reserved.Root.of(Path(working_dir), hidden))
    for name, is_read in named.items():
        given = args.get(name)
        for number, path in enumerate(given if isinstance(given, list) else [given]):
            if not isinstance(path, str):
                continue
            try:
                # What a pattern fits is known only when its step looks.
                if files.kind(path) is not None or not is_read or _PATTERN.search(path):
                    continue
                failure = failures.missing(path)
            except errors.ToolFailed as outside:
                failure = outside
            place = f"$.args.{name}[{number}]" if isinstance(given, list) else f"$.args.{name}"
            yield errors.Flaw(path=place, code=failure.code, message=f"argument {name}: {failure.message}")
