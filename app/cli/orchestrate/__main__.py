"""The program `orchestrate`; also called as `python -m app.cli.orchestrate`."""

from __future__ import annotations

from app import interruption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Execute the command line and end with its exit code."""
    interruption.begin("orchestrate")
    # Imported only now, since a signal during an import would print a traceback.
    from app.cli.orchestrate import command

    interruption.end(command.execute())


if __name__ == "__main__":
    main()
