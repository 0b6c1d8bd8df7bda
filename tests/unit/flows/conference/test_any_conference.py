"""Conferences by chance: properties of every conference."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app import errors
from app.domain.states import RunState
from app.flows.conference import prompts, protocol
from tests.examples import examples
from tests.unit.flows.conference.round_table import (
    DONE,
    FIND,
    NAMED,
    QUOTED,
    READ,
    Held,
    agent,
    broke_or,
    call,
    stock,
)

NAMES = st.lists(st.from_regex(r"[a-z]{3,6}[0-9]{2}", fullmatch=True), min_size=1, max_size=5, unique=True)
SAID = st.text(min_size=1, max_size=40)
TURNS = st.sampled_from([FIND, READ, DONE, call("shell"), "Gladly!", "", '{"tool": "reader"}'])
ANSWERS = st.sampled_from(["plain", "quoted", "named", "abstained", "broken", "twice"])
EVIDENCE = st.sampled_from(["none", "any", "file", "receipt"])


@st.composite
def conferences(draw: Any) -> tuple[Held, dict[str, str]]:
    """Return a conference, and a mark that only the reply of each agent contains."""
    names = draw(NAMES)
    people = [agent(name, evidence=draw(EVIDENCE), role=draw(SAID)) for name in names]
    tools = draw(st.sampled_from([None, [], ["finder"], ["finder", "reader"]]))
    required = draw(st.booleans()) and tools != []
    held = Held(
        stock(*people),
        message=f"Why? {draw(SAID)}",
        allowed_tools=tools,
        require_tool=required,
        max_tool_calls=draw(st.integers(1, 4)),
        evidence_characters=draw(st.sampled_from([1_000, 16_000])),
    )
    held.replies |= {f"chief{number}": draw(TURNS) for number in ("", "#2", "#3", "#4", "#5")}
    marks = {name: f"<{name}:{index}>" for index, name in enumerate(names)}
    for name, mark in marks.items():
        held.replies[f"opinion.{name}"] = broke_or(draw(ANSWERS), mark)
    broken = errors.StepError("no disk", code="tool_failed")
    held.table.payloads["reader"] = draw(
        st.sampled_from([broken, {"text": draw(SAID) * draw(st.sampled_from([1, 500]))}])
    )
    return held, marks


@settings(max_examples=examples(50), deadline=None)
@given(conferences())
def test_participants_get_equal_prompts_without_replies(made: tuple[Held, dict[str, str]]) -> None:
    """Prompts of phase 2 are equal byte for byte except for the role, and contain no participant's reply."""
    held, marks = made
    state = asyncio.run(held.run())
    asked = held.opinions()

    assert state in (RunState.DONE, RunState.FAILED)
    assert (held.manifest["error"] or {}).get("code") in (None, "tool_required", "no_opinion")
    assert len({json.dumps(operation.prompt) for operation in asked.values()}) <= 1
    if (held.manifest["error"] or {}).get("code") != "tool_required":
        assert set(asked) == set(marks)
    for operation in asked.values():
        assert not operation.tools
        told = "".join(operation.prompt) + (operation.system or "")
        assert not any(mark in told for mark in marks.values())
    rest = [key for key in held.disk.recorded() if key.startswith(("chief", "tool"))]
    assert len([key for key in rest if key.startswith("tool")]) <= held.recipe.document["max_tool_calls"]
    assert len([key for key in rest if key.startswith("chief")]) <= held.recipe.document["max_tool_calls"] + 1
    if held.recipe.document["require_tool"] and asked:
        assert any(status == "done" for key, status in held.statuses().items() if key.startswith("tool"))
    executed = {operation.tool for key, operation in held.table.operations.items() if key.startswith("tool")}
    assert executed <= set(held.disk.start.frozen["tools"])


@settings(max_examples=examples(30), deadline=None)
@given(conferences(), st.data())
def test_every_prefix_ends_the_same(made: tuple[Held, dict[str, str]], data: st.DataObject) -> None:
    """A conference whose journal is cut after any line continues to the same ending, slots and steps."""
    held, _ = made
    state, lines = asyncio.run(held.run()), list(held.disk.steps)
    manifest, slots, steps = held.manifest, held.slots, held.statuses()
    length = data.draw(st.integers(0, len(lines)))
    held.disk.steps[length:] = []
    held.disk.control[:] = [line for line in held.disk.control if json.loads(line)["kind"] == "taken"][:1]
    held.table.asked.clear()

    assert asyncio.run(held.run()) is state
    assert {key for key, _ in held.table.asked}.isdisjoint(json.loads(line)["key"] for line in lines[:length])
    assert held.statuses() == steps
    assert held.slots.items() == slots.items()
    assert (held.manifest["error"], held.manifest["ending"]) == (manifest["error"], manifest["ending"])


def test_half_a_character_is_not_replaced_in_a_call() -> None:
    """A call with half of a surrogate pair is unusable; a run of the first version still reads a replacement."""
    said = '{"tool": "file_locator", "args": {"search_criteria": "\\ud800"}}'

    assert protocol.read(said) == protocol.Unusable(problem="holds half of a surrogate pair")
    assert protocol.read(said, exact=False) == protocol.Call(tool="file_locator", args={"search_criteria": "?"})


@given(st.text(max_size=300))
def test_any_reply_of_the_chief_is_read(reply: str) -> None:
    """Any text of the chief can be read without an error."""
    assert isinstance(protocol.read(reply), protocol.Call | protocol.Done | protocol.Unusable)


@given(st.lists(st.integers(0, 10_000), max_size=20), st.integers(-10, 20_000))
def test_room_is_divided(lengths: list[int], room: int) -> None:
    """A text gets at most the room that it needs and at least that of a shorter one; all together fit the total."""
    given_room = prompts.shares(lengths, room)

    assert all(0 <= share <= length for share, length in zip(given_room, lengths, strict=True))
    assert sum(given_room) <= max(room, 0)
    assert sum(lengths) > room or given_room == lengths
    cut = [share for share, length in zip(given_room, lengths, strict=True) if share < length]
    assert not cut or max(cut) - min(cut) <= 1


def test_named_receipts() -> None:
    """The constants of the tests contain one line of evidence each."""
    assert QUOTED.count("Evidence:") == NAMED.count("Evidence:") == 1
