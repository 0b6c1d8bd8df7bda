"""The capture of a step's output: workflow-dsl, acceptance 1, 2, 14, 15, 45, 52."""

from __future__ import annotations

from typing import Any

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import python, shell

KIB = 1024
LARGE_JSON = "import json; print(json.dumps({'text': 'x' * 1_100_000}))"


def test_01_lines_capture(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`lines` captures a list, with LF or CRLF, with or without a final line end, and no `output` beside it."""
    workspace.flow(
        shell("List", r"printf 'one\r\ntwo\n\nlast'", output_capture="lines"),
        shell("Silent", "true", output_capture="lines"),
    )
    listed = door(workspace).steps

    assert listed["List"]["lines"] == ["one", "two", "", "last"]
    assert (listed["List"]["output_capture"], listed["List"]["truncated"]) == ("lines", False)
    assert (listed["List"]["status"], listed["List"]["exit_code"]) == ("completed", 0)
    assert "output" not in listed["List"]
    assert listed["Silent"]["lines"] == []


def test_02_json_capture(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`json` captures an object, and later steps can refer to its parts."""
    workspace.flow(
        shell("Parse", """echo '{"success": true, "files": ["a.py", "b.py"]}'""", output_capture="json"),
        shell("Show", 'printf "%s %s" "$0" "$1"', "${steps.Parse.json.success}", "${steps.Parse.json.files}"),
    )
    steps = door(workspace).steps

    assert steps["Parse"]["json"] == {"success": True, "files": ["a.py", "b.py"]}
    assert (steps["Parse"]["output_capture"], steps["Parse"]["truncated"]) == ("json", False)
    assert "output" not in steps["Parse"]
    assert steps["Show"]["output"] == 'true ["a.py","b.py"]'


def test_14_json_oversize(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """More than 1 MiB of JSON fails with exit code 2, and the logs contain all of it."""
    workspace.flow(python("Large", LARGE_JSON, output_capture="json"))
    finished = door(workspace, code=1)
    large = finished.steps["Large"]

    assert (large["status"], large["exit_code"], large["error"]["exit_code"]) == ("failed", 2, 2)
    assert "json" not in large
    assert len(finished.log("Large.stdout")) > 1_100_000


def test_15_json_parse_error_flag(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """With `allow_parse_error`, oversized and invalid JSON is kept as text, with the reason."""
    kept = {"output_capture": "json", "allow_parse_error": True}
    workspace.flow(python("Large", LARGE_JSON, **kept), shell("Prose", "echo 'I think it is fine.'", **kept))
    steps = door(workspace).steps

    assert (steps["Large"]["status"], steps["Large"]["exit_code"]) == ("completed", 0)
    assert (len(steps["Large"]["output"]), steps["Large"]["truncated"]) == (8 * KIB, True)
    assert steps["Large"]["debug"]["json_parse_error"] == {"reason": "overflow"}
    assert (steps["Prose"]["output"], steps["Prose"]["truncated"]) == ("I think it is fine.\n", False)
    assert steps["Prose"]["debug"]["json_parse_error"] == {"reason": "invalid"}
    assert not any("json" in steps[name] for name in ("Large", "Prose"))


def test_45_stdout_capture_threshold(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """The state keeps 8 KiB and cuts one byte more; the logs contain the whole stream."""
    write = "import sys; sys.stdout.write('x' * int(sys.argv[1]))"
    workspace.flow(python("Fits", write, str(8 * KIB)), python("Large", write, str(8 * KIB + 1)))
    finished = door(workspace)
    fits, large = finished.steps["Fits"], finished.steps["Large"]

    assert (len(fits["output"]), fits["truncated"]) == (8 * KIB, False)
    assert (len(large["output"]), large["truncated"]) == (8 * KIB, True)
    assert finished.log("Large.stdout") == "x" * (8 * KIB + 1)
    # If the program lives for a quarter of a second after its output, the log follows it meanwhile.
    assert "Fits.stdout" not in finished.logs() or finished.log("Fits.stdout") == "x" * (8 * KIB)


def test_52_output_tee_semantics(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`output_file` gets every byte, regardless of the capture's limits."""

    def teed(name: str, source: str, **fields: Any) -> dict[str, Any]:
        return python(name, source, output_file=f"out/deep/{name}", **fields)

    workspace.flow(
        teed("Text", "import sys; sys.stdout.buffer.write(b'\\xff' + b'x' * 20000)"),
        teed("Lines", "for number in range(10_001): print(number)", output_capture="lines"),
        teed("Parsed", "print('[1]')", output_capture="json"),
        teed("Json", LARGE_JSON, output_capture="json"),
    )
    finished = door(workspace, code=1)
    steps, files = finished.steps, workspace.snapshot()

    assert files["out/deep/Text"] == b"\xff" + b"x" * 20000
    assert files["out/deep/Lines"].count(b"\n") == 10_001
    assert files["out/deep/Parsed"] == b"[1]\n"
    assert len(files["out/deep/Json"]) > 1_100_000
    assert steps["Text"]["truncated"]
    assert (len(steps["Lines"]["lines"]), steps["Lines"]["lines"][-1]) == (10_000, "9999")
    assert steps["Lines"]["truncated"]
    assert finished.log("Lines.stdout").count("\n") == 10_001
    assert steps["Parsed"]["json"] == [1]
    assert steps["Json"]["exit_code"] == 2
