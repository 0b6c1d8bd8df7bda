"""The program `agent-recipes` as users run it: real processes, golden outputs, exit codes, flags."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import processes, programs, recipe_programs
from tests.acceptance.recipe_programs import Project, agent_recipes, control_room, make_project, shown
from tests.unit.dialects.agent_recipes import recipe_harness
from tests.unit.dialects.agent_recipes.recipe_harness import OTHER_SAID, recipe, says

SAID = ("--backend", "said")
HEAVY = (
    "alembic", "asyncio", "fastapi", "httpx", "jsonschema", "pydantic", "re2", "sqlalchemy", "sqlmodel", "uvicorn",
)  # fmt: skip

LOOP = {
    "review": {"text": says("issues-found", "One slip."), "usage": {"cost_usd": 0.25}},
    "fix": {"text": says("complete", "Mended."), "usage": {"cost_usd": 0.5}},
    "review#2": "All is well.",
    "review#2.reminder": '{"outcome": "no-issues"}',
    "commit": says("committed", "Committed as 1a2b3c."),
}
"""Replies with a corrected slip, a reminder and costs."""

STDOUT = """\
One slip.

{"outcome": "issues-found"}

Mended.

{"outcome": "complete"}

All is well.

{"outcome": "no-issues"}

Committed as 1a2b3c.

{"outcome": "committed"}

changes-committed
"""

VERBOSE = """\
[orchestration] Starting recipe: small
[orchestration] Step: review (visit 1/3, total 1/100)
[orchestration] Sending prompt (195 chars) to said
[orchestration] Outcome extracted: issues-found
[orchestration] Transition: review → fix
[orchestration] Step: fix (visit 1/3, total 2/100)
[orchestration] Sending prompt (164 chars) to said
[orchestration] Outcome extracted: complete
[orchestration] Transition: fix → review
[orchestration] Step: review (visit 2/3, total 3/100)
[orchestration] Sending prompt (195 chars) to said
[orchestration] Outcome not extracted: No JSON block found in response
[orchestration] Sending reminder (360 chars) to said
[orchestration] Outcome extracted: no-issues
[orchestration] Transition: review → commit
[orchestration] Step: commit (visit 1/3, total 4/100)
[orchestration] Sending prompt (167 chars) to said [haiku]
[orchestration] Outcome extracted: committed
[orchestration] Exit: changes-committed
[orchestration] Total cost: $0.7500 (review $0.2500, fix $0.5000)
"""

EVENTS = """\
[recipe:started] small (session: {session})
[step:started]   review (visit 1/3, total 1/100)
[step:outcome]   issues-found
[step:transition] review → fix
[step:started]   fix (visit 1/3, total 2/100)
[step:outcome]   complete
[step:transition] fix → review
[step:started]   review (visit 2/3, total 3/100)
[step:retry]     review: No JSON block found in response
[step:outcome]   no-issues
[step:transition] review → commit
[step:started]   commit (visit 1/3, total 4/100) [model: haiku]
[step:outcome]   committed
[recipe:exited]  changes-committed
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Create a project."""
    return make_project(tmp_path / "project")


# -- output


def test_replies_and_reason_are_printed(project: Project):
    """Stdout has every reply of the agent and ends with the reason; stderr has only the cost, if it is known."""
    project.script(LOOP)
    told = agent_recipes("small", *SAID, project=project, **processes.COLD)
    project.script(recipe_harness.STRAIGHT)
    free = agent_recipes("small", *SAID, project=project)

    assert told.stdout == STDOUT
    assert told.stderr == "Total cost: $0.7500 (review $0.2500, fix $0.5000)\n"
    assert free.stderr == ""
    assert free.stdout.splitlines()[-1] == "changes-committed"


def test_a_run_that_kept_half_a_reply_says_so(project: Project):
    """If a cut-off reply was kept, stderr names its step; code and reason are those of the exit."""
    project.recipe(recipe_harness.with_step("review", on_cut_off="keep"))
    project.script(recipe_harness.STRAIGHT | {"review": {"text": says("no-issues", "Half a"), "finish": "length"}})
    told = agent_recipes("small", *SAID, project=project)

    assert told.stdout.splitlines()[-1] == "changes-committed"
    assert told.stderr == "agent-recipes: done in part (cut off: review)\n"


def test_verbose_output_has_a_fixed_form(project: Project):
    """`--verbose` prints steps, prompts, outcomes and transitions on stderr in a fixed form; stdout is unchanged."""
    project.script(LOOP)
    told = agent_recipes("small", *SAID, "--verbose", project=project)

    assert told.stderr == VERBOSE
    assert told.stdout == STDOUT


def test_events_output_has_a_fixed_form(project: Project):
    """`--events` prints the same facts as structured lines."""
    project.script(LOOP)
    told = agent_recipes("small", *SAID, "--events", project=project)
    session = shown(project.run_ids()[-1], project)["machine"]["sessionId"]

    assert told.stderr == EVENTS.format(session=session)
    assert told.stdout == STDOUT


def test_output_continues_after_a_restart(project: Project):
    """After a restart the output continues with a new conversation, and with the other reply of the same step."""
    project.recipe(recipe(initialStep="commit", steps={"commit": recipe_harness.AGAIN}))
    project.script({"commit": says("committed", "First."), "restart1/commit": OTHER_SAID})
    told = agent_recipes("small", *SAID, "--verbose", "--events", project=project)
    lines = told.stderr.splitlines()
    sessions = [line for line in lines if line.startswith("[recipe:started]")]

    assert told.stdout == f"{says('committed', 'First.')}\n\n{OTHER_SAID}\n\nuser-provided-other\n"
    assert lines.count("[orchestration] Transition: commit → RESTART small") == 1
    assert lines.count("[step:transition] commit → RESTART small") == 1
    assert lines.count("[orchestration] Starting recipe: small") == 2
    assert "[orchestration] Described as: there is no repository" in lines
    assert len(set(sessions)) == 2


def test_a_run_as_json_is_its_detail(project: Project):
    """With --json, stdout contains only the run's detail."""
    project.script(LOOP)
    detail = json.loads(agent_recipes("small", *SAID, "--json", project=project).stdout)

    assert (detail["status"], detail["ending"]["reason"]) == ("done", "changes-committed")
    assert detail["machine"]["stepCostsUsd"] == {"review": 0.25, "fix": 0.5, "commit": None}


