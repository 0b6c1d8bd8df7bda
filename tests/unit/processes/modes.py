"""Modes: the ways in which commands are kept together, each for tests to be run in."""

from __future__ import annotations

import functools
import os

import pytest

from app.processes import containment, namespace_init

NAMESPACES = (namespace_init.NAMESPACE, namespace_init.USER_NAMESPACE)
"""Those that need the system's leave."""

ALL = (namespace_init.GUARD, *NAMESPACES)
"""Every one, by the name that forces it."""

EACH = (
    namespace_init.GUARD,
    namespace_init.NAMESPACE,
    pytest.param(namespace_init.USER_NAMESPACE, marks=[pytest.mark.slow] if os.geteuid() == 0 else []),
)
"""Every one, for tests that take each: root always tries the first two, and `scripts/ordinary_user.py` the others."""

BEGUN_SECONDS = 2.5
"""Limit for a command that must have begun before it is over: a loaded machine takes a second to start a shell."""


ORDINARY = pytest.mark.skipif(os.geteuid() == 0, reason="root may search every folder")
"""Marks what only somebody without rights over the machine can see."""


@functools.cache
def _had(wanted: str) -> containment.Examined:
    return containment.examine(wanted)


def need(mode: str) -> None:
    """Skip a test whose mode is not to be had here."""
    found = _had(mode)
    granted = not found.reason if mode == namespace_init.AUTO else found.containment == mode
    if not granted:
        pytest.skip(f"no {mode} here, but a {found.containment}: {found.reason or 'it needs rights over the machine'}")
