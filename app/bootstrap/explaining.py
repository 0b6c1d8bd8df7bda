"""Explaining: what says why runs do not move, put together."""

from __future__ import annotations

from app import settings
from app.bootstrap.engines import Store
from app.bootstrap.platform import Platform, directory_of
from app.domain import plain
from app.engine import run_engine
from app.processes import supervisor
from app.services import explanations, runs


def explanations_of(
    chosen: settings.Settings,
    platform: Platform,
    use_cases: runs.Runs,
    store: Store,
    engine: run_engine.RunEngine,
    processes: supervisor.Supervisor,
    masker: plain.Masker,
) -> explanations.Explanations:
    """Return what explains the runs of a process that may execute them."""

    def pids(run_id: str) -> list[int]:
        return [command.pid for command in processes.active(run_id=run_id) if command.pid is not None]

    return explanations.Explanations(
        store=store,
        engine=engine,
        dialects=platform.drivers,
        view=use_cases.view,
        clock=platform.clock,
        masker=masker,
        surroundings=explanations.Surroundings(
            service=directory_of(chosen.project, platform).service,
            pids=pids,
            stalled_after_seconds=chosen.pool.stalled_after_seconds,
        ),
    )
