"""Bounds: keep the results of tools small enough for journals, receipts and prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.domain import plain

PAYLOAD_BYTES = 24_000
"""Largest payload as compact JSON; written with indentation, it still fits the 32 kB that a template takes."""

LIST_ENTRIES = 200  # Longest list in a payload.
REPORT_CHARACTERS = 2_000  # Longest report, so that it fits the prompt of a small model.
QUOTE_CHARACTERS = 200  # Longest quotation.
SUMMARY_CHARACTERS = 200  # Longest summary.


def clipped(text: str, limit: int = QUOTE_CHARACTERS) -> str:
    """Return a text on one line, cut to a maximal length."""
    line = " ".join(text[: 8 * limit].split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def report(lines: Iterable[str]) -> str:
    """Join the lines of a report until the limit, and mark the end with `…` if lines are left out."""
    shown: list[str] = []
    room = REPORT_CHARACTERS - len("…")
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return "\n".join([*shown, "…"])
        shown.append(line)
    return "\n".join(shown)


def fitted(payload: dict[str, plain.Json], lists: Sequence[str]) -> dict[str, plain.Json]:
    """Return the payload with its named lists cut to fit, with their true lengths in `totals`.

    The longest list is halved until all fit, so a short list is not cut because of a long one.
    """
    totals = {name: len(payload[name]) for name in lists}
    fitting = {**payload, **{name: payload[name][:LIST_ENTRIES] for name in lists}}
    fitting |= {"truncated": True, "totals": totals}
    sizes = {name: len(plain.encode(fitting[name])) for name in lists}
    rest = len(plain.encode(fitting)) - sum(sizes.values())
    while rest + sum(sizes.values()) > PAYLOAD_BYTES and any(fitting[name] for name in lists):
        # Halved instead of measured: entries differ in length, and a few rounds are enough.
        longest = max(lists, key=lambda name: sizes[name])
        fitting[longest] = fitting[longest][: len(fitting[longest]) // 2]
        sizes[longest] = len(plain.encode(fitting[longest]))
    fitting["truncated"] = bool(payload.get("truncated")) or any(totals[name] > len(fitting[name]) for name in lists)
    return fitting


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 for an empty sequence."""
    return sum(values) / len(values) if values else 0.0


def share(part: float, whole: float) -> float:
    """Return a part as a fraction rounded to three places; 0 if the whole is 0."""
    return round(part / whole, 3) if whole else 0.0
