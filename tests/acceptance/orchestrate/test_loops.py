"""Loops: workflow-dsl, acceptance 3, 13, 25, 43."""

from __future__ import annotations

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import loop, shell


def test_03_dynamic_for_each(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A loop iterates over the lines of an earlier step in order, with item, index and total."""
    note = 'echo "$0" >> notes'
    workspace.flow(
        shell("List", r"printf 'a\nb c\n$(d)\n'", output_capture="lines"),
        loop("Each", shell("Note", note, "${item} ${loop.index}/${loop.total}"), items_from="steps.List.lines"),
        loop("None", shell("Never", "exit 1"), items=[]),
        shell("After", note, "after"),
    )
    state = door(workspace).state

    assert workspace.read("notes") == "a 0/3\nb c 1/3\n$(d) 2/3\nafter\n"
    assert state["for_each"]["Each"]["items"] == ["a", "b c", "$(d)"]
    assert state["for_each"]["Each"]["completed_indices"] == [0, 1, 2]
    assert state["steps"]["None"] == []


def test_13_pointer_grammar(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`items_from` refers to a place in JSON; if the place is not a list, the loop fails with exit code 2."""
    note = shell("Note", 'echo "$0" >> notes', "${file}")
    found = '{"found": {"files": ["a.py", {"name": "b.py"}], "count": 2}}'
    workspace.flow(
        shell("Scan", f"echo '{found}'", output_capture="json"),
        loop("Each", note, items_from="steps.Scan.json.found.files", **{"as": "file"}),
        loop("Wrong", shell("Never", "touch never"), items_from="steps.Scan.json.found.count"),
    )
    finished = door(workspace, code=1)

    assert workspace.read("notes") == 'a.py\n{"name":"b.py"}\n'
    assert not (workspace.path / "never").exists()
    assert "steps.Scan.json.found.count" in str(finished.state)
    assert "invalid_reference" in str(finished.state)


def test_25_loop_dependencies(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Each iteration looks up its dependencies anew, with its item, and finds files of the iteration before."""
    workspace.write("in/0.txt")
    make = shell("Make", 'touch "in/$0.txt"', "${loop.index}${item}", depends_on={"required": ["in/${item}.txt"]})
    workspace.flow(loop("Each", make, items=["0", "00", "missing"]))
    finished = door(workspace, code=1)
    first, second, third = (iteration["Make"] for iteration in finished.steps["Each"])

    assert [made["exit_code"] for made in (first, second, third)] == [0, 0, 2]
    assert third["error"]["context"]["failed_deps"] == ["in/missing.txt"]


def test_43_loop_state_indexing(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Results of loops are at `steps.<Loop>[i].<Step>`, and those of nested loops below them."""
    inner = loop("Inner", shell("Say", 'printf "%s" "$0"', "${outer}${item}${loop.index}"), items=["x", "y"])
    again = shell("Again", 'printf "%s" "$0"', "again ${outer}")
    workspace.flow(
        shell("Say", "printf outside"),
        loop("Outer", inner, again, items=["a", "b"], **{"as": "outer"}),
    )
    steps = door(workspace).steps

    assert steps["Say"]["output"] == "outside"
    assert [iteration["Again"]["output"] for iteration in steps["Outer"]] == ["again a", "again b"]
    said = [[one["Say"]["output"] for one in iteration["Inner"]] for iteration in steps["Outer"]]
    assert said == [["ax0", "ay1"], ["bx0", "by1"]]
