"""The five complete workflows of the specification, run as printed, with programs on PATH in place of the agents."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import FLOW, orchestrate

BLOCK = re.compile(r"^## (\w+)\n\n```yaml\n(.*?)```", re.DOTALL | re.MULTILINE)
PRINTED = dict(BLOCK.findall(Path(__file__).with_name("printed_workflows.md").read_text()))
SUPPLIED = """
providers:
  data_processor: {command: [data_processor], input_mode: stdin}
  aggregator: {command: [aggregator, "${PROMPT}"]}
steps:"""
"""Providers that the workflows use without a definition."""

CLAUDE = """
import json, pathlib, sys
prompt = sys.argv[sys.argv.index("-p") + 1]
with open("prompts.jsonl", "a") as file:
    file.write(json.dumps([prompt, *sys.argv[3:]]) + "\\n")
def write(name, text):
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
if "Design" in prompt:
    write("artifacts/architect/system_design.md", "parts")
    write("artifacts/architect/api_spec.md", "calls")
if "Build" in prompt:
    write(f"src/impl_{len(list(pathlib.Path('src').glob('impl_*')))}.py", "pass")
for task in pathlib.Path("inbox/engineer").glob("*.task"):
    verdict = json.dumps({"approved": "well" in task.read_text()})
    write(f"inbox/qa/results/{task.name}.json", verdict)
    # No shell reads the pattern of a wait: what is waited for has this very name.
    write(f'inbox/qa/results/$(basename "{task}").json', verdict)
print("Done.")
"""
JQ = """
import json, sys
*flags, expression, path = sys.argv[1:]
value = json.load(open(path))
for name in expression.partition(" ==")[0].strip(".").split("."):
    value = value[name]
