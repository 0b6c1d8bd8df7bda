"""The tool `consistency_checker`."""

from __future__ import annotations

import os

import pytest

from app import errors
from app.tools.scanning import Limits
from app.tools.story.consistency_checker import ConsistencyChecker
from tests.unit.tools import stories

TOOL = ConsistencyChecker()


def check(tmp_path, *scenes: str, canon: bool = False) -> dict:
    """Compare scenes, numbered in the given order."""
    files = {f"Story/{number}.md": text for number, text in enumerate(scenes, start=1)}
    workspace = stories.write(tmp_path, {**files, **(stories.CANON if canon else {})})
    further = {"canon_paths": ["canon"]} if canon else {}
    return stories.payload(TOOL, workspace, scene_paths=["Story"], **further)


def scene(number: int, text: str, **front_matter: str) -> str:
    """Return a scene with its front matter."""
    further = "".join(f"{name}: {value}\n" for name, value in front_matter.items())
    return f"---\nscene: {number}\n{further}---\n{text}\n"


def test_a_conflicting_attribute_cites_both_places(tmp_path):
    """Without a canon, two different eye colours of a name are a conflict that cites both places."""
    payload = check(
        tmp_path, scene(1, "He met Kael. Kael's grey eyes closed."), scene(2, "She met Kael. Kael's green eyes closed.")
    )
    conflict = payload["conflicts"][0]

    assert (conflict["kind"], conflict["subject"], conflict["severity"]) == ("eye_colour", "Kael", "error")
    assert [(statement["path"], statement["value"]) for statement in conflict["statements"]] == [
        ("Story/1.md", "grey"),
        ("Story/2.md", "green"),
    ]
    assert (conflict["path"], conflict["line"]) == ("Story/2.md", 4)
    assert not payload["pass"]


def test_consistent_scenes_pass(tmp_path):
    """Scenes that repeat the same facts have no conflict."""
    text = "He met Kael. Kael's grey eyes closed. The Long Storm of 12 October was over."

    assert check(tmp_path, scene(1, text), scene(2, text))["conflicts"] == []


def test_versions_are_compared_each_with_each(tmp_path):
    """All versions are compared in pairs: a vague first one does not hide that the second and third differ."""
    payload = check(
        tmp_path,
        scene(1, "He met Kael. Kael's blue-grey eyes closed."),
        scene(2, "He met Kael. Kael's grey eyes closed."),
        scene(3, "He met Kael. Kael's blue eyes closed."),
    )

    assert [conflict["kind"] for conflict in payload["conflicts"]] == ["eye_colour"]


def test_a_changeable_value_gives_only_a_warning(tmp_path):
    """A value that may change in a story, such as an age, gives only a warning."""
    payload = check(
        tmp_path,
        scene(1, "He met Tamsin. Tamsin was seventeen, and young."),
        scene(2, "He met Tamsin. Tamsin was nineteen, and young."),
    )

    assert [(conflict["kind"], conflict["severity"]) for conflict in payload["conflicts"]] == [("age", "warning")]
    assert payload["pass"]


def test_the_dead_do_not_speak_in_later_scenes(tmp_path):
    """A dead character speaks only in earlier scenes, in the same scene or in a flashback without a conflict."""
    death = "He knew Orrin. Then Orrin was dead."
    speech = 'They saw Orrin. "Late," said Orrin.'

    assert [c["kind"] for c in check(tmp_path / "a", scene(1, death), scene(2, speech))["conflicts"]] == ["dead_speaks"]
    assert check(tmp_path / "b", scene(1, speech), scene(2, death))["conflicts"] == []
    assert check(tmp_path / "c", scene(1, speech + "\n\n" + death), scene(2, "Rain."))["conflicts"] == []
    assert check(tmp_path / "d", scene(1, death), scene(2, speech, flashback="true"))["conflicts"] == []


