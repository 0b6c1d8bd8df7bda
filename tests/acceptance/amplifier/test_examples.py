"""The complete recipes of the document, run by the program in its own processes, with agents from a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import programs
from tests.unit.dialects.amplifier import recipe_harness

FOLDER = recipe_harness.ROOT / "recipes" / "amplifier"
AGENTS = (
    "zen-architect", "security-guardian", "performance-optimizer", "explorer", "analyzer", "fixer", "reviewer",
    "reporter",
)  # fmt: skip
SEVERE = '```json\n{"severity": "%s", "issues": ["no tests"]}\n```'


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project in which every bundled agent answers from one script."""
    made = programs.Project(tmp_path)
    agents = [{"id": name, "backend": "script"} for name in AGENTS]
    made.write("agents.json", {"agents": agents, "backends": {"script": {"type": "scripted", "file": "replies.json"}}})
    return made


def _script(project: programs.Project, **said: Any) -> None:
    project.write(
        "replies.json", {name.replace("_", "-"): one for name, one in said.items()} | {"*": "Nothing to add."}
    )


def _bundled(name: str) -> dict[str, Any]:
    return dict(recipe_harness.DIALECT.parse((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), name).document)


def _first(project: programs.Project, name: str, **changes: Any) -> str:
    """Write a bundled recipe in the document's first version, without schemas of replies, and return its id."""
    document = _bundled(name) | changes
    document.pop("schema", None)
    steps = [{field: value for field, value in step.items() if field != "reply_schema"} for step in document["steps"]]
    document |= {"name": f"{name}-1", "steps": steps}
    project.write(f"recipes/amplifier/{document['name']}.yaml", json.dumps(document))
    return f"{name}-1"


def _run(project: programs.Project, *arguments: str, code: int = 0) -> dict[str, Any]:
    ended = programs.program("run", *arguments, "--json", project=project, code=code)
    run: dict[str, Any] = json.loads(ended.stdout)
    return run


def _slots(project: programs.Project, run: dict[str, Any]) -> dict[str, str]:
    slots = json.loads((project.data / "runs" / run["run_id"] / "cache.json").read_text(encoding="utf-8"))
    return {name: slot["text"] for name, slot in slots.items()}


def _prompt(project: programs.Project, run: dict[str, Any], key: str) -> str:
    folder = project.data / "runs" / run["run_id"] / "logs"
    return (folder / f"{key}.1.prompt.md").read_text(encoding="utf-8")


# -- comprehensive-code-review


def test_a_comprehensive_review(project: programs.Project) -> None:
    """Three reviews are combined into a report, and each prompt contains the outputs of the earlier steps."""
    _script(
        project,
        security_scan="SQL in line 3.",
        performance_analysis="Fast enough.",
        maintainability_review="One long function.",
        synthesize_findings="Mend the SQL first.",
        generate_report="# Report",
    )
    run = _run(project, "comprehensive-code-review", "--arg", "file_path=src/auth.py")
    synthesis, report = (_prompt(project, run, key) for key in ("synthesize-findings", "generate-report"))

    assert (run["status"], run["ending"]["partial"]) == ("done", False)
    assert programs.lines_of(run) == [
        (key, "done")
        for key in (
            "security-scan",
            "performance-analysis",
            "maintainability-review",
            "synthesize-findings",
            "generate-report",
        )
    ]
    assert "Focus on severity: high" in _prompt(project, run, "security-scan")
    assert all(said in synthesis for said in ("SQL in line 3.", "Fast enough.", "One long function."))
    assert "MODE: ARCHITECT" in synthesis
    assert f"Recipe: comprehensive-code-review v2.1.0\nSession: {run['run_id']}\n" in report
    assert _slots(project, run)["final_report"] == "# Report"


def test_its_file_must_be_given(project: programs.Project) -> None:
    """A context key with an empty value is a required argument of the program."""
    ended = programs.program("run", "comprehensive-code-review", project=project, code=2)

    assert "file_path" in ended.stderr
    assert not (project.data / "runs").exists() or not list((project.data / "runs").glob("[0-9]*"))


def test_its_report_is_not_critical(project: programs.Project) -> None:
    """With `on_error: continue` the run is done in part, and names the failed step."""
    failing = {"error": {"code": "agent_error", "message": "no words"}}
    project.write("replies.json", [{"key": "generate-report", **failing}, {"key": "*", "text": "said"}])
    run = _run(project, "comprehensive-code-review", "--arg", "file_path=a.py")

    assert (run["status"], run["error"]) == ("done", None)
    assert run["ending"] == {"reason": "completed", "partial": True, "failed_steps": ["generate-report"]}
    assert _slots(project, run)["final_report"] == "null"


def test_a_resume_repeats_only_the_failed_review(project: programs.Project) -> None:
    """A failed review ends the program with 1, and a resume repeats only that step."""
    failing = {"error": {"code": "agent_error", "message": "no words"}}
    project.write("replies.json", [{"key": "maintainability-review", **failing}, {"key": "*", "text": "said"}])
    run = _run(project, "comprehensive-code-review", "--arg", "file_path=a.py", code=1)
    _script(project)
    resumed = json.loads(programs.program("runs", "resume", run["run_id"], "--json", project=project).stdout)

    assert (run["error"]["code"], run["error"]["key"]) == ("agent_error", "maintainability-review")
    assert resumed["status"] == "done"
    assert [(line["key"], line["attempt"]) for line in resumed["steps"] if line["status"] == "done"] == [
        ("security-scan", 1),
        ("performance-analysis", 1),
        ("maintainability-review", 2),
        ("synthesize-findings", 1),
        ("generate-report", 1),
    ]