print(json.dumps(value))
sys.exit(1 if "-e" in flags and value is not True else 0)
"""
COPY = "import sys\nprint(f'<{sys.stdin.read()}>')"
ARGUMENT = "import sys\nprint(f'<{sys.argv[1]}>')"


@pytest.fixture
def workspace(tmp_path: Path) -> workspaces.Workspace:
    """Create a workspace with the programs that the workflows call, also on the PATH of login shells."""
    path = tmp_path / "work"
    made = workspaces.Workspace(path, {"HOME": str(tmp_path)})
    for name, source in {"claude": CLAUDE, "jq": JQ, "data_processor": COPY, "aggregator": ARGUMENT}.items():
        made.program(name, source)
    made.program("python", "import os, sys\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])")
    (tmp_path / ".bash_profile").write_text(f"PATH={path / 'bin'}:$PATH\n")
    return made


def run(
    name: str, workspace: workspaces.Workspace, *files: str, supplied: bool = False, code: int = 0
) -> workspaces.Finished:
    """Run a printed workflow; each of the files contains its own name."""
    for file in files:
        workspace.write(file, f"This is {file}.\n")
    text = PRINTED[name]
    workspace.write(FLOW, text.replace("\nsteps:", SUPPLIED, 1) if supplied else text)
    return orchestrate("run", FLOW, workspace=workspace, code=code)


def prompts(workspace: workspaces.Workspace) -> list[list[str]]:
    """Return the calls of `claude`: the prompt, and its other arguments."""
    return [json.loads(line) for line in workspace.read("prompts.jsonl").splitlines()]


def test_there_are_five() -> None:
    """The specification prints exactly these five workflows."""
    assert PRINTED.keys() == {
        "task_lifecycle", "multi_agent_feature_dev", "data_pipeline_with_dependencies", "injection_modes_demo",
        "debugging_example",
    }  # fmt: skip


def test_task_lifecycle(workspace: workspaces.Workspace) -> None:
    """An approved task goes to `processed/`; a rejected one ends the run and goes to `failed/`."""
    workspace.write("inbox/engineer/a.task", "Do it well.")
    workspace.write("inbox/qa/.keep")
    approved = run("task_lifecycle", workspace)
    workspace.write("inbox/engineer/b.task", "Do it.")
    rejected = run("task_lifecycle", workspace)
    stamps = [finished.state["run_id"].partition("-")[0] for finished in (approved, rejected)]
    (last,) = rejected.steps["ProcessEngineerTasks"]

    assert prompts(workspace)[0][1:] == ["--model", "claude-sonnet-4-20250514"]
    assert workspace.read(f"processed/{stamps[0]}/a.task") == "Do it well."
    assert workspace.read("inbox/qa/a.task.task") == "Review inbox/engineer/a.task\n"
    assert (last["AssertQAApproved"]["exit_code"], last["lifecycle"]["result"]) == (1, "failure")
    assert workspace.read(f"failed/{stamps[1]}/b.task") == "Do it."


def test_multi_agent_feature_dev(workspace: workspaces.Workspace) -> None:
    """The task is implemented, noted, moved and passed to QA; then the flow falls through into the first handler."""
    workspace.write("prompts/architect/design_system.md", "Design it.")
    workspace.write("prompts/engineer/generic_implement.md", "Build it.")
    finished = run("multi_agent_feature_dev", workspace, "inbox/engineer/one.task", "docs/coding_standards.md")
    stamp = finished.run_id.partition("-")[0]

    assert workspace.read(f"processed/{stamp}_0/one.task") == "This is inbox/engineer/one.task.\n"
    assert json.loads(workspace.read("artifacts/engineer/status_0.json"))["impl"] == "src/impl_0.py"
    assert workspace.read("inbox/qa/review_0.task") == "Review src/impl_0.py from inbox/engineer/one.task\n"
    assert prompts(workspace)[1][0].splitlines()[1:5] == [
        "Required:", "- artifacts/architect/api_spec.md", "- artifacts/architect/system_design.md",
        "Optional (if available):",
    ]  # fmt: skip
    assert finished.steps["ArchitectFailed"]["status"] == "completed"
    assert finished.steps["HandleMissingDependencies"]["status"] == "pending"


def test_data_pipeline_with_dependencies(workspace: workspaces.Workspace) -> None:
    """Each file is transformed separately, even one with a wildcard in its name, and all results are collected."""
    finished = run(
        "data_pipeline_with_dependencies", workspace,
        "config/pipeline.yaml", "config/transformations.yaml", "models/v3/weights.pkl", "prompts/analyze_data.md",
        "prompts/aggregate.md", "data/customer_2024/a[1].csv", "data/customer_2024/b.csv", supplied=True,
    )  # fmt: skip
    items = finished.state["for_each"]["TransformFiles"]["items"]

    assert sorted(items) == ["data/customer_2024/a[1].csv", "data/customer_2024/b.csv"]
    assert [workspace.read(f"processed/{n}.parquet") for n in (0, 1)] == [f"<This is {item}.\n>\n" for item in items]
    assert workspace.read("reports/analysis_1.md") == "Done.\n"
    assert workspace.read("reports/final_report.md") == "<This is prompts/aggregate.md.\n>\n"


def test_injection_modes_demo(workspace: workspaces.Workspace) -> None:
    """Prompts present their files in several ways."""
    run(
        "injection_modes_demo", workspace,
        "src/a.py", "tests/b.py", "artifacts/architect/c.md", "data/input.json", "data/important.csv",
        "data/statistics/d.csv",
        *(f"prompts/{name}.md" for name in (
            "generic_review", "implement", "transform", "report_template", "code_review", "specific_files_mentioned",
        )), supplied=True,
    )  # fmt: skip
    asked = [prompt for prompt, *_ in prompts(workspace)]

    assert asked[0].startswith(
        "The following files are required inputs for this task:\n- src/a.py\n\nThis is prompts/g"
    )
    assert asked[1].startswith(
        "Your implementation must follow these design documents:\n- artifacts/architect/c.md\n\n"
    )
    assert "Reference data for your report:\n\n=== File: data/statistics/d.csv (" in asked[2]
    assert "quality and consistency:\n- src/a.py\n- tests/b.py\n\nThis is" in asked[3]
    assert asked[4:] == ["This is prompts/specific_files_mentioned.md.\n"]


def test_debugging_example(workspace: workspaces.Workspace) -> None:
    """The diagnosis prints the program's output and the error in the state."""
    workspace.write("process.py", "import sys\nsys.exit('no queue')\n")
    finished = run("debugging_example", workspace)
    checking, said, error = finished.steps["DiagnoseFailure"]["output"].splitlines()

    assert (checking, said) == ("Checking failure context...", "no queue")
    assert json.loads(error)["exit_code"] == 1