def test_a_dead_speaker_gives_one_finding_with_both_places(tmp_path):
    """A dead character who speaks repeatedly gives one finding, with both places."""
    speech = 'They saw Orrin. "Late," said Orrin. "Go," said Orrin.'
    payload = check(tmp_path, scene(1, "He knew Orrin. Then Orrin was dead."), scene(2, speech), scene(3, speech))

    assert [[s["path"] for s in c["statements"]] for c in payload["conflicts"]] == [["Story/1.md", "Story/2.md"]]


def test_scene_numbers_decide_the_order_of_scenes(tmp_path):
    """Scene numbers decide the order of scenes, not file names or the order of arguments."""
    workspace = stories.write(
        tmp_path,
        {"a.md": scene(9, 'They saw Orrin. "Late," said Orrin.'), "b.md": scene(3, "He knew Orrin. Orrin was dead.")},
    )
    payload = stories.payload(TOOL, workspace, scene_paths=["a.md", "b.md"])

    assert [entry["number"] for entry in payload["scenes"]] == [3, 9]
    assert [conflict["kind"] for conflict in payload["conflicts"]] == ["dead_speaks"]


def test_scenes_without_numbers_keep_the_given_order(tmp_path):
    """Scenes without numbers keep the order of the arguments, after those with numbers."""
    workspace = stories.write(tmp_path, {"a.md": "A.", "b.md": "B.", "c.md": scene(1, "C.")})
    payload = stories.payload(TOOL, workspace, scene_paths=["b.md", "a.md", "c.md"])

    assert [entry["path"] for entry in payload["scenes"]] == ["c.md", "b.md", "a.md"]


def test_the_rarer_spelling_of_a_name_is_the_slip(tmp_path):
    """The rarer spelling of a name is the slip; with a canon, the canon's spelling is correct."""
    text = "He saw Tamsin. She saw Tamsin."
    payload = check(tmp_path / "a", scene(1, text), scene(2, "They saw Tamsen."))
    with_canon = check(tmp_path / "b", scene(1, "They saw Keal and Keal."), canon=True)

    assert [(c["kind"], c["subject"], c["path"]) for c in payload["conflicts"]] == [
        ("name_spelling", "Tamsin", "Story/2.md")
    ]
    assert [(c["subject"], c["statements"][0]["value"]) for c in with_canon["conflicts"]] == [("Kael", "Keal")]


def test_a_date_before_the_previous_scenes_is_a_conflict(tmp_path):
    """A date earlier than the previous scene's is a conflict at its line, unless the scene is a flashback."""
    first, second = scene(1, "A.", date="4 March 1894"), scene(2, "B.", date="3 March 1894")
    payload = check(tmp_path / "a", first, second)

    assert [(c["kind"], c["path"], c["line"], c["quote"]) for c in payload["conflicts"]] == [
        ("timeline", "Story/2.md", 3, "date: 3 March 1894")
    ]
    assert check(tmp_path / "b", first, scene(2, "B.", date="3 March 1894", flashback="yes"))["conflicts"] == []
    assert check(tmp_path / "c", second, first, scene(3, "no date"))["conflicts"] != []
    assert check(tmp_path / "d", first, scene(2, "no date"), scene(3, "C.", date="5 March"))["conflicts"] == []


def test_an_event_with_two_dates_is_a_conflict(tmp_path):
    """An event with two dates is a conflict."""
    payload = check(
        tmp_path, scene(1, "After the Long Storm of 12 October."), scene(2, "After the Long Storm of 14 October.")
    )

    assert [(c["kind"], c["subject"]) for c in payload["conflicts"]] == [("date", "Long Storm")]


def test_direct_speech_gives_no_conflict(tmp_path):
    """Direct speech that contradicts the narration gives no conflict."""
    payload = check(
        tmp_path,
        scene(1, "He met Kael. Kael's grey eyes closed."),
        scene(2, 'She met Kael. "Kael\'s green eyes," said Mira.'),
    )

    assert payload["conflicts"] == []


