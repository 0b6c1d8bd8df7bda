"""The kept list of recipes: used as long as nothing that it depends on has changed, and never trusted blindly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app import settings
from app.cli import recipe_listing


class Reader:
    """Counts how often the recipes are read."""

    def __init__(self, **recipe: object) -> None:
        self.times = 0
        self.recipe = {"recipe_id": "a", "dialect": "d", "layer": "project", "label": "A", "valid": True, "flaws": []}
        self.recipe |= {"ready": False} | recipe

    def __call__(self) -> list[dict[str, object]]:
        self.times += 1
        return [self.recipe]


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> settings.Settings:
    """Return the settings of a project of files that have rested."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(recipe_listing, "REST_SECONDS", -1.0)
    write(tmp_path, ".control-room/recipes/one.json")
    return settings.load({"CONTROL_ROOM_PROJECT": str(tmp_path), "CONTROL_ROOM_HOME": str(tmp_path / "home")})


def write(folder: Path, name: str, text: str = "{}") -> Path:
    """Write a file, and its folders."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def caches(folder: Path) -> list[Path]:
    """Return the files that lists are kept in."""
    return list(folder.glob("caches/control-room/*"))


def test_unchanged_recipes_are_read_once(chosen: settings.Settings) -> None:
    """The second list is the first one, without what depends on more than files."""
    read = Reader()
    first, second = (recipe_listing.listed(chosen, read) for _ in range(2))

    assert read.times == 1
    assert first == second == [{name: read.recipe[name] for name in recipe_listing.FIELDS}]


CHANGES: list[Callable[[Path], object]] = [
    lambda root: write(root, ".control-room/recipes/one.json", '{"a": 1}'),
    lambda root: write(root, ".control-room/recipes/amplifier/inner/two.yaml"),
    lambda root: write(root, ".control-room/prompts/prompts.json"),
    lambda root: write(root, ".control-room/agents.json"),
    lambda root: write(root, ".control-room/layout.json"),
    lambda root: write(root, ".amplifier/agents/mine.md"),
    lambda root: write(root, "home/.control-room/prompts/prompts.json"),
    lambda root: (root / ".control-room/recipes/one.json").unlink(),
    lambda root: (root / ".control-room/recipes/one.json").chmod(0),
    lambda root: (root / ".control-room/recipes/link.json").symlink_to("nowhere"),
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_recipes_are_read_again_after_any_change(
    chosen: settings.Settings, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    """Recipes, prompts and agents of all layers count, and so do files that come and go."""
    read = Reader()
    recipe_listing.listed(chosen, read)
    change(tmp_path)
    recipe_listing.listed(chosen, read)

    assert read.times == 2


def test_a_list_of_files_that_have_just_changed_is_not_kept(
    chosen: settings.Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another change within the same tick of the clock would not show."""
    monkeypatch.setattr(recipe_listing, "REST_SECONDS", 3600.0)
    recipe_listing.listed(chosen, Reader())

    assert caches(tmp_path) == []


def test_a_change_while_recipes_are_read_keeps_nothing(chosen: settings.Settings, tmp_path: Path) -> None:
    """What was read may be the old content."""

    def read() -> list[dict[str, object]]:
        write(tmp_path, ".control-room/recipes/one.json", "changed meanwhile")
        return Reader()()

    recipe_listing.listed(chosen, read)

    assert caches(tmp_path) == []


def test_a_flaw_that_passes_is_not_kept(chosen: settings.Settings, tmp_path: Path) -> None:
    """A file that could not be read now may be read the next time, without a change of it."""
    recipe_listing.listed(chosen, Reader(valid=False, flaws=[{"code": "unreadable"}]))

    assert caches(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"signature": 1}', '{"recipes": []}', "[" * 100_000, "\udcff"])
def test_a_damaged_cache_is_read_past(chosen: settings.Settings, tmp_path: Path, text: str) -> None:
    """The recipes are read, and the cache is made anew."""
    read = Reader()
    recipe_listing.listed(chosen, read)
    [file] = caches(tmp_path)
    file.write_bytes(text.encode(errors="surrogateescape"))

    assert recipe_listing.listed(chosen, read)[0]["recipe_id"] == "a"
    assert read.times == 2
    assert json.loads(file.read_bytes())["recipes"]


def test_rows_without_their_fields_are_read_past(chosen: settings.Settings, tmp_path: Path) -> None:
    """Whatever wrote the cache, a list shows whole rows."""
    read = Reader()
    recipe_listing.listed(chosen, read)
    [file] = caches(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"recipes": [{"recipe_id": "a"}]}))
    recipe_listing.listed(chosen, read)

    assert read.times == 2


def test_a_cache_that_cannot_be_written_is_done_without(chosen: settings.Settings, tmp_path: Path) -> None:
    """A home that is read-only, or none at all, costs time and nothing else."""
    (tmp_path / "caches").write_text("a file where a folder should be")
    read = Reader()

    assert recipe_listing.listed(chosen, read) == recipe_listing.listed(chosen, read)
    assert read.times == 2
