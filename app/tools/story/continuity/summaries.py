"""What a comparison read and compared, for payloads and summaries."""

from __future__ import annotations

from app.domain import plain
from app.tools import bounds, findings
from app.tools.story.continuity.comparison import Comparison

_NAMED = 3
_PATHS = 50


def counts(result: Comparison) -> dict[str, plain.Json]:
    """Return the counts that both tools put into their payload."""
    return {
        "fact_count": len(result.facts),
        "comparison_count": result.comparisons,
        "unread_count": len(result.unread),
        "unread": result.unread[:_PATHS],
    }


def sentence(conflicts: int, result: Comparison) -> str:
    """Return the summary: `0 conflicts in 14 comparisons of 24 facts; 2 files without readable facts: a.md, b.md`."""
    told = (
        f"{findings.counted(conflicts, 'conflict')} in {findings.counted(result.comparisons, 'comparison')} of "
        f"{findings.counted(len(result.facts), 'fact')}"
    )
    cards = {card.path for card in result.cards}
    for noun, paths in (
        ("card", [path for path in result.unread if path in cards]),
        ("scene", [path for path in result.unread if path not in cards]),
    ):
        if paths:
            named = ", ".join(path.rsplit("/", 1)[-1] for path in paths[:_NAMED]) + (
                ", …" if len(paths) > _NAMED else ""
            )
            told += f"; {findings.counted(len(paths), noun)} without readable facts: {named}"
    return bounds.clipped(told, bounds.SUMMARY_CHARACTERS)
