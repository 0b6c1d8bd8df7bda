"""Tests of outcomes: how prompts ask for them, and how they are read from replies."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialects.agent_recipes import outcomes

SET = ["no-issues", "issues-found", "other"]


def _report(outcome: str, **fields: object) -> str:
    return json.dumps({"outcome": outcome, **fields})


def test_a_prompt_is_the_instruction_and_the_block():
    """Outcomes are in alphabetical order with `other` last, in the words of the protocol."""
    assert outcomes.prompt("Do it.\n", ["other", "outcome-b", "outcome-a"]) == (
        "Do it.\n"
        "\n"
        "\n"
        "End your response with one of these JSON blocks on the last line:\n"
        "\n"
        '{"outcome": "outcome-a"}\n'
        '{"outcome": "outcome-b"}\n'
        '{"outcome": "other", "otherDescription": "<brief description>"}'
    )


def test_a_step_without_other_lists_none():
    """The block names only the outcomes that the step allows."""
    assert outcomes.prompt("Do it.", ["b", "a"]).endswith('on the last line:\n\n{"outcome": "a"}\n{"outcome": "b"}')


@pytest.mark.parametrize(
    ("reply", "opener"),
    [
        ("Done.", "did not include the required JSON outcome block."),
        ('{"outcome": no-issues}', "ended with an outcome block that is not valid JSON."),
        ('{"outcome": "other", "otherDescription": "\\ud800"}', "ended with an outcome block that is not valid JSON."),
        ('{"result": "no-issues"}', 'ended with a JSON block without a valid "outcome" field.'),
        ('{"outcome": null}', 'ended with a JSON block without a valid "outcome" field.'),
        ('{"outcome": "fine"}', "reported an outcome that this step does not have."),
        ('{"outcome": "other"}', 'reported the outcome "other" without saying in "otherDescription" why.'),
    ],
)
def test_the_reminder_begins_with_the_fault_of_the_reply(reply, opener):
    """The reminder begins with the fault of the reply; runs of the first wording keep their single opening."""
    missed = outcomes.extract(reply, SET)
    assert isinstance(missed, outcomes.NoOutcome)
    told = outcomes.reminder(missed, SET)
    earlier = outcomes.reminder(missed, SET, 1)

    assert told.partition("\n")[0] == f"Your previous response {opener}"
    assert earlier.partition("\n")[0] == "Your previous response did not include the required JSON outcome block."
    assert f"Error: {missed.error}" in told


def test_the_reminder():
    """The reminder contains the error and the valid responses, in the words of the protocol."""
    missed = outcomes.NoOutcome(error=outcomes.NO_JSON)
    assert outcomes.reminder(missed, ["other", "outcome-b", "outcome-a"]) == (
        "Your previous response did not include the required JSON outcome block.\n"
        "Please respond now with ONLY the JSON outcome on a single line.\n"
        "\n"
        "Error: No JSON block found in response\n"
        "\n"
        "Valid responses:\n"
        "\n"
        '{"outcome": "outcome-a"}\n'
        '{"outcome": "outcome-b"}\n'
        '{"outcome": "other", "otherDescription": "<brief description>"}\n'
        "\n"
        "Respond with ONLY the JSON block, nothing else."
    )


@pytest.mark.parametrize(
    "reply",
    [
        '{"outcome": "no-issues"}',
        'All is well.\n\n{"outcome": "no-issues"}',
        'All is well.\n{"outcome":"no-issues"}\n\n\n\n\n\n\n\n',
        'All is well.\r\n  \t{ "outcome" : "no-issues" }  \r\n',
        '```json\n{"outcome": "no-issues"}\n```',
        '```\n{"outcome": "no-issues"}\n```\n',
        '{"outcome": "no-issues"}\nThat\nis\nmy\nopinion.',
        '{"outcome": "issues-found"}\n{"outcome": "no-issues"}',
        '{not json}\n{"outcome": "no-issues"}',
        '{"outcome": "no-issues", "otherDescription": 7, "details": {"files": [{"name": "a"}]}}',
        '{"outcome": "no-\\u0069ssues"}',
    ],
)
def test_an_outcome_that_is_read(reply):
    """The newest line in braces among the last five decides; fences and blank lines around it are ignored."""
    assert outcomes.extract(reply, SET).to_json() == {"success": True, "outcome": "no-issues", "description": None}


@pytest.mark.parametrize("reply", ["", " \n ", "All is well.", "no-issues", '"outcome": "no-issues"', "[1]", "{", "}"])
def test_a_reply_without_an_object(reply):
    """A reply without a line in braces has no malformed JSON."""
    assert outcomes.extract(reply, SET).to_json() == {
        "success": False,
        "error": "No JSON block found in response",
        "malformedJson": None,
    }


def test_a_sixth_line_from_the_end_is_not_looked_at():
    """Five lines of prose behind an outcome hide it."""
    reply = _report("no-issues") + "\none\ntwo\nthree\nfour"

    assert outcomes.extract(reply, SET) == outcomes.Reported(outcome="no-issues")
    assert outcomes.extract(f"{reply}\nfive", SET) == outcomes.NoOutcome(error=outcomes.NO_JSON)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{bad}", "Invalid JSON: Expecting property name enclosed in double quotes"),
        ('{"outcome": "no-issues",}', "Invalid JSON: "),
        ("{}", 'Missing "outcome" field in JSON block'),
        ('{"Outcome": "no-issues"}', 'Missing "outcome" field in JSON block'),
        ('{"outcome": null}', 'The "outcome" field must be a string'),
        ('{"outcome": ["no-issues"]}', 'The "outcome" field must be a string'),
        ('{"outcome": "done"}', 'Invalid outcome "done". Expected one of: issues-found, no-issues, other'),
        ('{"outcome": "No-issues"}', 'Invalid outcome "No-issues".'),
        ('{"outcome": "other"}', 'The outcome "other" requires an "otherDescription" field'),
        ('{"outcome": "other", "otherDescription": ""}', 'The outcome "other" requires'),
        ('{"outcome": "other", "otherDescription": " "}', 'The outcome "other" requires'),
        ('{"outcome": "other", "otherDescription": 3}', 'The outcome "other" requires'),
        ('{"outcome": "no-issues", "outcome": "issues-found"}', "Invalid JSON: $.outcome occurs more than once"),
        ('{"outcome": "no-issues", "n": NaN}', "Invalid JSON: $.n NaN is not a number"),
        ('{"outcome": "no-issues"} {"outcome": "no-issues"}', "Invalid JSON: Extra data"),
    ],
)
def test_a_line_that_does_not_count(line, told):
    """The error contains the faulty line and its flaw; an older line in braces is not used instead."""
    found = outcomes.extract(f"{_report('no-issues')}\n{line}", SET)

    assert isinstance(found, outcomes.NoOutcome)
    assert found.error.startswith(told)
    assert found.malformed_json == line


def test_other_brings_its_description():
    """Only `other` has a description; it is ignored for other outcomes."""
    reply = _report("other", otherDescription="the disk is full")

    assert outcomes.extract(reply, SET) == outcomes.Reported(outcome="other", description="the disk is full")
    assert outcomes.extract(_report("no-issues", otherDescription="x"), SET) == outcomes.Reported(outcome="no-issues")


def test_a_step_without_other_does_not_take_it():
    """The outcome `other` is accepted only if the step allows it."""
    found = outcomes.extract(_report("other", otherDescription="x"), ["done"])

    assert isinstance(found, outcomes.NoOutcome)


def test_fences_in_the_line_itself_are_taken_away():
    """Fences that break the object are removed, but not those in a text of the object."""
    said = "the block ```json is broken```"
    broken = '{```json "outcome": "no-issues" ```}'

    assert outcomes.extract(broken, SET) == outcomes.Reported(outcome="no-issues")
    assert outcomes.extract(_report("other", otherDescription=said), SET) == outcomes.Reported(
        outcome="other", description=said
    )


@pytest.mark.parametrize("line", ["{" + "[" * 100_000 + "}", '{"a":' * 50_000 + "1" + "}" * 50_000])
def test_nested_braces_without_end_are_malformed(line):
    """Braces nested too deeply for a reader are refused like any malformed line, with a short error."""
    found = outcomes.extract(line, SET)

    assert isinstance(found, outcomes.NoOutcome)
    assert len(found.error) <= 300
    assert len(found.malformed_json or "") == 2_000


def test_a_huge_reply_is_read_at_once():
    """Only the end of a reply is read, however long it is."""
    began = time.process_time()
    found = outcomes.extract("{" + "x" * 16_000_000 + "\n" + _report("no-issues"), SET)
    lines = outcomes.extract("{}\n" * 2_000_000 + _report("no-issues"), SET)

    assert found == lines == outcomes.Reported(outcome="no-issues")
    assert time.process_time() - began < 10


_TEXT = st.text()
_LINE = st.text().map(lambda text: text.replace("\n", " ").replace("\r", " "))
_BRACELESS = _LINE.filter(lambda text: not (text.strip().startswith("{") and text.strip().endswith("}")))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(min_value=-(2**60), max_value=2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(_TEXT)
def test_any_reply_is_read_or_not(reply):
    """Any text is read without an exception, and the result is plain JSON."""
    told = outcomes.extract(reply, SET).to_json()

    assert told["success"] is (told.get("outcome") in SET)
    json.dumps(told)


@given(_TEXT, st.sampled_from(SET), _TEXT.filter(lambda text: text.strip() and "\0" not in text), st.booleans())
def test_any_text_before_the_last_line_keeps_the_outcome(prose, outcome, description, escaped):
    """Prose, other objects, code and any line separators before the last line do not change the outcome."""
    said = plainly(description)
    line = json.dumps({"outcome": outcome, "otherDescription": said}, ensure_ascii=escaped)
    found = outcomes.extract(f"{prose}\n{line}\n", SET)

    assert found == outcomes.Reported(outcome=outcome, description=said if outcome == "other" else None)


@given(st.lists(_BRACELESS, max_size=12), st.integers(min_value=0, max_value=8), st.sampled_from(SET[:2]))
def test_trailing_prose_hides_an_outcome_only_beyond_five_lines(before, behind, outcome):
    """An object with up to four lines behind it is found, and one with more is not."""
    prose = "\n".join([*before, _report(outcome), *["and so on"] * behind])
    found = outcomes.extract(prose, SET)

    assert isinstance(found, outcomes.Reported) is (behind < outcomes.TAIL_LINES)


@given(st.lists(st.sampled_from(SET[:2]), min_size=1, max_size=8))
def test_of_several_objects_the_newest_counts(said):
    """The last of several lines that report an outcome decides."""
    reply = "\n".join(_report(outcome) for outcome in said)

    assert outcomes.extract(reply, SET) == outcomes.Reported(outcome=said[-1])


@given(_TEXT, st.sampled_from(SET[:2]), st.sampled_from(["```", "```json", "~~~"]), st.integers(0, 2))
def test_an_outcome_in_a_fenced_block_is_read(prose, outcome, fence, blank):
    """An outcome inside a fenced block is found."""
    close = fence[:3]
    reply = f"{prose}\n{fence}\n{_report(outcome)}\n{close}" + "\n" * blank

    assert outcomes.extract(reply, SET) == outcomes.Reported(outcome=outcome)


@given(st.dictionaries(st.text().filter(lambda name: name != "outcome"), _VALUES, max_size=4), st.sampled_from(SET[:2]))
def test_an_object_may_hold_more(fields, outcome):
    """Nested objects, lists and texts with braces beside the outcome are ignored."""
    extra = {plainly(name): plainly(value) for name, value in fields.items()}
    line = json.dumps({**extra, "outcome": outcome})

    assert outcomes.extract(f"Done.\n{line}", SET) == outcomes.Reported(outcome=outcome)


@given(st.text(alphabet='{}[]":,outcme -\n`jsn', max_size=60))
def test_scraps_of_objects_never_count_as_an_outcome_that_they_are_not(scraps):
    """An outcome read from scraps of objects is a known one and is in the reply."""
    found = outcomes.extract(scraps, SET)

    assert isinstance(found, outcomes.NoOutcome) or found.outcome in scraps


def plainly(value):
    """Return a value without lone surrogates and the character U+0000, which no journal can contain."""
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [plainly(item) for item in value]
    if isinstance(value, dict):
        return {plainly(name): plainly(item) for name, item in value.items()}
    return value
