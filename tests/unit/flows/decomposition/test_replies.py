"""Tests of the chief's replies: which contain tasks, and which flaws the others have."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.flows import decomposition
from app.flows.decomposition import replies, schema
from tests.unit.flows.decomposition.splitting import REPLY, reply, task


def flaws(said: str, most: int = 20) -> list[tuple[str, str]]:
    """Return path and code of every flaw of a reply."""
    return [(flaw.path, flaw.code) for flaw in _refused(said, most)]


@pytest.mark.parametrize(
    "said",
    [
        REPLY,
        f"  {REPLY}\n",
        f"\ufeff{REPLY}",
        f"```json\n{REPLY}\n```",
        f"Here it is:\n\n```\n{REPLY}\n```\nAnything else?",
        f"```json\n{REPLY}",
        json.dumps(json.loads(REPLY), indent=2),
    ],
)
def test_json_alone_or_fenced_is_read(said):
    """The reply may be JSON, or contain it in a fenced block, closed or not."""
    assert [draft.id for draft in replies.read(said, 4)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("", [("$", "syntax")]),
        ("Gladly.", [("$", "syntax")]),
        (REPLY[:-1], [("$", "syntax")]),
        (f"{REPLY} {REPLY}", [("$", "syntax")]),
        ('{"tasks": [{"id": NaN, "description": "x"}]}', [("$.tasks[0].id", "bad_number")]),
        ('{"tasks": [{"id": 1e999, "description": "x"}]}', [("$.tasks[0].id", "bad_number")]),
        ('{"tasks": [{"id": 1, "id": 2, "description": "x"}]}', [("$.tasks[0].id", "repeated_name")]),
        ('{"tasks": [{"id": 1, "description": "a\\u0000b"}]}', [("$.tasks[0].description", "nul_character")]),
        ('{"tasks": [{"id": 1, "description": "a\\ud800b"}]}', [("$.tasks[0].description", "lone_surrogate")]),
        ("[" * 100 + "]" * 100, [("$" + "[0]" * 64, "too_deep")]),
        ("[" * 200_000, [("$", "too_deep")]),
        (f'{{"tasks": "{"x" * 1_100_000}"}}', [("$", "too_large")]),
        ("null", [("$", "wrong_type")]),
        ("[]", [("$", "wrong_type")]),
        ("{}", [("$.tasks", "missing_field")]),
        ('{"tasks": {}}', [("$.tasks", "wrong_type")]),
        ('{"tasks": []}', [("$.tasks", "invalid_value")]),
        ('{"tasks": [1]}', [("$.tasks[0]", "wrong_type")]),
        ('{"tasks": [{}]}', [(f"$.tasks[0].{name}", "missing_field") for name in ("id", "description", "deps", "dod")]),
        (reply(task(1))[:-1] + ', "plan": 1}', [("$.plan", "unknown_field")]),
        (reply(task(1) | {"dod": " "}), [("$.tasks[0].dod", "invalid_value")]),
        (reply(task(1, recipe_id="x")), [("$.tasks[0].recipe_id", "unknown_field")]),
        (reply(task(0)), [("$.tasks[0].id", "invalid_value")]),
        (reply(task(True)), [("$.tasks[0].id", "wrong_type")]),
        (reply(task(1) | {"id": "1"}), [("$.tasks[0].id", "wrong_type")]),
        (reply(task(1) | {"id": 1.5}), [("$.tasks[0].id", "wrong_type")]),
        (reply(task(10_000)), [("$.tasks[0].id", "invalid_value")]),
        (reply(task(1) | {"description": " \n"}), [("$.tasks[0].description", "invalid_value")]),
        (reply(task(1) | {"description": "x" * 4_001}), [("$.tasks[0].description", "invalid_value")]),
        (reply(task(1, deps="1")), [("$.tasks[0].deps", "wrong_type")]),
        (reply(task(1, args=[])), [("$.tasks[0].args", "wrong_type")]),
        (reply(task(1, dod=None)), [("$.tasks[0].dod", "wrong_type")]),
        (reply(task(1, scoping_question=["x"])), [("$.tasks[0].scoping_question", "wrong_type")]),
        (reply(task(1), task(1)), [("$.tasks[1].id", "duplicate_task")]),
        (reply(task(1, 1)), [("$.tasks[0].deps[0]", "self_dependency")]),
        (reply(task(1, 9)), [("$.tasks[0].deps[0]", "unknown_dependency")]),
        (reply(task(3, 1), task(1, 2), task(2, 3)), [("$.tasks[1].deps[0]", "dependency_cycle")]),
        (reply(*(task(n) for n in range(1, 22))), [("$.tasks", "invalid_value")]),
        (reply(*(task(n, dod="x" * 2_000, args={"a": "x" * 2_000}) for n in range(1, 20))), [("$.tasks", "too_large")]),
    ],
)
def test_each_flaw_of_a_reply_has_its_path(said, found):
    """JSON, schema, dependencies and size are checked in this order, and each flaw has its path."""
    assert flaws(said) == found


def test_tasks_come_after_their_dependencies():
    """Tasks keep the chief's order and numbers, except that dependencies come first and repeated ones count once."""
    drafts = replies.read(reply(task(4), task(7, 2, 2), task(2, 4), task(1)), 20)

    assert [(draft.id, draft.deps) for draft in drafts] == [(4, ()), (2, (4,)), (7, (2,)), (1, ())]


