"""The tool `file_locator`: find the files of a story that a task is about."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from app import errors
from app.domain import plain
from app.engine import ports
from app.tools import arguments, bounds, findings
from app.tools.story import canon, documents, matching, outline_matching, outlines, story_files
from app.tools.story.cast import Cast
from app.tools.story.story_files import Category, StoryFile
from app.tools.story.story_scenes import Located, Story, clue_of
from app.tools.workspace import Workspace

_NOUNS = {"scene": "scene", "outline": "outline", "canon": "canon card"}
_MAX_TERMS = 64
_TASK_WORDS = frozenset(
    "draft write rewrite check review audit validate update analyse analyze please task do make".split()
)
_NAME_WEIGHT, _METADATA_WEIGHT, _HEADING_WEIGHT, _BODY_WEIGHT = 4.0, 3.0, 2.0, 0.5
_BODY_HITS_COUNTED = 5
_PATH_SCORE = 50.0
# The scene that the task means ranks above all files that only share its words.
_MEANT_SCORE = 40.0
# A card of a character in the scene ranks below any file that the task itself names.
_NAMED_SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: str
    category: Category
    document: documents.Document
    name_terms: frozenset[str]
    metadata_terms: frozenset[str]
    heading_terms: frozenset[str]
    body_terms: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    file: _File
    score: float
    reason: str


class FileLocator:
    """Rank the text files of the workspace by how well they fit a task."""

    name = "file_locator"
    description = "Find the scenes, outlines, canon cards and other files that a task is about, best first."
    args_schema: plain.Object = arguments.schema(
        required=["search_criteria"],
        search_criteria=arguments.text("Words, names, a path or the description of a task.", max_length=20_000),
        scan_mode=arguments.choice(
            "FAST_SCAN: names of files, headings and front matter; DEEP_SCAN: their whole text as well.",
            "FAST_SCAN",
            "DEEP_SCAN",
            default="FAST_SCAN",
        ),
        max_results=arguments.count("Most files to return.", minimum=1, maximum=100, default=12),
        category=arguments.choice("Only files of this category.", *story_files.CATEGORIES),
        folder=arguments.path("Only files below this folder."),
    )

    def execute(self, args: plain.Object, workspace: Workspace) -> ports.ToolOutput:
        """Return the matching files, best first."""
        params = arguments.complete(self.name, self.args_schema, args)
        read, truncated = story_files.read_all(workspace, params.get("folder", ""))
        deep = params["scan_mode"] == "DEEP_SCAN"
        files = [_searched(file, deep=deep) for file in read]
        meant, unsure = _meant(read, params["search_criteria"])
        hits = _ranked(files, params["search_criteria"], meant)
        wanted = [hit for hit in hits if params.get("category") in {None, hit.file.category}]
        shown = wanted[: params["max_results"]]
        summary = _summary(shown, len(wanted)) + ("; the project has more files than were read" if truncated else "")
        payload = {
            **_by_category(shown),
            "matches": [_shown(hit, shown[0].score, params["search_criteria"], deep) for hit in shown],
            "match_count": len(wanted),
            "scene": None if meant is None else _scene(meant),
            "unsure": unsure,
            "counts": _counts(shown),
            "scanned_files": len(read),
            "truncated": truncated,
            "report": bounds.report([summary, *(f"- {hit.file.path} ({hit.file.category})" for hit in shown)]),
        }
        return ports.ToolOutput(payload=bounds.fitted(payload, _LISTS), summary=summary)


_LISTS = ("matches", "scene_paths", "canon_paths", "other_paths")


def _meant(files: Sequence[StoryFile], criteria: str) -> tuple[Located | None, str | None]:
    """Return the scene that the criteria mean, or the reason why it is uncertain; neither if they mean none."""
    try:
        return Story(files).locate(clue_of(criteria)), None
    except errors.ToolFailed as failure:
        return None, failure.message if failure.code == outline_matching.AMBIGUOUS else None


def _scene(meant: Located) -> dict[str, plain.Json]:
    planned = meant.planned
    return {
        "label": bounds.clipped(meant.label),
        "number": planned.number if planned else None,
        "paths": list(meant.paths),
        "outline_path": meant.outline.path if meant.outline else None,
    }


def _searched(file: StoryFile, *, deep: bool) -> _File:
    document = file.document
    metadata = [document.scalar(name) or "" for name in document.front_matter]
    return _File(
        path=file.path,
        category=file.category,
        document=document,
        name_terms=_terms([str(PurePosixPath(file.path).with_suffix(""))]),
        metadata_terms=_terms([*document.front_matter, *metadata]),
        heading_terms=_terms(heading.text for heading in documents.headings(document)),
        body_terms=Counter(map(matching.stem, matching.tokens("\n".join(document.lines)))) if deep else {},
    )


def _terms(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(term for text in texts for term in matching.terms(text))


def _ranked(files: Sequence[_File], criteria: str, meant: Located | None) -> list[_Hit]:
    terms = _asked(criteria)
    frequency = Counter(term for file in files for term in terms if _weight(file, term))
    # A word that few files contain is more significant (inverse document frequency).
    worth = {term: 1.0 + math.log(len(files) / frequency[term]) for term in frequency}
    named, scene = set(criteria.split()), set(meant.paths) if meant else set()
    hits = {}
    for file in files:
        matched = [term for term in worth if _weight(file, term)]
        score = sum(worth[term] * _weight(file, term) for term in matched) + _PATH_SCORE * (file.path in named)
        score += _MEANT_SCORE * (file.path in scene)
        if score:
            words = ", ".join(terms[term] for term in matched[:6])
            reason = f"is {meant.label}" if meant and file.path in scene else f"matches {words or file.path}"
            hits[file.path] = _Hit(file=file, score=score, reason=reason)
    for hit in _named_cards(files, criteria, hits):
        hits.setdefault(hit.file.path, hit)
    return sorted(hits.values(), key=lambda hit: (-hit.score, hit.file.path))


def _asked(criteria: str) -> dict[str, str]:
    """Return the search words by their stems, without words that only describe a task as such."""
    words = (token for token in matching.tokens(criteria) if token not in matching.STOPWORDS | _TASK_WORDS)
    wanted_terms: dict[str, str] = {}
    for word in itertools.islice(words, _MAX_TERMS):
        wanted_terms.setdefault(matching.stem(word), word)
    return wanted_terms


def _weight(file: _File, term: str) -> float:
    return (
        _NAME_WEIGHT * (term in file.name_terms)
        + _METADATA_WEIGHT * (term in file.metadata_terms)
        + _HEADING_WEIGHT * (term in file.heading_terms)
        + _BODY_WEIGHT * min(file.body_terms.get(term, 0), _BODY_HITS_COUNTED)
    )


def _named_cards(files: Sequence[_File], criteria: str, hits: Mapping[str, _Hit]) -> list[_Hit]:
    """Return the cards of the characters in the task's planned scene, otherwise in the best matching scene."""
    source = _source_of_names(files, criteria, hits)
    if source is None:
        return []
    path, text = source
    cards = {file.path: file for file in files if file.category == "canon"}
    cast = Cast(canon.of_document(card.document) for card in cards.values())
    appear = {mention.entity.document.path for mention in cast.mentions(text) if mention.entity.document}
    score = _NAMED_SHARE * max(hit.score for hit in hits.values())
    return [_Hit(file=cards[card], score=score, reason=f"named in {path}") for card in sorted(appear)]


