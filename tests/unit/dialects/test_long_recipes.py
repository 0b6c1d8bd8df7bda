"""A recipe of the largest readable size is checked in a time that grows with its length, whether it is valid or not.

If the time grew with the square of the length, some of these tests would take hours.
"""

from __future__ import annotations

import json

import pytest

from app import errors
from app.dialects import registry
from app.domain import json_text, library

pytestmark = pytest.mark.timeout(100)

MOST_TOLD = 200
"""The most flaws that are reported for one recipe."""


def _flaws(dialect, document, definition_cache=None):
    source = json.dumps(document)
    assert len(source) <= json_text.MAX_CHARACTERS
    return registry.DIALECTS[dialect].flaws(source, "long", definition_cache or library.Library())


def _tool_step(number, args):
    return {"step_id": f"s{number}", "tool": "find", "output_slot": f"o{number}", "args": args}


def _machine(outcomes, prompt="p", **fields):
    leaving = {"action": "exit", "reason": "r"}
    step = {"prompt": prompt, "outcomes": outcomes, "onOutcome": dict.fromkeys(outcomes, leaving)}
    whole = {"id": "long", "label": "l", "description": "d", "initialStep": "s", "steps": {"s": step}, "guardrails": {}}
    return whole | fields


@pytest.mark.slow
def test_references_in_place_of_other_kinds_of_values():
    """The tool's schema accepts tens of thousands of references, whose values are unknown."""
    asked = {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}}
    definition_cache = library.Library(tools={"find": library.ToolSpec(name="find", description="", args_schema=asked)})
    given = [{"$ref": f"task.args.a{number}"} for number in range(30_000)]

    assert (
        _flaws("control_room", {"recipe_id": "long", "phase_a": [_tool_step(0, {"x": given})]}, definition_cache) == []
    )


def test_only_the_first_unfilled_slots_are_reported():
    """Only the first flaws of a very long list of names are reported."""
    names = [f"slot{number}" for number in range(70_000)]
    step = {"step_id": "s", "agent_archetype": "w", "input_slots": names, "output_slot": "o", "prompt_type": "p"}
    parser = registry.DIALECTS["control_room"]
    with pytest.raises(errors.RecipeInvalid) as refused:
        parser.parse(json.dumps({"recipe_id": "long", "phase_b": [step]}), "long")

    assert len(refused.value.flaws) == MOST_TOLD


@pytest.mark.slow
def test_references_that_lead_nowhere():
    """For thousands of wrong names among thousands of steps no similar names are searched."""
    steps = [_tool_step(number, {"x": [{"$ref": f"q{number}.x"}]}) for number in range(9_000)]
    told = _flaws("control_room", {"recipe_id": "long", "phase_a": steps})

    assert ("$.phase_a[0].args.x[0].$ref", "unreachable_ref_root") in {(flaw.path, flaw.code) for flaw in told}


@pytest.mark.slow
def test_prompts_that_name_thousands_of_arguments():
    """The arguments of a machine are determined once, not for each place that names one."""
    names = [f"a{number}" for number in range(5_000)]
    declared = {"type": "object", "properties": {name: {} for name in names}, "required": names}
    prompt = " ".join(f"{{{{args.{name}}}}}" for name in names)

    assert _flaws("agent_recipes", _machine(["ok"], prompt, args_schema=declared)) == []


@pytest.mark.slow
def test_outcomes_that_nothing_follows():
    """Of thousands of outcomes without a transition only the first are reported."""
    machine = _machine(["ok"])
    machine["steps"]["s"]["outcomes"] = [f"o{number}" for number in range(60_000)]
    told = _flaws("agent_recipes", machine)

    assert len(told) == MOST_TOLD
    assert "missing_transition" in {flaw.code for flaw in told}


def test_steps_in_a_row_do_not_go_round_in_circles():
    """A long machine without a loop has a known number of steps; one with a loop has none."""
    steps = {
        f"s{number}": {"prompt": "p", "outcomes": ["ok"], "onOutcome": {"ok": {"nextStep": f"s{number + 1}"}}}
        for number in range(199)
    }
    last = {"prompt": "p", "outcomes": ["ok"], "onOutcome": {"ok": {"action": "exit", "reason": "r"}}}
    straight = _machine(["ok"], initialStep="s0", steps={**steps, "s199": last})
    parser = registry.DIALECTS["agent_recipes"]
    back = {"prompt": "p", "outcomes": ["ok"], "onOutcome": {"ok": {"nextStep": "s100"}}}
    round_about = _machine(["ok"], initialStep="s0", steps={**steps, "s199": back})

    assert parser.parse(json.dumps(straight), "long").total_steps == 200
    assert parser.parse(json.dumps(round_about), "long").total_steps is None