@pytest.mark.parametrize(
    ("said", "question"),
    [(None, None), ("", None), (" ", None), ("null", None), ("None", None), (" Which? ", "Which?")],
)
def test_a_question_that_asks_nothing_is_none(said, question):
    """The placeholders that models write when they have no question are removed."""
    (draft,) = replies.read(reply(task(1, scoping_question=said)), 20)

    assert draft.scoping_question == question


def test_whole_numbers_may_be_written_with_a_point():
    """A number with a point is accepted where JSON Schema accepts it as whole."""
    (_, draft) = replies.read(
        '{"tasks": [{"id": 1, "description": "x"}, {"id": 2.0, "description": "y", "deps": [1.0]}]}', 2, whole=False
    )

    assert (repr(draft.id), repr(draft.deps)) == ("2", "(1,)")


def test_an_argument_is_taken_as_it_is():
    """An argument may be any JSON and stays unchanged."""
    args = {"path": "a", "list": [1, None, {"b": 1.5}], "ä": True}
    (draft,) = replies.read(reply(task(1, args=args)), 1)

    assert draft.args == args


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-1, 4) | JSON,
        "description": st.text(max_size=5) | JSON,
        "deps": st.lists(st.integers(0, 4), max_size=3) | JSON,
        "dod": st.text(max_size=5) | JSON,
        "args": st.dictionaries(st.text(max_size=3), JSON, max_size=2) | JSON,
        "scoping_question": st.none() | st.text(max_size=5) | JSON,
        "extra": JSON,
    },
)


def _refused(said: str, most: int) -> tuple[errors.Flaw, ...]:
    try:
        replies.read(said, most)
    except errors.InputRefused as refused:
        return refused.flaws or (errors.Flaw(path="?", message="refused without a flaw"),)
    return ()


def _is_sound(said: str) -> None:
    refused = _refused(said, 20)
    if refused:
        assert all(flaw.path.startswith("$") and flaw.message for flaw in refused)
        return
    drafts = replies.read(said, 20)
    known = [draft.id for draft in drafts]

    assert 1 <= len(drafts) == len(set(known)) <= 20
    assert all(1 <= draft.id <= schema.HIGHEST_ID and draft.description.strip() for draft in drafts)
    for index, draft in enumerate(drafts):
        assert set(draft.deps) <= set(known[:index])
    kept = replies.text(drafts)

    assert decomposition.tasks(kept) == drafts
    assert replies.read(kept, 20) == drafts


@given(JSON.map(json.dumps) | st.text() | st.lists(LIKELY, max_size=4).map(lambda tasks: json.dumps({"tasks": tasks})))
def test_any_reply_is_tasks_or_flaws(said):
    """Any reply is either a valid plan, which can be written and read again, or flaws with paths."""
    _is_sound(said)


@given(st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(1, 6), max_size=4)), max_size=6))
def test_any_graph_is_a_plan_or_refused(graph):
    """Any graph of dependencies is either an executable plan or refused."""
    _is_sound(reply(*(task(number, *deps) for number, deps in graph)))


@given(st.text(st.sampled_from('`{}[]":,\n jso1'), max_size=60))
def test_any_fences_are_survived(said):
    """Fences that open, close and nest in any way cause no error."""
    _is_sound(said)
    _is_sound(f"```json\n{REPLY}\n{said}")


def test_long_lines_of_fences_take_no_time():
    """A reply of fences only is read in one pass."""
    for line in ("```\n", "```json\n{", "`", "\n```"):
        assert flaws(line * (1_000_000 // len(line)))


def _grown() -> list[Any]:
    return [
        reply(*(task(n) for n in range(1, size.tasks + extra)))
        for size, extra in itertools.product(schema.SIZES.values(), (1, 2))
    ]


def test_each_size_has_its_most_tasks():
    """A plan may have exactly as many tasks as the chief's size allows."""
    sizes = [size.tasks for size in schema.SIZES.values()]

    assert [
        bool(flaws(said, most)) for said, most in zip(_grown(), [n for n in sizes for _ in range(2)], strict=True)
    ] == [False, True] * 3


def test_outputs_of_tasks_that_do_not_come_before_are_flaws():
    """A reply that names an output of a task that is not an earlier one is refused with the place."""
    said = {"$task": "t1", "output": "draft"}
    assert replies.read(reply(task(1), task(2, 1, args={"a": said})), 20)[1].args == {"a": said}

    aside = reply(task(1), task(2, args={"a": said}))
    with pytest.raises(errors.InputRefused) as refused:
        replies.read(aside, 20)
    assert [(flaw.path, flaw.code) for flaw in refused.value.flaws] == [("$.tasks[1].args.a.$task", "not_a_dependency")]
    assert len(replies.read(aside, 20, outputs=False)) == 2
