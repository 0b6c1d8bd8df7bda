"""The page on access: its commands work beside a running service, which follows without a restart."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import httpx
import pytest

from tests.acceptance import programs
from tests.architecture import sources

PAGE = sources.ROOT / "docs" / "how-to" / "give-people-access.md"


def commands() -> list[list[str]]:
    """Return the commands of the page, in order."""
    blocks = PAGE.read_text(encoding="utf-8").split("```sh\n")[1:]
    lines = [line for block in blocks for line in block.split("```")[0].splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("control-room ")]


def status(url: str, secret: str | None, wanted: int) -> int:
    """Request the list of runs until it has the wanted status, at most for a minute, and return the last status."""
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    until = time.monotonic() + 60
    while True:
        found = httpx.get(f"{url}/api/runs", headers=headers, timeout=60, trust_env=False).status_code
        if found == wanted or time.monotonic() > until:
            return found


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project."""
    return programs.make_project(tmp_path / "project")


def test_the_page_on_access_works(project: programs.Project) -> None:
    """Added keys open the service, revoked ones do not, and the audit log has every change."""
    secrets: dict[str, str] = {}
    with programs.service(project) as service:
        assert status(service.url, None, 200) == 200
        for command in commands():
            done = programs.control_room(*command, project=project)
            if command[1] in ("add", "rotate"):
                name = command[2]
                before, secrets[name] = secrets.get(name), done.stdout.split()[2]
                assert status(service.url, secrets[name], 200) == 200
                assert before is None or status(service.url, before, 200) == 200
            elif command[1] == "revoke":
                assert status(service.url, secrets[command[2]], 401) == 401
        assert status(service.url, None, 401) == 401
        refused = programs.control_room(
            "audit", "list", "--server", service.url, code=5, CONTROL_ROOM_API_TOKEN=secrets["ci"]
        )
    actions = [line.split()[2] for line in done.stdout.splitlines()[1:]]

    assert actions == ["key.added", "key.revoked", "key.added", "key.rotated", "key.added", "key.added"]
    assert "needs the role admin" in refused.stderr
