"""The tool `canon_checker`."""

from __future__ import annotations

import pytest

from app import errors
from app.tools.story import canon, documents
from app.tools.story.canon_checker import CanonChecker
from app.tools.story.consistency_checker import ConsistencyChecker
from tests.unit.tools import stories

TOOL = CanonChecker()


def check(tmp_path, scene: str, **files: str) -> dict:
    """Check a scene against the small canon."""
    workspace = stories.write(tmp_path, {**stories.CANON, "scene.md": scene, **files})
    return stories.payload(TOOL, workspace, scene_path="scene.md", canon_paths=["canon"])


def test_a_conflict_names_both_sides_with_their_places(tmp_path):
    """A conflict quotes the scene and the card, with file and line."""
    payload = check(tmp_path, "Dusk.\n\nKael's green eyes closed.")
    conflict = payload["conflicts"][0]

    assert conflict == {
        "kind": "eye_colour",
        "severity": "error",
        "message": "Kael Arden: eye colour is green here, grey in canon.",
        "path": "scene.md",
        "line": 3,
        "quote": "Kael's green eyes closed.",
        "subject": "Kael Arden",
        "attribute": "eye_colour",
        "canon_value": "grey",
        "scene_value": "green",
        "canon": {"path": "canon/CHAR-kael.md", "line": 7, "quote": "- Eyes: grey"},
    }
    assert (payload["pass"], payload["conflict_count"], payload["scene_found"]) == (False, 1, True)
    assert "eye colour is green here" in payload["report"]


@pytest.mark.parametrize(
    "scene",
    [
        "Kael's grey eyes closed. He signed with his left hand. Kael was thirty-four, and tired.",
        "The Long Storm of 12 October came. Mira's brass key lay there.",
        "",
        "---\nscene: 1\n---\n",
        "Nobody was there.",
    ],
)
def test_a_scene_that_keeps_to_the_canon_passes(tmp_path, scene):
    """A scene that agrees with the canon, and an empty one, give no conflict."""
    payload = check(tmp_path, scene)

    assert payload["conflicts"] == []
    assert payload["pass"]


@pytest.mark.parametrize(
    ("scene", "attribute", "value"),
    [
        ("Kael signed with his right hand.", "hand", "right"),
        ("Kael was forty, and tired.", "age", "40"),
        ("The Long Storm of 14 October came.", "date", "14 October"),
        ("Kael's brass key lay there.", "owner", "Kael Arden"),
        ("She took the iron key.", "material", "iron"),
    ],
)
def test_each_kind_of_contradiction_is_found(tmp_path, scene, attribute, value):
    """The checker finds contradictions of hand, age, date, owner and material."""
    conflicts = check(tmp_path, scene)["conflicts"]

    assert [(conflict["attribute"], conflict["scene_value"]) for conflict in conflicts] == [(attribute, value)]


def test_a_contradiction_in_direct_speech_is_a_warning(tmp_path):
    """A contradiction in direct speech is only a warning, because characters lie and err."""
    payload = check(tmp_path, '"Kael\'s green eyes are fine," said Mira.')

    assert [conflict["severity"] for conflict in payload["conflicts"]] == ["warning"]
    assert payload["pass"]


def test_a_repeated_contradiction_is_one_conflict(tmp_path):
    """A value repeated through a scene is one conflict; another value is another conflict."""
    payload = check(tmp_path, "Kael's green eyes. Kael's green eyes.\n\nKael's blue eyes.")

    assert [conflict["scene_value"] for conflict in payload["conflicts"]] == ["green", "blue"]


@pytest.mark.parametrize(
    ("died", "front_matter", "speaks_in_vain"),
    [
        ("died: scene 18", "scene: 21", True),
        ("died: scene 18", "scene: 18", False),
        ("died: scene 18", "scene: 3", False),
        ("died: scene 18", "title: x", False),
        ("died: 3 March 1894", "date: 6 March 1894", True),
        ("died: 3 March 1894", "date: 1 March 1894", False),
        ("died: 3 March 1894", "title: x", True),
        ("status: dead", "scene: 2", True),
        ("status: alive", "scene: 2", False),
        ("died: scene 18", "scene: 21\nflashback: true", False),
    ],
)
def test_the_dead_speak_only_before_their_death(tmp_path, died, front_matter, speaks_in_vain):
    """A speaker who is dead by scene number, date or status is a conflict, except in a flashback."""
    card = f"---\nname: Orrin Hale\nkind: character\n{died}\n---\n"
    payload = check(tmp_path, f'---\n{front_matter}\n---\n"Late," said Orrin.', **{"canon/CHAR-orrin.md": card})

    assert [conflict["attribute"] for conflict in payload["conflicts"]] == (["status"] if speaks_in_vain else [])


def test_a_scene_without_a_date_may_be_before_a_death(tmp_path):
    """If the card dates a death and the scene has no date, the conflict is a warning, not an error."""
    card = "---\nname: Ada\nkind: character\ndied: 3 May 1890\n---\n"
    workspace = stories.write(tmp_path, {"c/ada.md": card, "s.md": "Ada came in and nodded."})
    payloads = [
        stories.payload(TOOL, workspace, canon_paths=["c"], scene_path="s.md"),
        stories.payload(ConsistencyChecker(), workspace, canon_paths=["c"], scene_paths=["s.md"]),
    ]

    assert [(conflict["severity"], payload["pass"]) for payload in payloads for conflict in payload["conflicts"]] == [
        ("warning", True),
        ("warning", True),
    ]


