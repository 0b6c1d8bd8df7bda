"""Outputs of commands: how much of them is kept, as text, without secrets.

Of standard output the beginning is kept, where a result or a list begins; of standard error the end, where a program
says why it gave up.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain import plain
from app.processes import commands


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedOutput:
    """One output, ready to be kept."""

    text: str
    """As much as the operation wants, for the record."""
    log: str
    """As much as is held, for the log; empty if nothing was said."""
    size_bytes: int
    """How much it was."""
    truncated: bool
    """Whether the record has less than that."""


def said(output: commands.Output, limit_bytes: int, masker: plain.Masker, *, at_end: bool) -> CapturedOutput:
    """Make an output ready: what is held of it is masked first, and cut afterwards.

    Args:
        at_end: Whether its end is kept, not its beginning.
    """
    text = whole(output, masker, at_end=at_end)
    encoded = text.encode()
    kept = encoded[max(len(encoded) - limit_bytes, 0) :] if at_end else encoded[:limit_bytes]
    return CapturedOutput(
        text=text if len(kept) == len(encoded) else kept.decode(errors="ignore"),
        log=noted(output, text, at_end=at_end),
        size_bytes=output.size_bytes,
        truncated=len(kept) < len(encoded) or len(output.content) < output.size_bytes,
    )


def whole(output: commands.Output, masker: plain.Masker, *, at_end: bool) -> str:
    """Return all that is held of an output."""
    text = output.content.decode(errors="replace")
    if len(output.content) < output.size_bytes:
        return masker.mask_held(text, at_end=at_end)
    masked: str = masker.mask(text)
    return masked


def noted(output: commands.Output, text: str, *, at_end: bool) -> str:
    """Return the text of an output for a log, which tells how much is missing, if any is."""
    missing = output.size_bytes - len(output.content)
    if missing <= 0:
        return text
    note = f"[{missing} bytes are not kept]"
    return f"{note}\n{text}" if at_end else f"{text}\n{note}\n"
