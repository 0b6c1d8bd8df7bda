"""The graph of a decomposition: a search for files, the chief's tasks and, if they are faulty, a correction."""

from __future__ import annotations

from app.domain import graphs
from app.flows.decomposition import driver

_LABELS: tuple[tuple[str, str, graphs.NodeKind], ...] = (
    (driver.LOOK, "look at the files", "tool"),
    (driver.CHIEF, "split into tasks", "agent"),
    (driver.CORRECTION, "correct the tasks", "agent"),
)

DRAWING = graphs.Drawing(
    nodes=[graphs.Node(id=node, label=label, kind=kind) for node, label, kind in _LABELS],
    edges=[
        graphs.Edge(source=driver.LOOK, target=driver.CHIEF),
        graphs.Edge(source=driver.CHIEF, target=driver.CORRECTION, label="invalid", kind="error"),
    ],
    locator=graphs.static({node: graphs.place(node) for node, _, _ in _LABELS}),
)
"""The graph of every decomposition."""
