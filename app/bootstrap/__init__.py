"""The composition root: the only place where concrete classes meet. Nothing is built at import."""

from __future__ import annotations

from app.bootstrap.examining import (
    agents,
    backend_names,
    default_backend,
    examine,
    examine_agents,
    examine_backend,
    examine_backends,
    speak_locally,
)
from app.bootstrap.references import conceal
from app.bootstrap.rooms import Room, build, prepare_project, rebuild_index
from app.bootstrap.samples import SAMPLES, add_sample
from app.bootstrap.worlds import Store, Use, World, real_world

__all__ = [
    "SAMPLES",
    "Room",
    "Store",
    "Use",
    "World",
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
    "real_world",
    "rebuild_index",
    "speak_locally",
]
