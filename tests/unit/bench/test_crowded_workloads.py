"""The workloads with many pollers, runs and followers, at sizes that show that they work."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import followers, trial, workload
from bench.workloads import registry

_STREAM = (
    b'event: run.created\ndata: {"at":"2026-02-10T14:30:00.000Z","type":"run.created"}\nid: 1\n\n'
    b'event: run.ended\ndata: {"at":"2026-02-10T14:30:01.500Z","type":"run.ended"}\nid: 2\n\n'
)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["W6", "W7", "W8", "W10", "W13", "W14"])
async def test_every_line_is_measured(key: str, tmp_path: Path) -> None:
    """A repetition measures every line of its workload, also with the data that an earlier one kept."""
    for repetition in ("one", "two") if key == "W7" else ("one",):
        context = workload.Context(place=tmp_path / repetition, kept=tmp_path / "kept", quick=True)
        found = await trial.attempt(key, context)

        lines = registry.WORKLOADS[key].lines
        assert {line.value for line in lines} | {line.beside for line in lines if line.beside} <= set(found)
        assert all(value > 0 for value in found.values())
        assert found.get("reached_share", 1) == 1


def test_a_stream_is_read_event_by_event() -> None:
    """Each event of a stream is returned with its type, its instant and the position at which it ends."""
    first, second = followers.events(_STREAM)

    assert [first.type, second.type] == ["run.created", "run.ended"]
    assert second.at - first.at == 1.5
    assert (first.end, second.end) == (_STREAM.index(b"event: run.ended"), len(_STREAM))
