"""Telemetry: log lines that machines can read, and metrics without global state."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from app import telemetry
from app.domain import plain


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Restore the process's logging after the test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    """Return the log lines of a stream."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_log_line_is_one_json_object_with_its_facts():
    """A log line contains instant, level, logger, message and every extra fact."""
    stream = io.StringIO()
    telemetry.write_logs("info", stream)

    logging.getLogger("app.pool").warning("run %s parked\nfor now", "r1", extra={"run_id": "r1", "tries": 3})

    (line,) = lines(stream)
    assert line["level"] == "warning"
    assert line["logger"] == "app.pool"
    assert line["message"] == "run r1 parked\nfor now"
    assert (line["run_id"], line["tries"]) == ("r1", 3)
    assert str(line["at"]).endswith("Z")


def test_log_line_masks_secrets_in_message_facts_and_trace():
    """A secret is masked in the message, the facts and the trace of a log line."""
    stream = io.StringIO()
    secret = 'hunter"22'
    telemetry.write_logs("info", stream, plain.Masker([secret]).mask)

    try:
        raise ValueError(f"bad key {secret}")
    except ValueError:
        logging.getLogger("app.x").exception("failed with %s", secret, extra={"header": f"Bearer {secret}"})

    assert "hunter" not in stream.getvalue()
    assert "ValueError" in str(lines(stream)[0]["trace"])


def test_of_libraries_only_warnings_are_written():
    """Lines of libraries below a warning are not written: they quote headers, requests and addresses with tickets."""
    stream = io.StringIO()
    telemetry.write_logs("debug", stream)

    for name in ("uvicorn.error", "websockets.server", "httpx", "openai", "app.x"):
        logging.getLogger(name).debug("< Sec-WebSocket-Protocol: %s", name)
        logging.getLogger(name).info("GET /ws?ticket=%s", name)
    logging.getLogger("uvicorn.error").warning("trouble")

    assert [line["logger"] for line in lines(stream)] == ["app.x", "app.x", "uvicorn.error"]


def test_a_log_line_is_one_line_wherever_it_is_read():
    """A log line stays one line for any reader, and its values cannot control the terminal."""
    stream = io.StringIO()
    telemetry.write_logs("info", stream)

    value = "a\n\r\x0b\x1b[2J\x85\u2028\u2029\x9b\u202e\U000e0041b"
    logging.getLogger("app.x").info("refused: %s", value, extra={"path": value})

    assert stream.getvalue().rstrip("\n").isprintable()
    assert lines(stream)[0]["path"] == value


def test_repeated_library_warnings_are_counted():
    """Repeated warnings of one place in a library are dropped after a few, and counted a minute later."""
    now = 0.0
    repeats = telemetry.Repeats(lambda: now, most=2)
    records = [
        logging.LogRecord(name, logging.WARNING, "p.py", 1, "x", (), None) for name in ["uvicorn"] * 5 + ["app.x"] * 5
    ]
    passed = [repeats.filter(record) for record in records]
    now = telemetry.QUIET_SECONDS
    late = logging.LogRecord("uvicorn", logging.WARNING, "p.py", 1, "x", (), None)

    assert passed == [True] * 2 + [False] * 3 + [True] * 5
    assert repeats.filter(late)
    assert vars(late)["left_out"] == 3


def test_lines_below_the_level_are_not_written():
    """Lines below the chosen level are not written."""
    stream = io.StringIO()
    telemetry.write_logs("warning", stream)

    logging.getLogger("app.x").info("quiet")

    assert stream.getvalue() == ""


def test_setting_logs_up_again_replaces_the_first_stream():
    """A second set-up does not write each line twice."""
    first, second = io.StringIO(), io.StringIO()
    telemetry.write_logs("info", first)
    telemetry.write_logs("info", second)

    logging.getLogger("app.x").info("once")

    assert first.getvalue() == ""
    assert len(lines(second)) == 1


def test_fact_without_json_form_is_written_as_text():
    """A path or an error as a fact is written as text."""
    stream = io.StringIO()
    telemetry.write_logs("info", stream)

    logging.getLogger("app.x").info("told", extra={"cause": OSError(28, "No space left")})

    assert "No space left" in str(lines(stream)[0]["cause"])


def test_every_metric_appears_under_its_documented_name():
    """Every recorded value appears under its documented name."""
    metrics = telemetry.Metrics()
    metrics.runs({"running": 2, "done": 5})
    metrics.pool(slots=8, queued=3)
    metrics.step("tool_call", "done", 0.02)
    metrics.request("GET", "/api/runs/{run_id}", 200, 0.001)

    text = metrics.text().decode()

    assert 'control_room_runs{state="done"} 5.0' in text
    assert "control_room_slots 8.0" in text
    assert "control_room_queue_length 3.0" in text
    assert 'control_room_steps_total{kind="tool_call",status="done"} 1.0' in text
    assert 'control_room_step_seconds_count{kind="tool_call"} 1.0' in text
    assert 'control_room_http_requests_total{method="GET",route="/api/runs/{run_id}",status="200"} 1.0' in text


def test_two_metrics_share_nothing():
    """Two services in one process count separately."""
    first, second = telemetry.Metrics(), telemetry.Metrics()
    first.step("check", "done", 0.1)

    assert "control_room_steps_total{" in first.text().decode()
    assert "control_room_steps_total{" not in second.text().decode()
