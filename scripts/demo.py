"""Set up Control Room and show it: `control-room demo --model`, from a checkout.

    python3 scripts/demo.py [--port 8000] [--project DIR] [--exit]

The service stays up at the end until Ctrl-C; with --exit it is stopped. The exit code is that of `control-room demo`.
"""

from __future__ import annotations

import os
import sys

import environment


def main() -> None:
    """Prepare `.venv` with the local model and become the demo."""
    environment.prepare(environment.SERVICE, environment.MODEL)
    program = str(environment.VENV / "bin" / "control-room")
    os.execv(program, [program, "demo", "--model", *sys.argv[1:]])


if __name__ == "__main__":
    main()
