"""The lines of `agent-recipes` for each note of a run."""

from __future__ import annotations

from typing import Any

import pytest

from app.cli.agent_recipes import command, running, showing, story
from app.dialects.agent_recipes import schema

FACTS: dict[str, Any] = {
    "sessionId": "abc-123", "recipeId": "implement-and-review", "step": "implement", "stepCount": 1, "visitCount": 1,
    "outcome": None, "error": None, "model": None, "promptLength": None, "maxStepVisits": 3, "maxTotalSteps": 100,
    "backend": "claude-code",
}  # fmt: skip


def note(event: str, **facts: Any) -> dict[str, Any]:
    """Return a note."""
    return {**FACTS, "event": event, **facts}


def event(told: dict[str, Any]) -> dict[str, Any]:
    """Return the event of a note."""
    return {"type": "recipe.note", "data": told}


OTHER = note("step:outcome", outcome="other", otherDescription="there is\nno repository")


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        (note("recipe:started"), ["Starting recipe: implement-and-review"]),
        (
            note("step:started", promptLength=2847, model="opus"),
            [
                "Step: implement (visit 1/3, total 1/100)",
                "Sending prompt (2847 chars) to claude-code [opus]",
            ],
        ),
        (
            note("step:started", promptLength=7, step="fix", visitCount=2, stepCount=9),
            ["Step: fix (visit 2/3, total 9/100)", "Sending prompt (7 chars) to claude-code"],
        ),
        (
            note("step:retry", error="No JSON block found in response", promptLength=365, model="haiku"),
            [
                "Outcome not extracted: No JSON block found in response",
                "Sending reminder (365 chars) to claude-code [haiku]",
            ],
        ),
        (note("step:outcome", outcome="complete", otherDescription=None), ["Outcome extracted: complete"]),
        (OTHER, ["Outcome extracted: other", "Described as: there is no repository"]),
        (note("step:transition", toStep="code-review"), ["Transition: implement → code-review"]),
        (note("step:transition", toRecipe="again"), ["Transition: implement → RESTART again"]),
        (note("recipe:restarted", fromSessionId="abc", restarts=1), []),
        (note("recipe:exited", reason="changes-committed"), ["Exit: changes-committed"]),
        (note("something:new"), []),
    ],
)
def test_notes_of_the_orchestration(told: dict[str, Any], lines: list[str]):
    """With `--verbose` each note has its lines in the documented form, and an unknown note has none."""
    assert list(story.orchestration(told)) == lines


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        (note("recipe:started"), ["[recipe:started] implement-and-review (session: abc-123)"]),
        (note("step:started", promptLength=1), ["[step:started]   implement (visit 1/3, total 1/100)"]),
        (
            note("step:started", step="commit", stepCount=3, model="haiku"),
            ["[step:started]   commit (visit 1/3, total 3/100) [model: haiku]"],
        ),
        (note("step:retry", error="Invalid JSON"), ["[step:retry]     implement: Invalid JSON"]),
        (OTHER, ["[step:outcome]   other"]),
        (note("step:transition", toStep="code-review"), ["[step:transition] implement → code-review"]),
        (note("step:transition", toRecipe="again"), ["[step:transition] implement → RESTART again"]),
        (note("recipe:restarted", fromSessionId="abc", restarts=1), []),
        (note("recipe:exited", reason="changes-committed"), ["[recipe:exited]  changes-committed"]),
    ],
)
def test_structured_notes(told: dict[str, Any], lines: list[str]):
    """With `--events` each note has its line in the documented form."""
    assert list(story.structured(told)) == lines


async def test_a_reminder_goes_to_the_backend_of_its_step(capsys: pytest.CaptureFixture[str]):
    """A note without a backend is printed with the backend named last."""
    told = story.Story(None, verbose=True, events=False)
    await told.print_event(event(note("step:started", promptLength=9)))
    await told.print_event(event({**note("step:retry", error="None", promptLength=8), "backend": None}))

    assert capsys.readouterr().err.splitlines()[-1] == "[orchestration] Sending reminder (8 chars) to claude-code"


async def test_only_replies_are_printed(capsys: pytest.CaptureFixture[str]):
    """Only replies that are not blank are printed, each with a blank line after it."""

    async def said(position: int) -> str:
        return ["First.\n", " \n", "Third."][position]

    told = story.Story(said, verbose=False, events=False)
    for position in range(3):
        await told.print_event({"type": "step.finished", "data": {"position": position}})
    await told.print_event({"type": "run.started", "data": None})
    await told.print_event(event(note("recipe:started")))

    assert capsys.readouterr() == ("First.\n\nThird.\n\n", "")


def test_costs_are_printed_by_step():
    """The total cost is followed by the steps that have a cost."""
    assert story.cost(0.042, {"review": 0.04, "fix": 0.0, "commit": 0.002}) == (
        "$0.0420 (review $0.0400, commit $0.0020)"
    )
    assert story.cost(1.5, {}) == "$1.5000"


def test_the_help_agrees_with_the_dialect():
    """The tiers, default backend and arguments that the help repeats agree with the dialect."""
    assert command.TIERS == schema.TIERS
    assert running.DEFAULT_BACKEND == schema.DEFAULT_BACKEND
    assert set(command.FLAGS) == set(schema.RUN_ARGS)
    assert schema.RUN_ARGS.keys() >= set(running.LIMITS.values())


def test_an_empty_list_of_recipes_is_a_sentence():
    """An empty list is printed as a sentence."""
    assert showing.listing([]) == "no recipes"
