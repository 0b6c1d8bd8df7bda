"""The graph of a review: the reading of files, the verdict, a correction, and a person if the chief is unsure."""

from __future__ import annotations

from app.domain import graphs
from app.domain.records import Record
from app.flows.review import driver

CORRECTION = f"{driver.REVIEW}.correction"

_LABELS: tuple[tuple[str, str, graphs.NodeKind], ...] = (
    (driver.FILES, "look at the files", "tool"),
    (driver.REVIEW, "judge the task", "agent"),
    (CORRECTION, "correct the verdict", "agent"),
    (driver.DECIDE, "ask a person", "gate"),
)


def _locate(key: str, _: Record | None) -> graphs.Location | None:
    node = key.removesuffix(".evidence")
    return graphs.place(node) if any(node == known for known, _, _ in _LABELS) else None


DRAWING = graphs.Drawing(
    nodes=[graphs.Node(id=node, label=label, kind=kind) for node, label, kind in _LABELS],
    edges=[
        graphs.Edge(source=driver.FILES, target=driver.REVIEW),
        graphs.Edge(source=driver.FILES, target=driver.DECIDE, label="no chief may judge"),
        graphs.Edge(source=driver.REVIEW, target=CORRECTION, label="invalid", kind="error"),
        graphs.Edge(source=driver.REVIEW, target=driver.DECIDE, label="unsure"),
        graphs.Edge(source=CORRECTION, target=driver.DECIDE, label="unsure"),
    ],
    locator=lambda: _locate,
)
"""The graph of every review."""