def test_with_a_canon_pronouns_are_understood(tmp_path):
    """With a canon, the checker resolves pronouns by the cards."""
    payload = check(
        tmp_path,
        scene(1, "Kael met Mira. She opened her brown eyes."),
        scene(2, "Kael met Mira, and her green eyes shone."),
        canon=True,
    )

    assert [(c["subject"], c["attribute"]) for c in payload["conflicts"]] == [("Mira Voss", "eye_colour")]


@pytest.mark.parametrize("scenes", [[""], ["", ""], ["---\nscene: 1\n---\n"], ["Rain."]])
def test_empty_scenes_and_a_single_one_have_no_conflict(tmp_path, scenes):
    """Empty scenes and a single scene have no conflict."""
    payload = check(tmp_path, *scenes)

    assert payload["conflicts"] == []
    assert len(payload["scenes"]) == len(scenes)


def test_a_folder_without_scenes_gives_an_empty_answer(tmp_path):
    """A folder without scenes gives an answer without scenes."""
    (tmp_path / "Story").mkdir()

    assert stories.payload(TOOL, stories.write(tmp_path, {}), scene_paths=["Story"])["scenes"] == []


def test_more_text_than_a_tool_reads_is_refused(tmp_path):
    """More text in all files together than the limit fails the tool."""
    files = {f"Story/{number}.md": "word " * 200_000 for number in range(6)}

    with pytest.raises(errors.ToolFailed) as caught:
        stories.run(TOOL, stories.write(tmp_path, files), scene_paths=["Story"])
    assert caught.value.code == "too_much_text"


GREY, GREEN = "He met Kael. Kael's grey eyes closed.", "She met Kael. Kael's green eyes closed."


def test_pictures_beside_the_scenes_do_not_hide_them(tmp_path):
    """Pictures in the folder do not use up the limits of a scan, whatever their size."""
    pictures = {f"Story/{number}.png": "x" * size for number, size in enumerate((90, 90, 200, 200))}
    files = {"Story/scene-1.md": GREY, "Story/scene-2.md": GREEN, **pictures}
    workspace = stories.write(tmp_path, files, Limits(file_bytes=100, scan_bytes=150, scan_files=3))

    assert stories.payload(TOOL, workspace, scene_paths=["Story"])["conflict_count"] == 1


@pytest.mark.parametrize("limits", [Limits(scan_files=1), Limits(scan_bytes=20), Limits(scan_entries=1)])
def test_a_folder_beyond_the_limits_is_refused(tmp_path, limits):
    """A folder of which a scan lists only a part fails the tool; a part would look like all of it."""
    workspace = stories.write(tmp_path, {"Story/1.md": GREY, "Story/2.md": GREEN}, limits)

    with pytest.raises(errors.ToolFailed) as caught:
        stories.run(TOOL, workspace, scene_paths=["Story"])
    assert caught.value.code == "too_much_text"


def test_what_was_not_read_is_named(tmp_path):
    """Summary, report and payload name the files that a folder contains and that could not be read."""
    files: dict[str, str | bytes] = {
        "Story/1.md": GREY,
        "Story/2.md": GREEN.encode("utf-16"),
        "Cards/large.md": "x" * (1024 * 1024 + 1),
    }
    output = stories.run(TOOL, stories.write(tmp_path, files), scene_paths=["Story"], canon_paths=["Cards"])

    assert output.payload["left_out"] == ["Story/2.md", "Cards/large.md"]
    assert "; 2 not read: 2.md, large.md" in output.summary
    assert "Story/2.md, Cards/large.md" in output.payload["report"].splitlines()[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_named(tmp_path):
    """A folder without permission is left out and named, like a file."""
    workspace = stories.write(tmp_path, {"Story/1.md": GREY, "Story/part/2.md": GREEN})
    (tmp_path / "Story" / "part").chmod(0)
    try:
        assert stories.payload(TOOL, workspace, scene_paths=["Story"])["left_out"] == ["Story/part"]
    finally:
        (tmp_path / "Story" / "part").chmod(0o700)
