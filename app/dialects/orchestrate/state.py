"""The state file: a run as state.json shows it (workflow-dsl, state file schema)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from app.dialects.orchestrate import frames
from app.domain import plain, runs, slots, states

FILE = "state.json"
"""Name of the file in the run's folder."""
SCHEMA_VERSION = "1.1.1"
"""Version of its schema, on a track of its own."""

_STATUS: Mapping[states.RunState, str] = {
    states.RunState.DONE: "completed",
    states.RunState.FAILED: "failed",
    states.RunState.CANCELLED: "failed",
}
_RUNNING = "running"
_SECONDS = 19


class State:
    """Everything that state.json tells."""

    def __init__(self, run: runs.RunStart, outermost: frames.Frame) -> None:
        frozen = run.frozen
        self._head: Mapping[str, plain.Json] = {
            "schema_version": SCHEMA_VERSION,
            "run_id": run.run_id,
            "workflow_file": run.options.get("workflow_file") or f"{run.recipe_id}.yaml",
            "workflow_checksum": frozen.get("workflow_checksum") or f"sha256:{run.recipe_sha256}",
            "started_at": run.created_at,
            "run_root": _root(run),
        }
        self._context = run.args
        self._outermost = outermost

    def files(self, standing: slots.Standing) -> dict[str, plain.Json]:
        """Return the file by its name."""
        loops = {entered.key: entered.to_json() for entered in _loops(self._outermost)}
        return {
            FILE: {
                **self._head,
                "updated_at": standing.updated_at,
                "status": _STATUS.get(standing.status, _RUNNING),
                "context": self._context,
                "steps": self._outermost.shown(),
                "for_each": loops,
            }
        }


def facts(run: runs.RunStart) -> dict[str, str]:
    """Return what `${run.…}` names."""
    stamp = run.created_at[:_SECONDS].replace("-", "").replace(":", "")
    return {"id": run.run_id, "root": _root(run), "timestamp_utc": f"{stamp}Z"}


def _root(run: runs.RunStart) -> str:
    """Return the run's folder from the workspace; as an absolute path where it lies outside."""
    if run.folder is None:
        return run.run_id
    folder, workspace = PurePosixPath(run.folder), PurePosixPath(run.working_dir)
    return str(folder.relative_to(workspace) if folder.is_relative_to(workspace) else folder)


def _loops(frame: frames.Frame) -> Iterator[frames.Iterations]:
    for entered in frame.inside.values():
        yield entered
        if entered.current is not None:
            yield from _loops(entered.current)
