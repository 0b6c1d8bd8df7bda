"""Tests of transitions: the state of a machine, its guardrails, and the step after an outcome."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialects.agent_recipes import transitions
from tests.unit.dialects.agent_recipes import recipe_harness

AT = "2026-02-10T14:30:00.250Z"
USUAL = transitions.Guardrails(max_step_visits=3, max_total_steps=100, exit_on_other=True)


def _begun(document=None, **facts):
    return transitions.State.begun(document or recipe_harness.recipe(), "s1", AT, **facts)


def _guardrails(**given):
    fields = {"max_step_visits": 3, "max_total_steps": 100, "exit_on_other": True}
    return transitions.Guardrails(**(fields | given))


def _decide(outcome, state=None, document=None, **given):
    return transitions.decide(document or recipe_harness.recipe(), state or _begun(), outcome, _guardrails(**given))


def test_a_machine_begins_at_its_initial_step():
    """A machine begins with one counted step, visited once, and without a conversation."""
    assert _begun().to_json() == {
        "recipeId": "small",
        "currentStep": "review",
        "stepCount": 1,
        "stepVisitCounts": {"review": 1},
        "stepRetryCounts": {"review": 0},
        "startTime": 1770733800250,
        "sessionCreated": False,
        "sessionId": "s1",
        "restarts": 0,
    }


def test_a_step_that_follows_is_counted():
    """The step count rises, each step has its own visits, and each visit has its own retries."""
    state = _begun().spoken().retried().advanced("fix").retried().advanced("review").advanced("fix")

    assert (state.current_step, state.step_count, state.visit) == ("fix", 4, 2)
    assert state.step_visit_counts == {"review": 2, "fix": 2}
    assert state.step_retry_counts == {"review": 0, "fix": 0}
    assert state.session_created


def test_keys_are_made_of_step_visit_and_restart():
    """The first visit's key is the step's name alone."""
    again = _begun().advanced("fix").advanced("review")
    later = _begun(restarts=2)

    assert [_begun().key, again.key, later.key] == ["review", "review#2", "restart2/review"]
    assert later.advanced("fix").advanced("review").key == "restart2/review#2"


@pytest.mark.parametrize(
    ("outcome", "follows"),
    [
        ("no-issues", transitions.Advance(step="commit")),
        ("issues-found", transitions.Advance(step="fix")),
        ("other", transitions.Exit(reason="user-provided-other")),
    ],
)
def test_the_outcome_decides_the_transition(outcome, follows):
    """The transition of the present step decides alone."""
    assert _decide(outcome) == follows


def test_a_restart_follows():
    """The named recipe begins, at most as often as the limit on restarts allows."""
    document, state = (
        recipe_harness.recipe(steps={**recipe_harness.RECIPE["steps"], "commit": recipe_harness.AGAIN}),
        _begun(),
    )
    at_commit = state.advanced("commit")

    assert _decide("committed", at_commit, document) == transitions.Restart(recipe_id="small")
    assert _decide("committed", at_commit, document, max_restarts=1) == transitions.Restart(recipe_id="small")
    halted = _decide("committed", _begun(restarts=1).advanced("commit"), document, max_restarts=1)
    assert (halted.reason, halted.code, halted.limit) == ("max-restarts", "max_restarts", 1)


def test_other_ends_the_run_or_is_followed():
    """With `exitOnOther` the run ends with the transition's reason; without, the transition is followed."""
    onwards = {"nextStep": "fix", "reason": "was-puzzled"}
    document = recipe_harness.with_step("review", onOutcome=recipe_harness.REVIEW["onOutcome"] | {"other": onwards})

    assert _decide("other", document=document) == transitions.Exit(reason="was-puzzled")
    assert _decide("other", document=document, exit_on_other=False) == transitions.Advance(step="fix")
    assert _decide("other", exit_on_other=False) == transitions.Exit(reason="user-provided-other")


def test_a_step_is_visited_only_so_often():
    """A visit beyond the limit is refused."""
    state = _begun()
    for _ in range(2):
        state = state.advanced("fix").advanced("review")
    third = state.advanced("fix")
    halted = _decide("complete", third)

    assert _decide("issues-found", state) == transitions.Advance(step="fix")
    assert isinstance(halted, transitions.Halt)
    assert (halted.reason, halted.limit) == ("max-step-visits-exceeded:review", 3)
    assert _decide("no-issues", state) == transitions.Advance(step="commit")


def test_steps_are_taken_only_so_often():
    """Every step counts towards the total; the limit on visits is checked first."""
    at_fix = _begun().advanced("fix")

    assert _decide("complete", at_fix, max_total_steps=3) == transitions.Advance(step="review")
    assert _decide("complete", at_fix, max_total_steps=2).reason == "max-total-steps"
    both = _decide("complete", at_fix, max_total_steps=2, max_step_visits=1)
    assert both.reason == "max-step-visits-exceeded:review"


def test_guardrails_do_not_keep_a_run_from_ending():
    """Exits and restarts are not counted as steps."""
    at_commit, again = _begun().advanced("commit"), recipe_harness.with_step("commit", **recipe_harness.AGAIN)

    assert _decide("committed", at_commit, max_total_steps=1, max_step_visits=1).reason == "changes-committed"
    assert isinstance(_decide("committed", at_commit, again, max_total_steps=1), transitions.Restart)


def test_guardrails_come_from_the_recipe_and_the_run():
    """Unset guardrails have the usual values, and arguments override every other value."""
    document = recipe_harness.recipe(guardrails={"maxTotalSteps": 7, "exitOnOther": False})
    args = {"max_steps": 9, "max_visits": 2, "max_restarts": 0}

    assert transitions.Guardrails.of(recipe_harness.recipe(), {}) == USUAL
    assert transitions.Guardrails.of(document, {}) == _guardrails(max_total_steps=7, exit_on_other=False)
    assert transitions.Guardrails.of(document, args) == _guardrails(
        max_total_steps=9, max_step_visits=2, exit_on_other=False, max_restarts=0
    )


@given(st.lists(st.sampled_from(["no-issues", "issues-found", "complete", "committed", "other"]), max_size=60))
def test_no_run_exceeds_its_guardrails(outcomes):
    """For any outcomes, no step and no total exceeds its guardrail."""
    document, state = recipe_harness.recipe(), _begun()
    for outcome in outcomes:
        if outcome not in document["steps"][state.current_step]["onOutcome"]:
            continue
        verdict = _decide(outcome, state, max_total_steps=5)
        if not isinstance(verdict, transitions.Advance):
            break
        state = state.advanced(verdict.step)

    assert state.step_count <= 5
    assert max(state.step_visit_counts.values()) <= 3
    assert sum(state.step_visit_counts.values()) == state.step_count


@pytest.mark.parametrize(
    ("steps", "goes_round"),
    [
        ({"a": "b", "b": "exit"}, False),
        ({"a": "b", "b": "c", "c": "b"}, True),
        ({"a": "a"}, True),
        ({"a": "restart"}, True),
        ({"a": "exit", "b": "c", "c": "exit"}, False),
    ],
)
def test_loops_are_seen(steps, goes_round):
    """A recipe that can repeat a step, or restart, has no fixed number of steps."""
    ends = {"exit": {"action": "exit", "reason": "x"}, "restart": {"action": "restart-new-session", "recipeId": "r"}}
    document = {
        "steps": {
            name: {"onOutcome": {"done": ends.get(target, {"nextStep": target})}} for name, target in steps.items()
        }
    }

    assert transitions.loops(document) is goes_round
