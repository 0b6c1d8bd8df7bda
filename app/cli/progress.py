"""Progress: a run's events, step by step, on a live terminal or as plain lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.cli import formats, terminal


class Progress:
    """Show events as they come."""

    def __init__(self, live: bool) -> None:
        self._live = live
        self._open: dict[str, str] = {}
        self._phases: dict[str, str] = {}
        self._shown = False

    def show(self, event: Mapping[str, Any]) -> None:
        """Show one event."""
        try:
            line = self._line(event)
        except (AttributeError, KeyError, TypeError, ValueError):
            # Somebody has written it into the file of events by hand.
            line = f"  {event.get('type')}"
        self._clear()
        if line is not None:
            terminal.say(line)
        self._show_open()

    def finish(self) -> None:
        """Leave the terminal clean."""
        self._open.clear()
        self._clear()

    def _line(self, event: Mapping[str, Any]) -> str | None:
        key, told = event.get("key") or "", event.get("data") or {}
        match event["type"]:
            case "step.started":
                return self._begin(key, told)
            case "step.finished":
                return self._end(key, told.get("status", "done"), told.get("preview"), told)
            case "step.failed":
                return self._end(key, "failed", _message(told), told)
            case "step.retrying":
                return self._end(key, "retrying", f"at {told.get('retry_at')}: {_message(told)}", told)
            case "step.interrupted":
                return self._end(key, "interrupted", None, told)
            case "run.started" | "run.unpaused" | "recovery.continued" | "recipe.note" | "gate.decided":
                return None
            case "gate.opened":
                return f"  {key} asks: {formats.cell(told.get('prompt'))}"
            case "run.created":
                return f"run {event['run_id']} {told.get('recipe_id', '')}".rstrip()
            case "run.ended":
                return _sentence(
                    f"run {event['run_id']} {told.get('status')}", _message(told) or formats.partial(told.get("ending"))
                )
            case other:
                reason = told.get("reason") or _message(told)
                return _sentence(other.replace(".", " "), str(reason) if reason else None)

    def _begin(self, key: str, told: Mapping[str, Any]) -> str | None:
        again = f" (try {told['attempt']})" if told.get("attempt", 1) > 1 else ""
        self._phases[key] = told.get("phase") or "-"
        self._open[key] = f"{self._row('running', key)}{again}"
        return None if self._live else self._open[key]

    def _end(self, key: str, status: str, what: str | None, told: Mapping[str, Any]) -> str:
        self._open.pop(key, None)
        took = f"{told['duration_ms'] / 1000:8.1f} s" if told.get("duration_ms") is not None else " " * 10
        return f"{self._row(status, key)} {took}  {formats.cell(what)}".rstrip(" -")

    def _row(self, status: str, key: str) -> str:
        return f"  {self._phases.get(key, '-'):<4} {status:<11} {key:<24}"

    def _show_open(self) -> None:
        if self._live and self._open:
            terminal.replace_line(next(reversed(self._open.values())))
            self._shown = True

    def _clear(self) -> None:
        if self._shown:
            terminal.replace_line("")
            self._shown = False


def _sentence(what: str, why: str | None) -> str:
    return f"{what}: {why}" if why else what


def _message(told: Mapping[str, Any]) -> str | None:
    return formats.error(told["error"]) if told.get("error") else None
