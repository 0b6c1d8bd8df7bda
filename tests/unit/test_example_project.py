"""The example project: the tools find exactly the mistakes that its README describes as planted."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from app.tools import registry
from app.tools.workspace import Workspace
from tests.unit.tools import stories

TOOLS = registry.bundled_tools(lambda text: pytest.fail("nothing is routed"))
WORKSPACE = Workspace(stories.EXAMPLE)
SCENES = {
    17: "Story/Scenes/SCN-the-last-ferry.md",
    18: "Story/Scenes/SCN-the-keepers-fall.md",
    19: "Story/Scenes/SCN-a-key-for-the-tower.md",
    20: "Story/Scenes/SCN-what-the-harbour-remembers.md",
    21: "Story/Scenes/SCN-the-arrival.md",
}
OUTLINE = "Story/SCN-outline.md"


def run(tool: str, **args: Any) -> dict[str, Any]:
    """Execute a tool on the example."""
    return TOOLS.execute(tool, args, WORKSPACE).payload


def against_canon(scene: int) -> set[tuple[str, str, int]]:
    """Return subject, attribute and line of a scene's conflicts with the canon."""
    payload = run("canon_checker", scene_path=SCENES[scene], canon_paths=["Compendium"])
    return {(found["subject"], found["attribute"], found["line"]) for found in payload["conflicts"]}


def test_each_scene_breaks_the_canon_where_it_was_planted_and_nowhere_else():
    """The canon checker finds planted mistakes 1 to 8 at their lines; scenes 17 and 18 are clean."""
    assert against_canon(17) == set()
    assert against_canon(18) == set()
    assert against_canon(19) == {("Tamsin", "name", 23)}
    assert against_canon(20) == {
        ("the Long Storm", "date", 15),
        ("the Lantern Tower", "location", 15),
        ("Tamsin Reed", "age", 21),
        ("Kael Arden", "hand", 23),
    }
    assert against_canon(21) == {
        ("Kael Arden", "eye_colour", 22),
        ("the brass key", "owner", 24),
        ("Orrin Hale", "status", 26),
    }


def test_the_canon_does_not_contradict_itself():
    """The cards agree with one another."""
    payload = run("canon_checker", canon_paths=["Compendium"])

    assert payload["conflicts"] == []
    assert len({fact["subject"] for fact in payload["facts"]}) == 9


@pytest.mark.parametrize("with_canon", [False, True])
def test_the_scenes_contradict_each_other_as_planted(with_canon):
    """Planted mistakes 1 to 6 and 9 are found without a canon; the canon adds the key's owner and the tower's place."""
    further = {"canon_paths": ["Compendium"]} if with_canon else {}
    payload = run("consistency_checker", scene_paths=["Story/Scenes"], **further)
    found = {(c["kind"], c["path"], c["line"]) for c in payload["conflicts"]}

    assert found == {
        ("eye_colour", SCENES[21], 22),
        ("hand", SCENES[20], 23),
        ("date", SCENES[20], 15),
        ("dead_speaks", SCENES[21], 26),
        ("name_spelling", SCENES[19], 23),
        ("age", SCENES[20], 21),
        ("timeline", SCENES[20], 7),
    } | ({("owner", SCENES[21], 24), ("location", SCENES[20], 15)} if with_canon else set())


def test_the_cracked_bell_is_the_only_foreshadowing_without_payoff():
    """Only planted mistake 10 lacks a payoff; the letter is planned, the key paid, promises and questions open."""
    payload = run("reader_experience_simulator", scene_paths=["Story/Scenes"], outline_path=OUTLINE)
    things = {loop["item"]: loop["status"] for loop in payload["open_loops"] if loop["kind"] == "foreshadowing"}
    kinds = [found["kind"] for found in payload["unpaid"]]

    assert things == {"the sealed letter": "planned", "the brass key": "paid", "the cracked bell": "open"}
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "open_foreshadowing": 1,
        "open_promise": 2,
        "open_question": 4,
    }
    bell = stories.findings_of_kind(payload["unpaid"], "open_foreshadowing")[0]
    assert (bell["path"], bell["line"]) == (SCENES[18], 21)
    assert not payload["pass"]


def test_the_outline_is_complete_but_for_the_bell():
    """The outline has eight scenes with beats and goals; scene 21 is the fifth."""
    payload = run("outline_analyzer", outline_path=OUTLINE, query="Draft scene 21")
    output = TOOLS.execute("outline_analyzer", {"outline_path": OUTLINE, "query": "Draft scene 21"}, WORKSPACE)

    assert [scene["number"] for scene in payload["scenes"]] == list(range(17, 25))
    assert payload["scenes"][2]["title"] == "A Key for the Tower"
    assert payload["matched"]["title"] == "The Arrival"
    assert output.summary == "8 scenes, beat 5 matched: The Arrival"
    assert [(found["kind"], found["line"]) for found in payload["findings"]] == [("unpaid_plant", 24)]


