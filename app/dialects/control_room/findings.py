"""Findings: open an issue for each finding of a recipe's tools or agents, and recognise it in the next run."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.dialects.control_room import done, refs
from app.domain import operations, plain, records
from app.engine import ports

IDENTITY_VERSION = 2  # First driver version whose findings have an identity.
CLOSE = "findings.close"  # Step that closes the issues of findings that were not found again.

_MAX_FINDINGS = 1000
_FILES = 200
_LISTED = 100
_SEVERITIES = ("error", "warning", "hint")
_PLACE_FIELDS = ("path", "file", "scene_path")

# A missing thing counts once per file, even if it is missing at several places.
_MISSING = re.compile(r"(no|missing)_")
# Counts and line numbers change with every edit while the finding stays the same.
_CHANGING = re.compile(
    r"\(?\b\d[\d.,]*\s+(?:times?|words?|sentences?|adverbs?|characters?|lines?)\b\)?|\blines?\s+\d+(?:\s*[-–]\s*\d+)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The facts by which findings of two runs are the same."""

    kind: str  # Kind of the finding.
    file: str  # File of the finding; empty if it names none.
    words: str  # Its message without the parts that change from run to run; empty if the finding is a missing thing.


async def open_all(ctx: ports.Context, values: refs.Values) -> list[records.Record]:
    """Open or update an issue for each of the recipe's `findings`, and return the records."""
    wanted = ctx.run.recipe.get("findings")
    if wanted is None:
        return []
    reference = refs.read(wanted["$ref"])
    try:
        found = await _read(values, reference)
    except refs.BrokenReference as error:
        raise await done.refused(ctx, values, "findings", done.place_of("findings", reference.source), error) from error
    receipts = values.receipts(reference.root)
    if ctx.run.driver_version < IDENTITY_VERSION:
        issues = [_issue_of_one(finding, receipts) for finding in found]
    else:
        looked_at = values.looked_at(reference.root)
        issues = [_issue_of(identity, alike, receipts, looked_at) for identity, alike in _grouped(found).items()]
    opened = []
    for index, issue in enumerate(issues):
        key = f"finding[{index}]"
        opened.append(done.successful(await ctx.perform(key, issue, done.place_of(key, reference.source))))
    return opened


async def close_gone(ctx: ports.Context, values: refs.Values, opened: Sequence[records.Record]) -> None:
    """Close the issues of findings that this run looked for in the same files and did not find."""
    wanted = ctx.run.recipe.get("findings")
    if wanted is None or ctx.run.driver_version < IDENTITY_VERSION:
        return
    reference = refs.read(wanted["$ref"])
    looked_at = values.looked_at(reference.root)
    if not looked_at:
        return
    whole = await values.content(reference.root)
    # A list that was cut off may omit findings that still exist.
    if isinstance(whole, dict) and whole.get("truncated") is True:
        return
    found = tuple(record.output["issue_id"] for record in opened if isinstance(record.output, dict))
    left_out = whole.get("left_out", ()) if isinstance(whole, dict) else ()
    close = operations.CloseFindings(found=found, looked_at=looked_at, left_out=tuple(left_out))
    done.successful(await ctx.perform(CLOSE, close, done.place_of(CLOSE, reference.source)))


def paths_of(args: plain.Object) -> tuple[str, ...]:
    """Return the files and folders that a tool's arguments name, as `…_path` and `…_paths`."""
    named = (value for name, value in args.items() if name.endswith(("_path", "_paths")))
    params = (path for value in named for path in (value if isinstance(value, list) else [value]))
    return tuple(dict.fromkeys(_normal(path) for path in params if isinstance(path, str)))


def identity(finding: plain.Json) -> Identity:
    """Return the identity of a finding, which is the same in every run."""
    facts = finding if isinstance(finding, dict) else {}
    reported = facts.get("kind")
    kind = reported if isinstance(reported, str) else "finding"
    file = next((str(facts[name]) for name in _PLACE_FIELDS if isinstance(facts.get(name), str)), "")
    words = "" if _MISSING.match(kind) else _words(_message(finding))
    return Identity(kind=kind, file=_normal(file) if file else "", words=words)


def _message(finding: plain.Json) -> str:
    facts = finding if isinstance(finding, dict) else {}
    reported = facts.get("message") or facts.get("title") or finding
    return reported if isinstance(reported, str) else plain.encode(reported).decode()


def _words(text: str) -> str:
    plain_text = _CHANGING.sub(" ", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(re.findall(r"\w+", plain_text))


def _normal(path: str) -> str:
    return posixpath.normpath(path)


def _grouped(found: Sequence[plain.Json]) -> dict[Identity, list[plain.Json]]:
    grouped: dict[Identity, list[plain.Json]] = {}
    for finding in found:
        grouped.setdefault(identity(finding), []).append(finding)
    return grouped


def _issue_of(
    same: Identity, alike: Sequence[plain.Json], receipts: tuple[str, ...], looked_at: tuple[str, ...]
) -> operations.OpenIssue:
    first, reported = alike[0], [_at(finding) for finding in alike]
    title = plain.preview(_message(first)) or "Finding"
    body = reported[0] if len(reported[0]) > len(title) else ""
    facts: dict[str, plain.Json] = {"kind": "finding", "finding": first}
    if len(alike) > 1:
        title = plain.preview(f"{same.kind.replace('_', ' ')}: {len(alike)} places in {same.file or 'the text'}")
        body = "\n".join(f"- {line}" for line in reported[:_LISTED])
        facts["findings"] = list(alike[:_LISTED])
    files = sorted({path for finding in alike for path in _files(finding)})[:_FILES]
    about: dict[str, plain.Json] = {"files": files} if files else {"looked_at": list(looked_at)}
    return operations.OpenIssue(
        title=title,
        body=body,
        facts=facts,
        receipts=receipts,
        severity=_worst(alike),
        identity={"kind": same.kind, "file": same.file, "words": same.words, **about},
    )


def _issue_of_one(finding: plain.Json, receipts: tuple[str, ...]) -> operations.OpenIssue:
    facts = finding if isinstance(finding, dict) else {}
    reported = facts.get("message") or facts.get("title") or finding
    title = plain.preview(reported)
    body = reported if isinstance(reported, str) and len(reported) > len(title) else ""
    return operations.OpenIssue(
        title=title or "Finding", body=body, facts={"kind": "finding", "finding": finding}, receipts=receipts
    )


def _at(finding: plain.Json) -> str:
    facts = finding if isinstance(finding, dict) else {}
    line, file = facts.get("line"), identity(finding).file
    place = f"{file}:{line}" if file and isinstance(line, int) and line > 0 else file
    return f"{_message(finding)} ({place})" if place else _message(finding)


def _files(value: plain.Json) -> Iterator[str]:
    # A stack instead of recursion: the output of tools and agents may be nested without limit.
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            yield from (_normal(part[name]) for name in _PLACE_FIELDS if isinstance(part.get(name), str) and part[name])
            pending += part.values()


def _worst(alike: Sequence[plain.Json]) -> str | None:
    reported = {finding.get("severity") for finding in alike if isinstance(finding, dict)}
    return next((severity for severity in _SEVERITIES if severity in reported), None)


async def _read(values: refs.Values, reference: refs.Reference) -> Sequence[plain.Json]:
    found = values.listed(reference, await values.follow(reference))
    if len(found) > _MAX_FINDINGS:
        raise refs.broken(reference, reference.text, f"it has more than {_MAX_FINDINGS} elements")
    return found
