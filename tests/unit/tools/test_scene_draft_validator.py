"""The tool `scene_draft_validator`."""

from __future__ import annotations

import pytest

from app import errors
from app.tools.story.scene_draft_validator import SceneDraftValidator
from tests.unit.tools import stories

TOOL = SceneDraftValidator()

OUTLINE = """# Outline
## Scene 1: The Ferry
- POV: Mira
- Length: 5-50 words
- Beats:
  - Mira boards the ferry.
  - The bell strikes.
## Scene 2: The Tower
- Kael climbs.
"""
DRAFT = "---\nscene: 1\npov: Mira\n---\n# The Ferry\n\nMira boarded the last ferry. Above her the old bell struck.\n"


def validate(tmp_path, draft: str = DRAFT, outline: str | None = OUTLINE, **args) -> dict:
    """Validate a draft's file."""
    workspace = stories.write(tmp_path, {"s.md": draft, **({"o.md": outline} if outline is not None else {})})
    further = {"outline_path": "o.md"} if outline is not None else {}
    return stories.payload(TOOL, workspace, scene_path="s.md", **further, **args)


def results(payload: dict) -> dict[str, bool]:
    """Return the result of each check by its name."""
    return {check["check"]: check["pass"] for check in payload["checks"]}


def test_a_draft_with_all_its_beats_passes(tmp_path):
    """A draft with all its beats passes, in other forms of the words and with other words between."""
    payload = validate(tmp_path)

    assert payload["pass"]
    assert results(payload) == {"not_empty": True, "in_outline": True, "beats": True, "length": True, "pov": True}
    assert [(beat["text"], beat["covered"], beat["line"]) for beat in payload["beats"]] == [
        ("Mira boards the ferry.", True, 7),
        ("The bell strikes.", True, 7),
    ]
    assert payload["matched"] == {"index": 0, "number": 1, "title": "The Ferry", "score": 1.0}
    assert payload["findings"] == []
    assert payload["words"] == 11


def test_a_missing_beat_fails_the_draft(tmp_path):
    """A missing beat fails the draft, and the finding names it."""
    payload = validate(tmp_path, "---\nscene: 1\n---\nMira boarded the ferry.")

    assert not payload["pass"]
    assert [finding["message"] for finding in stories.findings_of_kind(payload["findings"], "missing_beat")] == [
        "The beat “The bell strikes.” is not told."
    ]
    assert [beat["covered"] for beat in payload["beats"]] == [True, False]


@pytest.mark.parametrize(
    ("draft", "title"),
    [
        ("---\nscene: 2\n---\nx", "The Tower"),
        ("# Scene 2: whatever\n\nx", "The Tower"),
        ("# The Tower\n\nx", "The Tower"),
        ("---\ntitle: The Ferry\n---\nx", "The Ferry"),
    ],
)
def test_the_scene_of_the_outline_is_found_by_number_or_title(tmp_path, draft, title):
    """A draft's scene in the outline is found by its number first, then by its title."""
    assert validate(tmp_path, draft)["matched"]["title"] == title


def test_the_scene_can_be_named(tmp_path):
    """`beat` selects the scene of the outline, whatever scene the draft states."""
    assert validate(tmp_path, beat="scene 2")["matched"]["title"] == "The Tower"
    assert results(validate(tmp_path, beat="scene 7"))["in_outline"] is False


def test_a_draft_that_fits_no_scene_fails(tmp_path):
    """A draft without a scene in the outline fails and has no beats."""
    payload = validate(tmp_path, "# Something else\n\nRain fell.")

    assert (payload["pass"], payload["matched"], payload["beats"]) == (False, None, [])
    assert results(payload) == {"not_empty": True, "in_outline": False}


