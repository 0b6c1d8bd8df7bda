"""Modes: the ways in which commands are contained; tests can run in each."""

from __future__ import annotations

import functools
import os

import pytest

from app.processes import containment, namespace_init

NAMESPACES = (namespace_init.NAMESPACE, namespace_init.USER_NAMESPACE)
"""The modes that need the system's permission."""

ALL = (namespace_init.GUARD, *NAMESPACES)
"""Every mode, by the name that forces it."""

EACH = (
    namespace_init.GUARD,
    namespace_init.NAMESPACE,
    pytest.param(namespace_init.USER_NAMESPACE, marks=[pytest.mark.slow] if os.geteuid() == 0 else []),
)
"""Every mode, as parameters: root always runs the first two, and `scripts/ordinary_user.py` the others."""

BEGUN_SECONDS = 2.5
"""Time by which a command must have begun before it is ended: on a loaded machine a shell takes a second to start."""


ORDINARY = pytest.mark.skipif(os.geteuid() == 0, reason="root may search every folder")
"""Mark a test that only a user without rights over the machine can run."""


@functools.cache
def _had(wanted: str) -> containment.Examined:
    return containment.examine(wanted)


def need(mode: str) -> None:
    """Skip a test whose mode is not available on this machine."""
    found = _had(mode)
    granted = not found.reason if mode == namespace_init.AUTO else found.containment == mode
    if not granted:
        pytest.skip(f"no {mode} here, but a {found.containment}: {found.reason or 'it needs rights over the machine'}")
