"""
Outputs of commands: how much of them is kept, as text, without secrets.

Of standard output the beginning is kept, where a result or a list begins; of standard error the end, where a program
says why it gave up.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from app.engine import plain
from app.processes import commands


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """
    One output, ready to be kept.
    """

    text: str
    """As much as the operation wants, for the record."""
    log: str
    """As much as is held, for the log; empty if nothing was said."""
    size_bytes: int
    """How much it was."""
    truncated: bool
    """Whether the record has less than that."""


def said(output: commands.Output, limit_bytes: int, secrets: Collection[str], *, at_end: bool) -> Said:
    """
    Make an output ready.

    Args:
        at_end: Whether its end is kept, not its beginning.
    """
    held = output.content
    kept = held[max(len(held) - limit_bytes, 0) :] if at_end else held[:limit_bytes]
    log = noted(output, whole(output, secrets, at_end=at_end), at_end=at_end)
    truncated = len(kept) < output.size_bytes
    text = log if kept == held and not truncated else _masked(kept, truncated, secrets, at_end=at_end)
    return Said(text=text, log=log, size_bytes=output.size_bytes, truncated=truncated)


def whole(output: commands.Output, secrets: Collection[str], *, at_end: bool) -> str:
    """
    Return all that is held of an output.
    """
    return _masked(output.content, len(output.content) < output.size_bytes, secrets, at_end=at_end)


def noted(output: commands.Output, text: str, *, at_end: bool) -> str:
    """
    Return the text of an output for a log, which tells how much is missing, if any is.
    """
    missing = output.size_bytes - len(output.content)
    if missing <= 0:
        return text
    note = f"[{missing} bytes are not kept]"
    return f"{note}\n{text}" if at_end else f"{text}\n{note}\n"


def _masked(content: bytes, cut: bool, secrets: Collection[str], *, at_end: bool) -> str:
    text = content.decode("utf-8", "replace")
    masked: str = plain.Masker(secrets).mask(_without_half(text, secrets, at_end=at_end) if cut else text)
    return masked


def _without_half(text: str, secrets: Collection[str], *, at_end: bool) -> str:
    """
    Take away the part of a secret that a cut has left, which could not be found any more.
    """
    most = 0
    for secret in secrets:
        for length in range(min(len(secret) - 1, len(text)), most, -1):
            if text.startswith(secret[-length:]) if at_end else text.endswith(secret[:length]):
                most = length
                break
    if most == 0:
        return text
    return text[most:] if at_end else text[:-most]