def test_a_large_reply_is_printed_whole(project: Project):
    """A reply that is stored in a blob is printed completely, with all its characters."""
    long = "Ærendil 東京 \x1b[31m" * 20_000
    project.script(recipe_harness.STRAIGHT | {"review": says("no-issues", long)})

    assert agent_recipes("small", *SAID, project=project).stdout.startswith(f"{long}\n\n{{")


def test_a_full_disk_under_the_output_stops_the_run(project: Project):
    """When a reply cannot be printed, the run stops, and the order that continues it is printed with the fault."""
    project.script({"review": says("issues-found", "One slip."), "fix": {"hang": True}})
    words = f"{sys.executable} -m {recipe_programs.MODULE} small --backend said"
    environ = recipe_programs.environment(project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2")
    ended = subprocess.run(
        ["sh", "-c", f"exec {words} > /dev/full"], env=environ, cwd=project.path, stderr=subprocess.PIPE, check=False
    )
    told = ended.stderr.decode()

    assert ended.returncode == 5
    assert f"interrupted; continue with: control-room runs resume {project.run_ids()[0]}\n" in told
    assert "No space left on device" in told


def test_the_list_has_ids_and_descriptions(project: Project):
    """`--list` shows only the recipes of this language, broken ones with their flaw, and creates no run."""
    project.recipe({"id": "broken", "label": "Broken"})
    project.write("recipes/quick.json", {"recipe_id": "quick", "label": "Another language", "phase_b": []})
    bundled = [json.loads(path.read_text()) for path in sorted(recipe_harness.CATALOGUE.glob("*.json"))]
    found = {one["id"]: one["description"] for one in [*bundled, recipe_harness.RECIPE]}
    found["broken"] = "(not valid) $.description: is missing"
    lines = [f"{name:<24}  {description}\n" for name, description in sorted(found.items())]
    listed = json.loads(agent_recipes("--list", "--json", project=project).stdout)

    assert agent_recipes("--list", project=project).stdout == "".join(lines)
    assert {entry["recipe_id"]: entry["valid"] for entry in listed} == {name: name != "broken" for name in found}
    assert {entry["recipe_id"]: entry["description"] for entry in listed} == found | {"broken": None}
    assert not (project.data / "runs").exists()


def test_a_dry_run_draws_the_machine(project: Project):
    """`--dry-run` draws the recipe in its fixed form, with the flags applied, and starts no run."""
    drawn = agent_recipes("--dry-run", "small", project=project)
    changed = agent_recipes(
        "small", "--dry-run", "--model", "opus", "--max-steps", "7", "--max-visits", "2", project=project
    )
    plan = json.loads(agent_recipes("small", "--dry-run", "--json", *SAID, project=project).stdout)

    assert drawn.stdout == recipe_harness.DRAWN
    assert "maxStepVisits=2, maxTotalSteps=7," in changed.stdout
    assert changed.stdout.count("Model: opus\n") == 3
    assert (plan["recipe_id"], plan["args"], plan["working_dir"]) == ("small", {"backend": "said"}, str(project.path))
    assert not (project.data / "runs").exists()


def test_a_dry_run_needs_no_arguments_but_refuses_wrong_ones(project: Project):
    """A dry run draws a recipe without its required arguments, and refuses undeclared ones."""
    drawn = agent_recipes("--dry-run", "document-design", project=project)
    refused = agent_recipes("--dry-run", "document-design", "--arg", "sbject=x", project=project, code=5)

    assert drawn.stdout.startswith("Recipe: document-design\n")
    assert "$.args.sbject" in refused.stderr


# -- exit codes


@pytest.mark.parametrize(
    ("replies", "flags", "code", "reason", "told"),
    [
        ({"review": OTHER_SAID}, (), 0, "user-provided-other", ""),
        ({"review": "Hm.", "review.reminder": "Hm."}, (), 2, "orchestration-error", "[orchestration_error]"),
        ({"review": "{bad}", "review.reminder": "{bad}"}, (), 2, "orchestration-error", "Invalid JSON"),
        ({}, ("--max-steps", "1"), 3, "max-total-steps", "[max_total_steps]"),
        (
            {"review": says("issues-found"), "fix": says("complete")},
            ("--max-visits", "1"),
            3,
            "max-step-visits-exceeded:review",
            "[max_step_visits_exceeded]",
        ),
        ({"review": {"error": {"code": "agent_error", "message": "It broke."}}}, (), 4, "backend-error", "It broke."),
        ({"review": {"error": {"code": "agent_missing", "message": "Install it."}}}, (), 5, "backend-error", "Install"),
    ],
)
def test_the_exit_code_shows_how_the_run_ended(
    project: Project, replies: dict[str, object], flags: tuple[str, ...], code: int, reason: str, told: str
):
    """Each ending has its exit code; stdout ends with the reason, stderr has the error and the command to continue."""
    project.script(recipe_harness.STRAIGHT | replies)
    ended = agent_recipes("small", *SAID, *flags, project=project, code=code)

    assert ended.stdout.splitlines()[-1:] == [reason]
    assert told in ended.stderr
    assert ("control-room runs resume" in ended.stderr) is (code != 0)


def test_too_many_restarts_are_a_guardrail(project: Project):
    """`--max-restarts` limits the number of restarts."""
    project.recipe(recipe(initialStep="commit", steps={"commit": recipe_harness.AGAIN}))
    project.script({"*": says("committed")})
    ended = agent_recipes("small", *SAID, "--max-restarts", "1", project=project, code=3)

    assert ended.stdout.splitlines()[-1] == "max-restarts"
    assert ended.stdout.count("committed") == 2


def test_a_broken_recipe_is_exit_code_1(project: Project):
    """An invalid recipe is refused before any run is created, with all its flaws."""
    project.recipe(recipe(model="huge", initialStep="nowhere"))
    for flags in (SAID, ("--dry-run",)):
        refused = agent_recipes("small", *flags, project=project, code=1)

        assert refused.stderr.startswith("agent-recipes: ")
        assert "$.model" in refused.stderr
        assert "$.initialStep" in refused.stderr
    assert not (project.data / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "Give a recipe or --list."),
        (("small", "--list"), "--list takes no recipe."),
        (("--list", "--dry-run"), "--dry-run needs a recipe."),
        (("small", "--nonsense"), "--nonsense"),
        (("small", "--model", "gpt-4"), "gpt-4"),
        (("small", "--max-steps", "0"), "--max-steps"),
        (("small", "--max-visits", "many"), "--max-visits"),
        (("small", "--max-restarts", "-1"), "--max-restarts"),
        (("small", "--arg", "words"), "NAME=VALUE"),
        (("small", "--arg", "model=opus", "--model", "haiku"), "--model and --arg model"),
        (("small", *SAID, "--arg", "unheard=of"), "$.args.unheard"),
        (("small", *SAID, "--session-id", "--dangerous"), "$.args.agent_session_id"),
        (("document-design", *SAID), "document-design needs subject"),
        (("smal", *SAID), "did you mean small?"),
        (("quick", *SAID), "start it with: control-room run"),
        (("small", "--backend", "sad"), "There is no backend 'sad'"),
        (("small", *SAID, "--working-dir", "nowhere"), "--working-dir 'nowhere' is not a folder"),
        (("small", *SAID, "--working-dir", "file"), "--working-dir 'file' is not a folder"),
        (("small", *SAID, "--working-dir", ""), "--working-dir '' is not a folder"),
        (("small", *SAID, "--working-dir", ".control-room"), "is in a reserved folder"),
    ],
)
def test_a_run_that_cannot_begin_ends_with_exit_code_5(project: Project, arguments: tuple[str, ...], told: str):
    """Usage errors, unknown recipes and backends, and unfit arguments end with 5, and no run is created."""
    project.write("recipes/quick.json", {"recipe_id": "quick", "label": "Another language", "phase_b": []})
    (project.path / "file").touch()
    refused = agent_recipes(*arguments, project=project, code=5)

    assert told in refused.stderr
    assert refused.stdout == ""
    assert not (project.data / "runs").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"CONTROL_ROOM_DEPTH": "deep"},
        {"CONTROL_ROOM_DEPTH": "3"},
        {"CONTROL_ROOM_RUN_ID": "20260101T000000Z-absent"},
        {"CONTROL_ROOM_MAX_DEPTH": "-1"},
        {"CONTROL_ROOM_PROJECT": "/nowhere"},
    ],
)
def test_a_forbidden_environment_is_reported_in_one_line(project: Project, given: dict[str, Any]):
    """Wrong settings, an unknown parent and too deep a nesting are reported in one line."""
    refused = agent_recipes("small", *SAID, project=project, code=5, **given)

    assert len(refused.stderr.splitlines()) == 1, refused.stderr
    assert refused.stderr.startswith("agent-recipes: ")


