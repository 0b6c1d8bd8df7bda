"""Refused workflows: workflow-dsl, acceptance 7, 38, 39."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import loop, shell, step

CAT = {"cat": {"command": ["cat"], "input_mode": "stdin"}}


def everywhere(path: str) -> dict[str, Any]:
    """Return a workflow with a path in every field for one, each in its own step."""
    moves = {"success": {"move_to": path}, "failure": {"move_to": path}}
    return {
        "version": "1.3",
        "inbox_dir": path,
        "processed_dir": path,
        "failed_dir": path,
        "providers": CAT,
        "steps": [
            step("A", provider="cat", input_file=path),
            step("B", "true", output_file=path),
            step("C", "true", depends_on={"required": [path], "optional": [path]}),
            step("D", wait_for={"glob": path}),
            step("E", "true", when={"exists": path, "not_exists": path}),
            step("F", "true", output_capture="json", output_schema=path),
            loop("G", step("H", "true", output_file=path), items=["a"], on_item_complete=moves),
        ],
    }


PLACES = (
    "inbox_dir", "processed_dir", "failed_dir", "steps[0].input_file", "steps[1].output_file",
    "steps[2].depends_on.required[0]", "steps[2].depends_on.optional[0]", "steps[3].wait_for.glob",
    "steps[4].when.exists", "steps[4].when.not_exists", "steps[5].output_schema",
    "steps[6].for_each.on_item_complete.success.move_to", "steps[6].for_each.on_item_complete.failure.move_to",
    "steps[6].for_each.steps[0].output_file",
)  # fmt: skip


def test_07_no_env_namespace(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`${env.…}` is refused in every place, and the message names the place and the alternative."""
    workspace.flow(
        step("Say", "echo", "${env.HOME}"),
        step("Ask", provider="cat", provider_params={"deep": ["${env.HOME}"]}),
        providers=CAT,
    )
    told = door(workspace, code=2).output

    assert "steps[0].command[1]" in told
    assert "steps[1].provider_params.deep[0]" in told
    assert "`secrets`" in told


def test_38_path_safety_absolute(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Absolute paths are refused before the run, in every field for a path, by their places."""
    workspace.write(workspaces.FLOW, everywhere("/etc/passwd"))
    told = door(workspace, code=2).output

    assert [place for place in PLACES if place not in told] == []
    assert "root:" not in told


def test_39_path_safety_parent_escape(workspace: workspaces.Workspace, door: workspaces.Door, tmp_path: Path) -> None:
    """`..` is refused as well; links that lead outside, and variables with outside paths, fail a step with 2."""
    workspace.write(workspaces.FLOW, everywhere("in/../../secret"))
    told = door(workspace, code=2).output
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("the contents")
    (workspace.path / "link").symlink_to(outside)
    (workspace.path / "file.txt").symlink_to(outside / "secret.txt")
    escapes = ("link/secret.txt", "file.txt", str(outside / "secret.txt"), "${context.up}/secret.txt")
    context = {"up": os.path.relpath(outside, workspace.path), "made": "link/made.txt"}
    reading = [step(f"Read{n}", provider="cat", input_file="${context.escape%d}" % n) for n in range(len(escapes))]  # noqa: UP031
    rest = [
        step("Write", "echo", "said", output_file="${context.made}"),
        step("Need", "true", depends_on={"required": ["link/*.txt"]}),
        step("Look", "true", when={"exists": "link/*.txt"}),
        step("Wait", wait_for={"glob": "link/*.txt", "timeout_sec": 5}),
        step("Judge", "echo", "{}", output_capture="json", output_schema="file.txt"),
    ]
    resolved = [escape.replace("${context.up}", context["up"]) for escape in escapes]
    workspace.flow(
        *reading, *rest, providers=CAT, strict_flow=False, version="1.3",
        context=context | {f"escape{n}": escape for n, escape in enumerate(resolved)},
    )  # fmt: skip
    finished = door(workspace)
    codes = {name: result["exit_code"] for name, result in finished.steps.items()}

    assert [place for place in PLACES if place not in told] == []
    assert set(codes.values()) == {2}, codes
    assert os.listdir(outside) == ["secret.txt"]
    assert "the contents" not in str(finished.state)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_links_inside_are_followed(workspace: workspaces.Workspace, kind: str) -> None:
    """A link inside of the workspace works like its target."""
    workspace.write("real/prompt.md", "hello")
    if kind == "file":
        (workspace.path / "in").mkdir()
        (workspace.path / "in/prompt.md").symlink_to(workspace.path / "real/prompt.md")
    else:
        (workspace.path / "in").symlink_to("real")
    needs = {"required": ["in/*.md"]}
    workspace.flow(
        step("Ask", provider="cat", input_file="in/prompt.md", depends_on=needs),
        shell("Say", "echo said", output_file="in/said.txt"),
        providers=CAT,
    )
    finished = workspaces.through_cli(workspace)

    assert finished.steps["Ask"]["output"] == "hello"
    assert workspace.read("in/said.txt") == "said\n"
