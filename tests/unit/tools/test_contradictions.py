"""What the consistency checker reads from prose and cards, kind by kind, and what it ignores."""

from __future__ import annotations

import re
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tools.story import documents, scenes
from app.tools.story.consistency_checker import ConsistencyChecker
from app.tools.story.continuity import cards, comparison, language
from tests.corpus import scoring
from tests.examples import examples
from tests.unit.tools import contradictions, stories

TOOL = ConsistencyChecker()
WORDS = [
    "Kael", "Mira", "Kael's", "his", "her", "green", "eyes", "were", "was", "dead", ",", ".", '"', "said", "the key",
    "12 October", "the Long Storm", "of", "seventeen", "left", "hand", "scar", "\n\n", "\n", "east bank", "sister",
    "gave",
    "nine miles from", "Tuesday", "captain", "I", "you", "?",
]  # fmt: skip


def check(root, card: str, *told: str) -> dict:
    """Compare scenes, and a card if there is one."""
    files = {f"Story/{number:02}.md": text for number, text in enumerate(told, start=1)}
    workspace = stories.write(root, {**files, **({"canon/card.md": card} if card else {})})
    further = {"canon_paths": ["canon"]} if card else {}
    return stories.payload(TOOL, workspace, scene_paths=["Story"], **further)


@pytest.mark.parametrize(("kind", "name", "card", "told"), contradictions.FOUND)
def test_a_contradiction_is_found_and_nothing_else(tmp_path, kind, name, card, told):
    """Each phrasing gives findings of its kind only, and they cite lines that exist."""
    conflicts = check(tmp_path, card, *told)["conflicts"]

    assert {scoring.kind_of(conflict) for conflict in conflicts} == {kind}
    for place in [place for conflict in conflicts for place in conflict["statements"]]:
        assert 1 <= place["line"] <= (tmp_path / place["path"]).read_text().count("\n") + 1


@pytest.mark.parametrize(("kind", "name", "card", "told"), contradictions.INNOCENT)
def test_an_apparent_contradiction_gives_no_conflict(tmp_path, kind, name, card, told):
    """Memories, guesses, other people, narrated changes and other readings give no conflict."""
    assert check(tmp_path, card, *told)["conflicts"] == []


def test_the_summary_counts_comparisons_and_names_unread_cards(tmp_path):
    """The summary counts comparisons and facts, and names cards and scenes without readable facts."""
    card = "# Edda Marsh\n\n- Eyes: blue\n"
    files = {
        "a.md": "Edda Marsh had blue eyes.",
        "b.md": "It rained.",
        "canon/edda.md": card,
        "canon/x.md": "# Weather",
    }
    output = stories.run(TOOL, stories.write(tmp_path, files), scene_paths=["a.md", "b.md"], canon_paths=["canon"])

    assert output.summary == (
        "0 conflicts in 1 comparison of 2 facts; 1 card without readable facts: x.md; "
        "1 scene without readable facts: b.md"
    )
    counted = {name: output.payload[name] for name in ("fact_count", "comparison_count", "unread_count", "unread")}
    assert counted == {"fact_count": 2, "comparison_count": 1, "unread_count": 2, "unread": ["canon/x.md", "b.md"]}


def test_facts_beyond_the_limit_are_not_passed_over_in_silence(tmp_path, monkeypatch):
    """If a story has more facts than are compared, the summary says so, and the payload is truncated."""
    monkeypatch.setattr(comparison, "_FACTS", 1)
    files = {"Story/1.md": "Edda Marsh had blue eyes.", "Story/2.md": "Edda Marsh had brown eyes."}
    output = stories.run(TOOL, stories.write(tmp_path, files), scene_paths=["Story"])

    assert output.payload["truncated"]
    assert "; further facts were not compared" in output.summary


def test_comparisons_grow_with_the_text_and_not_with_its_square():
    """Four times the text takes less than ten times the processor time."""
    text = (
        "Kael Arden was thirty. Kael's grey eyes closed. He gave Mira Voss the brass key.\n\n"
        "Varn is nine miles from Corran.\n\n"
    )
    spent = []
    for size in (100, 400):
        scene = scenes.of_document(documents.parse(text * size, path="a.md"))
        started = time.process_time()
        comparison.compare([scene], [])
        spent.append(time.process_time() - started)

    assert spent[1] < 10 * spent[0] + 0.5


def test_a_long_line_of_a_card_costs_no_more_than_its_length():
    """A card whose line is five times as long takes less than twelve times the processor time."""
    spent = []
    # The first card compiles the expressions. Longer lines than the last one are read in parts.
    for size in (10, 1_990, 9_950):
        card = documents.parse("word " * (size // 5), path="card.md")
        started = time.process_time()
        cards.read(card, set())
        spent.append(time.process_time() - started)

    assert spent[2] < 12 * spent[1] + 0.05


def test_every_expression_and_every_list_of_words_is_used_and_compiles():
    """Every expression compiles, and every expression and word list is used by the code or another expression."""
    folder = Path(language.__file__).parent
    code = "".join(path.read_text() for path in folder.glob("*.py"))
    text = (folder / "patterns.toml").read_text()
    sections, words = tomllib.loads(text), tomllib.loads((folder / "words.toml").read_text())
    for section, expressions in sections.items():
        patterns = language.Patterns(section)
        for name, stated in expressions.items():
            if isinstance(stated, str):
                re.compile(patterns._expanded(stated))
            else:
                assert patterns.rules(name) if isinstance(stated, list) else patterns.named(name)
    names = [*words, *(name for expressions in sections.values() for name in expressions)]

    assert [name for name in names if not re.search(rf"[.\"']{name}\b|{{{name}}}", code + text)] == []


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=50))
def test_any_text_is_read_twice_the_same(words):
    """Any order of words is read without failure, and equal texts give equal facts."""
    scene = scenes.of_document(documents.parse(" ".join(words), path="a.md"))
    card = documents.parse("# Kael Arden\n\nEyes: grey\n", path="CHAR-kael.md")
    first, second = comparison.compare([scene], [card]), comparison.compare([scene], [card])

    assert [(fact.key, fact.value) for fact in first.facts] == [(fact.key, fact.value) for fact in second.facts]
    assert first.comparisons == second.comparisons
