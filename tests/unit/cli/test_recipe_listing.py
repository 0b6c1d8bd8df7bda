"""The cached list of recipes: used only while all its dependencies are unchanged, and always checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app import settings
from app.cli import recipe_listing


class Reader:
    """A reader that counts how often recipes are read."""

    def __init__(self, **recipe: object) -> None:
        self.times = 0
        self.recipe = {"recipe_id": "a", "dialect": "d", "layer": "project", "label": "A", "valid": True, "flaws": []}
        self.recipe |= {"ready": False} | recipe

    def __call__(self) -> list[dict[str, object]]:
        self.times += 1
        return [self.recipe]


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> settings.Settings:
    """Return the settings of a project whose files are old enough to cache."""
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
    """Return the cache files."""
    return list(folder.glob("caches/control-room/*"))


def test_unchanged_recipes_are_read_once(chosen: settings.Settings) -> None:
    """An unchanged list is read once, and has only the fields that depend on files."""
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
    """Recipes are read again after a change of any layer's recipes, prompts or agents, or of the set of files."""
    read = Reader()
    recipe_listing.listed(chosen, read)
    change(tmp_path)
    recipe_listing.listed(chosen, read)

    assert read.times == 2


def test_a_list_of_files_that_have_just_changed_is_not_kept(
    chosen: settings.Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of recently changed files is not cached: a change within the same clock tick would be invisible."""
    monkeypatch.setattr(recipe_listing, "REST_SECONDS", 3600.0)
    recipe_listing.listed(chosen, Reader())

    assert caches(tmp_path) == []


def test_a_change_while_recipes_are_read_keeps_nothing(chosen: settings.Settings, tmp_path: Path) -> None:
    """A list is not cached if a file changes while recipes are read."""

    def read() -> list[dict[str, object]]:
        write(tmp_path, ".control-room/recipes/one.json", "changed meanwhile")
        return Reader()()

    recipe_listing.listed(chosen, read)

    assert caches(tmp_path) == []


def test_a_flaw_that_passes_is_not_kept(chosen: settings.Settings, tmp_path: Path) -> None:
    """A list with a temporary flaw, such as an unreadable file, is not cached."""
    recipe_listing.listed(chosen, Reader(valid=False, flaws=[{"code": "unreadable"}]))

    assert caches(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"signature": 1}', '{"recipes": []}', "[" * 100_000, "\udcff"])
def test_a_damaged_cache_is_read_past(chosen: settings.Settings, tmp_path: Path, text: str) -> None:
    """A damaged cache is ignored and written again."""
    read = Reader()
    recipe_listing.listed(chosen, read)
    [file] = caches(tmp_path)
    file.write_bytes(text.encode(errors="surrogateescape"))

    assert recipe_listing.listed(chosen, read)[0]["recipe_id"] == "a"
    assert read.times == 2
    assert json.loads(file.read_bytes())["recipes"]


def test_rows_without_their_fields_are_read_past(chosen: settings.Settings, tmp_path: Path) -> None:
    """A cache with incomplete rows is ignored."""
    read = Reader()
    recipe_listing.listed(chosen, read)
    [file] = caches(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"recipes": [{"recipe_id": "a"}]}))
    recipe_listing.listed(chosen, read)

    assert read.times == 2


def test_a_cache_that_cannot_be_written_is_done_without(chosen: settings.Settings, tmp_path: Path) -> None:
    """Without a writable cache, recipes are read each time."""
    (tmp_path / "caches").write_text("a file where a folder should be")
    read = Reader()

    assert recipe_listing.listed(chosen, read) == recipe_listing.listed(chosen, read)
    assert read.times == 2