@pytest.mark.parametrize(("scene", "path"), list(SCENES.items()))
def test_a_scenes_path_means_its_scene_of_the_outline(scene, path):
    """The tool finds the beats of a scene by the path of its file."""
    matched = run("outline_analyzer", outline_path=OUTLINE, mode="beat", query=path)["matched"]

    assert (matched["number"], matched["score"]) == (scene, 1.0)


def test_drafting_scene_21_finds_scene_outline_and_cards():
    """The tools find the scene, its outline, and the cards of the people who appear in it."""
    payload = run("file_locator", search_criteria="Draft scene 21", scan_mode="FAST_SCAN", max_results=12)

    assert payload["matches"][0]["path"] == SCENES[21]
    assert payload["outline_path"] == OUTLINE
    assert {"Compendium/Characters/CHAR-kael.md", "Compendium/Characters/CHAR-tamsin.md"} <= set(payload["canon_paths"])
    assert set(payload["scene_paths"]) == set(SCENES.values())


def test_drafting_an_unwritten_scene_finds_the_cards_of_its_cast():
    """Scene 22 is only in the outline, which names its cast; the canon needs no scene."""
    payload = run("file_locator", search_criteria="Draft scene 22")
    canon = run(
        "canon_checker",
        scene_path="Story/Scenes/SCN-new.md",
        canon_paths=payload["canon_paths"],
        allow_missing_scene=True,
    )

    assert "Compendium/Places/PLACE-lantern-tower.md" in payload["canon_paths"]
    assert canon["pass"]
    assert canon["facts"]


@pytest.mark.parametrize(("scene", "missing"), [(17, 0), (18, 0), (19, 0), (20, 0), (21, 1)])
def test_only_the_second_lock_lacks_its_beat_in_the_draft(scene, missing):
    """Only planted mistake 11 lacks its beat in the draft."""
    payload = run("scene_draft_validator", scene_path=SCENES[scene], outline_path=OUTLINE)

    assert [found["kind"] for found in payload["findings"]] == ["missing_beat"] * missing
    assert payload["matched"]["number"] == scene


def test_the_prose_of_two_scenes_shows_its_planted_habits():
    """The tools find planted mistakes 12 and 13; the other scenes have hints at most."""
    warnings = {
        scene: {f["kind"] for f in run("prose_analyzer", scene_path=path)["findings"] if f["severity"] == "warning"}
        for scene, path in SCENES.items()
    }

    assert warnings == {17: set(), 18: set(), 19: {"adverbs"}, 20: {"passive", "repeated_opening"}, 21: set()}


def test_the_stakes_rise_and_one_scene_risks_nothing():
    """The tool finds planted mistake 14 only."""
    payload = run("stakes_mapper", scene_paths=["Story/Scenes"])

    assert payload["escalation"]["trend"] == "rising"
    assert [found["path"] for found in stories.findings_of_kind(payload["findings"], "no_risk")] == [SCENES[18]]
    assert stories.findings_of_kind(payload["findings"], "no_goal") == []


def test_the_readme_names_lines_that_exist():
    """Each place in the table of planted mistakes is a line with text."""
    readme = (stories.EXAMPLE / "README.md").read_text()
    places = re.findall(r"^\| \d+ \| scene (\d+), line (\d+)", readme, re.MULTILINE)

    assert len(places) == 11
    for scene, line in places:
        lines = (stories.EXAMPLE / SCENES[int(scene)]).read_text().split("\n")
        assert lines[int(line) - 1].strip()


def test_the_texts_are_short_enough_for_a_small_model():
    """Every scene, card and report fits into the prompt of a small model."""
    for path in [
        *SCENES.values(),
        *(str(p.relative_to(stories.EXAMPLE)) for p in stories.EXAMPLE.rglob("Compendium/*/*.md")),
    ]:
        assert len(WORKSPACE.read_text(path)) < 1_600
    for tool, args in (
        ("canon_checker", {"scene_path": SCENES[21], "canon_paths": ["Compendium"]}),
        ("outline_analyzer", {"outline_path": OUTLINE, "query": "scene 21"}),
        ("reader_experience_simulator", {"scene_paths": ["Story/Scenes"], "outline_path": OUTLINE}),
    ):
        payload = run(tool, **args)
        assert len(payload["report"]) <= 2_000
        assert len(json.dumps(payload)) < 16_000
        assert not payload["truncated"]