def _source_of_names(files: Sequence[_File], criteria: str, hits: Mapping[str, _Hit]) -> tuple[str, str] | None:
    for file in files:
        if file.category == "outline" and file.path in hits:
            match = outline_matching.match(outlines.of_document(file.document), criteria)
            if match is not None:
                fields = (field.value for field in match.scene.fields.values())
                return file.path, "\n".join([match.scene.title, *fields, *match.scene.beats])
    best = max((hit for hit in hits.values() if hit.file.category == "scene"), key=lambda hit: hit.score, default=None)
    if best is None:
        return None
    document = best.file.document
    return best.file.path, "\n".join([document.title, *(document.scalar(name) or "" for name in document.front_matter)])


def _shown(hit: _Hit, best_score: float, criteria: str, deep: bool) -> dict[str, plain.Json]:
    return {
        "path": hit.file.path,
        "score": round(hit.score / best_score, 3),
        "category": hit.file.category,
        "title": bounds.clipped(hit.file.document.title),
        "snippet": _snippet(hit.file.document, frozenset(_asked(criteria)), deep),
        "reason": bounds.clipped(hit.reason),
    }


def _snippet(document: documents.Document, terms: frozenset[str], deep: bool) -> str:
    lines = [heading.text for heading in documents.headings(document)]
    if deep:
        lines += [text for _, text in documents.body(document)]
    best = max(lines, key=lambda line: len(terms & set(matching.terms(line))), default=document.title)
    return bounds.clipped(best)


def _by_category(hits: Sequence[_Hit]) -> dict[str, plain.Json]:
    paths = {
        category: [hit.file.path for hit in hits if hit.file.category == category]
        for category in story_files.CATEGORIES
    }
    return {
        "scene_paths": paths["scene"],
        "canon_paths": paths["canon"],
        "other_paths": paths["other"],
        "outline_path": next(iter(paths["outline"]), None),
    }


def _counts(hits: Sequence[_Hit]) -> dict[str, plain.Json]:
    counts = Counter(hit.file.category for hit in hits)
    return {category: counts[category] for category in story_files.CATEGORIES}


def _summary(hits: Sequence[_Hit], found: int) -> str:
    counts = _counts(hits)
    parts = [findings.counted(counts[name], noun) for name, noun in _NOUNS.items() if counts[name]]
    parts += [f"{counts['other']} other"] if counts["other"] else []
    best = f", the best {len(hits)} listed" if found > len(hits) else ""
    return f"{findings.counted(found, 'file')} found{best}" + (f": {', '.join(parts)}" if parts else "")
