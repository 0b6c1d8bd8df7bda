"""Containment: finds out which containment works on this machine, for diagnostics before an agent runs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from app import settings
from app.domain import secret_spellings
from app.processes import environments, namespace_init

_ROOT = str(Path(__file__).resolve().parents[2])
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from app.processes.namespace_init import main; main(sys.argv[2])"
_PROBE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The containment that works here."""

    containment: str  # `namespace`, `user_namespace` (without root rights) or `guard`.
    reason: str = ""  # Why no namespace is possible; empty if one is.


def examine(wanted: str = namespace_init.AUTO) -> Examined:
    """Try containments in a separate process, and return the one that is used for this setting."""
    if wanted == namespace_init.GUARD:
        return Examined(containment=namespace_init.GUARD, reason="the setting says so")
    try:
        probe = subprocess.run(  # noqa: S603 - this very program
            # In a process of its own, as only a process without threads can create namespaces.
            [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT, wanted],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
            env=environments.inherited(os.environ, secret_spellings.named(os.environ, settings.SECRET_NAMES)),
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Examined(containment=namespace_init.GUARD, reason=str(error))
    name, _, reason = probe.stdout.strip().partition(" ")
    return Examined(containment=name, reason=reason)
