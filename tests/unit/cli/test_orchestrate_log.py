"""The log of a run."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.cli.orchestrate import log
from app.domain import plain

EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "run.created", "key": None, "data": {"recipe_id": "flow"}},
    {"type": "step.started", "key": "A", "data": {"attempt": 2}},
    {"type": "step.started", "key": "A.files", "data": {"attempt": 1}},
    {"type": "step.failed", "key": "A", "data": {"error": {"message": "token abcd1234 refused"}, "attempt": 2}},
    {"type": "step.retrying", "key": "A", "data": {"name": "odd", "args": [1], "message": "odd"}},
    {"type": "recipe.note", "key": None, "data": {}},
    {"type": "run.ended", "key": None, "data": {"status": "failed", "error": {"code": "step_failed"}}},
)


@pytest.fixture(autouse=True)
def usual_logging() -> Iterator[None]:
    """Check that a test leaves the process's logging unchanged."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield

    assert (root.handlers, root.level) == (handlers, level)


def logged(folder: Path, level: str = "debug", *, trace: bool = False, verbose: bool = False) -> list[dict[str, Any]]:
    """Log the events, and return the lines."""
    with log.kept(folder, level, plain.Masker({"abcd1234"}), verbose=verbose):
        for event in EVENTS:
            log.Log(run_id="r1", trace=trace).write_event(event)
    return [json.loads(line) for line in (folder / "logs" / "orchestrator.log").read_text().splitlines()]


def test_each_event_is_a_line_with_its_level(tmp_path: Path):
    """A failure is an error, a retry a warning, and an operation that prepares a step a debug line."""
    lines = logged(tmp_path)

    assert [(line["message"], line["level"]) for line in lines] == [
        ("run.created", "info"),
        ("step.started", "info"),
        ("step.started", "debug"),
        ("step.failed", "error"),
        ("step.retrying", "warning"),
        ("recipe.note", "debug"),
        ("run.ended", "error"),
    ]
    assert all(line["run_id"] == "r1" and line["at"].endswith("Z") for line in lines)
    assert lines[4] | {"name_": "odd", "args_": [1], "message_": "odd"} == lines[4]


def test_secrets_are_masked(tmp_path: Path):
    """A secret in an event is masked in the log."""
    logged(tmp_path)
    text = (tmp_path / "logs" / "orchestrator.log").read_text()

    assert "abcd1234" not in text
    assert "token *** refused" in text


def test_less_can_be_logged(tmp_path: Path):
    """Lines below the requested level are not written."""
    assert [line["level"] for line in logged(tmp_path, "warn")] == ["error", "warning", "error"]


def test_lines_can_be_traced(tmp_path: Path):
    """With tracing, the trace is the run and a span is one try of a step."""
    spans = [(line["trace_id"], line.get("span_id")) for line in logged(tmp_path, trace=True)]

    assert spans[:4] == [("r1", None), ("r1", "A#2"), ("r1", "A.files#1"), ("r1", "A#2")]


def test_a_resumed_run_appends_to_its_log(tmp_path: Path):
    """A resumed run appends to its log, which only its owner can read."""
    logged(tmp_path)

    assert len(logged(tmp_path)) == 2 * len(EVENTS)
    assert oct((tmp_path / "logs" / "orchestrator.log").stat().st_mode)[-3:] == "600"


def test_the_log_can_be_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """With `--verbose` the log's lines also go to stderr, and otherwise not."""
    logged(tmp_path, "error")
    quiet = capsys.readouterr().err
    logged(tmp_path, "error", verbose=True)

    assert quiet == ""
    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == [
        "step.failed",
        "run.ended",
    ]


def test_a_link_in_the_place_of_the_log_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A link in the place of the log is not followed; a warning is printed and no log is kept."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "orchestrator.log").symlink_to(tmp_path / "elsewhere")
    with log.kept(tmp_path, "info", plain.Masker(), verbose=False):
        log.Log(run_id="r1", trace=False).write_event(EVENTS[0])

    assert not (tmp_path / "elsewhere").exists()
    assert "no log is kept" in capsys.readouterr().err
