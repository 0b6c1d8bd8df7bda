"""The tool `file_locator`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import errors
from app.tools.scanning import Limits
from app.tools.story.file_locator import FileLocator
from tests.examples import examples
from tests.unit.tools import stories

TOOL = FileLocator()

FILES = {
    **stories.CANON,
    "Story/SCN-outline.md": (
        "# Outline\n\n## Scene 1: The Ferry\n- POV: Mira\n- Boards the ferry.\n\n"
        "## Scene 2: The Tower\n- POV: Kael\n- Uses the brass key.\n"
    ),
    "Story/Scenes/SCN-the-ferry.md": "---\nscene: 1\n---\n# The Ferry\n\nMira boards. A whistle blew.\n",
    "Story/Scenes/SCN-the-tower.md": "---\nscene: 2\n---\n# The Tower\n\nThe stairs went up.\n",
    "Notes/ideas.md": "# Ideas\n\nA whistle, a rope, a whistle.\n",
}


def find(tmp_path, criteria: str, **args) -> dict:
    """Search the small project."""
    return stories.payload(TOOL, stories.write(tmp_path, FILES), search_criteria=criteria, **args)


def paths(payload: dict) -> list[str]:
    """Return the matched paths, best first."""
    return [match["path"] for match in payload["matches"]]


def test_the_scene_a_task_names_is_found_first(tmp_path):
    """A scene is found by its number, and its entry in the outline adds the cards of its cast."""
    payload = find(tmp_path, "Draft scene 2")

    assert paths(payload)[0] == "Story/Scenes/SCN-the-tower.md"
    assert payload["outline_path"] == "Story/SCN-outline.md"
    assert payload["canon_paths"] == ["canon/CHAR-kael.md", "canon/ITEM-key.md"]
    reasons = {match["path"]: match["reason"] for match in payload["matches"]}
    assert reasons["canon/CHAR-kael.md"] == "named in Story/SCN-outline.md"
    assert reasons["Story/Scenes/SCN-the-tower.md"] == "is Scene 2 “The Tower”"


def test_a_match_has_path_score_category_title_and_snippet(tmp_path):
    """A match has path, score, category, title, snippet and reason; the best score is 1, the others are lower."""
    payload = find(tmp_path, "the tower")
    best = payload["matches"][0]

    assert best == {
        "path": "Story/Scenes/SCN-the-tower.md",
        "score": 1.0,
        "category": "scene",
        "title": "The Tower",
        "snippet": "The Tower",
        "reason": "is Scene 2 “The Tower”",
    }
    scores = [match["score"] for match in payload["matches"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


def test_lists_by_category_and_counts_agree_with_the_matches(tmp_path):
    """The lists and counts by category agree with the matches."""
    payload = find(tmp_path, "scene tower kael ideas", max_results=100)
    of = {name: [m["path"] for m in payload["matches"] if m["category"] == name] for name in payload["counts"]}

    assert payload["scene_paths"] == of["scene"]
    assert payload["canon_paths"] == of["canon"]
    assert payload["other_paths"] == of["other"] == ["Notes/ideas.md"]
    assert payload["counts"] == {name: len(found) for name, found in of.items()}
    assert payload["match_count"] == len(payload["matches"])


def test_the_summary_counts_by_category(tmp_path):
    """The summary counts the matches by category."""
    workspace = stories.write(tmp_path, FILES)

    assert stories.run(TOOL, workspace, search_criteria="Draft scene 2").summary == (
        "5 files found: 2 scenes, 1 outline, 2 canon cards"
    )
    assert stories.run(TOOL, workspace, search_criteria="ideas").summary == "1 file found: 1 other"
    assert stories.run(TOOL, workspace, search_criteria="zzz").summary == "0 files found"


def test_a_fast_scan_does_not_look_into_texts_and_a_deep_one_does(tmp_path):
    """Only DEEP_SCAN finds a word of the body; more occurrences rank higher, and the line is the snippet."""
    assert paths(find(tmp_path, "whistle")) == []
    deep = find(tmp_path, "whistle", scan_mode="DEEP_SCAN")

    assert paths(deep)[:2] == ["Notes/ideas.md", "Story/Scenes/SCN-the-ferry.md"]
    assert deep["matches"][1]["snippet"] == "Mira boards. A whistle blew."


def test_a_path_in_the_criteria_is_the_best_match(tmp_path):
    """A path in the criteria is the best match."""
    assert paths(find(tmp_path, "Check Story/Scenes/SCN-the-ferry.md against the tower scene"))[0].endswith("ferry.md")


def test_criteria_of_stop_words_match_no_file(tmp_path):
    """Criteria of stop words only, such as `Please draft the`, match no file."""
    payload = find(tmp_path, "Please draft the")

    assert payload["matches"] == []
    assert payload["outline_path"] is None
    assert payload["report"] == "0 files found"


def test_results_can_be_limited_by_number_category_and_folder(tmp_path):
    """Matches can be limited by number, category and folder; `match_count` counts them before the cut."""
    few = find(tmp_path, "scene tower kael", max_results=1)

    assert (len(few["matches"]), few["match_count"] > 1) == (1, True)
    assert find(tmp_path, "scene tower kael", category="canon")["counts"]["scene"] == 0
    assert paths(find(tmp_path, "ferry tower", folder="Story/Scenes")) == [
        "Story/Scenes/SCN-the-ferry.md",
        "Story/Scenes/SCN-the-tower.md",
    ]


def test_rare_words_weigh_more_than_common_ones(tmp_path):
    """A rare word weighs more than a word that every file contains."""
    files = {f"{number}.md": "# Common\n" for number in range(9)} | {"a.md": "# Common common", "z.md": "# Rare"}
    payload = stories.payload(TOOL, stories.write(tmp_path, files), search_criteria="common rare")

    assert paths(payload)[0] == "z.md"


def test_case_accents_and_endings_do_not_matter(tmp_path):
    """Matching ignores case, accents and word endings."""
    workspace = stories.write(tmp_path, {"x.md": "# Ärger opened\n", "Ünïcode-näme.md": ""})

    assert paths(stories.payload(TOOL, workspace, search_criteria="ARGER")) == ["x.md"]
    assert paths(stories.payload(TOOL, workspace, search_criteria="opens")) == ["x.md"]
    assert paths(stories.payload(TOOL, workspace, search_criteria="unicode")) == ["Ünïcode-näme.md"]


def test_binary_hidden_and_foreign_files_are_not_found(tmp_path):
    """Binary files, hidden folders and the service's own files are not found."""
    files: dict[str, str | bytes] = {
        "tower.png": b"\x89PNG\0", "tower.md": b"\xff\xfe", ".hidden/tower.md": "# Tower",
        ".control-room/recipes/tower.json": "{}", "empty-tower.md": "",
    }  # fmt: skip
    workspace = stories.write(tmp_path, files)

    assert paths(stories.payload(TOOL, workspace, search_criteria="tower", scan_mode="DEEP_SCAN")) == ["empty-tower.md"]


