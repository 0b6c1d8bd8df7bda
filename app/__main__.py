"""The program `control-room`, also as `python -m app`."""

from __future__ import annotations

from app import interruption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Execute the command line, and exit with its exit code."""
    interruption.begin("control-room")
    # Imported only now, since a signal during an import would print a traceback.
    from app.cli import root

    interruption.end(root.execute())


if __name__ == "__main__":
    main()
