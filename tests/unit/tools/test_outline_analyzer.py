"""Outlines and the tool `outline_analyzer`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import errors
from app.tools.story import documents, outline_matching, outlines
from app.tools.story.outline_analyzer import OutlineAnalyzer
from tests.examples import examples
from tests.unit.tools import stories

TOOL = OutlineAnalyzer()

OUTLINE = """---
title: The Dark Lantern
---
# Outline

## Scene 20: The Ferry
- POV: Mira
- Place: the ferry
- Date: 5 March 1894
- Characters: Mira, Kael
- Goal: reach the shore
- Length: 100-200 words
- Plants: the cracked bell, the letter
- Beats:
  1. Mira boards.
  2. The bell strikes.

## Scene 21: The Tower
- POV: Kael
- Goal: enter the tower
- Length: 300
- Pays off: the letter
* Kael climbs the stairs.

## Scene 24: The Light
"""


def analyze(tmp_path, text: str = OUTLINE, **args) -> dict:
    """Analyze an outline."""
    return stories.payload(TOOL, stories.write(tmp_path, {"o.md": text}), outline_path="o.md", **args)


def planned(text: str) -> list[tuple[int | None, str, tuple[str, ...]]]:
    """Return number, title and beats of an outline's scenes."""
    outline = outlines.of_document(documents.parse(text, path="o.md"))
    return [(scene.number, scene.title, scene.beats) for scene in outline.scenes]


def test_a_scene_has_its_fields_and_beats(tmp_path):
    """The payload has every field of a scene, by name."""
    payload = analyze(tmp_path)

    assert payload["scenes"][0] == {
        "index": 0,
        "number": 20,
        "title": "The Ferry",
        "label": "Scene 20 “The Ferry”",
        "line": 6,
        "pov": "Mira",
        "place": "the ferry",
        "date": "5 March 1894",
        "goal": "reach the shore",
        "summary": None,
        "characters": ["Mira", "Kael"],
        "plants": ["the cracked bell", "the letter"],
        "payoffs": [],
        "min_words": 100,
        "max_words": 200,
        "beats": ["Mira boards.", "The bell strikes."],
    }
    assert [scene["title"] for scene in payload["scenes"]] == ["The Ferry", "The Tower", "The Light"]
    assert (payload["title"], payload["scene_count"], payload["outline_path"]) == ("The Dark Lantern", 3, "o.md")


def test_a_single_number_is_the_most_words(tmp_path):
    """A single number of words is the maximum: `Length: 300` is a limit, not a range."""
    scene = analyze(tmp_path)["scenes"][1]

    assert (scene["min_words"], scene["max_words"]) == (None, 300)


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("Draft scene 21", "The Tower"),
        ("21", "The Tower"),
        ("twenty-one", "The Tower"),
        ("chapter 20, please", "The Ferry"),
        ("write the light", "The Light"),
        ("SCN-the-tower.md", "The Tower"),
        ("Mira boards, the bell strikes", "The Ferry"),
    ],
)
def test_a_query_finds_its_scene(tmp_path, query, title):
    """A query finds a scene by its number, its title or the words of its beats."""
    assert analyze(tmp_path, query=query)["matched"]["title"] == title


def test_a_match_has_its_score_and_neighbours(tmp_path):
    """A match has its score, its beats and the titles of its neighbours."""
    matched = analyze(tmp_path, query="scene 21")["matched"]

    assert matched["score"] == 1.0
    assert (matched["previous_title"], matched["next_title"]) == ("The Ferry", "The Light")
    assert matched["beats"] == ["Kael climbs the stairs."]
    assert analyze(tmp_path, query="scene 20")["matched"]["previous_title"] is None
    assert analyze(tmp_path, query="scene 24")["matched"]["next_title"] is None


def test_a_whole_title_is_surer_than_its_scattered_words():
    """A scene whose beats match the query wins over one whose title only shares scattered words."""
    text = "## Scene 1: A Key for the Tower\n- Kael asks.\n## Scene 2: Arrival\n- The key opens the tower door.\n"
    outline = outlines.of_document(documents.parse(text))
    match = outline_matching.match(outline, "Kael opens the tower door with the key")

    assert match is not None
    assert match.scene.title == "Arrival"


def test_mode_beat_shows_one_scene_in_full(tmp_path):
    """Mode `beat` returns the beats of the matched scene only, and no findings."""
    payload = analyze(tmp_path, mode="beat", query="scene 21")

    assert [len(scene["beats"]) for scene in payload["scenes"]] == [0, 1, 0]
    assert payload["findings"] == []
    assert payload["report"].splitlines()[0] == "Scene 21 “The Tower”"
    assert "1. Kael climbs the stairs." in payload["report"]


