"""Set up the project and measure it.

    python3 scripts/measure.py [arguments of `python -m bench`]

Other products get environments of their own; `--others none` leaves them out.
"""

from __future__ import annotations

import os
import sys

import environment


def main() -> None:
    """Prepare `.venv` and replace this process by the benchmark."""
    python = environment.prepare(environment.SERVICE)
    os.chdir(environment.ROOT)
    # Starts are measured as after an installation, which compiles the files that it installs.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.execv(python, [str(python), "-m", "bench", *sys.argv[1:]])


if __name__ == "__main__":
    main()
