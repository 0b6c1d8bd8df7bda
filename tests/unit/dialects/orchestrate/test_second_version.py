"""Tests of the changes in the driver's second version, and of runs that began with the first."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain import file_operations, library, operations
from app.domain.states import RunState
from tests.unit.dialects.orchestrate import shows
from tests.unit.dialects.orchestrate.driver_harness import Play
from tests.unit.dialects.orchestrate.workflow_harness import loop, step

NAMES = {"in/a[1].csv": "", "in/b*.csv": "", "in/c?.csv": ""}
DECOYS = {"in/a1.csv": "", "in/bb.csv": "", "in/cc.csv": ""}


def commands(play: Play) -> list[operations.Command]:
    """Return the called commands, in order."""
    return [operation for _, operation in play.stub.asked if isinstance(operation, operations.Command)]


def argv(play: Play) -> list[tuple[str, ...]]:
    """Return programs and arguments of the called commands."""
    return [command.argv for command in commands(play)]


def asking(name: str = "claude", **more: Any) -> Play:
    """Return a step that asks a provider, in the second version."""
    play = Play(step("A", provider=name, input_file="p.md", **more), driver_version=2)
    play.stub.files = {"p.md": "Do it."}
    play.stub.programs |= dict.fromkeys(("claude", "gemini", "codex", "mine"), lambda command: (0, ""))
    return play


@pytest.mark.parametrize(
    ("name", "call", "stdin"),
    [
        ("claude", ("claude", "-p", "Do it.", "--model", "claude-sonnet-4-20250514"), None),
        ("gemini", ("gemini", "-p", "Do it."), None),
        ("codex", ("codex", "exec"), "Do it."),
    ],
)
async def test_providers_that_need_no_declaration(name: str, call: tuple[str, ...], stdin: str | None) -> None:
    """Three agents have built-in templates, which are in the frozen recipe with their defaults."""
    play = asking(name)

    assert await play.run() is RunState.DONE
    assert argv(play) == [call]
    assert [command.stdin for command in commands(play)] == [stdin]
    assert play.recipe.document["providers"].keys() == {"cat", "echo", name}


async def test_a_declared_provider_replaces_a_built_in_one() -> None:
    """A declared provider replaces the built-in template completely, with its defaults."""
    document = '{"version": "1.1", "providers": {"claude": {"command": ["mine", "${PROMPT}"]}}, "steps": [%s]}'
    play = Play(document=document % '{"name": "A", "provider": "claude", "input_file": "p.md"}', driver_version=2)
    play.stub.files = {"p.md": "Do it."}
    play.stub.programs = {"mine": lambda command: (0, "")}

    assert await play.run() is RunState.DONE
    assert argv(play) == [("mine", "Do it.")]
    assert "defaults" not in play.recipe.document["providers"]["claude"]


@pytest.mark.parametrize(("version", "call"), [(2, ("mine", "1-2-3")), (1, None)])
async def test_parameters_are_merged_within_objects(version: int, call: tuple[str, ...] | None) -> None:
    """An object of the step is merged into the default's, name by name; in the first version it replaced it."""
    document = """{"version": "1.1", "steps": [
        {"name": "A", "provider": "mine", "provider_params": {"o": {"b": 2, "in": {"y": 3}}}}], "providers": {"mine":
        {"command": ["mine", "${o.a}-${o.b}-${o.in.y}"], "defaults": {"o": {"a": 1, "b": 0, "in": {"x": 0}}}}}}"""
    play = Play(document=document, driver_version=version)
    play.stub.programs = {"mine": lambda command: (0, "")}
    await play.run()

    assert argv(play) == ([] if call is None else [call])
    assert play.state["steps"]["A"]["exit_code"] == (0 if call else 2)


def over_names(items: list[str], **facts: Any) -> Play:
    """Return a loop over names of files, each of which must exist."""
    needs = {"required": ["${item}"], "inject": True}
    return Play(
        loop("Each", step("Ask", provider="cat", depends_on=needs, when={"exists": "${item}"}), items=items), **facts
    )


