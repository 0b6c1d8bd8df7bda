"""The first command of the README: from nothing to a finished run on the local model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import example_project
from tests.acceptance import drafting

ROOT = Path(__file__).resolve().parents[2]
STEPS = ["discover", "analyze_outline", "check_canon", "brief", "draft", "polish", "continuity", "critique"]


@pytest.mark.parametrize(
    "copy",
    [drafting.make_project, pytest.param(example_project.copy, marks=[pytest.mark.slow, pytest.mark.model])],
    ids=["scripted agents", "local model"],
)
def test_demo_runs_the_main_job(tmp_path: Path, copy: Callable[[Path], Path]) -> None:
    """The command serves the project, runs the recipe with its agents, shows each step and leaves a draft."""
    project = copy(tmp_path / "example")
    shown = _demo(project)
    run_id = re.findall(r"^== run (\S+) is done$", shown.stdout, flags=re.MULTILINE)

    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert len(run_id) == 1
    assert [step for step in STEPS if re.search(rf"^ +done +\S+ +{step} ", shown.stdout, flags=re.MULTILINE)] == STEPS
    assert shown.stdout.index("done     a    discover") < shown.stdout.index(" b    brief")
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
