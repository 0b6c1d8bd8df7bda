"""
The first command of the README: from nothing to a finished run on the local model.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import example_project
from tests.acceptance import drafting

ROOT = Path(__file__).resolve().parents[2]
STEPS = ["discover", "analyze_outline", "check_canon", "brief", "draft", "polish", "continuity", "critique"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy the example project without what earlier demonstrations left in it."""
    return example_project.copy(tmp_path / "example")


@pytest.mark.model
@pytest.mark.timeout(300)
@pytest.mark.parametrize("most_tokens", [30, pytest.param(None, marks=pytest.mark.slow)], ids=["short", "whole"])
def test_demo_runs_the_main_job(project: Path, most_tokens: int | None) -> None:
    """The command serves the project, runs the recipe on the local model, shows each step and leaves a draft."""
    agents = [{"id": agent, "max_output_tokens": most_tokens} for agent in drafting.AGENTS]
    (project / ".control-room" / "agents.json").write_text(json.dumps({"agents": agents}))
    shown = _demo(project)
    run_id = re.findall(r"^== run (\S+) is done$", shown.stdout, flags=re.MULTILINE)

    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert len(run_id) == 1
    assert [step for step in STEPS if re.search(rf"^ +done +\S+ +{step} ", shown.stdout, flags=re.MULTILINE)] == STEPS
    assert shown.stdout.index("done     a    discover") < shown.stdout.index("running  b    brief")
    assert f"/api/runs/{run_id[0]}/steps" in shown.stdout
    folder = project / ".control-room" / "runs" / run_id[0]
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["status"] == "done"
    lines = map(json.loads, (folder / "steps.jsonl").read_text(encoding="utf-8").splitlines())
    written = [line["output"]["path"] for line in lines if line["key"].startswith("commit.")]
    assert [path for path in written if (project / path).read_text(encoding="utf-8").strip()] == written != []


def test_demo_tells_why_the_service_does_not_start(tmp_path: Path) -> None:
    """A service that ends at once makes the command fail, with the service's own words."""
    (tmp_path / ".control-room").mkdir()
    (tmp_path / ".control-room" / "runs").write_text("not a folder")
    shown = _demo(tmp_path)

    assert shown.returncode == 1
    assert re.search(r"The service ended with code \d+\. It said:\n\S", shown.stderr)
    assert "Traceback" not in shown.stderr


def _demo(project: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "demo.py"), "--project", str(project), "--port", "0", "--exit"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as demo:
        try:
            out, err = demo.communicate()
        finally:
            # Asked, not killed: it stops its service on the way out.
            demo.terminate()
    return subprocess.CompletedProcess(command, demo.returncode, out, err)