async def test_wildcards_in_an_items_name_match_that_file_alone() -> None:
    """Brackets, stars and question marks in an item's name match that file alone, also in conditions."""
    play = over_names(list(NAMES), driver_version=2)
    play.stub.files = NAMES | DECOYS
    state = await play.run()
    prompts = [str(command.stdin) for command in commands(play)]

    assert state is RunState.DONE
    assert [prompt.splitlines()[1:] for prompt in prompts] == [[f"- {name}"] for name in NAMES]


async def test_a_missing_file_is_named_without_escapes() -> None:
    """A missing file is named without the signs that escape its wildcards."""
    play = Play(
        step("A", depends_on={"required": ["in/${context.name}"]}), context={"name": "x[1].csv"}, driver_version=2
    )
    await play.run()

    assert play.state["steps"]["A"]["error"]["context"]["failed_deps"] == ["in/x[1].csv"]


async def test_a_pattern_in_a_variable_is_still_one() -> None:
    """If no file has the exact name, its wildcards are used."""
    play = over_names(["in/*.csv"], driver_version=2)
    play.stub.files = DECOYS
    state = await play.run()

    assert state is RunState.DONE
    assert play.state["steps"]["Each"][0]["Ask"]["status"] == "completed"


async def test_runs_of_the_first_version_ask_as_they_did() -> None:
    """The operations of a run of the first version have only the patterns as they were filled in."""
    play = over_names(["in/a[1].csv"], driver_version=1)
    play.stub.files = NAMES | DECOYS
    await play.run()
    asked = [operation for _, operation in play.stub.asked if isinstance(operation, file_operations.FindFiles)]

    assert [operation.patterns for operation in asked] == [("in/a[1].csv",)] * 2


async def test_attempts_are_counted_and_their_time_is_added_up() -> None:
    """A retried step reports the number of attempts, its start, and the total time of all attempts."""
    play = Play(step("A", retries={"max": 2, "delay_ms": 0}), step("B"), driver_version=2)
    play.stub.results = {"A": [1, 1, 0]}
    took = iter([0.25, 0.5, 1.0, 0.125])
    play.stub.programs["true"] = lambda command: (play.clock.advance(next(took)), (0, ""))[1]  # type: ignore[func-returns-value]
    await play.run()
    a, b = play.state["steps"]["A"], play.state["steps"]["B"]

    assert (a["attempts"], a["duration_ms"], b["attempts"], b["duration_ms"]) == (3, 1750, 1, 125)
    assert a["started_at"] < play.state["steps"]["A"]["completed_at"]
    assert a["started_at"] == play.state["started_at"]


async def test_the_state_names_its_folder() -> None:
    """`run_root` has the value of `${run.root}`."""
    play = shows.failing()
    await play.run()

    assert play.state["run_root"] == ".o/runs/r"


def test_a_built_in_program_is_asked_for_where_its_step_names_it() -> None:
    """A program that a run needs on PATH is reported at a place in the workflow's text."""
    play = Play(step("A", provider="gemini"), step("B", provider="cat"), driver_version=2)

    assert set(play.dialect.uses(play.recipe, library.Library(), {})) == {
        library.ProgramUse(path="$.steps[0].provider", program="gemini"),
        library.ProgramUse(path="$.providers.cat.command[0]", program="cat"),
    }


def test_a_program_on_a_path_of_the_step_is_not_looked_for() -> None:
    """A provider's program is not required here if every step that names it sets PATH, where the program is found."""
    own = step("A", provider="cat", env={"PATH": "/opt/tools"})
    alone, beside = Play(own), Play(own, step("B", provider="cat"))

    assert list(alone.dialect.uses(alone.recipe, library.Library(), {})) == []
    assert [use.path for use in beside.dialect.uses(beside.recipe, library.Library(), {})] == [
        "$.providers.cat.command[0]"
    ]
