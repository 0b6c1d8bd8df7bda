"""Prose: sentences, words and direct speech, with their places."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tools.story import documents, prose


def paragraphs(text: str) -> list[prose.Paragraph]:
    """Return the paragraphs of a text."""
    return prose.paragraphs(documents.parse(text))


def sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [sentence.text for paragraph in paragraphs(text) for sentence in paragraph.sentences]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Mr. Voss met Dr. Hale. They spoke.", ["Mr. Voss met Dr. Hale.", "They spoke."]),
        ("J. Hale wrote. I. Then he slept.", ["J. Hale wrote.", "I.", "Then he slept."]),
        ("He waited … and left… Then came rain.", ["He waited … and left…", "Then came rain."]),
        ('"Who is there?" asked Kael. "I am."', ['"Who is there?" asked Kael.', '"I am."']),
        ('"Who is there?" Kael asked.', ['"Who is there?"', "Kael asked."]),
        ("Version 1.5 is out. Good.", ["Version 1.5 is out.", "Good."]),
        ("What?! No!!! Yes.", ["What?!", "No!!!", "Yes."]),
        ("*Never.* He left.", ["*Never.*", "He left."]),
        ("Über alles. Älter.", ["Über alles.", "Älter."]),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text, expected):
    """Titles, initials, numbers and speech that continues do not end a sentence."""
    assert sentences(text) == expected


def test_a_sentence_knows_the_line_it_begins_on():
    """A sentence has the line of its first word, also within a paragraph."""
    found = paragraphs("# Head\n\nOne goes\non. Two\nfollows.\n\nThree.")

    assert [[sentence.line for sentence in paragraph.sentences] for paragraph in found] == [[3, 4], [7]]


def test_places_in_a_paragraph_lead_back_to_lines_and_sentences():
    """A position in a paragraph gives its line and its sentence."""
    paragraph = paragraphs("One goes\non. Two\nfollows.")[0]
    position = paragraph.text.index("follows")

    assert paragraph.line_at(position) == 3
    assert paragraph.line_at(0) == 1
    assert paragraph.sentence_at(position).text == "Two follows."
    assert paragraph.sentence_at(0).text == "One goes on."


@pytest.mark.parametrize(("opening", "closing"), [('"', '"'), ("“", "”"), ("«", "»"), ("„", "“")])
def test_direct_speech_is_found_in_quotation_marks_of_several_kinds(opening, closing):
    """Text between quotation marks of any kind is direct speech, and text outside is narration."""
    text = f"{opening}Swim,{closing} said Kael. {opening}Now.{closing}"
    paragraph = paragraphs(text)[0]

    assert paragraph.is_spoken(text.index("Swim"))
    assert paragraph.is_spoken(text.index("Now"))
    assert not paragraph.is_spoken(text.index("Kael"))
    assert 0.3 < prose.spoken_share(paragraph) < 0.9


def test_speech_that_is_not_closed_runs_to_the_end_of_its_paragraph():
    """Direct speech without a closing mark ends with its paragraph."""
    first, second = paragraphs('"It began then.\n\nHe fell silent.')

    assert first.is_spoken(len(first.text) - 1)
    assert not second.speech


def test_words_are_letters_with_apostrophes_and_hyphens():
    """Words are letters with apostrophes and hyphens; figures and marks are not words."""
    assert prose.words("Kael's well-known, don't 42 — naïve 物語!") == [
        "Kael's",
        "well-known",
        "don't",
        "naïve",
        "物語",
    ]


@pytest.mark.parametrize("text", ["", "...", "— — —", "!?!?", "# Only a heading", "```\ncode.\n```", "1 2 3"])
def test_text_without_words_has_no_paragraphs(text):
    """Marks, figures, headings and code give no paragraphs."""
    assert paragraphs(text) == []


def test_an_endless_paragraph_is_cut_into_pieces_with_their_lines():
    """A very long paragraph is cut into bounded pieces with correct lines."""
    text = "\n".join(f"Sentence number {number} goes here." for number in range(2_000))
    found = paragraphs(text)

    assert len(found) > 5
    assert all(len(paragraph.text) <= 10_500 for paragraph in found)
    assert found[-1].sentences[-1].line == 2_000
    assert sum(len(paragraph.sentences) for paragraph in found) == 2_000


def test_an_endless_line_is_cut_into_pieces_of_the_same_line():
    """A very long line is cut into bounded pieces of the same line."""
    found = paragraphs("word " * 10_000)

    assert {paragraph.line for paragraph in found} == {1}
    assert all(len(paragraph.text) <= 10_000 for paragraph in found)


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("aB .!?…\"“”'’\n-#é1"), max_size=300))
def test_any_sentence_is_inside_its_paragraph(text):
    """Sentences and speech of any text are inside their paragraph, in order and without overlap."""
    lines = len(documents.parse(text).lines)
    for paragraph in paragraphs(text):
        end = 0
        for sentence in paragraph.sentences:
            assert end <= sentence.start <= sentence.end <= len(paragraph.text)
            assert paragraph.text[sentence.start : sentence.end] == sentence.text
            assert 1 <= sentence.line <= lines
            end = sentence.end
        for span in paragraph.speech:
            assert 0 <= span.start < span.end <= len(paragraph.text)


def test_single_quotation_marks_are_speech_where_no_double_ones_are():
    """Single quotation marks are speech where a text has no double ones; an apostrophe is neither mark."""
    document = documents.parse(
        "‘I don’t know,’ said Kael. 'Ask Mira's mother.'\n\nKael's boots were wet, and the boys' too."
    )
    first, second = prose.paragraphs(document)

    assert [first.text[span.start : span.end] for span in first.speech] == ["‘I don’t know,’", "'Ask Mira's mother.'"]
    assert second.speech == ()
