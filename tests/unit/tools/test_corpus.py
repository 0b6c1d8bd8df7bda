"""The corpus of planted contradictions: what the tools find in it."""

from __future__ import annotations

import json

import pytest

from tests import smoke
from tests.corpus import scoring

PARTS = ("first", "second", "third")
FLOOR = {
    book: found
    for part in PARTS
    for book, found in json.loads((scoring.CORPUS / f"{part}.found.json").read_text()).items()
}
SHORT_FLOOR = json.loads((scoring.CORPUS / "passages.found.json").read_text())
BOOKS = [book for part in PARTS for book in scoring.books(part, scoring.CORPUS)]


@pytest.mark.parametrize(("folder", "truth"), smoke.only(BOOKS[0], BOOKS), ids=[folder.name for folder, _ in BOOKS])
def test_a_book_gives_its_recorded_contradictions(folder, truth):
    """A book gives the contradictions and false alarms that `score_corpus.py --record` recorded."""
    assert scoring.outcome(scoring.score(folder, truth)) == FLOOR[folder.name]


@pytest.mark.slow
def test_the_short_passages_give_their_recorded_outcomes(tmp_path):
    """The short passages give the outcomes that `score_corpus.py passages --record` recorded."""
    scores = [scoring.score(folder, truth) for folder, truth in scoring.passages(scoring.CORPUS, tmp_path)]
    outcomes = scoring.outcomes(scores)

    assert {kind: outcomes[kind] for kind in SHORT_FLOOR} == SHORT_FLOOR


def test_every_quote_of_the_truth_is_in_its_file():
    """Every quote of the truth is in its file, so that the score finds its place."""
    absent = [
        (folder.name, item["id"], place["quote"])
        for folder, truth in BOOKS
        for item in [*truth["planted"], *truth["look_alikes"]]
        for place in item["places"]
        if place["quote"] not in (folder / place["path"].removeprefix(f"{folder.name}/")).read_text()
    ]

    assert absent == []


def test_a_finding_counts_only_with_its_kind_and_both_places(tmp_path):
    """A finding counts only with its kind and both places; one of another kind there is a false alarm."""
    book = tmp_path / "book"
    (book / "scenes").mkdir(parents=True)
    (book / "scenes" / "1.md").write_text(
        "He met Edda Marsh.\n\nEdda Marsh had blue eyes.\n\nEdda's brown eyes closed.\n"
    )
    places = [{"path": "book/scenes/1.md", "quote": quote} for quote in ("had blue eyes", "brown eyes")]
    planted = {"id": "p1", "kind": "appearance", "places": places}
    truth = {"scenes": ["scenes/*.md"], "canon": ["scenes"], "planted": [planted], "look_alikes": []}
    right = scoring.score(book, truth)
    wrong = scoring.score(book, truth | {"planted": [planted | {"kind": "age"}]})

    assert (right.found, right.false) == ({"p1"}, [])
    assert (wrong.found, len(wrong.false)) == (set(), 1)
