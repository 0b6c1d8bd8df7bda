"""The catalogue: two layers of recipe files, with broken ones listed beside the others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app import clock, errors
from app.bootstrap import catalogue as bootstrap_catalogue
from app.dialects import registry
from app.domain import library, plain
from app.services import folder_listings, recipe_files, recipes
from tests.unit.services import small_recipes


class Project:
    """Two layers in a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.bundled = root / "bundled" / "control_room"
        self.own = root / "project" / ".control-room" / "recipes"
        layers = bootstrap_catalogue.recipe_layers(root / "bundled", self.own.parent, registry.DIALECTS)
        self.library = small_recipes.LIBRARY
        self.clock = clock.FakeClock()
        self.catalogue = recipes.Catalogue(
            layers=layers,
            dialects=registry.DIALECTS,
            library=lambda: self.library,
            readiness=small_recipes.READY,
            clock=self.clock,
            is_current=lambda known: known is self.library,
            watched=tuple,
        )

    def bundle(self, recipe_id: str, name: str | None = None, **fields: object) -> Path:
        """Write a bundled recipe."""
        whole = small_recipes.recipe(recipe_id, **fields)
        return small_recipes.write(self.bundled, name or f"{recipe_id}.json", whole)

    def add(self, recipe_id: str, name: str | None = None, **fields: object) -> Path:
        """Write a recipe of the project."""
        whole = small_recipes.recipe(recipe_id, **fields)
        return small_recipes.write(self.own, name or f"{recipe_id}.json", whole)

    def shown(self) -> dict[str, bool]:
        """Return the listed recipes, and whether each can be started."""
        return {entry.recipe_id: entry.usable for entry in self.catalogue.all()}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return an empty project."""
    return Project(tmp_path)


def test_a_project_without_recipes_has_none(project: Project) -> None:
    """A project without folders for recipes has no recipes."""
    assert project.catalogue.all() == []


def test_recipes_of_both_layers_are_found(project: Project) -> None:
    """The catalogue has the bundled recipes and the project's own, by id."""
    project.bundle("second")
    project.add("first")

    assert project.shown() == {"first": True, "second": True}
    assert project.catalogue.get("second").recipe.label == "The second"


def test_a_projects_recipe_shadows_the_bundled_one(project: Project) -> None:
    """A project's recipe replaces the bundled one with the same id, whatever its file name, and names its layer."""
    project.bundle("draft", label="Bundled")
    project.add("draft", name="other-name.json", label="Mine")
    entry = project.catalogue.find("draft")

    assert project.catalogue.get("draft").recipe.label == "Mine"
    assert (entry.layer, entry.shadows) == ("project", ("bundled",))


def test_a_folder_named_after_the_dialect_counts_too(project: Project) -> None:
    """A project may keep control_room recipes in `recipes/control_room`, like the bundled ones."""
    small_recipes.write(project.own / "control_room", "draft.json", small_recipes.recipe("draft"))

    assert project.shown() == {"draft": True}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("{", "syntax"),
        ('{"recipe_id": "broken", "phase_a": 1}', None),
        ("\0\0", None),
        ("[" * 100_000, None),
        ("", None),
    ],
)
def test_a_broken_file_is_listed_and_others_work(project: Project, content: str, code: str | None) -> None:
    """A file that cannot be parsed is listed with its flaws, and other recipes work."""
    project.add("good")
    path = small_recipes.write(project.own, "broken.json", content)
    entry = project.catalogue.find("broken")

    assert project.shown() == {"broken": False, "good": True}
    assert entry.path == str(path)
    assert entry.flaws
    assert code is None or entry.flaws[0].code == code
    assert project.catalogue.get("good").recipe.recipe_id == "good"


