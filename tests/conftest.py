"""Settings and fixtures of all tests.

Property tests try the same cases every time and have no deadline. Long tests begin first, so that no test worker
ends with one of them alone.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator

import hypothesis
import pytest

from tests import postgres_server
from tests.integration import temporal_server

LONG = (
    "acceptance/test_crash_laboratory.py",
    "unit/storage/test_kills.py",
    "unit/agents/test_local.py",
    "integration/test_fuzz.py",
    "acceptance/test_demo.py",
    "acceptance/test_service_kills.py",
    "acceptance/test_pool_kills.py",
    "unit/processes/test_containment.py",
    "acceptance/test_many_unfinished.py",
    "integration/test_local_conference.py",
    "acceptance/plans_example/test_local_chief.py",
    "acceptance/test_conference_kills.py",
    "acceptance/plans/test_plan_kills.py",
    "integration/test_plan_hostility.py",
    "unit/services/plans/test_any_plan.py",
    "unit/worker/test_order_crashes.py",
    "unit/worker/test_crashes.py",
    "integration/test_any_damage.py",
    "integration/test_killed.py",
)
"""Files whose tests take tens of seconds."""

_TEMPORAL = pytest.StashKey[temporal_server.DevServer]()
_UNUSED = pytest.StashKey[int]()
_KEPT_UNUSED = 20
"""Tests without the Temporal server after which it is ended."""

_MINUTES = 900
"""Least time limit, in seconds, of a slow test that counts as taking minutes."""

# Container images forbid compiled files; without these lines each process of a test would compile the whole program.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# As in scripts/check.py: where pyenv is installed, `python3` is a script that starts sixty shells first.
PROGRAMS = os.path.dirname(sys.executable)
if not os.environ.get("PATH", "").startswith(PROGRAMS + os.pathsep):
    os.environ["PATH"] = PROGRAMS + os.pathsep + os.environ.get("PATH", os.defpath)

# Garbage collection over modules and cases that all stay took a third of the time of collecting the tests.
gc.disable()

hypothesis.settings.register_profile("steady", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.register_profile("searching", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(scope="session")
def _temporal_server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[temporal_server.DevServer]:
    """Yield the Temporal server of all tests that do not stop it, and stop it after the last test."""
    held = pytestconfig.stash[_TEMPORAL] = temporal_server.DevServer(tmp_path_factory.mktemp("temporal"))
    yield held
    held.stop()


@pytest.fixture
def temporal(_temporal_server: temporal_server.DevServer) -> temporal_server.DevServer:
    """Return the running Temporal server of all tests that do not stop it."""
    if not _temporal_server.is_running:
        _temporal_server.start()
    return _temporal_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_server.Postgres]:
    """Yield the running Postgres server of all tests that do not stop it; each test creates its own database."""
    with postgres_server.running() as made:
        yield made


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--part`, which runs a part of the tests."""
    parser.addoption(
        "--part", type=_part, default=(1, 1), metavar="K/N", help="run part K of N, which are about as long"
    )


def _part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise pytest.UsageError(f"--part {text}: write K/N, such as 1/2")
    return int(part), int(parts)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move long tests before the others, which keep their order, and share out tests of minutes over the workers."""
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONG))
    part, parts = config.getoption("--part")
    minutes = sorted((item for item in items if _allowed_seconds(item) >= _MINUTES), key=_allowed_seconds, reverse=True)
    others = [item for item in items if _allowed_seconds(item) < _MINUTES]
    minutes, others = minutes[part - 1 :: parts], others[part - 1 :: parts]
    chosen = set(minutes + others)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    # A worker begins with a part of the list, and another worker takes over only its last tests. Long tests at the head
    # of the list would all be run by the first worker.
    items.clear()
    for number in range(workers):
        begin, end = (len(others) * place // workers for place in (number, number + 1))
        items += minutes[number::workers] + others[begin:end]


def _allowed_seconds(item: pytest.Item) -> float:
    """Return the time limit that a slow test sets for itself; 0 if it sets none."""
    marker = item.get_closest_marker("timeout") if item.get_closest_marker("slow") else None
    return float(marker.args[0]) if marker is not None else 0.0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Restore the root logger's level and handlers after each test, because a service sets them process-wide."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        return (yield)
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        _end_unused_server(item)


def _end_unused_server(item: pytest.Item) -> None:
    # Runs that tests leave in the server keep it busy; that took as much CPU time as the tests that use it.
    used = "temporal" in getattr(item, "fixturenames", ())
    item.config.stash[_UNUSED] = 0 if used else item.config.stash.get(_UNUSED, 0) + 1
    if item.config.stash[_UNUSED] == _KEPT_UNUSED and (held := item.config.stash.get(_TEMPORAL, None)) is not None:
        held.wipe()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude the collected tests from later garbage collections, because they stay in memory to the end."""
    gc.freeze()
    gc.enable()
