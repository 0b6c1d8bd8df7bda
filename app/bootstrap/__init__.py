"""The composition root: the only place where concrete classes meet. Nothing is built at import."""

from __future__ import annotations

from app.bootstrap.checks import (
    agents,
    backend_names,
    default_backend,
    examine,
    examine_agents,
    examine_backend,
    examine_backends,
    speak_locally,
)
from app.bootstrap.container import Application, build, prepare_project, rebuild_index
from app.bootstrap.definitions import conceal
from app.bootstrap.platform import OpenMode, Platform, Store, real_platform
from app.bootstrap.samples import SAMPLES, add_sample
from app.bootstrap.service_start import ServiceStart

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
    "prepare_project",
    "real_platform",
    "rebuild_index",
    "speak_locally",
]
