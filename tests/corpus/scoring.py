"""Scoring of the story tools on the corpus of planted contradictions.

Each book is checked through the tool's own interface, as the recipe `analytical_consistency` calls it. Each short
passage is checked in the same way, as a project of its own. A planted item counts as found if a finding of its kind
cites two of its places. Any other finding is a false alarm.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.tools.story.consistency_checker import ConsistencyChecker
from app.tools.workspace import Workspace

CORPUS = Path(__file__).parent
KINDS = (
    "age",
    "appearance",
    "side",
    "name_spelling",
    "place_side",
    "death",
    "dates_order",
    "distance_travel",
    "possession",
    "rank_relation",
)
_KIND_OF = {
    "age": "age",
    "eye_colour": "appearance",
    "hair_colour": "appearance",
    "beard_colour": "appearance",
    "side": "side",
    "hand": "side",
    "name": "name_spelling",
    "place_side": "place_side",
    "status": "death",
    "died": "death",
    "cause": "death",
    "owner": "possession",
    "date": "dates_order",
    "weekday": "dates_order",
    "next_day": "dates_order",
    "interval": "dates_order",
    "distance": "distance_travel",
    "travel_time": "distance_travel",
    "possession": "possession",
    "rank": "rank_relation",
    "trade": "rank_relation",
    "relation": "rank_relation",
}
_LISTED = re.compile(r"\s*(?:[-*+|#>]|\d+\.|\w[\w ]{0,30}:)")


@dataclass(slots=True, kw_only=True)
class Score:
    """The findings of the tools in one book."""

    book: str
    words: int
    planted: dict[str, list[str]] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)
    look_alikes: set[str] = field(default_factory=set)
    false: list[dict[str, Any]] = field(default_factory=list)
    summary: str = ""


def score(folder: Path, truth: Mapping[str, Any]) -> Score:
    """Run the tool on one book and compare its findings with the planted items."""
    scenes = [str(path.relative_to(folder)) for pattern in truth["scenes"] for path in sorted(folder.glob(pattern))]
    canon = {"canon_paths": list(truth["canon"])} if truth["canon"] else {}
    output = ConsistencyChecker().execute({"scene_paths": scenes, **canon}, Workspace(folder))
    files = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}
    result = Score(book=folder.name, words=sum(len(text.split()) for text in files.values()), summary=output.summary)
    quotes = {item["id"]: [place["quote"] for place in item["places"]] for item in truth["planted"]}
    kinds = {item["id"]: item["kind"] for item in [*truth["planted"], *truth["look_alikes"]]}
    planted = {item["id"]: _spots(item, folder, files) for item in truth["planted"]}
    similar = {item["id"]: _spots(item, folder, files) for item in truth["look_alikes"]}
    for item in truth["planted"]:
        result.planted.setdefault(item["kind"], []).append(item["id"])
    for finding in output.payload["conflicts"]:
        cited = set(_cited(finding, files))
        needed = 1 if finding["kind"] == "name_spelling" else 2
        kind = kind_of(finding)
        hits = {name for name, spots in planted.items() if kinds[name] == kind and _covers(cited, spots, needed)}
        if kind == "name_spelling":
            odd = str(finding["statements"][0]["value"])
            hits = {name for name in hits if any(odd in quote for quote in quotes[name])}
        result.found |= hits
        if not hits:
            result.look_alikes |= {name for name, spots in similar.items() if _covers(cited, spots, needed)}
            result.false.append(finding)
    return result


def kind_of(finding: Mapping[str, Any]) -> str | None:
    """Return the corpus's kind of a finding."""
    return _KIND_OF.get(finding["attribute"])


def _spots(item: Mapping[str, Any], folder: Path, files: Mapping[str, str]) -> list[set[tuple[str, int]]]:
    """Return the lines of each place of an item."""
    found = []
    for place in item["places"]:
        path = place["path"].removeprefix(f"{folder.name}/")
        text = files.get(path, "")
        position = text.find(place["quote"])
        first = text.count("\n", 0, max(position, 0)) + 1
        last = first + place["quote"].count("\n")
        found.append({(path, line) for line in _paragraph(text, first, last)})
    return found


def _paragraph(text: str, first: int, last: int) -> range:
    """Return the lines of the paragraph around the given lines, but of a list or a table only the given lines."""
    lines = text.split("\n")
    if _LISTED.match(lines[first - 1]):
        return range(first, last + 1)
    while first > 1 and lines[first - 2].strip() and not _LISTED.match(lines[first - 2]):
        first -= 1
    while last < len(lines) and lines[last].strip() and not _LISTED.match(lines[last]):
        last += 1
    return range(first, last + 1)


