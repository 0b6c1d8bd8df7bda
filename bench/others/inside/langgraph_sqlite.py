"""LangGraph with its SQLite checkpointer.

Durability comes from `durability="sync"` (a checkpoint is written before the next node starts) on SQLite with
`synchronous=FULL` (each commit is synced); the checkpointer itself sets `journal_mode=WAL`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any, TypedDict

import aiosqlite
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from bench.others.inside import meter


class State(TypedDict):
    """The state of a thread."""

    finished: int


class Engine:
    """Two compiled graphs on one connection: a chain of no-op nodes, and a node that waits."""

    def __init__(self, saver: Any, count: int) -> None:
        self._chain = _chain(count).compile(checkpointer=saver)
        self._gate = _gate().compile(checkpointer=saver)
        self._threads = itertools.count()
        self._limit = count + 5

    async def run(self) -> None:
        """Invoke the chain as a thread of its own."""
        await self._invoke(self._chain)

    async def park(self, count: int) -> None:
        """Invoke the graph that waits; an interrupted graph remains in the database only."""
        for _ in range(count):
            await self._invoke(self._gate)

    async def _invoke(self, graph: Any) -> None:
        config = {"configurable": {"thread_id": str(next(self._threads))}, "recursion_limit": self._limit}
        await graph.ainvoke({"finished": 0}, config, durability="sync")


@contextlib.asynccontextmanager
async def opened(order: meter.Order) -> AsyncIterator[Engine]:
    """Open a fresh database and compile the graphs."""
    async with aiosqlite.connect(order.place / "langgraph.sqlite") as connection:
        await connection.execute("PRAGMA synchronous=FULL")
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        yield Engine(saver, order.steps)


def _chain(count: int) -> Any:
    graph: Any = StateGraph(State)
    names = [f"step-{number}" for number in range(count)]
    for name in names:
        graph.add_node(name, _nothing)
    for before, after in itertools.pairwise([START, *names, END]):
        graph.add_edge(before, after)
    return graph


def _gate() -> Any:
    graph: Any = StateGraph(State)
    graph.add_node("gate", _ask)
    graph.add_edge(START, "gate")
    graph.add_edge("gate", END)
    return graph


async def _nothing(state: State) -> State:
    return {"finished": state["finished"] + 1}


async def _ask(_: State) -> State:
    return {"finished": int(interrupt("go on?"))}


if __name__ == "__main__":
    meter.serve(opened)
