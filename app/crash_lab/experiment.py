"""Experiments: private copies of a project in which the same workload runs, undisturbed or not."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from app import bootstrap, errors, settings
from app.crash_lab import workload

_REPLY = "The scripted agent answers this step as it answers every other, so that a run can be repeated exactly."
_BACKEND = "crashtest"
_SCRIPT = "crashtest.replies.json"
_NEEDLESS = (".git", ".venv", "node_modules", "__pycache__")
_LEFT_BY_RUNS = ("runs", "audit", "sessions", "issues", "index.db*", "data_directory_id", "service.json")
# A copy performs no unattended work of the project, and sends no messages about its runs.
_UNATTENDED = ("triggers", "outbox", "budgets.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A workload in a folder of its own."""

    place: Path  # Folder of the experiment, with the copy of the project and the notes about it.
    settings: settings.Settings  # Settings of the copy.
    asked: workload.Asked  # The request.

    @property
    def data_directory(self) -> Path:
        """Return the data directory of the copy."""
        return self.settings.project.data_directory

    @property
    def experiment_log(self) -> Path:
        """Return the file, outside the data directory, with the accepted requests and the executed steps."""
        return self.place / "diary.jsonl"

    @property
    def outcome(self) -> Path:
        """Return the file, outside the data directory, with the final state of the run."""
        return self.place / "portrait.json"


def template(place: Path, config: settings.Settings, asked: workload.Asked, replies: Path | None) -> Experiment:
    """Copy a project without its runs, and let its agents answer from a script.

    Args:
        replies: Script of the agents; None: the same reply to every step.

    Raises:
        errors.ConfigurationError: a part of the project cannot be copied.
    """
    place.mkdir(parents=True)
    project = place / "project"
    try:
        left_out = partial(_left_out, config.project.data_directory)
        shutil.copytree(config.project.project, project, symlinks=True, ignore=left_out)
    except shutil.Error as error:
        path, _, reason = error.args[0][0]
        raise errors.ConfigurationError(f"{path} cannot be copied: {reason}", code="project_not_copied") from error
    script(bootstrap.agents(config), bootstrap.backend_names(config), project / ".control-room", replies)
    return Experiment(
        place=place, settings=_settings(config, project), asked=workload.placed(workload.owned(asked), place)
    )


def copied(original: Experiment, place: Path) -> Experiment:
    """Return a copy of an experiment in its present state."""
    shutil.copytree(original.place, place, symlinks=True)
    asked, config = workload.placed(original.asked, place), _settings(original.settings, place / "project")
    return dataclasses.replace(original, place=place, settings=config, asked=asked)


def script(agent_ids: Iterable[str], backend_names: Iterable[str], data_directory: Path, replies: Path | None) -> None:
    """Let every agent and every backend answer from a script, without costs and without effects outside."""
    file = data_directory / "agents.json"
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    own = {agent["id"]: agent for agent in document.get("agents", ())}
    known = [*own, *(agent_id for agent_id in agent_ids if agent_id not in own)]
    # A script quotes no evidence, so its agents owe none unless the project requires it.
    agents = [{"evidence": "none"} | own.get(agent_id, {"id": agent_id}) | {"backend": _BACKEND} for agent_id in known]
    backends = {name: {"type": "scripted", "file": _SCRIPT} for name in (*backend_names, _BACKEND)}
    data_directory.mkdir(exist_ok=True)
    file.write_text(json.dumps(document | {"agents": agents, "backends": backends}), encoding="utf-8")
    said = json.dumps({"*": _REPLY}) if replies is None else replies.read_text(encoding="utf-8")
    (data_directory / _SCRIPT).write_text(said, encoding="utf-8")


def _left_out(data_directory: Path, folder: str, names: list[str]) -> set[str]:
    # Pipes and sockets belong to the processes that opened them, and cannot be copied.
    special = {name for name in names if not _is_copied(os.lstat(os.path.join(folder, name)).st_mode)}
    is_data = Path(folder) == data_directory or Path(folder).name == data_directory.name
    patterns = (*_NEEDLESS, *_LEFT_BY_RUNS, *_UNATTENDED) if is_data else _NEEDLESS
    return special | shutil.ignore_patterns(*patterns)(folder, names)


def _is_copied(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _settings(config: settings.Settings, project: Path) -> settings.Settings:
    return dataclasses.replace(
        config,
        project=dataclasses.replace(
            config.project, project=project, allowed_roots=(), database_url=None, store_url=None, blobs_url=None
        ),
        pool=dataclasses.replace(config.pool, stop_grace_seconds=0.0),
    )