def test_a_missing_program_is_reported_with_its_remedy(project: Project):
    """A default backend without its program is refused before any run is created, and the message names the path."""
    refused = agent_recipes("small", project=project, code=5, CLAUDE_CLI_PATH="/nowhere/claude")

    assert "[backend_unusable]" in refused.stderr
    assert "/nowhere/claude" in refused.stderr
    assert not (project.data / "runs").exists()


def test_a_broken_agents_file_is_reported(project: Project):
    """An invalid configuration ends with 5 and is named in the error."""
    project.write("agents.json", {"backends": {"said": {"type": "scripted", "file": 7}}})

    assert "agents.json cannot be used" in agent_recipes("small", *SAID, project=project, code=5).stderr


def test_a_guardrail_names_the_command_that_continues(project: Project):
    """After a guardrail ends a run, the output names the command that raises the limit, and that command works."""
    ended = agent_recipes("small", *SAID, "--max-steps", "1", project=project, code=3)
    run_id = project.run_ids()[0]
    words = ended.stderr.splitlines()[-1].partition("control-room ")[2].split()

    assert words == ["runs", "resume", run_id, "--arg", "max_steps:=2"]
    assert control_room(*words, project=project).stdout
    assert shown(run_id, project)["ending"]["reason"] == "changes-committed"


