"""Arguments that are found in a project, in projects of different conventions."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import resources
from app.dialects.control_room import ControlRoom
from app.services import routing, story_args
from app.tools import registry
from app.tools.workspace import Workspace
from tests import example_project
from tests.unit.tools import stories

CARD = "---\nname: Anna\nkind: character\n---\n- Eyes: brown\n"


def plan(*scenes: tuple[str, str], mark: str = "## ") -> str:
    """Return an outline of headings with a beat each."""
    return "# Plan\n\n" + "".join(f"{mark}{heading}\n- {beat}\n\n" for heading, beat in scenes)


PROJECTS = {
    "prefixed": {
        "Story/SCN-outline.md": plan(
            ("Scene 2: The Scales", "a"), ("Scene 3: The Debt", "b"), ("Scene 11: The New Scales", "c")
        ),
        "Story/Scenes/SCN-02-the-scales.md": "x",
        "Compendium/CHAR-anna.md": CARD,
    },
    "chapters": {
        "plan.md": "# Chapter 1\n## Scene 1\n- a\n## Scene 2\n- b\n# Chapter 2\n## Scene 1\n- c\n## Scene 2\n- d\n",
        "manuscript/ch01_sc1.md": "x",
        "manuscript/ch01_sc2.md": "x",
        "world/anna.md": CARD,
    },
    "figures": {
        "outline.txt": "1. The Gate: Anna enters.\n2. The Well: Anna drinks.\n3. The Tower: Anna climbs.\n",
        "001.md": "x",
        "002.md": "x",
        "bible/people/anna.md": CARD,
    },
    "titles": {
        "Outline/my outline.md": plan(("The Gate", "a"), ("The Well", "b")),
        "Scenes/The Gate.md": "x",
        "Characters/Anna.md": CARD,
    },
    "acts": {
        "beats.md": "# Act I\n\n**Scene 1 - The Gate**\n\n- a\n\n# Act II\n\n**Scene 1 - The Tower**\n\n- b\n",
        "Act I/Scene 1.md": "x",
        "codex/anna.md": CARD,
    },
    "numbered": {
        "notes/outline.md": plan(("21 The Calm", "a"), ("22 The Storm", "b")),
        "scenes/21-calm.md": "x",
        "cast/anna.md": CARD,
    },
}


# Without the one outline that names new scenes.
OTHERS = {
    "books": {
        "Book One/outline.md": plan(("Scene I: Dawn", "a"), ("Scene II: Night", "b")),
        "Book Two/outline.md": plan(("Scene I: Dusk", "c")),
        "Book One/Scenes/scene-i.md": "x",
        "Book Two/Scenes/scene-i.md": "x",
        "Canon/anna.md": CARD,
    },
    "bare": {"Scenes/ch03_sc1.md": "x", "Scenes/ch03_sc2.md": "x", "Scenes/ch04_sc1.md": "x", "Scenes/021.md": "x"},
}


def found(root: Path, description: str, **more) -> story_args.Found:
    """Route a description, and find the missing arguments in a project."""
    recipes = [
        ControlRoom().parse(path.read_text(), path.stem)
        for path in sorted(resources.bundled("recipes", "control_room").glob("*.json"))
    ]
    routed = routing.Router(recipes).route(description)
    recipe = next(recipe for recipe in recipes if recipe.recipe_id == routed.recipe_id)
    given = routed.initial_args
    return story_args.find(
        recipe, given, description=description, working_dir=str(root), named=frozenset(given), **more
    )


@pytest.mark.parametrize(
    ("project", "description", "args"),
    [
        ("prefixed", "Draft scene 11", {"scene_path": "Story/Scenes/SCN-11-the-new-scales.md"}),
        ("prefixed", "Draft scene 2", {"scene_path": "Story/Scenes/SCN-02-the-scales.md"}),
        ("prefixed", "Draft SCN-03-the-debt.md", {"scene_path": "Story/Scenes/SCN-03-the-debt.md"}),
        ("prefixed", "Review the pacing of SCN-02-the-scales.md", {"scene_path": "Story/Scenes/SCN-02-the-scales.md"}),
        ("chapters", "Draft chapter 2, scene 1", {"scene_path": "manuscript/ch02_sc1.md", "canon_paths": ["world"]}),
        ("chapters", "Draft scene 2 of chapter 2", {"scene_path": "manuscript/ch02_sc2.md", "outline_path": "plan.md"}),
        ("figures", "Draft scene 3", {"scene_path": "003.md", "outline_path": "outline.txt"}),
        ("figures", "Check consistency of scenes 1-2", {"scene_paths": ["001.md", "002.md"]}),
        ("figures", "foreshadowing audit", {"scene_paths": ["001.md", "002.md"]}),
        ("titles", "Draft scene The Well", {"scene_path": "Scenes/The Well.md", "canon_paths": ["Characters"]}),
        ("acts", "Draft act II, scene 1", {"scene_path": "Act II/Scene 1.md", "outline_path": "beats.md"}),
        ("numbered", "Draft scene 22", {"scene_path": "scenes/22-the-storm.md", "canon_paths": ["cast"]}),
        (
            "chapters",
            "Check continuity of chapter 1",
            {"scene_paths": [f"manuscript/ch01_sc{n}.md" for n in (1, 2)]},
        ),
        (
            "bare",
            "Check chapters 3-4 for continuity",
            {"scene_paths": [f"Scenes/ch0{n}.md" for n in ("3_sc1", "3_sc2", "4_sc1")]},
        ),
        ("bare", "Review the prose of 021", {"scene_path": "Scenes/021.md"}),
        ("numbered", "Review the prose of 21", {"scene_path": "scenes/21-calm.md"}),
        ("numbered", "Write the storm scene", {"scene_path": "scenes/22-the-storm.md"}),
        ("books", "Draft the scene Night", {"scene_path": "Book One/Scenes/scene-ii.md"}),
        ("books", "Draft the scene Dawn", {"scene_path": "Book One/Scenes/scene-i.md"}),
        ("numbered", "Validate scene 21", {"scene_path": "scenes/21-calm.md", "outline_path": "notes/outline.md"}),
    ],
)
def test_a_description_is_enough(tmp_path, project, description, args):
    """Scene, outline and cards are found in any convention, and a new scene is named like the others."""
    stories.write(tmp_path, (PROJECTS | OTHERS)[project])
    answer = found(tmp_path, description)

    assert answer.questions == {}
    assert {name: answer.args.get(name) for name in args} == args


@pytest.mark.parametrize(
    ("project", "description", "name", "code", "words"),
    [
        (
            "prefixed",
            "Draft scene 12",
            "scene_path",
            "scene_not_found",
            "Which file is the scene? Story/SCN-outline.md",
        ),
        ("prefixed", "Draft scenes 2 and 3", "scene_path", "scene_ambiguous", "Scene 2 “The Scales” or Scene 3"),
        ("prefixed", "Validate scene 11", "scene_path", "scene_not_written", "“The New Scales” has no file yet"),
        ("chapters", "Draft scene 2", "scene_path", "scene_ambiguous", "Chapter 1, Scene 2 or Chapter 2, Scene 2"),
        ("prefixed", "Draft a scene with 3 guests", "scene_path", "scene_not_found", "clearly means"),
        ("empty", "Draft scene 2", "canon_paths", "not_found", "Give canon_paths, or make a folder `Compendium`"),
        ("empty", "Review outline", "outline_path", "not_found", "Give outline_path, or put `outline`"),
        ("empty", "Consistency check", "scene_paths", "not_found", "Give scene_paths, or make a folder `Scenes`"),
    ],
)
def test_only_missing_arguments_become_questions(tmp_path, project, description, name, code, words):
    """An argument that cannot be found becomes a question in a writer's words, with the candidates."""
    stories.write(tmp_path, PROJECTS.get(project, {"README.md": "x"}))
    question = found(tmp_path, description).questions[name]

    assert question.code == code
    assert words in question.question


