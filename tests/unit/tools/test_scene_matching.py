"""Finding the right scene by numbers and titles of files, outlines and tasks, and failing where that is not certain."""

from __future__ import annotations

import time

import pytest

from app import errors
from app.tools.story import scene_numbers
from app.tools.story.outline_analyzer import OutlineAnalyzer
from tests.unit.tools import stories

TOOL = OutlineAnalyzer()

SCALES = """# Outline
## Scene 2: The Scales
- Anna weighs the salt.
## Scene 3: The Storm
- Rain.
## Scene 11: The New Scales
- Anna buys new ones.
## Scene 12a: Low Water
- The ford.
## Scene 12b: High Water
- The flood.
## Scene 21: Room 101
- The door.
"""

CHAPTERS = """# Outline
## Chapter 2: Salt
### Scene 1: The Ferry
- a
### Scene 2: The Fog
- b
## Chapter 3: Iron
### Scene 1: The Forge
- c
### Scene 2: The Fog
- d
"""

ACTS = "# Act I\n## Scene i\n- a\n## Scene ii\n- b\n# Act II\n## Scene i\n- c\n## Scene ii: The Duel\n- d\n"

UNNUMBERED = "# Plan\n## The Ferry\n- a\n## The Fog\n- b\n## The Forge\n- c\n"


def meant(tmp_path, outline: str, query: str, **args) -> str:
    """Return the label of the scene that the tool finds."""
    workspace = stories.write(tmp_path, {"o.md": outline})
    return stories.payload(TOOL, workspace, outline_path="o.md", mode="beat", query=query, **args)["matched"]["label"]


def refused(tmp_path, outline: str, query: str, **args) -> tuple[str, list[str]]:
    """Return the code and the candidates of the failure."""
    with pytest.raises(errors.ToolFailed) as caught:
        meant(tmp_path, outline, query, **args)
    return caught.value.code, [candidate["label"] for candidate in caught.value.detail["candidates"]]


@pytest.mark.parametrize(
    ("outline", "query", "label"),
    [
        (SCALES, "SCN-11-the-new-scales.md", "Scene 11 “The New Scales”"),
        (SCALES, "Story/Scenes/SCN-02-the-scales.md", "Scene 2 “The Scales”"),
        (SCALES, "the-new-scales.md", "Scene 11 “The New Scales”"),
        (SCALES, "TheNewScales.md", "Scene 11 “The New Scales”"),
        (SCALES, "SCN-3.md", "Scene 3 “The Storm”"),
        (SCALES, "003.md", "Scene 3 “The Storm”"),
        (SCALES, "3-storm.md", "Scene 3 “The Storm”"),
        (SCALES, "scene_iii.md", "Scene 3 “The Storm”"),
        (SCALES, "Scene Three.md", "Scene 3 “The Storm”"),
        (SCALES, "SCN-03-working-title-v2.md", "Scene 3 “The Storm”"),
        (SCALES, "12b-water.md", "Scene 12b “High Water”"),
        (SCALES, "room-101.md", "Scene 21 “Room 101”"),
        (SCALES, "2024-11-03-the-storm.md", "Scene 3 “The Storm”"),
        (SCALES, "Draft scene 11", "Scene 11 “The New Scales”"),
        (SCALES, "Write scene eleven, in which Anna sells the scales", "Scene 11 “The New Scales”"),
        (SCALES, "Draft scene 3 so that it follows scene 2", "Scene 3 “The Storm”"),
        (SCALES, "draft the scene “The Scales”", "Scene 2 “The Scales”"),
        (CHAPTERS, "ch03_sc2.md", "Chapter 3, Scene 2 “The Fog”"),
        (CHAPTERS, "c2s2.md", "Chapter 2, Scene 2 “The Fog”"),
        (CHAPTERS, "3.1.md", "Chapter 3, Scene 1 “The Forge”"),
        (CHAPTERS, "03-02-fog.md", "Chapter 3, Scene 2 “The Fog”"),
        (CHAPTERS, "Chapter 3/02-the-fog.md", "Chapter 3, Scene 2 “The Fog”"),
        (CHAPTERS, "Manuscript/Chapter Two/Scene One.md", "Chapter 2, Scene 1 “The Ferry”"),
        (CHAPTERS, "write scene 2 of chapter 3", "Chapter 3, Scene 2 “The Fog”"),
        (CHAPTERS, "write chapter 2, scene 1", "Chapter 2, Scene 1 “The Ferry”"),
        (ACTS, "act2-scene1.md", "Act 2, Scene 1"),
        (ACTS, "Draft act II, scene ii", "Act 2, Scene 2 “The Duel”"),
        (UNNUMBERED, "SCN-the-fog.md", "“The Fog”"),
        (UNNUMBERED, "01-the-fog.md", "“The Fog”"),
        (UNNUMBERED, "Draft scene 3", "“The Forge”"),
    ],
)
def test_the_scene_is_found_by_number_and_longest_title(tmp_path, outline, query, label):
    """A scene is found by its number in any form, its chapter or act, and its longest title."""
    assert meant(tmp_path, outline, query) == label


