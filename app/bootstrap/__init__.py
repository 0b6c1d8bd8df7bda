"""The composition root: the only place where concrete classes meet. Nothing is built at import.

A name is imported when it is first used, so that a command that only reads does not load the code that executes runs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.bootstrap.checks import (
        agents,
        backend_names,
        default_backend,
        examine,
        examine_agents,
        examine_backend,
        examine_backends,
        outdated_service,
        speak_locally,
    )
    from app.bootstrap.container import Application, build, prepare_project, rebuild_index
    from app.bootstrap.engines import Store
    from app.bootstrap.platform import OpenMode, Platform, real_platform
    from app.bootstrap.roster import conceal
    from app.bootstrap.samples import SAMPLES, add_sample
    from app.bootstrap.service_start import ServiceStart
    from app.bootstrap.transfers import export_runs, import_runs

__all__ = [
    "SAMPLES",
    "Application",
    "OpenMode",
    "Platform",
    "ServiceStart",
    "Store",
    "add_sample",
    "agents",
    "backend_names",
    "build",
    "conceal",
    "default_backend",
    "examine",
    "examine_agents",
    "examine_backend",
    "examine_backends",
    "export_runs",
    "import_runs",
    "outdated_service",
    "prepare_project",
    "real_platform",
    "rebuild_index",
    "speak_locally",
]

_MODULES = ("platform", "samples", "roster", "checks", "container", "service_start", "transfers")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            found = getattr(importlib.import_module(f"app.bootstrap.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