@pytest.mark.parametrize(
    ("args", "passed"),
    [
        ({"min_words": 11, "max_words": 11}, True),
        ({"min_words": 12}, False),
        ({"max_words": 10}, False),
        ({"min_words": 0}, True),
    ],
)
def test_length_is_checked_inclusively_and_the_task_wins(tmp_path, args, passed):
    """The limits of length are inclusive, and arguments override those of the outline."""
    assert results(validate(tmp_path, **args))["length"] is passed


def test_length_of_the_outline_is_checked(tmp_path):
    """A draft longer than the outline allows is a finding."""
    payload = validate(tmp_path, DRAFT + "Rain fell on and on. " * 20)

    assert "more than 50" in stories.findings_of_kind(payload["findings"], "length")[0]["message"]


@pytest.mark.parametrize(
    ("draft", "pov", "passed"),
    [
        ("Mira ran.", "Mira", True),
        ("Mira ran.", "Mira Voss", True),
        ("Kael ran.", "Mira", False),
        ("I ran. I fell. It rained on me.", "Mira", True),
        ('"Mira!" he cried.', "Mira", False),
        ("---\npov: Kael\n---\nMira ran.", "Mira", False),
        ("He spoke. “Mira ran.”", "Mira", False),
    ],
)
def test_the_point_of_view_must_appear(tmp_path, draft, pov, passed):
    """The point of view must appear by name in the narration or as `I`, and the front matter must agree."""
    assert results(validate(tmp_path, draft, outline=None, pov=pov))["pov"] is passed


def test_forbidden_words_are_found_as_whole_words(tmp_path):
    """Forbidden words and phrases match whole words without case, and signs in them are not patterns."""
    payload = validate(tmp_path, outline=None, forbidden_words=["FERRY", "old bell", "ferr", ".*", "("])

    assert [finding["message"].split("”")[0] for finding in payload["findings"]] == ["“FERRY", "“old bell"]
    assert payload["findings"][0]["quote"] == "Mira boarded the last ferry."


def test_required_headings_are_compared_without_case_and_marks(tmp_path):
    """Required headings are compared without case and marks."""
    payload = validate(tmp_path, outline=None, required_headings=["the ferry!", "Notes"])

    assert [finding["message"] for finding in payload["findings"]] == ["The heading “Notes” is missing."]


def test_a_text_can_be_validated_without_a_file(tmp_path):
    """A text can be validated without a file."""
    workspace = stories.write(tmp_path, {"o.md": OUTLINE})
    payload = stories.payload(TOOL, workspace, text=DRAFT, outline_path="o.md")

    assert payload["pass"]
    assert payload["scene_path"] is None


@pytest.mark.parametrize("draft", ["", "\n", "# Heading\n", "---\nscene: 1\n---\n", "..."])
def test_an_empty_draft_fails(tmp_path, draft):
    """An empty draft fails."""
    payload = validate(tmp_path, draft, outline=None)

    assert results(payload) == {"not_empty": False}
    assert not payload["pass"]


@pytest.mark.parametrize("args", [{}, {"scene_path": "s.md", "text": "x"}, {"text": ""}, {"text": "x", "max_words": 0}])
def test_either_a_file_or_a_text_must_be_given(tmp_path, args):
    """A call without file and text, with both, or with an empty text fails with `invalid_args`."""
    with pytest.raises(errors.ToolFailed) as caught:
        TOOL.execute(args, stories.write(tmp_path, {"s.md": DRAFT}))
    assert caught.value.code == "invalid_args"


def test_the_summary_and_the_report_name_failed_checks(tmp_path):
    """The summary is one line with the result, and the report lists each check."""
    workspace = stories.write(tmp_path, {"s.md": DRAFT, "o.md": OUTLINE})
    output = stories.run(TOOL, workspace, scene_path="s.md", outline_path="o.md", forbidden_words=["ferry"])

    assert output.summary == "not passed: 11 words, 2 of 2 beats covered"
    assert "- forbidden_words: FAIL" in output.payload["report"]
    assert "- beats: pass" in output.payload["report"]