@pytest.mark.parametrize(
    ("outline", "query", "code", "candidates"),
    [
        (SCALES, "SCN-11-the-scales.md", "scene_ambiguous", ["Scene 11 “The New Scales”", "Scene 2 “The Scales”"]),
        (SCALES, "Draft scenes 2 and 3", "scene_ambiguous", ["Scene 2 “The Scales”", "Scene 3 “The Storm”"]),
        (SCALES, "water.md", "scene_not_found", ["Scene 12a “Low Water”", "Scene 12b “High Water”"]),
        (SCALES, "SCN-31-the-storm.md", "scene_not_found", ["Scene 3 “The Storm”"]),
        (SCALES, "SCN-the-old-scales-of-justice.md", "scene_not_found", None),
        (CHAPTERS, "SCN-2.md", "scene_ambiguous", ["Chapter 2, Scene 2 “The Fog”", "Chapter 3, Scene 2 “The Fog”"]),
        (CHAPTERS, "SCN-the-fog.md", "scene_ambiguous", None),
        (CHAPTERS, "draft chapter 3", "scene_ambiguous", None),
        (CHAPTERS, "ch04_sc1.md", "scene_not_found", None),
        (SCALES, "something else", "scene_not_found", []),
        ("Only prose.", "scene 1", "scene_not_found", []),
    ],
)
def test_a_tie_or_a_weak_match_fails_and_names_the_candidates(tmp_path, outline, query, code, candidates):
    """A tie or a weak match fails and names the candidates."""
    found, named = refused(tmp_path, outline, query)

    assert found == code
    assert candidates is None or named == candidates


def test_the_description_is_the_second_query(tmp_path):
    """The second query settles a tie or a weak match, and conflicts with a file of another number."""
    label = "Scene 11 “The New Scales”"

    assert meant(tmp_path, SCALES, "SCN-11-the-scales.md", second_query="Draft scene 11") == label
    assert meant(tmp_path, SCALES, "new.md", second_query="Draft scene 11") == label
    assert meant(tmp_path, SCALES, "SCN-11.md", second_query="It begins where scene 3 ends") == label
    assert refused(tmp_path, SCALES, "SCN-11-the-scales.md", second_query="Draft scene 3")[0] == "scene_ambiguous"
    assert refused(tmp_path, SCALES, "SCN-11.md", second_query="Draft scene 3")[0] == "scene_ambiguous"


def test_content_decides_before_the_files_name(tmp_path):
    """Front matter decides before headings, and headings before the file's name."""
    stories.write(tmp_path, {"a/21.md": "---\nscene: 11\n---\nx", "a/x.md": "# Chapter 3\n\n## Scene 1\n\nx"})

    assert meant(tmp_path, SCALES, "a/21.md") == "Scene 11 “The New Scales”"
    assert meant(tmp_path, CHAPTERS, "a/x.md") == "Chapter 3, Scene 1 “The Forge”"


def test_a_number_that_each_chapter_counts_anew_is_none_of_an_outline_without_chapters(tmp_path):
    """`ch03_sc2` is scene 2 of an outline without chapters only if no other chapter of the files has a scene 2."""
    stories.write(tmp_path, {"s/ch01_sc2.md": "x", "t/ch01_sc11.md": "x", "t/ch01_sc2.png": "x"})

    assert refused(tmp_path, SCALES, "s/ch03_sc2.md")[0] == "scene_not_found"
    assert meant(tmp_path, SCALES, "t/ch03_sc2.md") == "Scene 2 “The Scales”"


@pytest.mark.parametrize("name", ["scene-", "1-", "ch1", "i", "A1", "(1)", " v2", "of the ", "scene 1, ", "1 and "])
def test_names_and_tasks_are_read_in_linear_time(name):
    """Names and tasks with repetitions are read in linear time."""
    started = time.process_time()
    scene_numbers.of_path(name * (1_000 // len(name)))
    scene_numbers.of_heading(name * 5_000)
    scene_numbers.in_text(name * 4_000)

    assert time.process_time() - started < 5
