"""The program `orchestrate`; also called as `python -m app.cli.orchestrate`."""

from __future__ import annotations

import sys
from typing import NoReturn

from app.cli.orchestrate import command


def main() -> NoReturn:
    """Execute the command line and end with its exit code."""
    sys.exit(command.execute())


if __name__ == "__main__":
    main()