# -- flags


def test_flags_reach_the_run(project: Project):
    """Every flag about the run becomes an argument of the run, and the prompt contains system prompt and arguments."""
    prompt = {"prompt": "Look at {{args.what}} {{args.list}}."}
    steps = {**recipe_harness.RECIPE["steps"], "review": recipe_harness.REVIEW | prompt}
    schema = {"properties": {"what": {"type": "string"}, "list": {"type": "array"}}, "required": ["what", "list"]}
    project.recipe(recipe(steps=steps, args_schema=schema))
    flags = (
        "--model", "opus", "--max-steps", "9", "--max-visits", "4", "--max-restarts", "0",
        "--system-prompt", "Be kind.", "--session-id", "earlier-1", "--arg", "what=the gate", "--arg", 'list:=["a", 1]',
    )  # fmt: skip
    told = agent_recipes("small", *SAID, *flags, "--verbose", "--events", project=project)
    steps_log = json.loads(control_room("runs", "steps", project.run_ids()[-1], "--json", project=project).stdout)

    assert project.start()["args"] == {
        "what": "the gate",
        "list": ["a", 1],
        "backend": "said",
        "model": "opus",
        "max_steps": 9,
        "max_visits": 4,
        "max_restarts": 0,
        "system_prompt": "Be kind.",
        "agent_session_id": "earlier-1",
    }
    assert "[recipe:started] small (session: earlier-1)" in told.stderr
    assert "[orchestration] Step: review (visit 1/4, total 1/9)" in told.stderr
    assert "to said [opus]\n" in told.stderr
    assert "[haiku]" not in told.stderr
    assert project.prompt("review").startswith('Be kind.\n\n---\n\nLook at the gate ["a",1].')
    assert {line["agent_session_id"] for line in steps_log} == {"earlier-1"}


