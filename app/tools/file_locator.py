"""
The tool `file_locator`: find the files of a story that a task is about.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from app import errors
from app.engine import plain, ports
from app.tools import arguments, bounds, canon, documents, findings, matching, outlines
from app.tools.cast import Cast
from app.tools.workspace import Workspace

Category = Literal["scene", "outline", "canon", "other"]
"""What a file is for the story."""

_CATEGORIES: tuple[Category, ...] = ("scene", "outline", "canon", "other")
_NOUNS = {"scene": "scene", "outline": "outline", "canon": "canon card"}
_MAX_TERMS = 64
_TASK_WORDS = frozenset(
    "draft write rewrite check review audit validate update analyse analyze please task do make".split()
)
_NAME_WEIGHT, _METADATA_WEIGHT, _HEADING_WEIGHT, _BODY_WEIGHT = 4.0, 3.0, 2.0, 0.5
_BODY_HITS_COUNTED = 5
_PATH_SCORE = 50.0
# A card of someone in the scene is worth less than any file that the task itself names.
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
    """
    Rank the text files of the workspace by how well they fit a task.
    """

    name = "file_locator"
    description = "Find the scenes, outlines, canon cards and other files that a task is about, best first."
    args_schema: Mapping[str, plain.Json] = arguments.schema(
        required=["search_criteria"],
        search_criteria=arguments.text("Words, names, a path or the description of a task.", max_length=20_000),
        scan_mode=arguments.choice(
            "FAST_SCAN: names of files, headings and front matter; DEEP_SCAN: their whole text as well.",
            "FAST_SCAN",
            "DEEP_SCAN",
            default="FAST_SCAN",
        ),
        max_results=arguments.count("Most files to return.", minimum=1, maximum=100, default=12),
        category=arguments.choice("Only files of this category.", *_CATEGORIES),
        folder=arguments.path("Only files below this folder."),
    )

    def execute(self, args: Mapping[str, plain.Json], workspace: Workspace) -> ports.ToolOutput:
        """
        Return the matching files, best first.
        """
        given = arguments.complete(self.name, self.args_schema, args)
        scan = workspace.scan(given.get("folder", ""))
        deep = given["scan_mode"] == "DEEP_SCAN"
        files = [file for found in scan.files if (file := _read(workspace, found.path, deep=deep)) is not None]
        hits = _ranked(files, given["search_criteria"])
        wanted = [hit for hit in hits if given.get("category") in {None, hit.file.category}]
        shown = wanted[: given["max_results"]]
        payload = {
            **_by_category(shown),
            "matches": [_shown(hit, shown[0].score, given["search_criteria"], deep) for hit in shown],
            "match_count": len(wanted),
            "counts": _counts(shown),
            "scanned_files": len(scan.files),
            "truncated": scan.truncated,
            "report": bounds.report([_summary(shown), *(f"- {hit.file.path} ({hit.file.category})" for hit in shown)]),
        }
        return ports.ToolOutput(payload=bounds.fitted(payload, _LISTS), summary=_summary(shown))


_LISTS = ("matches", "scene_paths", "canon_paths", "other_paths")


def _read(workspace: Workspace, path: str, *, deep: bool) -> _File | None:
    """
    Read what is searched of a file; None if it is not text. A file that is too large is known by its name only.
    """
    try:
        document = documents.read(workspace, path)
    except errors.ToolFailed as failure:
        if failure.code != "file_too_large":
            return None
        document = documents.parse("", path=path)
    metadata = [document.scalar(name) or "" for name in document.front_matter]
    return _File(
        path=path,
        category=_category(document),
        document=document,
        name_terms=_terms([str(PurePosixPath(path).with_suffix(""))]),
        metadata_terms=_terms([*document.front_matter, *metadata]),
        heading_terms=_terms(heading.text for heading in documents.headings(document)),
        body_terms=Counter(map(matching.stem, matching.tokens("\n".join(document.lines)))) if deep else {},
    )


def _terms(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(term for text in texts for term in matching.terms(text))


def _category(document: documents.Document) -> Category:
    path = PurePosixPath(document.path)
    kind = (document.scalar("kind", "type") or "").lower()
    folders = {part.lower() for part in path.parts[:-1]}
    if kind == "outline" or "outline" in path.stem.lower():
        return "outline"
    if kind == "scene" or path.stem.lower().startswith(("scn-", "scene")) or folders & {"scenes", "chapters"}:
        return "scene"
    if canon.kind_of(document) or folders & {"compendium", "canon", "codex"}:
        return "canon"
    return "other"


def _ranked(files: Sequence[_File], criteria: str) -> list[_Hit]:
    terms = _asked(criteria)
    frequency = Counter(term for file in files for term in terms if _weight(file, term))
    worth = {term: 1.0 + math.log(len(files) / frequency[term]) for term in frequency}
    named = set(criteria.split())
    hits = {}
    for file in files:
        matched = [term for term in worth if _weight(file, term)]
        score = sum(worth[term] * _weight(file, term) for term in matched) + _PATH_SCORE * (file.path in named)
        if score:
            words = ", ".join(terms[term] for term in matched[:6])
            hits[file.path] = _Hit(file=file, score=score, reason=f"matches {words or file.path}")
    for hit in _named_cards(files, criteria, hits):
        hits.setdefault(hit.file.path, hit)
    return sorted(hits.values(), key=lambda hit: (-hit.score, hit.file.path))


def _asked(criteria: str) -> dict[str, str]:
    """
    Return the words that are looked for by their stems; what only says that there is work to do is left out.
    """
    words = (token for token in matching.tokens(criteria) if token not in matching.STOPWORDS | _TASK_WORDS)
    asked: dict[str, str] = {}
    for word in itertools.islice(words, _MAX_TERMS):
        asked.setdefault(matching.stem(word), word)
    return asked


def _weight(file: _File, term: str) -> float:
    return (
        _NAME_WEIGHT * (term in file.name_terms)
        + _METADATA_WEIGHT * (term in file.metadata_terms)
        + _HEADING_WEIGHT * (term in file.heading_terms)
        + _BODY_WEIGHT * min(file.body_terms.get(term, 0), _BODY_HITS_COUNTED)
    )


def _named_cards(files: Sequence[_File], criteria: str, hits: Mapping[str, _Hit]) -> list[_Hit]:
    """
    Return the cards of those who appear in the planned scene that the task means, else in the best matching scene.
    """
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
            match = outlines.match(outlines.of_document(file.document), criteria)
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
    """
    Return the line that holds most of the terms, the first of them; only headings count unless the scan is deep.
    """
    lines = [heading.text for heading in documents.headings(document)]
    if deep:
        lines += [text for _, text in documents.body(document)]
    best = max(lines, key=lambda line: len(terms & set(matching.terms(line))), default=document.title)
    return bounds.clipped(best)


def _by_category(hits: Sequence[_Hit]) -> dict[str, plain.Json]:
    paths = {category: [hit.file.path for hit in hits if hit.file.category == category] for category in _CATEGORIES}
    return {
        "scene_paths": paths["scene"],
        "canon_paths": paths["canon"],
        "other_paths": paths["other"],
        "outline_path": next(iter(paths["outline"]), None),
    }


def _counts(hits: Sequence[_Hit]) -> dict[str, plain.Json]:
    counts = Counter(hit.file.category for hit in hits)
    return {category: counts[category] for category in _CATEGORIES}


def _summary(hits: Sequence[_Hit]) -> str:
    counts = _counts(hits)
    parts = [findings.counted(counts[name], noun) for name, noun in _NOUNS.items() if counts[name]]
    parts += [f"{counts['other']} other"] if counts["other"] else []
    return f"{findings.counted(len(hits), 'file')} found" + (f": {', '.join(parts)}" if parts else "")
