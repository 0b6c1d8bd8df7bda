"""Secrets: workflow-dsl, acceptance 41, 42, 54, 55."""

from __future__ import annotations

from typing import Any

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.conftest import SECRET
from tests.acceptance.orchestrate.workspaces import python, shell, step

TOKEN = "ACCEPTANCE_TOKEN"
EMPTY = "ACCEPTANCE_EMPTY"


def test_41_secrets_missing(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A missing declared secret fails the step with exit code 2, naming all missing ones, before its program starts."""
    workspace.flow(shell("Use", "touch never", secrets=[TOKEN, "ACCEPTANCE_X", "ACCEPTANCE_Y"]))
    finished = door(workspace, code=1)

    assert finished.steps["Use"]["exit_code"] == 2
    assert finished.context("Use")["missing_secrets"] == ["ACCEPTANCE_X", "ACCEPTANCE_Y"]
    assert not (workspace.path / "never").exists()


def test_42_secrets_masking(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """The value of a secret is `***` in the state, in logs and in errors, but the program itself receives it."""
    say = f'printf \'is <%s>\' "${TOKEN}"; printf "${TOKEN}" >&2'
    workspace.flow(
        shell("Text", f'{say}; printf "%s" "${TOKEN}" > made', secrets=[TOKEN]),
        shell("Lines", say, secrets=[TOKEN], output_capture="lines"),
        shell("Json", f'printf \'["%s"]\' "${TOKEN}"', secrets=[TOKEN], output_capture="json"),
        shell("Later", "cat made"),
        shell("Fails", f"{say}; exit 3", secrets=[TOKEN]),
    )
    finished = door(workspace, code=1)
    steps = finished.steps

    assert workspace.read("made") == SECRET
    assert steps["Text"]["output"] == "is <***>"
    assert steps["Lines"]["lines"] == ["is <***>"]
    assert steps["Json"]["json"] == ["***"]
    assert steps["Later"]["output"] == "***"
    assert steps["Fails"]["error"]["stdout_tail"] == ["is <***>"]
    assert steps["Fails"]["error"]["stderr_tail"] == ["***"]
    assert finished.log("Fails.stderr") == "***"
    assert finished.root is not None
    assert [path for path in finished.root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in finished.output


def test_masked_inputs_are_named(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A program receives masked secrets of its input files; the state names the files, and reports no truncation."""
    workspace.write("conf.ini", f"user=app\npassword={SECRET}\n")
    workspace.write("prompt.md", "Look.\n")
    (workspace.path / "latin.txt").write_bytes(b"caf\xe9\n")
    needs = {"required": ["conf.ini", "latin.txt"], "inject": {"mode": "content"}}
    workspace.flow(
        step("Whole", command=["cat"], input_file="conf.ini"),
        step("Quoted", command=["cat"], input_file="prompt.md", depends_on=needs, output_file="quoted.txt"),
        step("Plain", command=["cat"], input_file="prompt.md"),
    )
    steps = door(workspace).steps
    quoted = workspace.read("quoted.txt")

    assert steps["Whole"]["output"] == "user=app\npassword=***\n"
    assert steps["Whole"]["debug"] == {"masked_files": ["conf.ini"]}
    assert steps["Quoted"]["debug"] == {"masked_files": ["conf.ini"], "not_utf8_files": ["latin.txt"]}
    assert "truncated" not in quoted
    assert "=== File: latin.txt (5 bytes) ===\ncaf\ufffd" in quoted
    assert "debug" not in steps["Plain"]


def test_54_secrets_source(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Secrets come only from the environment, not from a file or the context, and an empty one counts as present."""
    workspace.write(".env", "ACCEPTANCE_X=from-a-file\n")
    workspace.flow(
        shell("Empty", f'printf "<%s>" "${{{EMPTY}-absent}}"'.replace("${", "$${"), secrets=[EMPTY]),
        shell("Absent", "true", secrets=["ACCEPTANCE_X"]),
        context={"ACCEPTANCE_X": "from-the-context"},
    )
    finished = door(workspace, code=1)

    assert finished.steps["Empty"]["output"] == "<>"
    assert finished.context("Absent")["missing_secrets"] == ["ACCEPTANCE_X"]


def test_55_secrets_and_env_precedence(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A name in both gets the literal value of `env`, and that value is masked as well."""
    show = f"import os; value = os.environ['{TOKEN}']; print(len(value), value); open('made', 'w').write(value)"
    own = "own-${run.id}-value"
    workspace.flow(
        python("Show", show, env={TOKEN: own}, secrets=[TOKEN]),
        step("Later", "cat", "made"),
    )
    finished = door(workspace)

    assert workspace.read("made") == own
    assert finished.steps["Show"]["output"] == f"{len(own)} ***\n"
    assert finished.steps["Later"]["output"] in ("***", own)


def test_no_spelling_of_a_secret_is_kept(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A key of several lines is in no file of the run, as JSON, line by line, in pieces, or quoted by an error."""
    value = "import json, os, sys; value = os.environ['ACCEPTANCE_PEM']"
    say = {
        "Json": "print(json.dumps({'key': value}))",
        "Shown": "print(repr(value), json.dumps(json.dumps([value])), file=sys.stderr)",
        "Lines": "[print('>', line) for line in value.splitlines()]",
        "Pieces": "[(sys.stdout.write(value[at:at + 7]), sys.stdout.flush()) for at in range(0, len(value), 7)]",
        "Long": "print('.' * 8180 + value); sys.exit(f'{\"x\" * 180} {value}')",
    }
    more = {"Json": {"output_capture": "json"}, "Lines": {"output_capture": "lines"}}
    named: Any = {name: {"secrets": ["ACCEPTANCE_PEM"], **more.get(name, {})} for name in say}
    workspace.flow(*(python(name, f"{value}; {script}", **named[name]) for name, script in say.items()))
    finished = door(workspace, code=1)

    assert finished.steps["Json"]["json"] == {"key": "***"}
    assert finished.root is not None
    assert [path for path in finished.root.rglob("*") if path.is_file() and b"MIIEvQ" in path.read_bytes()] == []
    assert "MIIEvQ" not in finished.output


def test_environment_secrets_are_masked_undeclared(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A variable named like a secret, and a password in a URL, are masked in a step that declares neither."""
    workspace.flow(shell("Show", "echo $ACCEPTANCE_TOKEN; echo $ACCEPTANCE_DATABASE >&2; exit 3"))
    finished = door(workspace, code=1)

    assert finished.steps["Show"]["output"] == "***\n"
    assert finished.steps["Show"]["error"]["stderr_tail"] == ["postgresql://app:***@localhost/x"]
    assert finished.root is not None
    kept = b"".join(path.read_bytes() for path in finished.root.rglob("*") if path.is_file())
    assert SECRET.encode() not in kept
    assert b"s3same-0pen" not in kept
