"""A run's progress, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from app import errors
from app.cli import formats
from app.cli.following import EventPrinter, WaitPrinter
from app.domain import events

ERROR = {"code": "empty_reply", "message": "the agent said nothing", "key": "draft", "detail": {}}


def event_json(type: str, key: str | None = None, **data: Any) -> dict[str, Any]:
    """Return an event."""
    return events.Event(seq=1, at="2026-02-10T14:30:00.000Z", type=type, run_id="r1", key=key, data=data).to_json()


def shown(capsys: pytest.CaptureFixture[str], *happened: dict[str, Any], live: bool = False) -> str:
    """Show events and return the printed text."""
    progress = EventPrinter(live=live)
    for event in happened:
        progress.show(event)
    progress.finish()
    return capsys.readouterr().out


def test_plain_progress_is_one_line_an_event(capsys: pytest.CaptureFixture[str]):
    """Without a live terminal, each beginning and each result is one line."""
    lines = shown(
        capsys,
        event_json("run.created", recipe_id="creative_draft_scene"),
        event_json("step.started", "discover", step_id="discover", phase="a", attempt=1),
        event_json(
            "step.finished",
            "discover",
            step_id="discover",
            status="done",
            preview="12 files",
            duration_ms=40,
        ),
        event_json("run.ended", status="done", error=None),
    ).splitlines()

    assert lines[0] == "run r1 creative_draft_scene"
    assert lines[1].split() == ["a", "running", "discover"]
    assert lines[2].split() == ["a", "done", "discover", "0.0", "s", "12", "files"]
    assert lines[3] == "run r1 done"


def test_a_waiting_event_prints_no_line_of_its_own(capsys: pytest.CaptureFixture[str]):
    """A waiting event prints no line of its own."""
    assert shown(capsys, event_json("run.waiting", keys=["ship"])) == ""


def test_a_failed_step_is_printed_with_its_error_and_code(capsys: pytest.CaptureFixture[str]):
    """A failed step is printed with its error and code."""
    text = shown(capsys, event_json("step.failed", "draft", step_id="draft", error=ERROR, duration_ms=1200))

    assert "the agent said nothing [empty_reply]" in text


def test_live_progress_replaces_its_last_line(capsys: pytest.CaptureFixture[str]):
    """On a live terminal, the result of a step replaces its running line."""
    text = shown(
        capsys,
        event_json("step.started", "draft", step_id="draft", phase="b", attempt=1),
        event_json("step.finished", "draft", step_id="draft", status="done", preview="text", duration_ms=5),
        live=True,
    )

    assert text.startswith("\r\x1b[K  b    running     draft")
    assert text.count("\n") == 1
    assert text.endswith("text\n")


@pytest.mark.parametrize("type", sorted(events.EventType))
def test_every_event_can_be_shown_without_its_fields(capsys: pytest.CaptureFixture[str], type: str):
    """An event without its fields can be shown."""
    assert "Traceback" not in shown(capsys, event_json(type, "draft"))


@pytest.mark.parametrize("value", [1, "text", [], {}, True])
@pytest.mark.parametrize("type", sorted(events.EventType))
def test_an_event_with_any_fields_can_be_shown(capsys: pytest.CaptureFixture[str], type: str, value: object):
    """An event with fields of any type can be shown."""
    names = (
        "status",
        "error",
        "attempt",
        "phase",
        "preview",
        "duration_ms",
        "reason",
        "prompt",
        "recipe_id",
        "retry_at",
    )
    for name in names:
        shown(capsys, event_json("step.started", "draft", attempt=1), event_json(type, "draft", **{name: value}))

    assert shown(capsys, event_json(type, "draft") | {"data": value}) is not None


def test_a_partial_run_lists_its_failed_steps() -> None:
    """A partial run lists the steps that failed and those whose replies were cut off."""
    ending = {"reason": "reply_cut_off", "partial": True, "failed_steps": ["a"], "cut_off_steps": ["b", "c"]}

    assert formats.partial(ending) == "in part (failed: a; cut off: b, c)"
    assert formats.partial({"reason": "completed", "partial": False, "failed_steps": []}) is None
    assert formats.partial(None) is None
    missing = {"partial": False, "failed_steps": [], "missing_result": "verdict"}
    assert formats.partial(missing) == "without its result (verdict was never set)"
    both = "in part (failed: a; cut off: b, c), without its result (verdict was never set)"
    assert formats.partial({**ending, "missing_result": "verdict"}) == both


async def test_a_childs_gate_is_printed_once_while_a_run_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    """While a run is silent, a gate of its child is printed once with the command that answers it."""
    calls: list[str] = []
    link = {"run_id": "r2", "kind": "gate", "text": "Step ship asks: Go on?"}
    asks = {
        "status": "running",
        "sentence": "Step below waits for r2: ship asks.",
        "chain": [link | {"act": "answer it"}],
    }
    works = {"status": "running", "sentence": "Step below works.", "chain": [link]}
    answers: list[Any] = [works, errors.NotFound("it is gone"), asks, asks]

    class Explaining:
        async def call(self, use: Any, run_id: str) -> Any:
            calls.append(run_id)
            answer = answers[len(calls) - 1]
            if isinstance(answer, Exception):
                raise answer
            return answer

    client: Any = Explaining()
    waits = WaitPrinter(client, "r1", lambda: None)
    for _ in answers:
        await waits.print_new()

    assert calls == ["r1"] * 4
    assert capsys.readouterr().out.splitlines() == ["  waits: Step below waits for r2: ship asks.", "  answer it"]
