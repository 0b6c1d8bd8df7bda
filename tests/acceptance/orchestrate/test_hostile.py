"""Harmful workflows, paths and programs: each is refused or masked, and none ends the program or service."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.orchestrate import hostile_texts, workspaces
from tests.acceptance.orchestrate.conftest import ODD_SECRET
from tests.acceptance.orchestrate.workspaces import FLOW, loop, orchestrate, python, step

CAT = {"cat": {"command": ["cat"], "input_mode": "stdin"}}
SAMPLE = ("alias-bomb", "50-megabytes", "deep-lists", "repeated-name", "python-tag", "no-utf8", "name-that-is-a-path")


# -- texts


@pytest.mark.parametrize("name", SAMPLE)
def test_the_program_refuses_it(workspace: workspaces.Workspace, name: str) -> None:
    """The program ends with 2 and a short message for every hostile file."""
    workspace.write(FLOW, hostile_texts.TEXTS[name])
    finished = orchestrate("run", FLOW, workspace=workspace, code=2)

    assert 0 < len(finished.output) < 5_000
    assert finished.root is None
    assert not (workspace.path / "never").exists()


def test_the_service_lives_on(served: workspaces.Serving) -> None:
    """The service refuses to start any hostile text, reports its flaws, and continues to serve."""
    folder = served.project.data / "recipes" / "orchestrate"
    files = {name: folder / f"hostile-{name}.yaml" for name in hostile_texts.TEXTS}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in hostile_texts.TEXTS.items():
        files[name].write_bytes(text if isinstance(text, bytes) else text.encode())
    texts = [text for text in hostile_texts.TEXTS.values() if isinstance(text, str)]
    with served.service.http() as http:
        listed = http.get("/api/recipes", params={"limit": 1000})
        started = [http.post("/api/runs", json={"recipe_id": file.stem}) for file in files.values()]
        bodies = [{"recipe": text, "dialect": "orchestrate"} for text in texts]
        judged = [http.post("/api/recipes/validate", json=body) for body in bodies]
    for file in files.values():
        file.unlink()
    workspace = workspaces.Workspace(served.project.path / "still-there")
    workspace.path.mkdir()
    workspace.flow(step("Say", "echo", "still there"))
    alive = served(workspace)

    assert listed.status_code == 200
    assert {answer.status_code for answer in started} == {400}
    assert {answer.status_code for answer in judged} == {200, 413}
    assert not any(answer.json()["valid"] for answer in judged if answer.status_code == 200)
    assert all(len(answer.text) < 50_000 for answer in (*started, *judged))
    assert alive.steps["Say"]["output"] == "still there\n"
    assert not (served.project.path / "never").exists()


# -- paths


@pytest.mark.parametrize("kind", ["absolute", "parent", "link"])
def test_no_variable_leads_out(
    workspace: workspaces.Workspace, door: workspaces.Door, tmp_path: Path, kind: str
) -> None:
    """A variable with a path outside of the workspace fails the step, and no file outside is read or written."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text('{"the": "contents"}')
    (workspace.path / "link").symlink_to(outside)
    folder = {
        "absolute": str(outside),
        "parent": os.path.relpath(outside, workspace.path),
        "link": "link",
    }[kind]
    workspace.write("task", "mine")
    there, new = "${steps.Where.json}/secret.json", "${steps.Where.json}/new"
    moves = {name: {"move_to": "${steps.Where.json}"} for name in ("success", "failure")}
    quoted = {"mode": "content"}
    workspace.flow(
        step("Where", "printf", "%s", json.dumps(folder), output_capture="json"),
        step("Read", provider="cat", input_file=there),
        step("Write", "echo", "written", output_file=new),
        step("Need", "true", depends_on={"required": [there]}),
        step("May", "true", depends_on={"optional": [there]}),
        step("Quote", provider="cat", input_file="task", depends_on={"optional": [there], "inject": quoted}),
        step("If", "true", when={"exists": there}),
        step("Unless", "true", when={"not_exists": there}),
        step("Wait", wait_for={"glob": there, "timeout_sec": 5}),
        step("Judge", "echo", "1", output_capture="json", output_schema=there),
        loop("Move", step("Fine", "true"), items=["task"], on_item_complete=moves),
        providers=CAT, strict_flow=False, version="1.3",
    )  # fmt: skip
    finished = door(workspace)
    steps = finished.steps
    codes = {name: result["exit_code"] for name, result in steps.items() if isinstance(result, dict)}
    lifecycle = steps["Move"][0]["lifecycle"]

    assert codes.pop("Where") == 0
    assert {name for name, code in codes.items() if code != 2} == set()
    assert not lifecycle["action_applied"]
    assert lifecycle["error"]
    assert os.listdir(outside) == ["secret.json"]
    assert workspace.read("task") == "mine"
    assert "contents" not in str(finished.state)