@pytest.mark.parametrize(
    ("folder", "name", "content", "right"),
    [
        ("", "flow.yaml", "version: '1.1'\nsteps:\n- {name: A, command: ['true']}\n", "orchestrate"),
        ("", "review.yml", "name: review\ndescription: d\nversion: 1.0.0\nsteps: []\n", "amplifier"),
        ("orchestrate", "talk.yaml", "name: talk\ndescription: d\nversion: 1.0.0\nsteps:\n- {id: a}\n", "amplifier"),
        ("", "machine.json", '{"id": "machine", "label": "l", "description": "d", "steps": {}}', "agent_recipes"),
    ],
)
def test_a_file_in_the_folder_of_another_language_is_listed(
    project: Project, folder: str, name: str, content: str, right: str
) -> None:
    """A file of another dialect is listed with one flaw, which names the folder that it belongs in."""
    path = small_recipes.write(project.own / folder, name, content)
    entry = next(entry for entry in project.catalogue.all() if entry.path == str(path))

    assert [flaw.code for flaw in entry.flaws] == ["misplaced"]
    assert entry.flaws[0].message.endswith(f"move it to {project.own / right}")


def test_a_broken_recipe_is_not_started(project: Project) -> None:
    """A start of a broken recipe is refused with its flaws and its file."""
    path = small_recipes.write(project.own, "broken.json", '{\n"recipe_id":\n}')
    with pytest.raises(errors.RecipeInvalid) as caught:
        project.catalogue.get("broken")

    assert caught.value.flaws[0].line == 3
    assert caught.value.detail == {"path": str(path)}


def test_a_broken_file_of_the_project_still_shadows(project: Project) -> None:
    """A broken file of the project still shadows the bundled recipe, and its start is refused."""
    project.bundle("draft")
    small_recipes.write(project.own, "mine.json", json.dumps(small_recipes.recipe("draft", phase_a="none")))

    assert project.shown() == {"draft": False}
    with pytest.raises(errors.RecipeInvalid):
        project.catalogue.get("draft")


def test_a_guessed_id_does_not_hide_a_good_recipe(project: Project) -> None:
    """A file with a syntax error has the id of its file name only if no other file has that id."""
    project.add("draft", name="whole.json")
    small_recipes.write(project.own, "draft.json", "{")

    assert project.catalogue.get("draft").recipe.label == "The draft"
    assert [entry.usable for entry in project.catalogue.all()] == [False, True]


def test_a_collision_is_a_fault_of_both(project: Project) -> None:
    """Two files of a layer with the same id are both listed with the flaw, and cannot be started."""
    project.add("draft", name="one.json")
    project.add("draft", name="two.json")
    entries = project.catalogue.all()

    assert [entry.flaws[0].code for entry in entries] == ["duplicate_recipe_id", "duplicate_recipe_id"]
    assert "two.json" in entries[0].flaws[0].message
    assert "one.json" in entries[1].flaws[0].message
    with pytest.raises(errors.RecipeInvalid):
        project.catalogue.get("draft")


def test_a_recipe_with_a_removed_tool_has_a_flaw(project: Project) -> None:
    """A recipe that uses a removed tool is listed with the flaw."""
    project.add("draft")
    before = project.shown()
    project.library = library.Library()

    assert (before, project.shown()) == ({"draft": True}, {"draft": False})
    assert project.catalogue.find("draft").flaws[0].path == "$.phase_a[0].tool"


def test_files_are_read_again_when_they_change(project: Project) -> None:
    """Changed, new and removed files are noticed at the next read, and other files are not parsed again."""
    project.add("stays")
    path = project.add("draft", label="Before")
    kept = project.catalogue.get("stays")
    project.add("draft", label="Afterwards")
    changed = project.catalogue.get("draft").recipe.label
    path.unlink()
    project.add("new")

    assert changed == "Afterwards"
    assert project.shown() == {"new": True, "stays": True}
    assert project.catalogue.get("stays") is kept


def test_runs_of_an_unchanged_recipe_share_its_version(project: Project) -> None:
    """Runs of an unchanged recipe share one recipe version, and get their own copies of its values."""
    project.add("draft")
    recipe_version = project.catalogue.get("draft")
    first, second = recipe_version.frozen(), recipe_version.frozen()
    first["recipe"]["phase_a"].clear()
    first["frozen"].clear()

    assert project.catalogue.get("draft") is recipe_version
    assert recipe_version.frozen() == second
    assert second["recipe"]["phase_a"]
    assert second["recipe_sha256"] == plain.sha256(plain.canonical(second["recipe"]))


