"""The bundled workflows, each run in a copy of the example workspace, with a program in place of `claude`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance import programs
from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import orchestrate

RECIPES = programs.ROOT / "recipes" / "orchestrate"
WORKSPACE = programs.ROOT / ".control-room" / "example-workflows"
CLAUDE = """
import json, pathlib, re, sys
prompt = sys.argv[sys.argv.index("-p") + 1]
with open("prompts.jsonl", "a") as file:
    file.write(json.dumps(prompt) + "\\n")
def write(name, text):
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
if "artifacts/architect/system_design.md:" in prompt:
    write("artifacts/architect/system_design.md", "parts")
    write("artifacts/architect/api_spec.md", "options")
if "src/impl_N.py" in prompt:
    number = len(list(pathlib.Path("src").glob("impl_*.py")))
    write(f"src/impl_{number}.py", "pass")
verdict = json.dumps({"approved": not pathlib.Path("reject").exists(), "reason": "It greets.", "task_id": "hello"})
if to := re.search(r"verdict to (inbox\\S+\\.json)", prompt):
    write(to[1] + ".tmp", verdict)
    pathlib.Path(to[1] + ".tmp").rename(to[1])
print(verdict if "You review work" in prompt and not to else "Done.")
"""
MARK = "TO" + "DO"
"""The mark of unfinished work in source code."""
NAMES = {
    "data_pipeline_with_dependencies",
    "debugging_example",
    "git_census",
    "injection_modes_demo",
    "multi_agent_feature_dev",
    "qa_gating_stdout",
    "qa_gating_verdict_file",
}


@pytest.fixture
def workspace(tmp_path: Path) -> workspaces.Workspace:
    """Copy the example workspace."""
    shutil.copytree(WORKSPACE, tmp_path / "work")
    copied = workspaces.Workspace(tmp_path / "work")
    copied.program("claude", CLAUDE)
    return copied


def run(name: str, workspace: workspaces.Workspace, *flags: str, code: int = 0) -> workspaces.Finished:
    """Run a bundled workflow."""
    return orchestrate("run", RECIPES / f"{name}.yaml", *flags, workspace=workspace, code=code)


def prompts(workspace: workspaces.Workspace) -> list[str]:
    """Return the prompts that `claude` received."""
    return [json.loads(line) for line in workspace.read("prompts.jsonl").splitlines()]


def git(folder: Path, *arguments: str) -> None:
    """Run git with a fixed name and address."""
    who = ("-c", "user.name=Mira | of Varn", "-c", "user.email=mira@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_all_are_here() -> None:
    """Every bundled workflow is known here, and its first comment names its needs and its results."""
    texts = {path.stem: path.read_text() for path in RECIPES.iterdir()}

    assert set(texts) == NAMES
    assert [name for name, text in texts.items() if "# Needs:" not in text or "# Leaves:" not in text] == []


def test_the_service_has_them(served: workspaces.Serving) -> None:
    """The service lists every one of them."""
    with served.service.http() as http:
        listed = http.get("/api/recipes").json()
    found = {one["recipe_id"]: one for one in listed if one["recipe_id"] in NAMES}

    assert set(found) == NAMES
    assert {one["dialect"] for one in found.values()} == {"orchestrate"}


def test_multi_agent_feature_dev(workspace: workspaces.Workspace) -> None:
    """The architect designs, a task is created and implemented, QA gets a task, and no failure handler runs."""
    finished = run("multi_agent_feature_dev", workspace)
    stamp = finished.run_id.partition("-")[0]

    assert workspace.read("src/impl_0.py") == "pass"
    assert workspace.read("inbox/qa/review_0.task") == "Review src/impl_0.py from inbox/engineer/implement.task\n"
    assert workspace.read(f"processed/{stamp}_0/implement.task").startswith("Implement the system described in:\n")
    assert "- artifacts/architect/api_spec.md\n" in prompts(workspace)[1]
    assert "ArchitectFailed" not in finished.steps or finished.steps["ArchitectFailed"]["status"] == "pending"


def test_data_pipeline_with_dependencies(workspace: workspaces.Workspace) -> None:
    """Every file of the data set is transformed and analysed, and the report adds all of them up."""
    run("data_pipeline_with_dependencies", workspace)
    missing = run("data_pipeline_with_dependencies", workspace, "--context", "dataset=none", code=1)

    assert workspace.read("reports/final_report.md").splitlines()[-2:] == ["| NL | 200.00 |", "| SE | 200.00 |"]
    assert json.loads(workspace.read("processed/0.jsonl").splitlines()[0])["customer"] == "Mira"
    assert '{"customer": "Kael"' in prompts(workspace)[1]
    assert missing.context("ValidateInputs")["failed_deps"] == ["data/none/*.csv"]


def test_injection_modes_demo(workspace: workspaces.Workspace) -> None:
    """Each step's prompt presents its files in its own way."""
    finished = run("injection_modes_demo", workspace)
    asked = prompts(workspace)

    assert finished.steps["ProcessJSON"]["json"][0] == {"name": "Mira", "email": "mira@example.org", "country": "NL"}
    assert asked[0].startswith("The following files are required inputs for this task:\n- src/hello.py\n\n")
    assert asked[1].startswith(
        "Your implementation must follow these design documents:\n- artifacts/architect/greeting.md"
    )
    assert "\n\nReference data for your report:\n\n=== File: data/statistics/orders.csv (" in asked[2]
    assert "- src/hello.py\n- tests/check_hello.py\n" in asked[3]
    assert asked[4] == workspace.read("prompts/specific_files_mentioned.md")


