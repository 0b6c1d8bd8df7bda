"""
The composition root: the only place where concrete classes meet. Nothing is built at import.
"""

from __future__ import annotations

from app.bootstrap.examining import agents, backend_names, examine, examine_agents, examine_backend, examine_backends
from app.bootstrap.rooms import Room, build, prepare_project, rebuild_index
from app.bootstrap.worlds import Store, Use, World, real_world

__all__ = [
    "Room",
    "Store",
    "Use",
    "World",
    "agents",
    "backend_names",
    "build",
    "examine",
    "examine_agents",
    "examine_backend",
    "examine_backends",
    "prepare_project",
    "real_world",
    "rebuild_index",
]
