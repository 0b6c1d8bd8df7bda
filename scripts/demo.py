"""Set up Control Room and show it: `control-room demo --model`, from a checkout.

    python3 scripts/demo.py [--port 8000] [--project DIR] [--open] [--exit]

The first line is the address of the pages. The service runs until Ctrl-C; with --exit it stops at the end of the demo.
The exit code is that of `control-room demo`.
"""

from __future__ import annotations

import argparse
import os
import sys

import environment

sys.path.insert(0, str(environment.ROOT))
from app.cli.demo import address


def main() -> None:
    """Prepare `.venv` with the local model, and replace this process by the demo."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port", type=int, default=address.PORT)
    known, others = parser.parse_known_args()
    port = address.free_port(known.port)
    print(f"== the demo's pages will be at {address.of(port)}/", flush=True)
    environment.prepare(environment.SERVICE, environment.MODEL)
    program = str(environment.VENV / "bin" / "control-room")
    os.execv(program, [program, "demo", "--model", f"--port={port}", *others])


if __name__ == "__main__":
    main()
