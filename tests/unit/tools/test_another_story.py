"""The tools read a story in another form than the example's: they know stories, not the example.

This story has no front matter. It has typographic quotation marks, Windows line ends, cards made of bold fields and an
outline with a plain list. Its mistakes are of the same kinds.
"""

from __future__ import annotations

import pytest

from app.tools import registry
from app.tools.workspace import Workspace
from tests.unit.tools import stories

TOOLS = registry.bundled_tools(lambda text: pytest.fail("nothing is routed"))

JUNO = """# Juno Castellane

**Pronouns:** she
**Eyes:** hazel
**Hair:** auburn
**Age:** twenty-nine
**Handedness:** right
**Home:** Ceres Dock

Pilot of the Heron. She signed on with her right hand and never looked back.
"""

BRAM = """# Bram Okafor

* Also known as: Bram, the engineer
* Pronouns: he/him
* Eyes: brown
* Status: alive
"""

LIU = """# Liu Wen

- Pronouns: she
- Died: 3 May 2291
"""

HERON = """# The Heron

Kind: item

- Owner: Juno Castellane
- Built: 2270
"""

SCENES = {
    "Chapters/chapter-1.md": """# Chapter 1: Undocking

Date: 1 May 2291

Juno's hazel eyes went over the gauges. “We must leave before noon,” she said to Bram.

Bram sealed the red crate under the floor. Juno wrote the log with her right hand, as always.

“What is in it?” asked Juno.

Bram did not answer.
""",
    "Chapters/chapter-2.md": """# Chapter 2: The Long Burn

They were all tired. Juno, 29, slept in her seat while Liu watched the dials.

“Wake her,” said Liu. If the drive failed, they would die out here.

Later Liu was dead, and nobody had seen it happen. Bram was afraid of what Juno would say.
""",
    "Chapters/chapter-3.md": """# Chapter 3: Arrival

“You came back,” said Liu.

Juno had green eyes, the doctor noted. Juno was thirty-one, and healthy. Bram's Heron lay at the dock. Brahm waved.

Juno signed the form with her left hand and lost the pen.
""",
}

OUTLINE = """# Plan

## Undocking
- Bram seals the red crate under the floor.
- Juno writes the log.

## The Long Burn
- Liu dies.

## Arrival
- Juno is examined by a doctor.
- The crate is opened.
"""


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    """Return a workspace with the other story, with Windows line ends."""
    cards = {"Codex/CHAR-juno.md": JUNO, "Codex/CHAR-bram.md": BRAM, "Codex/CHAR-liu.md": LIU, "Codex/heron.md": HERON}
    files = {**SCENES, **cards, "plan-outline.md": OUTLINE}
    return stories.write(tmp_path, {path: text.replace("\n", "\r\n") for path, text in files.items()})


def test_chapters_are_scenes_with_numbers_from_their_headings(workspace):
    """The checker reads `Chapter 2: …` as scene 2."""
    payload = TOOLS.execute("consistency_checker", {"scene_paths": ["Chapters"]}, workspace).payload

    assert [(scene["number"], scene["title"]) for scene in payload["scenes"]] == [
        (1, "Undocking"),
        (2, "The Long Burn"),
        (3, "Arrival"),
    ]


def test_cards_of_bold_fields_give_facts(workspace):
    """The checker takes names from headings, and kinds from prefixes or a field."""
    facts = TOOLS.execute("canon_checker", {"canon_paths": ["Codex"]}, workspace).payload["facts"]
    told = {(fact["subject"], fact["attribute"]): fact["value"] for fact in facts}

    assert told[("Juno Castellane", "eye_colour")] == "hazel"
    assert told[("Juno Castellane", "age")] == "twenty-nine"
    assert told[("Juno Castellane", "location")] == "Ceres Dock"
    assert told[("Liu Wen", "died")] == "3 May 2291"
    assert told[("The Heron", "owner")] == "Juno Castellane"


@pytest.mark.parametrize(
    ("chapter", "expected"),
    [
        (1, set()),
        (2, set()),
        (
            3,
            {
                ("Juno Castellane", "eye_colour", "green"),
                ("Juno Castellane", "age", "31"),
                ("Juno Castellane", "hand", "left"),
                ("Bram", "name", "Brahm"),
            },
        ),
    ],
)
def test_the_canon_is_held_against_each_chapter(workspace, chapter, expected):
    """The first two chapters pass the canon checker, and the third one gives the expected conflicts."""
    args = {"scene_path": f"Chapters/chapter-{chapter}.md", "canon_paths": ["Codex"]}
    conflicts = TOOLS.execute("canon_checker", args, workspace).payload["conflicts"]
    found = {(c["subject"], c["attribute"], c["scene_value"]) for c in conflicts}

    assert expected <= found
    assert {entry for entry in found if entry[1] not in {"status", "owner"}} == expected


def test_the_chapters_are_held_against_each_other(workspace):
    """The checker finds a dead speaker, changed eyes, hand and age, and a misspelt name across the chapters."""
    args = {"scene_paths": ["Chapters"], "canon_paths": ["Codex"]}
    conflicts = TOOLS.execute("consistency_checker", args, workspace).payload["conflicts"]

    assert {(c["kind"], c["subject"]) for c in conflicts} == {
        ("dead_speaks", "Liu Wen"),
        ("eye_colour", "Juno Castellane"),
        ("hand", "Juno Castellane"),
        ("age", "Juno Castellane"),
        ("name_spelling", "Bram"),
    }


def test_the_crate_is_waited_for_in_vain(workspace):
    """The crate sealed in the first chapter stays an open foreshadowing, and the evaded question stays open."""
    unpaid = TOOLS.execute("reader_experience_simulator", {"scene_paths": ["Chapters"]}, workspace).payload["unpaid"]

    assert [(entry["kind"], entry["item"]) for entry in unpaid if entry["kind"] == "open_foreshadowing"] == [
        ("open_foreshadowing", "red crate")
    ]
    assert any("What is in it?" in entry["item"] for entry in unpaid)


def test_an_outline_without_numbers_is_matched_by_title(workspace):
    """The validator matches a chapter and its plan by title, and reports the beat that the chapter omits."""
    args = {"scene_path": "Chapters/chapter-3.md", "outline_path": "plan-outline.md"}
    payload = TOOLS.execute("scene_draft_validator", args, workspace).payload

    assert payload["matched"]["title"] == "Arrival"
    assert [beat["covered"] for beat in payload["beats"]] == [True, False]
    first = {"scene_path": "Chapters/chapter-1.md", "outline_path": "plan-outline.md"}
    assert TOOLS.execute("scene_draft_validator", first, workspace).payload["pass"]


def test_a_search_finds_chapter_outline_and_codex(workspace):
    """A search by the words of the task finds the chapter, the outline and the card."""
    payload = TOOLS.execute("file_locator", {"search_criteria": "the scene of the arrival: Juno"}, workspace).payload

    assert payload["matches"][0]["path"] in {"Chapters/chapter-3.md", "Codex/CHAR-juno.md"}
    assert payload["outline_path"] == "plan-outline.md"
    assert "Codex/CHAR-juno.md" in payload["canon_paths"]
    assert "Chapters/chapter-3.md" in payload["scene_paths"]


def test_stakes_are_mapped_without_any_metadata(workspace):
    """The second chapter, which risks lives, gets a higher level of stakes than the first."""
    scenes = TOOLS.execute("stakes_mapper", {"scene_paths": ["Chapters"]}, workspace).payload["scenes"]

    assert scenes[1]["level"] > scenes[0]["level"]
    assert scenes[1]["risks"][0]["weight"] == 3
