"""Resources: files that belong to the program: bundled recipes with their prompts, and migrations.

A checkout has them beside the package, an installed wheel inside it.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "bundled"
_SAMPLES = ".control-room"


def bundled(*parts: str) -> Path:
    """Return the path of a bundled file or folder, e.g. `bundled("recipes", "control_room")`.

    The path need not exist: the caller decides about an empty layer.
    """
    root = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent
    return root.joinpath(*parts)


def sample(name: str) -> Path:
    """Return the folder of an example project, e.g. `sample("example")`."""
    return bundled(_SAMPLES, name)