def test_a_planned_task_may_name_a_scene_that_an_earlier_one_writes(tmp_path):
    """A planned task gets the path of a scene that an earlier task will write."""
    stories.write(tmp_path, PROJECTS["numbered"])

    assert found(tmp_path, "Draft scene 22").args["scene_path"] == "scenes/22-the-storm.md"
    checked = found(tmp_path, "Check consistency of scenes 21 and 22", planned=True)
    assert checked.args["scene_paths"] == ["scenes/21-calm.md", "scenes/22-the-storm.md"]


@pytest.mark.parametrize("project", PROJECTS)
def test_a_new_scene_keeps_its_name_through_the_system(tmp_path, project):
    """The outline tool finds a new scene by its path, before and after the file exists."""
    stories.write(tmp_path, PROJECTS[project])
    workspace, tools = Workspace(tmp_path), registry.bundled_tools(routing.Router([]).route)
    outline = found(tmp_path, "Review outline").args.get("outline_path", "Story/SCN-outline.md")
    planned = tools.execute("outline_analyzer", {"outline_path": outline}, workspace).payload["scenes"]
    for scene in planned:
        asked = "Draft " + (scene["label"] if scene["number"] else f"scene {scene['label']}")
        path = found(tmp_path, asked).args["scene_path"]
        stories.write(tmp_path, {path: "Anna came."})
        args = {"outline_path": outline, "query": path}

        assert tools.execute("outline_analyzer", args, workspace).payload["matched"]["index"] == scene["index"]
        assert found(tmp_path, asked).args["scene_path"] == path


def test_the_example_project_knows_its_scenes(tmp_path):
    """The example project gives the path of an existing scene and of one to be written."""
    project = example_project.copy(tmp_path / "project")

    assert found(project, "Draft scene 21").args["scene_path"] == "Story/Scenes/SCN-the-arrival.md"
    new = found(project, "Draft scene 22").args
    assert new == {"scene_path": "Story/Scenes/SCN-the-locked-lamp-room.md", "canon_paths": ["Compendium"]}
