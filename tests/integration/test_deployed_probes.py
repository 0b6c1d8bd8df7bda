"""Probes of the published deployments: a service with their settings answers them without a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import settings
from tests.architecture import test_kubernetes
from tests.integration import served
from tests.integration.project import Project

TOKEN = "a-long-secret-of-the-deployment"


def probes() -> set[tuple[str, str, str]]:
    """Return path, host and allowed hosts of each probe: those of Kubernetes, and that of Compose and the image."""
    (container,) = test_kubernetes.workloads()["control-room"]["containers"]
    given = {item["name"]: item.get("value", "") for item in container["env"]}
    asked = [probe["httpGet"] for key, probe in container.items() if key.endswith("Probe")]
    found = {
        (one["path"], header["value"], given["CONTROL_ROOM_ALLOWED_HOSTS"])
        for one in asked
        for header in one["httpHeaders"]
    }
    return found | {("/healthz", "127.0.0.1:8000", "")}


@pytest.mark.parametrize(("path", "host", "allowed"), sorted(probes()))
async def test_probes_are_answered(tmp_path: Path, path: str, host: str, allowed: str) -> None:
    """Each probe is 200 once the service is ready; the same request with another host is refused."""
    project = Project(tmp_path / "project")
    environ = {"CONTROL_ROOM_HOST": "0.0.0.0", "CONTROL_ROOM_API_TOKEN": TOKEN, "CONTROL_ROOM_ALLOWED_HOSTS": allowed}
    chosen = settings.load(environ, project=project.root, home=project.root / "home")
    async with served.in_process(
        project, host="0.0.0.0", api_token=TOKEN, allowed_hosts=chosen.server.allowed_hosts
    ) as it:
        found = [(await it.http.get(path, headers={"Host": name})).status_code for name in (host, "elsewhere.example")]

    assert found == [200, 400]
