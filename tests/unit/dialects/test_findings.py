"""Findings of a pipeline: the same in every run, one issue for what a file lacks, closed by complete runs only."""

from __future__ import annotations

from typing import Any

import pytest

from app.dialects.control_room import findings
from app.domain.states import RunState
from tests.unit.dialects import bench

SLIP = {
    "kind": "name",
    "severity": "warning",
    "path": "a.md",
    "line": 3,
    "message": "Kaell (3 times) is a slip for Kael.",
}
"""A finding whose line and count change with every edit."""


def _pipeline(*found: Any, **changes: Any) -> bench.Pipeline:
    step = dict(bench.RECIPE["phase_a"][0]) | {"args": {"scene_paths": ["./Story/"], "outline_path": "Outline.md"}}
    given = {"phase_a": [step, *bench.RECIPE["phase_a"][1:]], "findings": {"$ref": "found.conflicts"}}
    pipeline = bench.Pipeline(bench.recipe(**(given | changes)))
    pipeline.tables.payloads["finder"] = {"files": [{"path": "a.md"}], "conflicts": list(found)}
    return pipeline


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"line": 40}, True),
        ({"message": "KAELL (12 times)  is a slip for “Kael”"}, True),
        ({"severity": "hint"}, True),
        ({"path": "./a.md"}, True),
        ({"path": "b.md"}, False),
        ({"kind": "attribute"}, False),
        ({"message": "Kaell is a slip for Kal."}, False),
    ],
)
def test_a_finding_is_known_by_kind_file_and_words(other: dict[str, Any], same: bool) -> None:
    """A finding is identified by kind, file and words, not by line, count, case and punctuation."""
    assert (findings.identity(SLIP) == findings.identity(SLIP | other)) is same


def test_numbers_that_mean_something_count() -> None:
    """The two values of a contradiction identify it."""
    ages = [findings.identity({"message": f"Bram: age is told as 71 and {age}."}) for age in (68, 69)]

    assert ages[0] != ages[1]


@pytest.mark.parametrize("finding", [None, 3, "Dates differ.", ["x"], {}, {"kind": 1, "path": 2, "message": [3]}])
def test_anything_has_an_identity(finding: Any) -> None:
    """An agent's finding may have any form."""
    assert findings.identity(finding) == findings.identity(finding)


async def test_missing_parts_of_a_file_are_one_issue() -> None:
    """Twenty scenes without a goal give one issue of the outline, which lists them with the worst severity."""
    gaps = [
        {
            "kind": "no_goal",
            "severity": "hint",
            "path": "Outline.md",
            "line": line,
            "message": f"Scene {line} names no goal.",
        }
        for line in range(1, 21)
    ]
    pipeline = _pipeline(*gaps, gaps[0] | {"path": "Other.md", "severity": "warning"}, SLIP)

    assert await pipeline.run() is RunState.DONE
    outline, other, slip = (pipeline.asked(f"finding[{index}]") for index in range(3))
    assert outline.title == "no goal: 20 places in Outline.md"
    assert "- Scene 20 names no goal. (Outline.md:20)" in outline.body
    assert (outline.severity, other.severity, slip.severity) == ("hint", "warning", "warning")
    assert slip.identity == {"kind": "name", "file": "a.md", "words": "kaell is a slip for kael", "files": ["a.md"]}


async def test_a_whole_run_names_found_issues_and_examined_files() -> None:
    """The last step names the found issues, and the files and folders that were examined."""
    pipeline = _pipeline(SLIP)

    assert await pipeline.run() is RunState.DONE
    assert pipeline.disk.recorded()[-1] == "findings.close"
    close = pipeline.asked("findings.close")
    assert (close.found, close.looked_at) == (("iss_finding[0]",), ("Story", "Outline.md"))


async def test_files_that_the_tool_could_not_read_are_named() -> None:
    """The last step names what the tool left out, so that findings about it stay open."""
    pipeline = _pipeline()
    pipeline.tables.payloads["finder"] |= {"left_out": ["Story/latin.md"]}

    assert await pipeline.run() is RunState.DONE
    assert pipeline.asked("findings.close").left_out == ("Story/latin.md",)


async def test_findings_in_an_argument_are_opened_and_close_none() -> None:
    """A list that the run was given becomes issues; no tool has looked for it, so none is closed."""
    pipeline = bench.Pipeline(
        bench.recipe(args_schema={"properties": {"known": {}}}, findings={"$ref": "task.args.known"}),
        args={"known": [SLIP]},
    )

    assert await pipeline.run() is RunState.DONE
    assert pipeline.disk.recorded()[-1] == "finding[0]"


async def test_both_sides_of_a_contradiction_are_files_of_it() -> None:
    """Each file that a finding names at any depth must be examined again before the finding is regarded as gone."""
    pipeline = _pipeline(SLIP | {"values": [{"path": "b.md"}, {"places": [{"path": "Cards/c.md"}]}]})
    await pipeline.run()

    assert pipeline.asked("finding[0]").identity["files"] == ["Cards/c.md", "a.md", "b.md"]


async def test_a_failed_run_closes_nothing() -> None:
    """A run whose definition of done is not met closes no issue."""
    pipeline = _pipeline(SLIP, dod=[{"check": "file_exists", "path": "none.md"}])

    assert await pipeline.run() is RunState.FAILED
    assert "findings.close" not in pipeline.disk.recorded()


@pytest.mark.parametrize(
    ("payload", "ref"),
    [({"conflicts": [], "truncated": True, "files": [{"path": "a.md"}]}, "found.conflicts"), ({}, "prose")],
)
async def test_a_check_that_saw_not_all_closes_nothing(payload: dict[str, Any], ref: str) -> None:
    """A cut list, and an agent's list, whose coverage is unknown, do not close issues."""
    pipeline = _pipeline(findings={"$ref": ref})
    pipeline.tables.payloads["finder"] |= payload
    pipeline.tables.replies["draft"] = "[]"

    assert await pipeline.run() is RunState.DONE
    assert "findings.close" not in pipeline.disk.recorded()