def test_a_version_is_of_one_recipe_beside_one_library(project: Project) -> None:
    """A changed recipe makes another recipe version, and so does a changed library."""
    project.add("draft", label="Before")
    before = project.catalogue.get("draft")
    project.add("draft", label="After that")
    changed = project.catalogue.get("draft")
    project.library = library.Library(tools=small_recipes.TOOLS)
    beside = project.catalogue.get("draft")

    assert [recipe_version.recipe.label for recipe_version in (before, changed, beside)] == [
        "Before",
        "After that",
        "After that",
    ]
    assert len({before, changed, beside}) == 3
    assert beside.recipe is changed.recipe


def test_changes_are_seen_however_long_nothing_has_changed(project: Project) -> None:
    """New, changed and removed files are noticed by the next start, also after a long time without changes."""
    project.add("stays")
    for _ in range(5):
        project.catalogue.get("stays")
        project.clock.advance(0.6)
    added = project.add("new")
    found = project.shown()
    project.add("stays", label="Changed")
    changed = project.catalogue.get("stays").recipe.label
    added.unlink()

    assert found == {"new": True, "stays": True}
    assert changed == "Changed"
    assert project.shown() == {"stays": True}


def test_bundled_recipes_stay_as_they_were_at_the_start(project: Project) -> None:
    """Bundled recipes are read once, at the start."""
    project.bundle("draft", label="Before")
    project.catalogue.all()
    project.bundle("draft", label="Afterwards")
    project.bundle("new")

    assert project.shown() == {"draft": True}
    assert project.catalogue.get("draft").recipe.label == "Before"


def test_a_file_replaced_by_another_of_the_same_size_is_seen(project: Project) -> None:
    """A replaced file is noticed by its inode, even with the same size and time."""
    path = project.add("draft", label="One")
    project.catalogue.all()
    found = path.stat()
    replacement = small_recipes.write(project.own, "draft.new", small_recipes.recipe("draft", label="Two"))
    os.utime(replacement, ns=(found.st_atime_ns, found.st_mtime_ns))
    replacement.replace(path)

    assert project.catalogue.get("draft").recipe.label == "Two"


@pytest.mark.parametrize("name", [".hidden.json", "notes.txt", "draft.json~"])
def test_files_with_other_endings_are_ignored(project: Project, name: str) -> None:
    """Hidden files and files with other endings are ignored."""
    small_recipes.write(project.own, name, "{")

    assert project.catalogue.all() == []


def test_a_recipe_that_is_not_a_file_is_listed_as_broken(project: Project, tmp_path: Path) -> None:
    """A folder, a pipe and a dangling link with a recipe's ending are listed as broken, and none blocks."""
    (project.own / "folder.json").mkdir(parents=True)
    os.mkfifo(project.own / "pipe.json")
    (project.own / "dangling.json").symlink_to(tmp_path / "nowhere")
    flaws = {entry.recipe_id: entry.flaws[0].code for entry in project.catalogue.all()}

    assert flaws == {"dangling": "file_unreadable", "folder": "not_a_file", "pipe": "not_a_file"}


def test_a_file_too_large_is_not_read(project: Project) -> None:
    """A file over the size limit is listed with a flaw."""
    small_recipes.write(project.own, "huge.json", " " * (recipe_files.MAX_RECIPE_BYTES + 1))

    assert [entry.flaws[0].code for entry in project.catalogue.all()] == ["too_large"]


def test_a_file_that_is_not_utf8_is_listed_with_its_flaw(project: Project) -> None:
    """A file that is not UTF-8 is listed with a flaw that names the byte."""
    project.own.mkdir(parents=True)
    (project.own / "binary.json").write_bytes(b'{"label": "\xff"}')
    flaw = project.catalogue.all()[0].flaws[0]

    assert flaw.code == "not_text"
    assert "byte 11" in flaw.message


def test_a_byte_order_mark_does_no_harm(project: Project) -> None:
    """A file with a byte order mark is read."""
    project.own.mkdir(parents=True)
    (project.own / "draft.json").write_text(json.dumps(small_recipes.recipe("draft")), encoding="utf-8-sig")

    assert project.shown() == {"draft": True}