def test_the_living_cannot_be_dead(tmp_path):
    """A grave in the scene contradicts a card whose status is alive."""
    card = "---\nname: Ada\nkind: character\nstatus: alive\n---\n"

    assert check(tmp_path, "They stood at Ada's grave.", **{"canon/CHAR-ada.md": card})["conflict_count"] == 1


def test_a_misspelt_name_is_a_warning_and_an_unknown_one_is_listed(tmp_path):
    """A misspelt name is a warning, and names without a card are listed."""
    payload = check(tmp_path, "He saw Keal and Fenwick on Gull Rock.")

    assert [(c["kind"], c["severity"], c["canon_value"]) for c in payload["conflicts"]] == [
        ("name_spelling", "warning", "Kael")
    ]
    assert payload["unknown_names"] == ["Keal", "Fenwick", "Gull Rock"]
    assert payload["pass"]


def test_cards_are_compared_with_each_other(tmp_path):
    """The checker compares front matter with prose and card with card, even without a scene."""
    cards = {
        "canon/CHAR-a.md": "---\nname: Ada\nkind: character\neyes: blue\n---\nAda's green eyes are famous.\n",
        "canon/CHAR-b.md": "---\nname: Ben\nkind: character\nage: 30\n---\n",
        "canon/more.md": "---\nname: Ben\nkind: character\nage: 31\n---\n",
    }
    payload = stories.payload(TOOL, stories.write(tmp_path, cards), canon_paths=["canon"])

    assert [(c["kind"], c["subject"], c["attribute"]) for c in payload["conflicts"]] == [
        ("canon", "Ada", "eye_colour"),
        ("canon", "Ben", "age"),
    ]
    assert payload["scene_path"] is None
    assert not payload["scene_found"]
    assert not payload["pass"]


def test_facts_of_the_scenes_own_cast_come_first(tmp_path):
    """Facts about the scene's own cast come first, so that a cut does not remove them."""
    payload = check(tmp_path, "Mira was there.")

    assert payload["facts"][0]["subject"] == "Mira Voss"
    assert {fact["subject"] for fact in payload["facts"]} == {
        "Mira Voss",
        "Kael Arden",
        "the brass key",
        "the Long Storm",
    }
    assert {"attribute": "hand", "value": "left-handed"}.items() <= next(
        fact for fact in payload["facts"] if fact["attribute"] == "hand"
    ).items()


def test_a_missing_scene_fails_unless_it_is_allowed(tmp_path):
    """A missing scene fails unless the recipe allows it; then the tool returns facts without conflicts."""
    workspace = stories.write(tmp_path, stories.CANON)
    args = {"scene_path": "Story/new.md", "canon_paths": ["canon"]}

    with pytest.raises(errors.ToolFailed) as caught:
        TOOL.execute(args, workspace)
    payload = TOOL.execute({**args, "allow_missing_scene": True}, workspace).payload

    assert caught.value.code == "file_not_found"
    assert (payload["scene_found"], payload["conflicts"], payload["pass"]) == (False, [], True)
    assert payload["facts"]


def test_a_named_card_must_be_readable_and_others_in_a_folder_need_not(tmp_path):
    """An unreadable file in the folder of cards is skipped, and one that is named as a card is an error."""
    files: dict[str, str | bytes] = {
        **stories.CANON,
        "canon/notes.md": b"\x00\x01",
        "canon/map.png": b"\x89PNG",
        "scene.md": "Kael came.",
    }
    workspace = stories.write(tmp_path, files)

    assert stories.payload(TOOL, workspace, scene_path="scene.md", canon_paths=["canon"])["facts"]
    with pytest.raises(errors.ToolFailed) as caught:
        stories.run(TOOL, workspace, scene_path="scene.md", canon_paths=["canon/notes.md"])
    assert caught.value.code == "not_text"


def test_cards_named_twice_count_once(tmp_path):
    """The checker reads a card once, even if it is named with its folder or in two spellings."""
    workspace = stories.write(tmp_path, {**stories.CANON, "scene.md": ""})
    once = stories.payload(TOOL, workspace, scene_path="scene.md", canon_paths=["canon"])
    twice = stories.payload(
        TOOL, workspace, scene_path="scene.md", canon_paths=["canon", "canon/CHAR-kael.md", "./canon//CHAR-kael.md"]
    )

    assert sorted(map(str, twice["facts"])) == sorted(map(str, once["facts"]))


def test_a_card_without_front_matter_is_read_by_heading_and_lines():
    """A card takes its name from the heading, facts from `Name: value` lines and its kind from the file's prefix."""
    entity = canon.of_document(documents.parse("# Ada Reed\n\nEyes: blue\n**Age:** 17\n", path="CHAR-ada.md"))

    assert (entity.name, entity.kind, entity.aliases) == ("Ada Reed", "character", ("Ada Reed", "Ada"))
    assert [(fact.attribute, fact.value, fact.line) for fact in entity.facts] == [
        ("eye_colour", "blue", 3),
        ("age", "17", 4),
    ]


@pytest.mark.parametrize(
    ("path", "front_matter", "kind"),
    [
        ("CHAR-x.md", "", "character"),
        ("Characters/x.md", "", "character"),
        ("x.md", "kind: item", "item"),
        ("CHAR-x.md", "type: place", "place"),
        ("LOC-x.md", "", "place"),
        ("notes/x.md", "", None),
    ],
)
def test_the_kind_of_a_card_is_stated_or_shown_by_its_name(path, front_matter, kind):
    """The front matter decides the kind of a card, then the prefix of its file, then its folder."""
    assert canon.kind_of(documents.parse(f"---\n{front_matter}\n---\n", path=path)) == kind
