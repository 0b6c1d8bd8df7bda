"""Proper names: which words are names, and which are slips of names."""

from __future__ import annotations

import pytest

from app.tools.story import documents, names


def seen(*texts: str) -> list[names.Sighting]:
    """Return the certain names of some texts."""
    return names.certain(all_seen(*texts))


def all_seen(*texts: str) -> list[names.Sighting]:
    """Return the certain and possible names of some texts."""
    return names.sightings(documents.parse(text, path=f"{number}.md") for number, text in enumerate(texts, start=1))


def slips(text: str, *known: str) -> list[tuple[str, str]]:
    """Return the slips of a text as pairs."""
    return [(slip.name, slip.intended) for slip in names.slips(all_seen(text), known)]


def test_names_are_words_with_capitals_within_sentences():
    """Words that only open sentences, days, months and titles are not names."""
    text = "Then he saw Kael on Monday. When Kael came, I left. Dusk fell over Gull Rock in March."

    assert {sighting.name for sighting in seen(text)} == {"Kael", "Gull Rock"}


def test_a_name_that_opens_a_sentence_counts_if_it_is_known_from_elsewhere():
    """A name that opens a sentence counts if the text has it within a sentence as well."""
    found = seen("He saw Kael. Kael ran. Then Kael fell.")

    assert [sighting.name for sighting in found] == ["Kael", "Kael", "Kael"]


def test_a_word_also_in_lower_case_is_not_a_name():
    """A word that the text also writes in lower case is not a name."""
    assert seen("He loved the Light. The light burned.") == []


def test_an_article_makes_a_thing_of_a_name():
    """A name that mostly follows `the` is a thing; one without an article may be a person."""
    found = seen("He saw the Long Storm and Kael. The Long Storm came. She saw Kael.")

    assert {entity.name: entity.kind for entity in names.entities(found)} == {"Kael": "unknown", "Long Storm": "thing"}


def test_a_sighting_has_its_place():
    """A sighting has file, line and sentence."""
    sighting = seen("One.\n\nHe saw\nKael there.")[0]

    assert (sighting.path, sighting.line, sighting.quote) == ("1.md", 4, "He saw Kael there.")


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("He saw Tamsen.", ["Tamsin Reed"], [("Tamsen", "Tamsin")]),
        ("He saw Keal.", ["Kael"], [("Keal", "Kael")]),
        ("He saw Cael.", ["Kael"], [("Cael", "Kael")]),
        ("He saw Orin.", ["Orrin"], [("Orin", "Orrin")]),
        ("He saw Alexnadra.", ["Alexandra"], [("Alexnadra", "Alexandra")]),
        ("He saw Alixandre.", ["Alexandra"], [("Alixandre", "Alexandra")]),
        ("He ran. Brahm waved.", ["Bram"], [("Brahm", "Bram")]),
        ("He ran. Dark fell.", ["Mark"], []),
        ("He ran. Rise now.", ["Rose"], []),
        ("He ran. There it was, right there.", ["Thera"], []),
        ("He saw Tamsin.", ["Tamsin"], []),
        ("He saw Tamsins.", ["Tamsin"], []),
        ("He saw Bob.", ["Rob"], []),
        ("He saw Mirabelle.", ["Mira"], []),
        ("He saw Gull Rock.", ["Gull Rock", "Full Rock"], []),
    ],
)
def test_a_slip_is_a_letter_or_two_away_from_a_known_name(text, known, expected):
    """A slip differs from a known name by a letter or two; plurals, short names and correct names are not slips."""
    assert slips(text, *known) == expected


def test_without_known_names_the_more_frequent_spelling_is_meant():
    """Without known names, the spelling that comes at least twice as often is the intended one."""
    text = "He saw Tamsin. She saw Tamsin. They saw Tamsen."

    assert slips(text) == [("Tamsen", "Tamsin")]
    assert slips("He saw Tamsin. They saw Tamsen.") == []


def test_a_slip_has_its_first_place_and_counts():
    """A slip has its first place and the counts of both spellings."""
    slip = names.slips(seen("He saw Tamsin. She saw Tamsin.", "They saw Tamsen."), [])[0]

    assert (slip.sighting.path, slip.count, slip.intended_count) == ("2.md", 1, 2)