def test_debugging_example(workspace: workspaces.Workspace) -> None:
    """The diagnosis shows the failed program's output and error; without a failure it does not run."""
    failed = run("debugging_example", workspace)
    workspace.write("data/queue.txt", "one\n")
    repaired = run("debugging_example", workspace)

    said = failed.steps["DiagnoseFailure"]["output"]
    assert said.startswith("Checking failure context...\ncannot process: data/queue.txt does not exist\n{")
    assert '"exit_code": 1' in said
    assert repaired.steps["ProcessWithDebug"]["output"] == "processed 1 lines\n"
    assert "DiagnoseFailure" not in repaired.steps or repaired.steps["DiagnoseFailure"]["status"] == "pending"


@pytest.mark.parametrize("name", ["qa_gating_stdout", "qa_gating_verdict_file"])
def test_qa_gating(workspace: workspaces.Workspace, name: str) -> None:
    """An approval lets the work through, and a rejection ends the run before it."""
    run(name, workspace)
    approved = workspace.read("artifacts/qa/approved.txt").strip()
    (workspace.path / "artifacts/qa/approved.txt").unlink()
    workspace.write("reject")
    rejected = run(name, workspace, code=1)

    assert approved == "hello: It greets."
    assert rejected.steps["AssertApproved"]["exit_code"] == 1
    assert not (workspace.path / "artifacts/qa/approved.txt").exists()


def test_git_census(workspace: workspaces.Workspace, tmp_path: Path) -> None:
    """The census counts languages, sizes, authors and open tasks; a folder without a repository is refused."""
    nobody = workspaces.Workspace(tmp_path / "nobody")
    nobody.write("a.py", "pass\n")
    none = orchestrate(
        "run", RECIPES / "git_census.yaml", workspace=nobody, code=1, GIT_CEILING_DIRECTORIES=str(tmp_path)
    )
    work = workspaces.Workspace(tmp_path / "repository")
    work.write("src/a.py", f"# {MARK}: more\nprint('{MARK}, {MARK}S')\n")
    work.write("src/ü b|c.py", "pass\n")
    work.write("image.bin", b"\0\n\n" * 100)
    work.write("LICENSE", "Free.\n")
    (work.path / "link.py").symlink_to("src/a.py")
    git(work.path, "init", "-q")
    git(work.path, "add", ".")
    git(work.path, "commit", "-q", "-m", "Begin")
    work.write("untracked.py", f"{MARK}\n")
    orchestrate("run", RECIPES / "git_census.yaml", "--context", "most=2", workspace=work)
    census, report = json.loads(work.read("census/census.json")), work.read("census/report.md")

    assert none.steps["NoRepository"]["error"]["stderr_tail"] == ["There is no git repository with a commit here."]
    assert census["repository"]["name"] == "repository"
    assert census["languages"]["total"] == {"files": 5, "bytes": 345, "lines": 4}
    assert census["languages"]["extensions"][0] == {"extension": ".py", "files": 2, "bytes": 39, "lines": 3}
    assert census["languages"]["largest"][0] == {"path": "image.bin", "bytes": 300}
    assert census["languages"]["more_extensions"] == 2
    assert census["authors"]["authors"][0]["name"] == "Mira | of Varn"
    assert census["left_to_do"]["words"] == {MARK: 2}
    assert "| Mira \\| of Varn | 1 |" in report
    assert "| src/a.py | 2 |" in report