def test_the_run_is_like_any_other(project: Project):
    """The run is listed together with those of `control-room`."""
    agent_recipes("small", *SAID, project=project)
    listed = json.loads(control_room("runs", "list", "--json", project=project).stdout)

    assert [(run["run_id"], run["status"], run["owner"]) for run in listed] == [
        (project.run_ids()[0], "done", "process")
    ]
    assert listed[0]["description"] == "Small"


def test_the_project_is_the_nearest_with_a_data_directory(project: Project, tmp_path: Path):
    """A folder below a project belongs to it; any other folder is its own project, and a home is not a project."""
    below, other = project.path / "deep" / "below", tmp_path / "other"
    below.mkdir(parents=True)
    other.mkdir()
    agent_recipes("small", *SAID, "--working-dir", below, project=project, cwd=tmp_path)
    told = agent_recipes("small", *SAID, project=project, code=5, cwd=other)
    agents = {"backends": {"said": {"type": "scripted", "file": str(project.data / "replies.json")}}}
    project.script({"reflect": says("complete")})
    (other / ".control-room").mkdir()
    (other / ".control-room" / "agents.json").write_text(json.dumps(agents))
    (other / "inner").mkdir()
    flags = ("retrospective", *SAID, "--session-id", "s1", "--working-dir", other / "inner")
    homely = agent_recipes(*flags, project=project, cwd=tmp_path, code=5, CONTROL_ROOM_HOME=str(other))
    agent_recipes(*flags, project=project, cwd=tmp_path)

    assert project.start()["working_dir"] == str(below)
    assert "there is no agent recipe" in told.stderr
    assert "There is no backend 'said'" in homely.stderr
    assert not (other / "inner" / ".control-room").exists()
    assert Project(other).start()["working_dir"] == str(other / "inner")


def test_a_data_directory_is_made_on_first_use(project: Project, tmp_path: Path):
    """A refused run and a dry run create no data directory."""
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    agent_recipes("small", *SAID, project=project, cwd=fresh, code=5)
    untouched = list(fresh.iterdir())
    told = agent_recipes("retrospective", "--session-id", "s1", "--dry-run", project=project, cwd=fresh)

    assert untouched == []
    assert told.stdout.startswith("Recipe: retrospective")
    assert list(fresh.iterdir()) == []


def test_a_project_that_is_named_counts(project: Project, tmp_path: Path):
    """A project named by the environment stores the run, and a working directory outside of it is refused."""
    outside = tmp_path / "outside"
    outside.mkdir()
    named: dict[str, Any] = {"CONTROL_ROOM_PROJECT": str(project.path)}
    refused = agent_recipes("small", *SAID, project=project, cwd=outside, code=5, **named)
    agent_recipes("small", *SAID, project=project, cwd=outside, **named, CONTROL_ROOM_ALLOWED_ROOTS=str(outside))

    assert "is outside the project and the folders of CONTROL_ROOM_ALLOWED_ROOTS" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert project.start()["working_dir"] == str(outside)


def test_help_names_everything_and_loads_nothing_heavy(project: Project):
    """Help imports no heavy package, and names every flag and the exit codes; the version is printed as well."""
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "app.cli.agent_recipes", "--help"],
        env=programs.environment(None),
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.split("|")[-1].strip().split(".")[0] for line in told.stderr.splitlines() if "|" in line}
    flags = (
        "--backend", "--list", "--dry-run", "--verbose", "--model", "--max-steps", "--max-visits", "--working-dir",
        "--system-prompt", "--max-restarts", "--arg", "--session-id", "--events", "--json", "--version",
    )  # fmt: skip

    assert [flag for flag in flags if flag not in told.stdout] == []
    assert "Exit codes" in told.stdout
    assert not imported & set(HEAVY)
    assert agent_recipes("--version", project=project).stdout.startswith("agent-recipes ")
