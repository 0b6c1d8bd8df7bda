"""
Secrets: workflow-dsl, acceptance 41, 42, 54, 55.
"""

from __future__ import annotations

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.conftest import SECRET
from tests.acceptance.orchestrate.workspaces import python, shell, step

TOKEN = "ACCEPTANCE_TOKEN"
EMPTY = "ACCEPTANCE_EMPTY"


def test_41_secrets_missing(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A declared secret that is absent fails the step with exit code 2, naming all that are; nothing was started."""
    workspace.flow(shell("Use", "touch never", secrets=[TOKEN, "ACCEPTANCE_X", "ACCEPTANCE_Y"]))
    finished = door(workspace, code=1)

    assert finished.steps["Use"]["exit_code"] == 2
    assert finished.context("Use")["missing_secrets"] == ["ACCEPTANCE_X", "ACCEPTANCE_Y"]
    assert not (workspace.path / "never").exists()


def test_42_secrets_masking(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """The value of a secret is `***` in the state, in logs and in errors; the program itself gets it."""
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
    assert SECRET not in finished.told


def test_54_secrets_source(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Secrets come from the environment alone, no file and no context; an empty one is there."""
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
    """A name in both gets the value of `env`, as it stands there, and that value is masked, too."""
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
