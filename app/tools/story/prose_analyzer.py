"""The tool `prose_analyzer`: measure the prose of a scene."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from app.domain import plain
from app.engine import ports
from app.tools import arguments, bounds, findings
from app.tools.findings import Finding
from app.tools.story import prose, prose_measures, scenes
from app.tools.workspace import Workspace

_LONG_SENTENCE_WORDS = 40
_MANY_ADVERBS_PER_1000 = 25
_MUCH_PASSIVE = 0.15
_SLOW_RUN = 3


class ProseAnalyzer:
    """Measure sentences, adverbs, passive voice, repetitions, dialogue, readability and pace of a scene."""

    name = "prose_analyzer"
    description = (
        "Measure a scene's prose: sentence lengths, adverbs, passive voice, repeated words and openings, dialogue, "
        "readability, pace by paragraph."
    )
    args_schema: plain.Object = arguments.schema(
        required=["scene_path"], scene_path=arguments.path("The scene to measure.")
    )

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Return the measures and the findings."""
        params = arguments.complete(self.name, self.args_schema, args)
        scene = scenes.read(workspace, params["scene_path"])
        text = prose_measures.of_paragraphs(scene.path, prose.paragraphs(scene.document))
        measures = prose_measures.measured(text)
        found = findings.ranked(_findings(text, measures))
        payload = {
            "scene_path": scene.path,
            "title": bounds.clipped(scene.title),
            "words": len(text.words),
            "sentences": len(text.sentences),
            "paragraphs": len(text.paragraphs),
            **measures,
            "findings": found,
            "report": bounds.report(_report(text, measures, found)),
        }
        summary = (
            f"{findings.counted(len(text.words), 'word')}, {measures['sentence_length']['mean']} a sentence, "
            f"{round(100 * measures['dialogue']['share'])} % dialogue, {findings.counted(len(found), 'finding')}"
        )
        return ports.ToolOutput(payload=bounds.fitted(payload, _LISTS), summary=summary)


_LISTS = ("findings", "pacing", "repeated_words", "repeated_openings")


def _findings(text: prose_measures.Text, measures: plain.Object) -> Iterator[Finding]:
    for sentence in text.sentences:
        length = len(prose.words(sentence.text))
        if length > _LONG_SENTENCE_WORDS:
            message = f"A sentence of {length} words."
            yield _finding(text, "long_sentence", "hint", message, sentence.line, sentence.text)
    adverbs, passive = measures["adverbs"], measures["passive"]
    if adverbs["per_1000"] > _MANY_ADVERBS_PER_1000 and adverbs["count"] > 2:
        words = ", ".join(item["word"] for item in adverbs["items"][:6])
        message = f"{adverbs['count']} adverbs, {adverbs['per_1000']} in 1000 words: {words}."
        yield _finding(text, "adverbs", "warning", message, adverbs["items"][0]["line"], adverbs["items"][0]["quote"])
    if passive["share"] > _MUCH_PASSIVE:
        first = passive["items"][0]
        message = f"{passive['count']} of {len(text.sentences)} sentences are passive."
        yield _finding(text, "passive", "warning", message, first["line"], first["quote"])
    for entry in measures["repeated_openings"]:
        message = f"{entry['count']} sentences in a row begin with “{entry['opening']}”."
        yield _finding(text, "repeated_opening", "warning", message, entry["lines"][0])
    for entry in measures["repeated_words"][:10]:
        message = f"“{entry['word']}” comes {entry['count']} times, close together."
        yield _finding(text, "repeated_word", "hint", message, entry["lines"][0])
    yield from _slow_runs(text, measures["pacing"])


def _slow_runs(text: prose_measures.Text, pacing: Sequence[plain.Object]) -> Iterator[Finding]:
    for pace, run in itertools.groupby(pacing, key=lambda entry: entry["pace"]):
        entries = list(run)
        if pace == "slow" and len(entries) >= _SLOW_RUN:
            message = f"{len(entries)} slow paragraphs in a row."
            yield _finding(text, "slow_passage", "warning", message, entries[0]["line"])


def _finding(
    text: prose_measures.Text, kind: str, severity: findings.Severity, message: str, line: int, quote: str = ""
) -> Finding:
    return findings.finding(kind, severity, message, path=text.path, line=line, quote=quote)


def _report(text: prose_measures.Text, measures: plain.Object, found: Sequence[Finding]) -> Iterator[str]:
    lengths, dialogue = measures["sentence_length"], measures["dialogue"]
    yield f"{len(text.words)} words in {len(text.sentences)} sentences and {len(text.paragraphs)} paragraphs."
    yield f"Sentence length: mean {lengths['mean']}, longest {lengths['longest']} words."
    yield f"Dialogue: {round(100 * dialogue['share'])} %."
    yield f"Adverbs: {measures['adverbs']['count']}. Passive sentences: {measures['passive']['count']}."
    yield f"Pace by paragraph: {', '.join(entry['pace'] for entry in measures['pacing'][:40])}."
    yield "Findings:"
    yield from findings.lines(found, "none")
