"""Listings: always the present names of a folder, mostly without listing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import clock
from app.services import folder_listings


@pytest.fixture
def time() -> clock.FakeClock:
    """Return a clock that the test advances."""
    return clock.FakeClock()


def settle(listing: folder_listings.Listing, time: clock.FakeClock) -> None:
    """Read until the listing is trusted."""
    listing.names()
    time.advance(folder_listings.TRUSTED_SECONDS)
    listing.names()


def test_names_come_in_order(tmp_path: Path, time: clock.FakeClock) -> None:
    """All names of a folder are returned, sorted."""
    for name in ("b", "a", ".c"):
        (tmp_path / name).touch()

    assert folder_listings.Listing(tmp_path, time).names() == (".c", "a", "b")


def test_an_absent_folder_is_empty(tmp_path: Path, time: clock.FakeClock) -> None:
    """An absent folder is empty, and it may appear and vanish."""
    folder = tmp_path / "later"
    listing = folder_listings.Listing(folder, time)
    before = listing.names()
    folder.mkdir()
    (folder / "a").touch()
    settle(listing, time)
    there = listing.names()
    (folder / "a").unlink()
    folder.rmdir()

    assert (before, there, listing.names()) == ((), ("a",), ())


@pytest.mark.parametrize("settled", [False, True])
def test_changes_are_seen_at_once(tmp_path: Path, time: clock.FakeClock, settled: bool) -> None:
    """An added or removed name is noticed at the next read."""
    listing = folder_listings.Listing(tmp_path, time)
    if settled:
        settle(listing, time)
    else:
        listing.names()
    (tmp_path / "a").touch()
    added = listing.names()
    (tmp_path / "a").unlink()

    assert (added, listing.names()) == (("a",), ())


def test_a_fresh_listing_is_not_trusted(tmp_path: Path, time: clock.FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second change within one tick of the disk's clock, which leaves no mark, is noticed."""
    monkeypatch.setattr(folder_listings, "mark_of", lambda path: folder_listings.Mark(modified_ns=1))
    listing = folder_listings.Listing(tmp_path, time)
    listing.names()
    (tmp_path / "a").touch()
    added = listing.names()
    (tmp_path / "b").touch()

    assert (added, listing.names()) == (("a",), ("a", "b"))


def test_an_old_listing_is_not_trusted(tmp_path: Path, time: clock.FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that does not mark its folders, a change is noticed a second later."""
    monkeypatch.setattr(folder_listings, "mark_of", lambda path: folder_listings.Mark(modified_ns=1))
    listing = folder_listings.Listing(tmp_path, time)
    settle(listing, time)
    (tmp_path / "a").touch()
    trusted = listing.names()
    time.advance(folder_listings.TRUSTED_SECONDS)

    assert (trusted, listing.names()) == ((), ("a",))


def test_a_mark_distinguishes_files_folders_and_missing_paths(tmp_path: Path) -> None:
    """A mark follows links, and distinguishes folders, files and missing paths."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    found = [folder_listings.mark_of(str(tmp_path / name)) for name in ("", "file", "link", "nothing")]

    assert [mark.is_folder for mark in found] == [True, False, True, False]
    assert [mark.fault > 0 for mark in found] == [False, False, False, True]
    assert found[0] == found[2]
