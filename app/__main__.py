"""The program `control-room`, also as `python -m app`."""

from __future__ import annotations

import sys
from typing import NoReturn

from app.cli import root


def main() -> NoReturn:
    """Execute the command line, and exit with its exit code."""
    sys.exit(root.execute())


if __name__ == "__main__":
    main()