def _cited(finding: Mapping[str, Any], files: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    places = [finding, *finding.get("statements", ()), *([finding["canon"]] if finding.get("canon") else ())]
    yield from ((place["path"], place["line"]) for place in places)


def _covers(cited: set[tuple[str, int]], spots: Sequence[set[tuple[str, int]]], needed: int) -> bool:
    """Return whether enough places are cited; for a name, one place of the odd spelling is enough."""
    return sum(bool(cited & spot) for spot in spots) >= min(needed, len({frozenset(spot) for spot in spots}))


def books(part: str, corpus: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and the truth of each book of a part."""
    for truth in sorted((corpus / part).glob("*.truth.json")):
        folder = corpus / part / truth.name.removesuffix(".truth.json")
        yield folder, json.loads(truth.read_text())


def passages(corpus: Path, root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and the truth of each short passage, written below a folder as a project of its own."""
    for item in (
        item for path in sorted((corpus / "passages").glob("*.json")) for item in json.loads(path.read_text())
    ):
        folder = root / item["id"]
        for path, text in item["files"].items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        yield (
            folder,
            {
                "scenes": ["scenes/**/*.md"],
                "canon": sorted(path for path in item["files"] if not path.startswith("scenes/")),
                "planted": [item] if item["contradiction"] else [],
                "look_alikes": [] if item["contradiction"] else [item],
            },
        )


def outcome(one: Score) -> dict[str, Any]:
    """Return the findings in a book, in the form of the file that records the minimum."""
    return {"found": sorted(one.found), "false_alarms": [finding["message"] for finding in one.false]}


def outcomes(scores: Sequence[Score]) -> dict[str, Any]:
    """Return the results for short passages by kind: the ids that were found, and the passages with a false alarm."""
    kept: dict[str, Any] = {}
    for one in scores:
        of_kind = kept.setdefault(one.book.rpartition("-")[0], {"found": [], "false_alarms": []})
        of_kind["found"] += sorted(one.found)
        of_kind["false_alarms"] += [one.book] if one.false else []
    return kept


def table(scores: Sequence[Score], what: str = "books") -> list[str]:
    """Return recall for each kind, and false alarms, as a table."""
    planted: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for one in scores:
        for kind, ids in one.planted.items():
            planted[kind] += len(ids)
            found[kind] += len(one.found & set(ids))
    words = sum(one.words for one in scores)
    alarms = sum(len(one.false) for one in scores)
    rows = ["| kind | planted | found | recall |", "| --- | ---: | ---: | ---: |"]
    rows += [f"| {kind} | {planted[kind]} | {found[kind]} | {_share(found[kind], planted[kind])} |" for kind in KINDS]
    rows.append(f"| **all** | {planted.total()} | {found.total()} | {_share(found.total(), planted.total())} |")
    similar = sum(len(one.look_alikes) for one in scores)
    rows += [
        "",
        (
            f"{len(scores)} {what}, {words:,} words: {alarms} false alarms, {_rate(alarms, words)} for 10,000 words; "
            f"{similar} of them at a look-alike."
        ),
    ]
    return rows


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "–"


def _rate(alarms: int, words: int) -> str:
    return f"{10_000 * alarms / words:.2f}" if words else "–"


def write(path: Path, part: str, rows: Sequence[str]) -> None:
    """Replace the table for a part of the corpus between its marks in a page."""
    text = path.read_text()
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n" + "\n".join(rows) + f"\n{end}{after}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Score a part of the corpus and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["first", "second", "third", "passages"])
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--book")
    parser.add_argument("--record", action="store_true", help="keep what was found as the floor that a test holds")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args(arguments)
    scores = []
    with tempfile.TemporaryDirectory() as root:
        short = given.part == "passages"
        read = passages(given.corpus, Path(root)) if short else books(given.part, given.corpus)
        for folder, truth in read:
            if given.book in {None, folder.name}:
                scores.append(score(folder, truth))
                if given.verbose:
                    _explain(scores[-1], truth)
    rows = table(scores, "passages" if short else "books")
    print("\n".join(rows))
    if given.record:
        floor = outcomes(scores) if short else {one.book: outcome(one) for one in scores}
        (CORPUS / f"{given.part}.found.json").write_text(json.dumps(floor, indent=2) + "\n")
    if given.write:
        write(given.write, given.part, rows)


def _explain(one: Score, truth: Mapping[str, Any]) -> None:
    print(f"== {one.book}: {one.summary}")
    for item in truth["planted"]:
        mark = "found " if item["id"] in one.found else "MISSED"
        print(f"  {mark} {item['id']} {item['kind']}: {item['why']}")
    for finding in one.false:
        print(f"  FALSE {finding['kind']}: {finding['message']}")
        for place in [finding, *finding.get("statements", ())][:4]:
            print(f"      {place['path']}:{place['line']} {place['quote'][:150]}")
    print(f"  look-alikes reported: {sorted(one.look_alikes)}")
