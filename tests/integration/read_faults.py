"""A system that refuses to read certain files, as a failing disk or a full table of descriptors does."""

from __future__ import annotations

import errno
import os
import types
from collections.abc import Callable
from typing import Any

import pytest

from app.storage.disk import os_disk

CALLS = ("open", "stat", "listdir")
"""System calls that read."""


class ReadFaults:
    """Refuses system calls that read certain paths, and allows all others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._refused: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.count = 0
        """Number of refused calls."""
        checked = {name: self._checking(getattr(os, name)) for name in CALLS}
        monkeypatch.setattr(os_disk, "os", types.SimpleNamespace(**(vars(os) | checked)))

    def refuse(self, ending: str, code: int = errno.EIO, calls: tuple[str, ...] = CALLS) -> None:
        """Refuse these calls from now on for every path that ends so."""
        self._refused[ending] = code, calls

    def lift(self) -> None:
        """Allow all reads again."""
        self._refused.clear()

    def _checking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(path: Any, *args: Any, **options: Any) -> Any:
            reads = call.__name__ != "open" or not args or args[0] & os.O_ACCMODE == os.O_RDONLY
            place = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else str(path)
            for ending, (code, calls) in self._refused.items():
                if reads and call.__name__ in calls and place.endswith(ending):
                    self.count += 1
                    raise OSError(code, os.strerror(code), place)
            return call(path, *args, **options)

        return checked
