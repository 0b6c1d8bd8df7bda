"""The tool `prose_analyzer`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import errors
from app.tools.story.prose_analyzer import ProseAnalyzer
from tests.examples import examples
from tests.unit.tools import stories

TOOL = ProseAnalyzer()
SLOW = (
    "He went over the hill and under the bridge and along the river and past the mill until he came home again at last."
)


def analyze(tmp_path, text: str) -> dict:
    """Measure a scene."""
    return stories.payload(TOOL, stories.write(tmp_path, {"s.md": text}), scene_path="s.md")


def test_sentences_are_counted_and_measured(tmp_path):
    """Words, sentences, paragraphs and lengths are measured without headings and front matter."""
    payload = analyze(tmp_path, "---\ntitle: T\n---\n# A heading\n\nOne two three. Four five.\n\nSix.")

    assert (payload["words"], payload["sentences"], payload["paragraphs"], payload["title"]) == (6, 3, 2, "T")
    assert payload["sentence_length"] == {"mean": 2.0, "median": 2, "shortest": 1, "longest": 3, "deviation": 0.8}


def test_adverbs_are_found_and_their_look_alikes_are_not(tmp_path):
    """Adverbs are listed with their lines; `family`, `only` and `Emily` are not adverbs."""
    payload = analyze(tmp_path, "He ran quickly. The family only met Emily slowly.\n\nShe replied suddenly.")

    assert [(item["word"], item["line"]) for item in payload["adverbs"]["items"]] == [
        ("quickly", 1),
        ("slowly", 1),
        ("suddenly", 3),
    ]
    assert payload["adverbs"]["count"] == 3
    assert payload["adverbs"]["per_1000"] == 250.0


@pytest.mark.parametrize(
    "sentence",
    [
        "The lamp was lit.",
        "It had been opened by Kael.",
        "They were never seen.",
        "The door is being broken.",
        "He got hurt.",
    ],
)
def test_passive_sentences_are_found(tmp_path, sentence):
    """Passive sentences are found with regular and irregular participles, also with adverbs between."""
    assert analyze(tmp_path, sentence)["passive"]["count"] == 1


@pytest.mark.parametrize(
    "sentence", ["He was afraid.", "She was tired.", "It was red.", "He was cold.", "They were there.", "He opened it."]
)
def test_active_sentences_and_adjectives_are_not_passive(tmp_path, sentence):
    """A sentence with `was` and an adjective is not passive."""
    assert analyze(tmp_path, sentence)["passive"]["count"] == 0


def test_repeated_words_are_those_that_come_close_together(tmp_path):
    """A word used three times within a few lines is repeated; small words, names and `said` do not count."""
    text = "The harbour slept. He loved the harbour. Kael, Kael and Kael said, said, said it of the harbour, of the."
    payload = analyze(tmp_path, text)

    assert [(entry["word"], entry["count"]) for entry in payload["repeated_words"]] == [("harbour", 3)]


def test_a_word_that_comes_back_far_away_is_not_repeated(tmp_path):
    """A word whose uses are about a page apart is not repeated."""
    filler = " ".join(f"alpha{letter}" for letter in "bcdefghijk") + ". "
    far = f"harbour. {filler * 8} harbour. {filler * 8} harbour."

    assert "harbour" not in {entry["word"] for entry in analyze(tmp_path, far)["repeated_words"]}


def test_sentences_that_begin_alike_in_a_row_are_found(tmp_path):
    """Three sentences in a row that begin alike are a finding with their lines."""
    payload = analyze(tmp_path, "The sea. The rock.\n\nThe boat. A gull. The end.")

    assert payload["repeated_openings"] == [{"opening": "the", "count": 3, "lines": [1, 1, 3]}]
    assert [finding["kind"] for finding in payload["findings"]] == ["repeated_opening"]


def test_dialogue_is_measured(tmp_path):
    """Dialogue has its share of the characters and the number of its paragraphs."""
    payload = analyze(tmp_path, '"Swim."\n\nHe swam.')

    assert payload["dialogue"] == {"share": 0.467, "lines": 1}


def test_short_words_and_sentences_are_easier_to_read(tmp_path):
    """Short words and sentences get better readability scores than long ones."""
    easy = analyze(tmp_path, "The cat sat. The dog ran.")["readability"]
    hard = analyze(tmp_path, "Notwithstanding considerable institutional opposition, the organisation reconsidered.")[
        "readability"
    ]

    assert easy["flesch_reading_ease"] > 90 > 30 > hard["flesch_reading_ease"]
    assert easy["grade_level"] < hard["grade_level"]


def test_each_paragraph_has_its_tempo(tmp_path):
    """The pacing calls a paragraph of short sentences fast and one of long sentences slow."""
    payload = analyze(tmp_path, f"He ran. He fell.\n\n{SLOW}\n\nHe walked along the shore until the long evening came.")

    assert [(entry["paragraph"], entry["line"], entry["pace"]) for entry in payload["pacing"]] == [
        (1, 1, "fast"),
        (2, 3, "slow"),
        (3, 5, "steady"),
    ]


def test_slow_paragraphs_and_long_sentences_are_findings(tmp_path):
    """Slow paragraphs in a row and long sentences are findings with their lines."""
    endless = "he went on and " * 15 + "slept."
    found = analyze(tmp_path, f"{SLOW}\n\n{SLOW}\n\n{SLOW}\n\nStop.\n\n{endless}")["findings"]

    assert [finding["line"] for finding in stories.findings_of_kind(found, "slow_passage")] == [1]
    assert [finding["line"] for finding in stories.findings_of_kind(found, "long_sentence")] == [9]


def test_adverbs_and_passive_voice_are_findings(tmp_path):
    """Many adverbs and much passive voice are findings."""
    found = analyze(tmp_path, "It was slowly opened. It was quickly closed. It was sadly lost.")["findings"]

    assert {"adverbs", "passive"} <= {finding["kind"] for finding in found}


@pytest.mark.parametrize("text", ["", "\n\n", "# Only a heading\n", "---\ntitle: T\n---\n", "...", "42"])
def test_a_scene_without_words_has_zero_measures(tmp_path, text):
    """A scene without words has zero measures and no readability."""
    payload = analyze(tmp_path, text)

    assert (payload["words"], payload["sentences"], payload["pacing"], payload["findings"]) == (0, 0, [], [])
    assert payload["readability"] == {"flesch_reading_ease": None, "grade_level": None}


def test_a_long_scene_gives_a_bounded_answer(tmp_path):
    """The lists of a long scene are cut, the totals are true, and the summary is one line."""
    text = "\n\n".join(f"The sea was slowly opened by number {number}. The sea. The sea." for number in range(2_000))
    output = stories.run(TOOL, stories.write(tmp_path, {"s.md": text}), scene_path="s.md")

    assert output.payload["truncated"]
    assert output.payload["totals"]["pacing"] == 2_000
    assert output.payload["adverbs"]["count"] == 2_000
    assert len(output.payload["adverbs"]["items"]) == 40
    assert len(output.summary) <= 200
    assert "\n" not in output.summary


def test_a_missing_scene_and_a_missing_argument_fail(tmp_path):
    """A missing scene and a missing argument fail with their codes."""
    workspace = stories.write(tmp_path, {})
    for args, code in (({"scene_path": "s.md"}, "file_not_found"), ({}, "invalid_args")):
        with pytest.raises(errors.ToolFailed) as caught:
            TOOL.execute(args, workspace)
        assert caught.value.code == code


@settings(max_examples=examples(30), deadline=None)
@given(st.text(alphabet=st.sampled_from("aly was The.?!\"\n é-'"), max_size=300))
def test_any_text_can_be_measured_and_shares_are_shares(tmp_path_factory, text):
    """Any text can be measured, and shares are between 0 and 1."""
    payload = analyze(tmp_path_factory.mktemp("p"), text)

    assert 0 <= payload["dialogue"]["share"] <= 1
    assert 0 <= payload["passive"]["share"] <= 1
    assert payload["adverbs"]["count"] <= payload["words"]
    assert sum(entry["words"] for entry in payload["pacing"]) == payload["words"]
