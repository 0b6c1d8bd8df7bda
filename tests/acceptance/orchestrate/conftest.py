"""Workspaces and the doors through which tests execute their workflows.

All tests of a process share one service.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import smoke
from tests.acceptance.orchestrate import workspaces

SECRET = "sk-acceptance-6f1d0c9b7a"
"""A secret, named ACCEPTANCE_TOKEN in the environment of program and service."""
ODD_SECRET = 'S3cr"et\\of é'
"""Another secret, ACCEPTANCE_ODD, which is written differently in JSON."""
PEM = (
    "-----BEGIN PRIVATE KEY-----\n"
    + "".join(f"MIIEvQ{n:04}IBADANBgk/hkiG+w0BAQ\n" for n in range(20))
    + "-----END KEY-----\n"
)
"""A secret of several lines, ACCEPTANCE_PEM."""
ENVIRONMENT = {
    "ACCEPTANCE_TOKEN": SECRET,
    "ACCEPTANCE_ODD": ODD_SECRET,
    "ACCEPTANCE_EMPTY": "",
    "ACCEPTANCE_PEM": PEM,
    "ACCEPTANCE_DATABASE": "postgresql://app:s3same-0pen@localhost/x",
}


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[workspaces.Serving]:
    """Serve a folder of workspaces."""
    folder = tmp_path_factory.mktemp("served") / "project"
    with workspaces.serving(folder, **ENVIRONMENT) as serving:
        yield serving


@pytest.fixture(params=smoke.only("http", ["cli", "http"]))
def door(request: pytest.FixtureRequest) -> workspaces.Door:
    """Return the door to execute workflows: the program, or the service, which takes a fifth of the time."""
    if request.param == "cli":
        return workspaces.through_cli
    serving: workspaces.Serving = request.getfixturevalue("served")
    return serving


@pytest.fixture
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> workspaces.Workspace:
    """Create an empty workspace where the test's door finds it."""
    by_http = "door" in request.fixturenames and request.node.callspec.params["door"] == "http"
    folder = tmp_path / "work"
    if by_http:
        serving: workspaces.Serving = request.getfixturevalue("served")
        folder = serving.project.path / re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")
    folder.mkdir(parents=True)
    return workspaces.Workspace(folder, ENVIRONMENT)
