"""Trials: the result of one disturbance, judged by the files left and the work done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.crash_lab import experiment_log, outcomes
from app.crash_lab.experiment import Experiment

_CORRUPT = "journal_corrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One disturbance and its result."""

    point: str  # Point of the disturbance.
    reached: bool = True  # Whether the run reached that point; if not, the other fields have no meaning.
    same: bool = False  # Whether it ended like the undisturbed run.
    restarted: bool = False  # Whether the process had to be started again.
    lost: tuple[str, ...] = ()  # Steps and accepted requests that were durable and are lost.
    twice: tuple[str, ...] = ()
    """Steps that were executed again although their record was durable, or more often than interruptions explain."""
    told: bool = False
    """Whether the disturbance was reported: by an event, an error or a further attempt, or an error in the log."""
    hidden: str = ""  # Damage that was not reported.
    note: str = ""  # The first difference from the undisturbed run, or why a process did not end.
    log: str = ""  # The end of the log of its processes, if the last one did not end.

    def to_json(self) -> dict[str, Any]:
        """Return the trial as plain JSON."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The state of an experiment at one moment, as seen from outside."""

    told: experiment_log.Told  # Its experiment log.
    recorded: frozenset[experiment_log.Try]  # Every try with a complete line in a journal.
    final: frozenset[tuple[str, str]]  # Run and key of each step with a final line.
    outcome: outcomes.Outcome | None  # Outcome of the run in the last process that ended.
    workspace: dict[str, str]  # Hash of each file in the workspace.


def look(experiment: Experiment, journals: dict[str, bytes] | None = None) -> Seen:
    """Inspect an experiment that is not running.

    Args:
        journals: Content of each run's journal if it is not in the data directory.
    """
    found = _in_folders(experiment.data_directory) if journals is None else journals
    lines = [(run_id, line) for run_id, content in found.items() for line in _whole(content)]
    shown = experiment.outcome
    return Seen(
        told=experiment_log.read(experiment.experiment_log),
        recorded=frozenset((run_id, line["key"], line["attempt"]) for run_id, line in lines),
        final=frozenset((run_id, line["key"]) for run_id, line in lines if line["final"]),
        outcome=json.loads(shown.read_text(encoding="utf-8")) if shown.exists() else None,
        workspace=outcomes.of_workspace(experiment.settings.project.project),
    )


def judge(
    point: str,
    undisturbed: Seen,
    cut: Seen,
    after: Seen,
    *,
    earlier: Seen | None = None,
    restarted: bool = True,
    why: str = "",
    logged: bool = False,
) -> Trial:
    """Compare what a disturbed run left with what the undisturbed one left.

    Args:
        cut: State at the end of the disturbed process.
        earlier: State at the end of an earlier disturbed process; None: there was none.
        after: State at the very end.
        why: Why the last process did not end.
        logged: Whether the service logged an error that names the run.
    """
    note = why or _difference(undisturbed, after)
    told = logged or (after.outcome is not None and _tells(after.outcome, undisturbed))
    cuts = (cut,) if earlier is None else (earlier, cut)
    lost = _lost(cuts, after)
    return Trial(
        point=point,
        same=not note,
        restarted=restarted,
        lost=lost,
        twice=_twice(undisturbed, cuts, after),
        told=told,
        hidden="" if told else note or ", ".join(lost),
        note=note,
    )


def _difference(undisturbed: Seen, after: Seen) -> str:
    if undisturbed.outcome is None or after.outcome is None:
        return "the run did not come to rest"
    expected, found = map(outcomes.comparable, (undisturbed.outcome, after.outcome))
    return outcomes.difference(expected, found) or outcomes.difference(
        undisturbed.workspace, after.workspace, "workspace"
    )


def _tells(outcome: outcomes.Outcome, undisturbed: Seen) -> bool:
    usual = undisturbed.outcome or {}
    again = any(attempt > usual["attempts"].get(key, 1) for key, attempt in outcome["attempts"].items())
    return again or outcome["manifest"]["error"] is not None or bool(set(outcome["told"]) - set(usual["told"]))


def _lost(cuts: Sequence[Seen], after: Seen) -> tuple[str, ...]:
    recorded = frozenset[experiment_log.Try]().union(*(cut.recorded for cut in cuts))
    steps = (f"{key}/{attempt}" for _, key, attempt in sorted(recorded - after.recorded))
    asked = ("an accepted request",) if after.told.new > 1 else ()
    return (*steps, *asked)


def _twice(undisturbed: Seen, cuts: Sequence[Seen], after: Seen) -> tuple[str, ...]:
    again = [
        f"{key}/{attempt}"
        for cut in cuts
        for run, key, attempt in after.told.executed[len(cut.told.executed) :]
        if (run, key) in cut.final or (run, key, attempt) in cut.recorded
    ]
    oftener = dict.fromkeys(_oftener(undisturbed, (*cuts, after)))
    return (*again, *(key for key in oftener if not any(text.startswith(f"{key}/") for text in again)))


def _oftener(undisturbed: Seen, moments: Sequence[Seen]) -> Iterator[str]:
    # Each end of a process explains one more execution of the tries that were under way.
    allowed = Counter(key for _, key, _ in undisturbed.told.executed)
    for seen in moments:
        counted = Counter(key for _, key, _ in seen.told.executed)
        yield from (key for key, count in counted.items() if count > allowed[key])
        in_flight = {(run, key) for run, key, _ in seen.told.executed if (run, key) not in seen.final}
        allowed.update(key for _, key in in_flight)


def _in_folders(data_directory: Path) -> dict[str, bytes]:
    journals = (data_directory / "runs").glob("[!.]*/steps.jsonl")
    return {journal.parent.name: journal.read_bytes() for journal in journals}


def _whole(content: bytes) -> list[dict[str, Any]]:
    lines = []
    for line in content.split(b"\n")[:-1]:
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
