"""Tests of a T1 chief's prompt and form: the parts of an intent, and a form in which every reply is a plan."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.domain import json_schemas
from app.flows.decomposition import kinds, replies, schema, small
from app.services import routing
from tests.unit.dialects import bench, example
from tests.unit.flows.decomposition.splitting import INTENT, recipe, reply, task

DIALECT: Any = bench.DIALECT
RECIPES = [DIALECT.parse(path.read_text(encoding="utf-8"), path.stem) for path in example.RECIPES.glob("*.json")]
KINDS = kinds.frozen(RECIPES)
MOST = schema.SIZES["t1"].tasks


def parts(intent: str, known: Any = KINDS) -> list[tuple[str, str, int]]:
    """Return phrase, text and number of tasks of each part."""
    return [(part.phrase, part.text, part.tasks) for part in small.parts(intent, known)]


def form(intent: str) -> dict[str, Any]:
    """Return the form for an intent."""
    return small.form(small.parts(intent, KINDS), MOST)


def fits(intent: str, *tasks: Any) -> bool:
    """Return whether a reply fits the form for an intent."""
    return not json_schemas.flaws(form(intent), {"tasks": list(tasks)})


@pytest.mark.parametrize("page", ["README.md", "docs/reference/plans.md", ".control-room/example/README.md"])
def test_of_intents_that_pages_show_nothing_is_lost(page: str) -> None:
    """Each clause of an intent that the pages suggest names a kind of task, so that the bundled chief keeps it."""
    text = (Path(__file__).parents[4] / page).read_text(encoding="utf-8")
    shown = re.findall(r'plan create "([^"]+)"\n|\{"intent": "([^"]+)"\}', text)

    assert shown
    for intent in map("".join, shown):
        named = [part.phrase for part in small.parts(intent, KINDS)]
        clauses = re.split(r",(?: and)? ", intent)
        assert [phrase in clause for phrase, clause in zip(named, clauses, strict=True)] == [True] * len(clauses), (
            intent
        )


@pytest.mark.parametrize(
    ("intent", "found"),
    [
        (
            INTENT,
            [
                ("write scene", "write scene 21 and 22", 2),
                ("check consistency", "check consistency", 1),
                ("foreshadowing audit", "foreshadowing audit", 1),
            ],
        ),
        ("Make it better", []),
        ("", []),
        ("Please DRAFT SCENE 3!", [("DRAFT SCENE", "DRAFT SCENE 3!", 1)]),
        (
            "then check the consistency; write scene 2, write scene 3.",
            [
                ("check the consistency", "check the consistency", 1),
                ("write scene", "write scene 2", 1),
                ("write scene", "write scene 3", 1),
            ],
        ),
        ("write the new scene 4", [("write the new scene", "write the new scene 4", 1)]),
        ("write scenes 2, 2 and 3", [("write scene", "write scenes 2, 2 and 3", 2)]),
    ],
)
def test_an_intent_has_parts(intent, found):
    """A part begins at a phrase or an expression of a recipe, the longest first, and means one task per number."""
    assert parts(intent) == found


def test_the_form_of_the_plan_of_the_specification():
    """The form allows exactly two scenes, a check and an audit, in their words and sequence, with fitting outputs."""
    plan = [task(1), task(2, 1), task(3, 1, 2), task(4, 2)]
    said = ["write scene 21", "write scene 22", "check consistency", "foreshadowing audit"]
    made = ["the draft", "the file", "the correction list", "the payoff plan"]
    ends = ["is there", "is written", "is there and the continuity report is there", "is there"]
    plan = [
        each | {"description": words, "dod": f"{what} {end}"}
        for each, words, what, end in zip(plan, said, made, ends, strict=True)
    ]

    assert fits(INTENT, *plan)
    assert not fits(INTENT, *plan[:3])
    assert not fits(INTENT, *plan, task(5))
    assert not fits(INTENT, plan[0] | {"deps": [1]}, *plan[1:])
    assert not fits(INTENT, plan[0], plan[1] | {"deps": [3]}, *plan[2:])
    assert not fits(INTENT, *plan[:3], plan[3] | {"deps": []})
    assert not fits(INTENT, *plan[:3], plan[3] | {"dod": "the moon is there"})
    assert not fits(INTENT, plan[0] | {"description": "write scene 23"}, *plan[1:])
    assert not fits(INTENT, plan[0] | {"description": "write scene 21 22"}, *plan[1:])
    assert not fits(INTENT, plan[0] | {"description": "check consistency"}, *plan[1:])


def test_where_nothing_is_named_the_words_are_free():
    """An intent that names no kind gives one task in the chief's own words."""
    assert fits("Make it better", task(1) | {"description": "Mend what is dull", "dod": "nothing dull is left"})
    assert not fits("Make it better", task(1), task(2))


def test_a_long_intent_means_no_more_tasks_than_fit():
    """An intent of a hundred scenes gives as many tasks as a small chief may make."""
    intent = "write scene " + " and ".join(map(str, range(100)))

    assert len(form(intent)["$defs"]) == MOST


@given(
    st.lists(
        st.sampled_from(
            [
                "write scene",
                "check the consistency",
                "audit foreshadowing",
                "of",
                "Story/a.md",
                "7",
                "ß",
                ")",
                '"',
                "\\",
            ]
        )
        | st.text(max_size=6),
        max_size=12,
    ).map(" ".join)
)
def test_any_intent_has_a_sound_form(intent):
    """For any intent the form is a valid schema, whose plainest reply is a plan with tasks routed to recipes."""
    made, found = form(intent), small.parts(intent, KINDS)
    meant = [part for part in found for _ in range(part.tasks)][:MOST]
    said = [part.phrase for part in meant] or ["anything"]
    done = [part.done_when[0] for part in meant] or ["it is done"]
    plainest = {
        "tasks": [
            {"id": n, "description": words, "deps": [n - 1] if n > 1 else [], "dod": end}
            for n, (words, end) in enumerate(zip(said, done, strict=True), start=1)
        ]
    }
    router = routing.Router(RECIPES)

    assert json_schemas.flaws(made, plainest) == []
    assert len(replies.read(json.dumps(plainest), MOST)) == len(said)
    assert all(router.route(part.phrase).routable for part in meant)


def test_a_phrase_with_odd_signs_is_not_in_the_grammar():
    """A phrase with signs that a grammar might not support is left to the chief's own words."""
    known = kinds.frozen([recipe("odd", 'say "hi" (now)')])
    made = small.form(small.parts('say "hi" (now)', known), MOST)

    assert made["$defs"]["task1"]["properties"]["description"] == {"type": "string", "minLength": 1, "maxLength": 100}


def test_the_form_does_not_set_additional_properties():
    """Services that support only closed forms without tuples must not mistake this form for a closed one."""
    assert "additionalProperties" not in form(INTENT)


def test_every_reply_in_the_form_can_be_read():
    """A reply that fits the form passes the check."""
    with pytest.raises(errors.InputRefused):
        replies.read(reply(*(task(n) for n in range(1, MOST + 2))), MOST)
