"""Draw a run from its folder as an SVG timeline, with every step, interrupted attempt and restart of the service.

python3 scripts/draw_run.py .control-room/runs/RUN_ID docs/run.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

LEFT, RIGHT, TOP, ROW, WIDTH = 190, 24, 92, 26, 900
COLOURS = {"tool": "#0f766e", "agent": "#4f46e5", "check": "#64748b", "interrupted": "#dc2626"}
LEGEND = {"tool": "tool", "agent": "agent", "check": "file or check", "interrupted": "interrupted attempt"}


def main() -> None:
    """Draw one run."""
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.write_text("\n".join(_drawing(*(_lines(folder / f"{name}.jsonl") for name in ("steps", "control")))) + "\n")
    print(target)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _drawing(steps: list[dict[str, Any]], control: list[dict[str, Any]]) -> Iterator[str]:
    shown = [step for step in steps if step["status"] != "skipped"]
    begin, end = _seconds(control[0]["at"]), _seconds(control[-1]["at"])
    scale = (WIDTH - LEFT - RIGHT) / (end - begin)
    rows = {step["key"]: number for number, step in enumerate(shown)}
    bottom = TOP + ROW * len(rows)

    def x(at: str) -> float:
        return round(LEFT + (_seconds(at) - begin) * scale, 1)

    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 46}" role="img"'
    yield ' font-family="system-ui, sans-serif" font-size="13">'
    yield f"<title>A run of {len(rows)} steps, with its restarts</title>"
    yield f'<rect width="{WIDTH}" height="{bottom + 46}" rx="8" fill="#ffffff"/>'
    yield _text(20, 30, "One run: every finished step is on disk before the next one starts", size=16, weight=600)
    yield from _legend()
    for key, number in rows.items():
        y = TOP + ROW * number
        yield f'<rect x="12" y="{y}" width="{WIDTH - 24}" height="{ROW}" fill="{"#f8fafc" if number % 2 else "#fff"}"/>'
        yield _text(20, y + 17, key)
    for taken in control[1:]:
        if taken["kind"] == "taken":
            yield from _restart(x(taken["at"]), bottom)
    for line in control:
        if line["kind"] == "started" and line["key"] in rows and not _finished(line, shown):
            next_taken = next(later["at"] for later in control if later["kind"] == "taken" and later["at"] > line["at"])
            yield _bar(x(line["at"]), x(next_taken), TOP + ROW * rows[line["key"]], COLOURS["interrupted"], dashed=True)
    for step in shown:
        first, last, y = x(step["started_at"]), x(step["completed_at"]), TOP + ROW * rows[step["key"]]
        yield _bar(first, last, y, COLOURS[_kind(step)])
        took = _seconds(step["completed_at"]) - _seconds(step["started_at"])
        room = last + 60 < WIDTH
        yield _text(last + 8 if room else first - 8, y + 17, f"{took:.1f} s", fill="#475569", end=not room)
    yield _text(LEFT, bottom + 28, "0 s", fill="#475569")
    yield _text(WIDTH - RIGHT, bottom + 28, f"{end - begin:.0f} s, {control[-1]['status']}", fill="#475569", end=True)
    yield "</svg>"


def _legend() -> Iterator[str]:
    place = 20
    for name, label in LEGEND.items():
        yield _bar(place, place + 22, 42, COLOURS[name], dashed=name == "interrupted")
        yield _text(place + 30, 59, label, fill="#475569")
        place += 50 + 8 * len(label)


def _restart(x: float, bottom: float) -> Iterator[str]:
    colour = COLOURS["interrupted"]
    yield f'<line x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{bottom}" stroke="{colour}" stroke-width="1.5"/>'
    yield _text(x + 6, TOP - 2, "service killed and restarted: continues with the unfinished step", fill=colour)


def _bar(first: float, last: float, y: float, colour: str, *, dashed: bool = False) -> str:
    look = f'fill="none" stroke="{colour}" stroke-dasharray="4 3"' if dashed else f'fill="{colour}"'
    return f'<rect x="{first}" y="{y + 6}" width="{max(last - first, 3):.1f}" height="14" rx="3" {look}/>'


def _text(
    x: float, y: float, text: str, *, fill: str = "#0f172a", size: int = 13, weight: int = 400, end: bool = False
) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return (
        f'<text x="{x}" y="{y}" fill="{fill}" font-size="{size}" font-weight="{weight}"{anchor}>{escape(text)}</text>'
    )


def _kind(step: dict[str, Any]) -> str:
    return "tool" if step["tool"] else "agent" if step["agent_archetype"] else "check"


def _finished(started: dict[str, Any], steps: list[dict[str, Any]]) -> bool:
    return any(step["key"] == started["key"] and step["attempt"] == started["attempt"] for step in steps)


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


if __name__ == "__main__":
    main()