def test_no_item_leads_out(workspace: workspaces.Workspace, door: workspaces.Door, tmp_path: Path) -> None:
    """An item's path outside of the workspace, or behind a link, is not moved into the workspace."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "theirs").write_text("theirs")
    (workspace.path / "link").symlink_to(outside)
    up = os.path.relpath(outside, workspace.path)
    items: list[Any] = [str(outside / "theirs"), f"{up}/theirs", "link/theirs", "", ".", "..", 7, None, ["x"]]
    workspace.flow(
        loop("Move", step("Fine", "true"), items=items, on_item_complete={"success": {"move_to": "taken"}}),
        version="1.2",
    )
    finished = door(workspace)

    assert [one["lifecycle"]["action_applied"] for one in finished.steps["Move"]] == [False] * len(items)
    assert os.listdir(outside) == ["theirs"]
    assert not any(path.is_file() for path in (workspace.path / "taken").glob("*"))


def test_odd_files_hang_no_step(workspace: workspaces.Workspace) -> None:
    """A step that reads or writes a pipe, link cycle, folder, or a too large or binary file fails without hanging."""
    os.mkfifo(workspace.path / "pipe")
    (workspace.path / "circle").symlink_to("circle")
    (workspace.path / "folder").mkdir()
    workspace.write("bytes.txt", b"\xff\xfe")
    with workspace.write("large.txt").open("wb") as file:
        file.truncate(20_000_000)
    odd = ("pipe", "circle", "folder", "bytes.txt", "large.txt", "missing.txt")
    read = [step(f"Read-{name[:-4]}", provider="cat", input_file=name) for name in odd]
    write = [step(f"Write-{name[:-1]}", "echo", "hi", output_file=name) for name in odd[:3]]
    judge = step("Judge", "echo", "1", output_capture="json", output_schema="pipe")
    quoted = {"mode": "content"}
    quote = step("Quote", provider="cat", depends_on={"required": ["pipe", "folder", "bytes.txt"], "inject": quoted})
    workspace.flow(*read, *write, judge, quote, providers=CAT, strict_flow=False, version="1.3")
    steps = workspaces.through_cli(workspace).steps
    quoting = steps.pop("Quote")

    assert {name for name, result in steps.items() if result["exit_code"] != 2} == set()
    assert quoting["exit_code"] in (0, 2)


# -- secrets

ECHOES = """
import json, os, sys
secret = os.environ["ACCEPTANCE_ODD"]
sys.stdout.write(sys.argv[1].replace("@J", json.dumps(secret)).replace("@", secret))
sys.stderr.write("x" * 990 + secret + "\\n" + secret)
if len(sys.argv) > 2:
    open("named-" + secret + ".txt", "w").close()
    sys.exit(int(sys.argv[2]))
"""


def test_no_output_reveals_a_secret(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A secret with quotes and blanks stays hidden in texts, lines, JSON, names of files, errors, and at cuts."""
    odd = ["ACCEPTANCE_ODD"]
    one = [{"pointer": "", "equals": 1}]
    workspace.write("prompt.md", "Files:")
    workspace.flow(
        python("Text", ECHOES, "it is @, really", secrets=odd),
        python("Cut", ECHOES, "x" * (8192 - 7) + "@", secrets=odd),
        python("Lines", ECHOES, "@\na@b\n", secrets=odd, output_capture="lines"),
        python("Json", ECHOES, '{"a": @J, "b": [@J]}', secrets=odd, output_capture="json"),
        python("Broken", ECHOES, '{"a": @', secrets=odd, output_capture="json"),
        python("Unfit", ECHOES, "@J", secrets=odd, output_capture="json", output_require=one),
        python("Fails", ECHOES, "@", "3", secrets=odd),
        step("List", "ls", output_capture="lines"),
        step("Wait", wait_for={"glob": "named-*.txt", "timeout_sec": 5}),
        step("Ask", provider="cat", input_file="prompt.md", depends_on={"required": ["named-*.txt"], "inject": True}),
        loop("Each", step("Show", "cat", "./${item}"), items_from="steps.List.lines"),
        step("Gone", "cat", "/nowhere/${steps.Json.json.a}"),
        providers=CAT, strict_flow=False, version="1.3",
    )  # fmt: skip
    finished = door(workspace)
    assert finished.root is not None
    told = {path.name: path.read_bytes() for path in finished.root.rglob("*") if path.is_file()}
    if isinstance(door, workspaces.Serving):
        told["what was answered"] = "\n".join(door.answers(finished.run_id)).encode()
    told["what was printed"] = finished.output.encode(errors="surrogateescape")
    forms = {
        ODD_SECRET,
        json.dumps(ODD_SECRET)[1:-1],
        json.dumps(ODD_SECRET, ensure_ascii=False)[1:-1],
        repr(ODD_SECRET)[1:-1],
    }
    found = {(name, form) for name, content in told.items() for form in forms if form.encode() in content}

    assert found == set()
    assert finished.steps["Text"]["output"] == "it is ***, really"
    assert finished.steps["Json"]["json"] == {"a": "***", "b": ["***"]}
    assert ODD_SECRET[:4] not in finished.steps["Cut"]["output"]
    assert (workspace.path / f"named-{ODD_SECRET}.txt").exists()


def test_no_flag_reveals_a_secret(workspace: workspaces.Workspace) -> None:
    """`--debug`, `--verbose` and `--json` reveal no secret, neither on the terminal nor in their additional logs."""
    odd = ["ACCEPTANCE_ODD"]
    workspace.write("prompt.md", f"The secret is {ODD_SECRET}.\n")
    workspace.flow(
        step("Ask", provider="cat", input_file="prompt.md", secrets=odd),
        python("Fails", ECHOES, "@", "3", secrets=odd),
        providers=CAT,
    )
    for flags in (("--debug", "--verbose", "--progress", "--log-level", "debug"), ("--debug", "--json", "--trace")):
        finished = orchestrate("run", FLOW, *flags, workspace=workspace, code=1)
        assert finished.root is not None
        files = [path for path in finished.root.rglob("*") if path.is_file()]
        escaped = json.dumps(ODD_SECRET)[1:-1]

        assert [path for path in files if ODD_SECRET in (text := path.read_text()) or escaped in text] == []
        assert ODD_SECRET not in finished.output
        assert escaped not in finished.output
        assert "The secret is ***." in finished.log("Ask.prompt.txt")
