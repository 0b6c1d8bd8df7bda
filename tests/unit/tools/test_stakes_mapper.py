"""The tool `stakes_mapper`."""

from __future__ import annotations

import pytest

from app.tools.story.stakes_mapper import StakesMapper
from tests.unit.tools import stories

TOOL = StakesMapper()

CALM = "Rain fell on the roof. The cat slept. Tea was ready."
TENSE = "Kael had to go. If he failed, men would die. Then Orrin was killed and the house was lost."


def chart(tmp_path, *texts: str) -> dict:
    """Map the stakes of scenes in their order."""
    files = {
        f"{number}.md": f"---\nscene: {number}\ntitle: T{number}\n---\n{text}" for number, text in enumerate(texts, 1)
    }
    return stories.payload(TOOL, stories.write(tmp_path, files), scene_paths=["."])


def test_goals_risks_and_consequences_are_quoted_with_their_lines(tmp_path):
    """Each marker quotes its sentence with line and weight: 3 for life, 2 for dear things, 1 for the rest."""
    scene = chart(tmp_path, "Kael had to go.\n\nIf he failed, men would die.\n\nThe house was lost.")["scenes"][0]

    assert scene["goals"] == [{"line": 5, "quote": "Kael had to go.", "weight": 1}]
    assert scene["risks"] == [{"line": 7, "quote": "If he failed, men would die.", "weight": 3}]
    assert scene["consequences"] == [{"line": 9, "quote": "The house was lost.", "weight": 2}]
    assert scene["marker_counts"] == {"goals": 1, "risks": 1, "consequences": 1}
    assert (scene["title"], scene["number"]) == ("T1", 1)


@pytest.mark.parametrize(
    ("texts", "trend"),
    [
        ([CALM, TENSE], "rising"),
        ([TENSE, CALM], "falling"),
        ([CALM, CALM, CALM], "flat"),
        ([TENSE], "flat"),
        ([TENSE, CALM, CALM, TENSE], "uneven"),
        ([CALM, TENSE, TENSE], "rising"),
    ],
)
def test_the_trend_compares_the_second_half_with_the_first(tmp_path, texts, trend):
    """The trend compares the halves: rising, falling or flat, and uneven if only the halves are equal."""
    assert chart(tmp_path, *texts)["escalation"]["trend"] == trend


def test_a_drop_names_its_scene(tmp_path):
    """A drop names its scene in the list and in a finding."""
    payload = chart(tmp_path, TENSE, CALM)

    assert payload["escalation"]["drops"] == ["2 T2"]
    assert payload["escalation"]["levels"] == [scene["level"] for scene in payload["scenes"]]
    assert [finding["path"] for finding in stories.findings_of_kind(payload["findings"], "falling_stakes")] == ["2.md"]


def test_each_missing_part_of_a_scene_is_a_finding(tmp_path):
    """A scene without goal, risk or consequence has a finding for each."""
    found = chart(tmp_path, CALM, TENSE)["findings"]

    assert {(finding["kind"], finding["path"]) for finding in found} == {
        ("no_goal", "1.md"),
        ("no_risk", "1.md"),
        ("no_consequence", "1.md"),
    }


def test_a_long_scene_is_not_higher_for_being_long(tmp_path):
    """A scene is not at a higher level because of its length."""
    filler = "The sea went on and on and on without an end. " * 12
    short, long = chart(tmp_path / "a", filler + TENSE), chart(tmp_path / "b", (filler + TENSE + " ") * 3)

    assert abs(short["scenes"][0]["level"] - long["scenes"][0]["level"]) < 0.2


@pytest.mark.parametrize("texts", [[""], ["", ""], ["# Heading only"]])
def test_empty_scenes_have_no_stakes(tmp_path, texts):
    """Empty scenes have level zero and a flat trend."""
    payload = chart(tmp_path, *texts)

    assert {scene["level"] for scene in payload["scenes"]} == {0.0}
    assert payload["escalation"]["trend"] == "flat"


def test_many_scenes_give_a_bounded_answer(tmp_path):
    """The scenes of a long story are cut, and the totals and levels are complete."""
    payload = chart(tmp_path, *[TENSE] * 150)

    assert payload["truncated"]
    assert payload["totals"]["scenes"] == 150
    assert len(payload["escalation"]["levels"]) == 150
    assert len(payload["report"]) <= 2_000