def test_the_summary_names_the_matched_beat(tmp_path):
    """The summary names the matched beat."""
    workspace = stories.write(tmp_path, {"o.md": OUTLINE})

    assert (
        stories.run(TOOL, workspace, outline_path="o.md", query="scene 21").summary
        == "3 scenes, beat 2 matched: The Tower"
    )
    assert stories.run(TOOL, workspace, outline_path="o.md").summary == "3 scenes"


def test_gaps_of_the_outline_are_found(tmp_path):
    """The findings name missing beats, goals, points of view and numbers, and unpaid plants."""
    found = analyze(tmp_path)["findings"]

    assert {(finding["kind"], finding["line"]) for finding in found} == {
        ("no_beats", 25),
        ("no_pov", 25),
        ("no_goal", 25),
        ("number_gap", 25),
        ("unpaid_plant", 6),
    }
    assert "the cracked bell" in stories.findings_of_kind(found, "unpaid_plant")[0]["message"]


def test_doubled_numbers_and_dates_that_go_back_are_found(tmp_path):
    """Duplicate scene numbers and dates that go backwards are findings."""
    text = "## Scene 1: A\n- Date: 5 March\n- x\n## Scene 1: B\n- Date: 4 March\n- y\n"
    kinds = [finding["kind"] for finding in analyze(tmp_path, text)["findings"]]

    assert kinds.count("duplicate_number") == 2
    assert kinds.count("timeline") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# T\n## Scene 1 - A\n- b\n## Scene 2\n- c", [(1, "A", ("b",)), (2, "Scene 2", ("c",))]),
        ("## 1. A\n- b\n## 2: B", [(1, "A", ("b",)), (2, "B", ())]),
        ("# T\n## A\n- b\n## B\n### Note\n- c", [(None, "A", ("b",)), (None, "B", ())]),
        ("1. A\n   - b\n2. B", [(1, "A", ("b",)), (2, "B", ())]),
        ("# Scene 3: A\nPOV: Kael\n\n- b", [(3, "A", ("b",))]),
        ("## Scene 1: A\n- Beats: one; two;", [(1, "A", ("one", "two"))]),
        ("## Scene 1: A\n- Mood: dark\n- b", [(1, "A", ("b",))]),
        ("Only text.", []),
        ("", []),
        ("# T", []),
    ],
)
def test_outlines_come_in_several_forms(text, expected):
    """An outline has numbered headings, plain headings of one level, or a list; list marks of fields are optional."""
    assert planned(text) == expected


def test_windows_line_ends_make_no_difference():
    """CRLF line ends give the same scenes."""
    assert planned(OUTLINE.replace("\n", "\r\n")) == planned(OUTLINE)


def test_an_outline_without_scenes_is_an_answer(tmp_path):
    """An outline without scenes gives an empty answer, not a failure."""
    payload = analyze(tmp_path, "")

    assert (payload["scenes"], payload["matched"], payload["scene_count"]) == ([], None, 0)


def test_a_missing_outline_fails(tmp_path):
    """A missing outline fails with `file_not_found`."""
    with pytest.raises(errors.ToolFailed) as caught:
        stories.run(TOOL, stories.write(tmp_path, {}), outline_path="o.md")
    assert caught.value.code == "file_not_found"


def test_a_huge_outline_is_cut_with_its_true_totals(tmp_path):
    """The payload of a huge outline is cut and has the true totals, and a late match is complete."""
    text = "".join(
        f"## Scene {number}: Title {number}\n- Beat number {number} is told at some length.\n"
        for number in range(1, 900)
    )
    payload = analyze(tmp_path, text, query="scene 850")

    assert payload["truncated"]
    assert payload["scene_count"] == payload["totals"]["scenes"] == 899
    assert len(payload["scenes"]) < 200
    assert payload["matched"]["number"] == 850
    assert payload["matched"]["beats"] == ["Beat number 850 is told at some length."]


@settings(max_examples=examples(30), deadline=None)
@given(st.text(alphabet=st.sampled_from("#- 12.:Scene\nabPOV;"), max_size=200), st.text(max_size=30))
def test_any_text_is_an_outline(text, query):
    """Scenes are numbered from 0 in the order of their lines; a match is one of them."""
    outline = outlines.of_document(documents.parse(text, path="o.md"))
    match = outline_matching.match(outline, query)

    assert [scene.index for scene in outline.scenes] == list(range(len(outline.scenes)))
    assert [scene.line for scene in outline.scenes] == sorted(scene.line for scene in outline.scenes)
    assert match is None or match.scene in outline.scenes
