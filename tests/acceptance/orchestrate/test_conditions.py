"""Conditions: workflow-dsl, acceptance 37, 46, 47."""

from __future__ import annotations

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import shell, step


def equal(left: object, right: object) -> dict[str, object]:
    """Return a condition on two texts."""
    return {"equals": {"left": left, "right": right}}


def test_37_conditional_skip(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A step whose texts differ is skipped with exit code 0 and does not jump; values are compared as texts."""
    workspace.flow(
        shell("Parse", """echo '{"ok": true, "count": 3, "text": "3"}'""", output_capture="json"),
        step("Skipped", "touch", "never", when=equal("${steps.Parse.json.ok}", "false"), always="_end"),
        step("Boolean", "true", when=equal("${steps.Parse.json.ok}", True)),
        step("Number", "true", when=equal("${steps.Parse.json.count}", "${steps.Parse.json.text}")),
        shell("Code", 'printf "%s" "$0"', "${steps.Skipped.exit_code} ${steps.Skipped.status}"),
    )
    steps = door(workspace).steps

    assert (steps["Skipped"]["status"], steps["Skipped"]["exit_code"]) == ("skipped", 0)
    assert [steps[name]["status"] for name in ("Boolean", "Number")] == ["completed"] * 2
    assert steps["Code"]["output"] == "0 skipped"
    assert not (workspace.path / "never").exists()


def test_46_when_exists(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`exists` is true as soon as one file matches, including one from an earlier step."""
    workspace.write("in/one.md")
    workspace.flow(
        step("Before", "true", when={"exists": "in/*.txt"}),
        step("Make", "touch", "in/a.txt"),
        step("After", "true", when={"exists": "in/*.${context.ending}"}),
        context={"ending": "txt"},
    )
    steps = door(workspace).steps

    assert [steps[name]["status"] for name in ("Before", "After")] == ["skipped", "completed"]


def test_47_when_not_exists(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`not_exists` is true as long as no file matches."""
    workspace.write("in/one.bin")
    workspace.flow(
        step("Absent", "true", when={"not_exists": "missing/*.bin"}),
        step("Present", "true", when={"not_exists": "in/*.bin"}),
        step("Both", "true", when={"exists": "in/*.bin", "not_exists": "in/*.txt"}),
    )
    steps = door(workspace).steps

    assert [steps[name]["status"] for name in ("Absent", "Present", "Both")] == ["completed", "skipped", "completed"]
