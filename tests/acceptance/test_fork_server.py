"""The fork server of the acceptance tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from app.processes import process_tree
from tests.acceptance import processes


def test_an_interrupt_of_the_tests_leaves_fork_server_and_guards(tmp_path: Path) -> None:
    """An interrupt, which reaches the whole process group, leaves the end of each fork known, and allows new forks."""
    process = processes.Process("http.server", "0", environ=os.environ, folder=tmp_path)
    guard = _parent(process.pid)
    with process:
        for helper in (guard, _parent(guard)):
            os.kill(helper, signal.SIGINT)
        process.kill()
        code = process.wait()

    assert code == -signal.SIGKILL
    with processes.Process("this", environ=os.environ, folder=tmp_path) as another:
        assert another.wait() == 0


def _parent(pid: int) -> int:
    found = process_tree.process(pid)
    assert found is not None
    return found.parent