def test_a_file_that_is_too_large_is_known_by_its_name(tmp_path):
    """A file over the size limit is found by its name, but its text is not searched."""
    workspace = stories.write(tmp_path, {"tower.md": "# Rare\n" * 100}, Limits(file_bytes=50))

    assert paths(stories.payload(TOOL, workspace, search_criteria="tower")) == ["tower.md"]
    assert paths(stories.payload(TOOL, workspace, search_criteria="rare", scan_mode="DEEP_SCAN")) == []


def test_a_scan_beyond_the_limits_is_truncated(tmp_path):
    """A project beyond the scan limits gives a truncated answer, not a failure."""
    workspace = stories.write(tmp_path, {f"tower-{number}.md": "" for number in range(9)}, Limits(scan_files=4))
    payload = stories.payload(TOOL, workspace, search_criteria="tower")

    assert (payload["truncated"], payload["scanned_files"], len(payload["matches"])) == (True, 4, 4)


def test_pictures_are_not_part_of_the_story(tmp_path):
    """Pictures neither use up the limits nor count as scenes, whatever their folder and size."""
    pictures = {f"Scenes/{number:02}.png": "x" * size for number, size in enumerate((40, 40, 90))}
    workspace = stories.write(tmp_path, {**pictures, "Scenes/SCN-02.md": "Rain."}, Limits(file_bytes=50, scan_bytes=60))
    output = stories.run(TOOL, workspace, search_criteria="scene 2")

    assert output.payload["scene"]["paths"] == output.payload["scene_paths"] == ["Scenes/SCN-02.md"]
    assert output.summary.endswith("; the project has more files than were read")


def test_an_empty_project_has_no_matches(tmp_path):
    """A search in an empty project has no matches."""
    payload = stories.payload(TOOL, stories.write(tmp_path, {}), search_criteria="tower")

    assert (payload["matches"], payload["match_count"], payload["scanned_files"]) == ([], 0, 0)


@pytest.mark.parametrize(
    ("path", "text", "category"),
    [
        ("SCN-x.md", "", "scene"), ("Scenes/x.md", "", "scene"), ("x.md", "---\nkind: scene\n---\n", "scene"),
        ("SCN-outline.md", "", "outline"), ("x.md", "---\nkind: outline\n---\n", "outline"),
        ("CHAR-x.md", "", "canon"), ("Compendium/x.md", "", "canon"), ("x.md", "---\ntype: item\n---\n", "canon"),
        ("x.md", "", "other"), ("scenery.txt", "", "other"),
    ],
)  # fmt: skip
def test_a_category_is_stated_or_shown_by_name_and_folder(tmp_path, path, text, category):
    """Front matter, prefix and folder decide the category of a file."""
    payload = stories.payload(TOOL, stories.write(tmp_path, {f"needle/{path}": text}), search_criteria="needle")

    assert [match["category"] for match in payload["matches"]] == [category]


@pytest.mark.parametrize(
    "args",
    [
        {}, {"search_criteria": ""}, {"search_criteria": "x", "scan_mode": "SLOW"},
        {"search_criteria": "x", "max_results": 0},
        {"search_criteria": "x", "max_results": 101}, {"search_criteria": "x", "folder": ""}, {"query": "x"},
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(tmp_path, args):
    """Wrong arguments fail with `invalid_args`."""
    with pytest.raises(errors.ToolFailed) as caught:
        TOOL.execute(args, stories.write(tmp_path, FILES))
    assert caught.value.code == "invalid_args"


@pytest.mark.parametrize(("folder", "code"), [("../x", "path_outside_workspace"), ("none", "file_not_found")])
def test_a_wrong_folder_fails(tmp_path, folder, code):
    """A folder outside the workspace and a missing folder fail with their own codes."""
    with pytest.raises(errors.ToolFailed) as caught:
        find(tmp_path, "x", folder=folder)
    assert caught.value.code == code


@settings(max_examples=examples(30), deadline=None)
@given(criteria=st.text(min_size=1, max_size=60), deep=st.booleans())
def test_any_criteria_give_the_same_answer_twice(tmp_path_factory, criteria, deep):
    """Equal criteria and files give an equal answer."""
    workspace = stories.write(tmp_path_factory.mktemp("project"), FILES)
    args = {"search_criteria": criteria, "scan_mode": "DEEP_SCAN" if deep else "FAST_SCAN"}

    assert TOOL.execute(args, workspace) == TOOL.execute(args, workspace)
