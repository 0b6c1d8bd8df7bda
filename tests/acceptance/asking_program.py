"""The program `control-room` with a language whose recipes ask people: `python -m tests.acceptance.asking_program`."""

from __future__ import annotations

import sys

from app.cli import root
from app.dialects import registry
from tests.integration.asking_dialect import ASKING

MODULE = "tests.acceptance.asking_program"
"""The module to execute instead of `app`."""

if __name__ == "__main__":
    registry.DIALECTS = {**registry.DIALECTS, "asking": ASKING}
    sys.exit(root.execute())
