"""The validation of JSON output: workflow-dsl, future acceptance (v1.3), 1 to 10."""

from __future__ import annotations

import json
from typing import Any

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import python, step

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["approved"],
    "properties": {"approved": {"type": "boolean"}, "issues": {"type": "array", "items": {"type": "string"}}},
}


def saying(name: str, value: Any, **fields: Any) -> dict[str, Any]:
    """Return a step that prints a JSON value."""
    return step(name, "printf", "%s", json.dumps(value), output_capture="json", **fields)


def requiring(name: str, value: Any, *requirements: dict[str, Any]) -> dict[str, Any]:
    """Return a step with requirements on its JSON."""
    return saying(name, value, output_require=list(requirements))


def codes(workspace: workspaces.Workspace, door: workspaces.Door, *steps: dict[str, Any]) -> dict[str, int]:
    """Return the exit code of each step; none of them ends the run."""
    workspace.flow(*steps, version="1.3", strict_flow=False)
    return {name: result["exit_code"] for name, result in door(workspace).steps.items()}


def test_v13_1_schema_pass(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """JSON that matches its schema is a success, and is in the state."""
    workspace.write("schemas/verdict.json", SCHEMA)
    workspace.flow(
        saying("Judge", {"approved": True, "issues": []}, output_schema="schemas/verdict.json"), version="1.3"
    )
    judged = door(workspace).steps["Judge"]

    assert (judged["status"], judged["exit_code"]) == ("completed", 0)
    assert judged["json"] == {"approved": True, "issues": []}


def test_v13_2_schema_fail(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """JSON that does not match fails with exit code 2, and the error describes every mismatch."""
    workspace.write("verdict.json", SCHEMA)
    workspace.flow(saying("Judge", {"approved": "yes", "issues": [1]}, output_schema="verdict.json"), version="1.3")
    finished = door(workspace, code=1)
    told = finished.context("Judge")["json_schema_errors"]

    assert (finished.steps["Judge"]["status"], finished.steps["Judge"]["exit_code"]) == ("failed", 2)
    assert len(told) == 2
    assert told[0].startswith("$.approved ")
    assert told[1].startswith("$.issues[0] ")


def test_v13_3_parse_fail(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Output that is not JSON fails with exit code 2, and the message names the parsing."""
    workspace.write("verdict.json", SCHEMA)
    workspace.flow(
        step(
            "Judge", "echo", "I approve.", output_capture="json", allow_parse_error=False, output_schema="verdict.json"
        ),
        version="1.3",
    )
    judged = door(workspace, code=1).steps["Judge"]

    assert judged["exit_code"] == 2
    assert "parse" in judged["error"]["message"]
    assert "json" not in judged


def test_v13_4_parse_allowed(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A schema together with `allow_parse_error`, or in a lower version, is refused."""
    both = saying("Judge", {}, output_schema="verdict.json", allow_parse_error=True)
    workspace.flow(both, version="1.3")
    told = door(workspace, code=2).output
    workspace.flow(saying("Judge", {}, output_schema="verdict.json"), version="1.2")
    early = door(workspace, code=2).output

    assert "steps[0].output_schema" in told
    assert "allow_parse_error" in told
    assert "1.3" in early


def test_v13_5_require_pointer_exists(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A missing required place fails with exit code 2; null counts as a value, and a place can be forbidden."""
    approved = {"pointer": "/approved"}
    ended = codes(
        workspace,
        door,
        requiring("There", {"approved": False}, approved),
        requiring("Missing", {"reason": "none"}, approved),
        requiring("Null", {"approved": None}, approved),
        requiring("Deep", {"a/b": [{"c": 1}]}, {"pointer": "/a~1b/0/c"}),
        requiring("Forbidden", {"approved": True}, approved | {"exists": False}),
        requiring("Absent", {}, approved | {"exists": False}),
    )

    assert ended == {"There": 0, "Missing": 2, "Null": 0, "Deep": 0, "Forbidden": 2, "Absent": 0}


def test_v13_6_require_equals(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`equals: true` accepts only the boolean."""
    must = {"pointer": "/approved", "equals": True}
    ended = codes(
        workspace,
        door,
        *(
            requiring(name, {"approved": value}, must)
            for name, value in {"True": True, "False": False, "Text": "true", "One": 1}.items()
        ),
        requiring("Null", {"approved": None}, must | {"equals": None}),
    )

    assert ended == {"True": 0, "False": 2, "Text": 2, "One": 2, "Null": 0}


def test_v13_7_require_type(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`type` accepts only values of that JSON type."""
    values = {"string": "", "number": 1.5, "boolean": False, "array": [], "object": {}, "null": None}
    right = [requiring(f"is-{kind}", {"v": value}, {"pointer": "/v", "type": kind}) for kind, value in values.items()]
    wrong = [
        requiring(f"not-{kind}", {"v": value}, {"pointer": "/v", "type": "array"})
        for kind, value in values.items()
        if kind != "array"
    ]
    ended = codes(
        workspace, door, *right, *wrong, requiring("bool-is-no-number", True, {"pointer": "", "type": "number"})
    )

    assert {name for name, code in ended.items() if code == 0} == {f"is-{kind}" for kind in values}
    assert set(ended.values()) == {0, 2}


def test_v13_8_multiple_requirements(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """All requirements must be met; the first unmet one is recorded with its pointer and the reason."""
    workspace.flow(
        requiring(
            "Judge",
            {"approved": True, "issues": {}},
            {"pointer": "/approved", "equals": True},
            {"pointer": "/issues", "type": "array"},
            {"pointer": "/missing"},
        ),
        version="1.3",
    )
    finished = door(workspace, code=1)
    failed = finished.context("Judge")["json_require_failed"]

    assert finished.steps["Judge"]["exit_code"] == 2
    assert failed["pointer"] == "/issues"
    assert "array" in failed["reason"]


def test_v13_9_schema_path_substitution(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """The path of a schema may contain variables, but must not lead out of the workspace."""
    workspace.write("schemas/verdict.json", SCHEMA)
    judge = saying("Judge", {"approved": True}, output_schema="${context.folder}/verdict.json")
    workspace.flow(judge, version="1.3", context={"folder": "schemas"})
    passed = door(workspace)
    unsafe = door(workspace, code=1, folder="../schemas")
    missing = door(workspace, code=1, folder="elsewhere")

    assert passed.steps["Judge"]["status"] == "completed"
    assert [ended.steps["Judge"]["exit_code"] for ended in (unsafe, missing)] == [2, 2]
    assert ".." in unsafe.steps["Judge"]["error"]["message"]
    assert "elsewhere/verdict.json" in str(missing.steps["Judge"]["error"])


def test_v13_10_large_json(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """More than 1 MiB fails with exit code 2 before any validation."""
    workspace.write("verdict.json", SCHEMA)
    large = "import json; print(json.dumps({'approved': 'no boolean', 'text': 'x' * 1_100_000}))"
    must = {"output_schema": "verdict.json", "output_require": [{"pointer": "/missing"}]}
    workspace.flow(python("Large", large, output_capture="json", **must), version="1.3")
    finished = door(workspace, code=1)
    told = json.dumps(finished.steps["Large"]["error"])

    assert finished.steps["Large"]["exit_code"] == 2
    assert "json" not in finished.steps["Large"]
    assert "json_schema_errors" not in told
    assert "json_require_failed" not in told
