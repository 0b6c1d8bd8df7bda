"""The real service with the benchmark's language added: `python -m bench.service --project DIR [--port N]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from app import main
from bench import projects


def serve() -> int:
    """Serve a project until SIGTERM, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.service", description=__doc__)
    parser.add_argument("--project", type=Path, required=True, help="folder of the project")
    parser.add_argument("--port", type=int, default=0, help="port on loopback; 0 takes a free one")
    parser.add_argument("--max-running", type=int, default=8, help="runs that execute at a time")
    given = parser.parse_args()
    chosen = projects.choose(given.project, max_running=given.max_running, port=given.port)
    return main.serve(chosen, lambda line: print(line, flush=True), projects.platform())


if __name__ == "__main__":
    sys.exit(serve())