def test_an_unknown_recipe_is_answered_with_the_nearest(project: Project) -> None:
    """An unknown id is refused with the nearest ids, nearest first."""
    for recipe_id in ("creative_draft_scene", "creative_draft_act", "structural_canon"):
        project.add(recipe_id)
    with pytest.raises(errors.UnknownRecipe) as caught:
        project.catalogue.get("creative_draft_scenes")

    assert caught.value.detail["nearest"] == ["creative_draft_scene", "creative_draft_act"]
    assert "creative_draft_scene" in caught.value.message


def test_a_recipe_is_described_whole(project: Project) -> None:
    """A description of a recipe has the schema of its arguments, the document and a graph."""
    project.add("draft")
    described = project.catalogue.describe("draft")

    assert described["valid"] is True
    assert described["args_schema"]["type"] == "object"
    assert described["document"]["recipe_id"] == "draft"
    assert {node["id"] for node in described["graph"]["nodes"]} >= {"discover"}


def test_a_broken_recipe_is_described_as_far_as_it_goes(project: Project) -> None:
    """A broken recipe is described with its flaws, and without document and graph."""
    small_recipes.write(project.own, "broken.json", "{")
    described = project.catalogue.describe("broken")

    assert (described["valid"], described["document"], described["graph"]) == (False, None, None)
    with pytest.raises(errors.NotFound):
        project.catalogue.describe("nothing")


def test_a_text_is_examined_without_being_kept(project: Project) -> None:
    """An examined text is checked with the project's tools and not added to the catalogue."""
    fine = project.catalogue.examine(json.dumps(small_recipes.recipe("draft")), "control_room")
    project.library = library.Library()
    unfit = project.catalogue.examine(json.dumps(small_recipes.recipe("draft")), "control_room")

    assert fine.to_json()["valid"] is True
    assert [flaw.path for flaw in unfit.flaws] == ["$.phase_a[0].tool"]
    assert project.catalogue.all() == []
    with pytest.raises(errors.RequestInvalid) as caught:
        project.catalogue.examine("", "yaml")
    assert caught.value.code == "unknown_dialect"


def test_the_router_gets_every_parsed_recipe(project: Project) -> None:
    """The router gets all recipes that can be parsed, also those that cannot be started."""
    project.add("draft")
    small_recipes.write(project.own, "broken.json", "{")
    project.library = library.Library()

    assert [recipe.recipe_id for recipe in project.catalogue.recipes()] == ["draft"]


def _change(project: Project) -> None:
    project.add("one", label="Changed")


def _remove(project: Project) -> None:
    (project.own / "one.json").unlink()


def _claim_its_id(project: Project) -> None:
    project.add("one", "another.json")


def _claim_its_id_in_a_folder_that_was_absent(project: Project) -> None:
    small_recipes.write(project.own / "control_room", "other.json", small_recipes.recipe("one"))


def _started(project: Project) -> str:
    try:
        return project.catalogue.get("one").recipe.label
    except errors.RequestInvalid as refusal:
        return refusal.code


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_change, "Changed"),
        (_remove, "unknown_recipe"),
        (_claim_its_id, "recipe_invalid"),
        (_claim_its_id_in_a_folder_that_was_absent, "recipe_invalid"),
    ],
)
async def test_a_settled_catalogue_sees_every_change(
    project: Project, change: Callable[[Project], None], expected: str
) -> None:
    """After a long time without changes, the catalogue notices a change at the next refresh."""
    project.add("one", label="First")
    for _ in range(3):
        await project.catalogue.refresh()
        project.clock.advance(folder_listings.TRUSTED_SECONDS / 2)
    await project.catalogue.refresh()
    before = _started(project)
    change(project)
    project.clock.advance(recipes.FILE_MOMENT_SECONDS * 10)
    await project.catalogue.refresh()

    assert (before, _started(project)) == ("First", expected)


async def test_a_refresh_lists_no_folder_while_listings_are_trusted(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While listings are still trusted, a refresh does not list folders again."""
    project.add("one")
    for _ in range(3):
        await project.catalogue.refresh()
        project.clock.advance(folder_listings.TRUSTED_SECONDS / 2)
    looks: list[str] = []

    def look(listing: folder_listings.Listing) -> tuple[str, ...]:
        looks.append(str(listing.folder))
        return ()

    monkeypatch.setattr(folder_listings.Listing, "names", look)
    await project.catalogue.refresh()

    assert looks == []
