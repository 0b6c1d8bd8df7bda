"""
Modes: the ways in which commands are kept together, each for tests to be run in.
"""

from __future__ import annotations

import functools

import pytest

from app.processes import containment, wardens

NAMESPACES = (wardens.NAMESPACE, wardens.USER_NAMESPACE)
"""Those that need the system's leave."""

ALL = (wardens.GUARD, *NAMESPACES)
"""Every one, by the name that forces it."""


@functools.cache
def _had(wanted: str) -> containment.Examined:
    return containment.examine(wanted)


def need(mode: str) -> None:
    """
    Skip a test whose mode is not to be had here.
    """
    found = _had(mode)
    if mode != wardens.GUARD and found.containment == wardens.GUARD:
        pytest.skip(f"no {mode} here: {found.reason}")
