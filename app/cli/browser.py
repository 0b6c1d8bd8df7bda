"""The browser: open a page in the user's browser, or announce that the machine has none."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping

_OPENING = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


def open_page(page: str, announce: Callable[[str], None]) -> None:
    """Open a page without waiting for the browser.

    Args:
        announce: Called with one line if no browser can be opened, perhaps from another thread.
    """
    if not _has_display(os.environ):
        announce(f"no browser was opened, because this machine has no display; open {page} yourself")
        return
    threading.Thread(target=_open, args=(page, announce), name="open the browser", daemon=True).start()


def _has_display(environ: Mapping[str, str]) -> bool:
    return sys.platform != "linux" or any(environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


def _open(page: str, announce: Callable[[str], None]) -> None:
    # A separate process: some browsers do not return, most print to stderr, and Ctrl-C is meant for us alone.
    # Isolated (-I), so that no file of the project is imported instead of a module.
    opening = subprocess.run(  # noqa: S603 - this very interpreter
        [sys.executable, "-I", "-c", _OPENING, page],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    if opening.returncode != 0:
        announce(f"no browser could be opened; open {page} yourself")
