"""Beginnings: tell whoever listens that a run was accepted or sent on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from app.domain import runs

Listener: TypeAlias = Callable[[runs.RunStart], None]
"""Is told what begins; it may not wait."""


class RunStartedListeners:
    """Hand on what begins."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Tell somebody from now on."""
        self._listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Tell somebody no more."""
        self._listeners.remove(listener)

    def tell(self, start: runs.RunStart) -> None:
        """Tell everybody who listens."""
        for listener in tuple(self._listeners):
            listener(start)
