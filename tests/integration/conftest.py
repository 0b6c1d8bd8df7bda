"""A project and its service, for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.cli import root
from tests.integration import held as holding
from tests.integration import served
from tests.integration.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a small project."""
    return Project(tmp_path / "project")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> holding.Held:
    """Return the switch that releases replies whose delay is `held.DELAY_SECONDS`."""
    return holding.Held(monkeypatch)


@pytest.fixture
async def service(project: Project) -> AsyncIterator[served.Served]:
    """Return the service of the project, in process."""
    async with served.in_process(project) as service:
        yield service


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that executes a command line and returns its exit code, its output and its errors."""

    def execute(*words: str) -> tuple[int, str, str]:
        code = root.execute(list(words))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    monkeypatch.delenv("CONTROL_ROOM_SERVER", raising=False)
    return execute