# -- conditional-code-review


@pytest.mark.parametrize(
    ("severity", "fix", "review"),
    [("critical", "done", "done"), ("high", "skipped", "done"), ("low", "skipped", "skipped")],
)
def test_a_conditional_review(project: programs.Project, severity: str, fix: str, review: str) -> None:
    """The severity in the first reply selects the steps, and skipped steps leave the defaults of the context."""
    _script(project, analyze=SEVERE % severity, critical_fix="Fixed.", high_priority_review="Reviewed.")
    run = _run(project, "conditional-code-review")
    told = _prompt(project, run, "report")

    assert programs.lines_of(run) == [
        ("analyze", "done"),
        ("critical-fix", fix),
        ("high-priority-review", review),
        ("report", "done"),
    ]
    assert f"Fixes: {'Fixed.' if fix == 'done' else 'none'}" in told
    assert f"Review: {'Reviewed.' if review == 'done' else 'none'}" in told


def test_a_conditional_review_as_the_document_has_it(project: programs.Project) -> None:
    """Without defaults the report fails after a skipped step, and a resume with the variables finishes it."""
    _script(project, analyze=SEVERE % "low")
    run = _run(project, _first(project, "conditional-code-review", context={"file_path": "src/auth.py"}), code=1)
    given = ("--arg", "fixes=none", "--arg", "review=nobody")
    resumed = programs.program("runs", "resume", run["run_id"], *given, "--json", project=project)

    assert (run["error"]["code"], run["error"]["key"]) == ("undefined_variable", "report")
    assert "{{fixes}}" in run["error"]["message"]
    assert "Available: file_path, analysis" in run["error"]["message"]
    assert json.loads(resumed.stdout)["status"] == "done"


def test_a_reply_without_a_severity_fails_the_run(project: programs.Project) -> None:
    """A reply without the part that a condition names fails the run with the message of the document."""
    _script(project, analyze="It looks fine.")
    run = _run(project, _first(project, "conditional-code-review"), code=1)

    assert run["error"]["message"].startswith(
        "Step 'critical-fix' condition error: Undefined variable in condition: {{analysis.severity}}"
    )
    assert programs.lines_of(run) == [("analyze", "done"), ("critical-fix", "failed")]


# -- batch-file-analyzer


def _batch(project: programs.Project) -> str:
    steps = _bundled("batch-file-analyzer")["steps"]
    steps[0]["output"], steps[1]["foreach"] = "files", "{{files}}"
    return _first(project, "batch-file-analyzer", steps=steps)


def test_a_batch_of_files(project: programs.Project) -> None:
    """A reply that is a list becomes iterations, and their results are collected in order."""
    _script(
        project,
        discover_files='["src/a.py", "src/b.py", "src/c.py"]',
        **{"analyze-each[0]": "fine", "analyze-each[1]": "long", "analyze-each[2]": "odd"},
    )
    run = _run(project, _batch(project), "--arg", "directory=src")

    assert [key for key, _ in programs.lines_of(run)] == [
        "discover-files",
        *(f"analyze-each[{number}]" for number in range(3)),
        "synthesize",
    ]
    assert _prompt(project, run, "analyze-each[1]").count("src/b.py") == 1
    assert '["fine","long","odd"]' in _prompt(project, run, "synthesize")
    assert json.loads(_slots(project, run)["file_analyses"]) == ["fine", "long", "odd"]


def test_the_bundled_batch(project: programs.Project) -> None:
    """The bundled recipe iterates over the list inside of an object."""
    _script(project, discover_files='{"files": ["a.py", "b.py"]}')
    run = _run(project, "batch-file-analyzer")

    assert [key for key, _ in programs.lines_of(run)][1:3] == ["analyze-each[0]", "analyze-each[1]"]
    assert run["status"] == "done"


@pytest.mark.parametrize(
    ("said", "code", "lines", "error"),
    [
        pytest.param(
            "[]", 0, [("discover-files", "done"), ("analyze-each", "skipped"), ("synthesize", "done")], None, id="empty"
        ),
        pytest.param(
            "a.py and b.py", 1, [("discover-files", "done"), ("analyze-each", "failed")], "not_a_list", id="no list"
        ),
        pytest.param(
            json.dumps(["x.py"] * 101),
            1,
            [("discover-files", "done"), ("analyze-each", "failed")],
            "too_many_iterations",
            id="too long",
        ),
    ],
)
def test_a_batch_without_a_valid_list_fails_the_run(
    project: programs.Project, said: str, code: int, lines: list[tuple[str, str]], error: str | None
) -> None:
    """An empty list is not a failure; a reply that is not a list, or is too long, fails the run before an iteration."""
    _script(project, discover_files=said)
    run = _run(project, _batch(project), code=code)

    assert programs.lines_of(run) == lines
    assert (run["error"] or {}).get("code") == error
