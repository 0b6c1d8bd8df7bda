"""A project, and the service over it, for every test of this folder that asks for one."""

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
    """Return what lets the replies come whose delay is `held.DELAY_SECONDS`."""
    return holding.Held(monkeypatch)


@pytest.fixture
async def service(project: Project) -> AsyncIterator[served.Served]:
    """Return the service over the project, in process."""
    async with served.in_process(project) as service:
        yield service


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what executes a command line: its exit code, what it printed, and its errors."""

    def execute(*words: str) -> tuple[int, str, str]:
        code = root.execute(list(words))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    monkeypatch.delenv("CONTROL_ROOM_SERVER", raising=False)
    return execute
