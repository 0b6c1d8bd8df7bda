"""Resuming: continue runs unchanged, after a repair, or from the beginning (workflow-dsl, recovery mechanisms)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import errors, settings
from app.cli import terminal, use_cases
from app.cli.exit_codes import ExitCode
from app.cli.orchestrate import links, running, workflows
from app.cli.orchestrate.places import LATEST, STATE

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.cli.orchestrate.running import Asked
    from app.domain import runs
    from app.services import requests


class How(Enum):
    """Ways to continue a run."""

    AS_IT_IS = "as it is"  # It continues after its last step; a damaged run or a changed workflow is refused.
    REPAIRED = "repaired"  # The run is first cut back to its intact prefix.
    ANEW = "anew"  # A new run begins instead; the old one is unchanged.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Former:
    """Facts about a run that another one replaces."""

    workflow_file: str
    context: Mapping[str, Any]
    options: Mapping[str, Any]
    labels: Mapping[str, str]
    working_dir: str | None = None


def resume(asked: Asked, named: str, how: How) -> int:
    """Resume a run, report its progress, and return the exit code for its final state.

    Args:
        named: Its id, or `latest`.

    Raises:
        errors.ControlRoomError: it cannot continue; then no file was changed.
    """

    run_id = links.newest(asked.place) if named == LATEST else named
    if not (asked.place.data / "runs").is_dir():
        raise errors.NotFound(f"there is no run {run_id!r:.80}: there is no {asked.place.data}", code="run_not_found")
    _refuse_service(asked.place.settings())
    if how is How.ANEW:
        return _anew(asked, run_id)
    return running.execute(asked, lambda client: _send_on(asked, client, run_id, how))


async def _send_on(asked: Asked, client: FolderClient, run_id: str, how: How) -> int:
    from app.services import requests

    store = client.application.store
    await store.summary(run_id)
    start = await _readable(asked, client, run_id, how)
    _refuse_elsewhere(asked, start)
    if (await store.summary(run_id)).status == "done":
        terminal.say(f"run {run_id} is completed; nothing is left to do")
        return ExitCode.DONE
    workflow = _unchanged(asked, start)
    _report_state(asked, run_id)
    # Only events of the continuation are shown.
    events = await store.read_events(run_id)
    after = events[-1].seq if events else 0
    await _continue(client, run_id, requests.ResumeRequest(options=dict(asked.options) or None))
    return await running.follow(asked, workflow, client, run_id, after=after)


async def _continue(client: FolderClient, run_id: str, request: requests.ResumeRequest) -> None:
    """Continue a run in this process, from any state."""
    found = await client.application.store.summary(run_id)
    if found.owner != "service" or found.status in ("failed", "cancelled"):
        await client.call(use_cases.resume_run, run_id, request)
    elif request != type(request)():
        # New options take effect only after an ending, so the run gets one.
        await client.call(use_cases.cancel_run, run_id)
        await client.call(use_cases.resume_run, run_id, request)
    elif found.status in ("pending", "running"):
        await client.application.engine.submit(run_id)
    else:
        await client.call(use_cases.unpause_run, run_id)


def _refuse_service(config: settings.Settings) -> None:
    """Raise if a service executes the runs of a data directory.

    Raises:
        errors.DataDirectoryBusy: with the service.
    """
    from app import clock
    from app.storage import data_directory

    folder = config.project.data_directory
    service = data_directory.DataDirectory(folder, clock=clock.SystemClock(), ids=clock.RandomIds()).service()
    if service is not None:
        message = f"process {service['pid']} serves the runs of {folder}; resume them there"
        raise errors.DataDirectoryBusy(message, detail=service)


async def _readable(asked: Asked, client: FolderClient, run_id: str, how: How) -> runs.RunStart:
    ways = ["--force-restart"] if how is How.REPAIRED else ["--repair", "--force-restart"]
    try:
        if how is How.REPAIRED:
            await _repair(client, run_id)
        return (await client.application.runs.reader.view(run_id)).start
    except errors.JournalCorrupt as error:
        hint = " or ".join(asked.place.command("resume", run_id, flag) for flag in ways)
        raise errors.JournalCorrupt(f"{error.message}; try {hint}", code=error.code, detail=error.detail) from error


def _refuse_elsewhere(asked: Asked, start: runs.RunStart) -> None:
    if start.dialect != workflows.DIALECT:
        message = f"run {start.run_id} is not a workflow but a recipe of {start.dialect}"
        raise errors.RequestInvalid(message, code="other_dialect")
    _refuse_workspace(asked, start.run_id, start.working_dir)


def _refuse_workspace(asked: Asked, run_id: str, working_dir: str | None) -> None:
    if working_dir not in (None, str(asked.place.workspace)):
        message = f"run {run_id} works in {working_dir}; resume it there"
        raise errors.RequestInvalid(message, code="other_workspace")


def _unchanged(asked: Asked, start: runs.RunStart) -> workflows.Workflow:
    named = str(start.options.get("workflow_file") or "")
    path, anew = asked.place.workspace / named, asked.place.command("resume", start.run_id, "--force-restart")
    before = str(start.frozen.get("workflow_checksum"))
    now, fault = "", None
    try:
        workflow = workflows.read(path, asked.place)
        workflow = workflow.only(start.labels[running.ONLY]) if running.ONLY in start.labels else workflow
        if workflow.checksum == before:
            return workflow
        now = workflow.checksum
    except errors.InputRefused as error:
        fault = error
        with contextlib.suppress(errors.InputRefused):
            now = workflows.checksum(workflows.source(path, named))
    is_now = now or "not there"
    message = f"{named} has changed since the run began: it was {before} and is {is_now}; begin anew with: {anew}"
    detail = {"workflow_file": named, "expected": before, "found": now or None}
    raise errors.RequestInvalid(message, code="workflow_changed", detail=detail) from fault


async def _repair(client: FolderClient, run_id: str) -> None:
    done = await client.call(use_cases.repair_run, run_id)
    if not done["changed"]:
        return
    for file in done["files"]:
        aside = f", what was there is in {file['aside']}" if file["aside"] else ""
        terminal.warn(f"repaired {file['file']}: kept {file['kept']} lines, lost {file['lost']}{aside}")


def _report_state(asked: Asked, run_id: str) -> None:
    path = asked.place.run_root(run_id) / STATE
    fault = "is missing or damaged"
    try:
        whole = isinstance(json.loads(path.read_bytes()), dict)
    except OSError as error:
        whole, fault = False, f"cannot be read: {error.strerror}"
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        terminal.warn(f"{asked.place.shown_path(path)} {fault}; it is rebuilt from the run's journal")


# -- from the beginning


def _anew(asked: Asked, run_id: str) -> int:
    former = _former(asked.place.run_root(run_id), run_id)
    _refuse_workspace(asked, run_id, former.working_dir)
    workflow = workflows.read(asked.place.workspace / former.workflow_file, asked.place)
    if running.ONLY in former.labels:
        workflow = workflow.only(former.labels[running.ONLY])
    again = dataclasses.replace(asked, options={**former.options, **asked.options})
    labels = {**former.labels, running.INSTEAD: run_id}

    async def work(client: FolderClient) -> int:
        request = running.request_of(again, workflow, former.context, labels)
        running.examine(client, request, workflow)
        await _give_up(client, run_id)
        fresh = await running.begin(client, request, workflow)
        links.point(asked.place, fresh)
        terminal.warn(f"run {run_id} stays as it is; run {fresh} begins anew")
        return await running.follow(again, workflow, client, fresh)

    return running.execute(again, work)


def _former(root: Path, run_id: str) -> _Former:
    if "/" in run_id or not root.is_dir():
        raise errors.NotFound(f"there is no run {run_id!r:.80}", code="run_not_found")
    fault: OSError | None = None
    for name in ("start.json", STATE):
        try:
            content = json.loads((root / name).read_bytes())
            return _of_start(content) if name == "start.json" else _of_state(content)
        except (FileNotFoundError, ValueError, TypeError, RecursionError, KeyError, AttributeError):
            continue
        except OSError as error:
            fault = fault or error
    if fault is not None:
        message = f"run {run_id} cannot be read now: {fault}; nothing was changed, repeat the command"
        raise errors.Unavailable(message, code=errors.Unreadable.default_code)
    message = f"nothing of run {run_id} can be read; run its workflow anew with: orchestrate run"
    raise errors.JournalCorrupt(message, detail={"run_id": run_id})


def _of_start(content: Mapping[str, Any]) -> _Former:
    from app.domain import runs

    start = runs.RunStart.from_json(content)
    # The workflow's own values come from its present text.
    own = start.recipe.get("context", {})
    context = {name: value for name, value in start.args.items() if name not in own or own[name] != value}
    options = {name: value for name, value in start.options.items() if name != "workflow_file"}
    return _Former(
        workflow_file=str(start.options["workflow_file"]),
        context=context,
        options=options,
        labels=start.labels,
        working_dir=start.working_dir,
    )


def _of_state(content: Mapping[str, Any]) -> _Former:
    return _Former(workflow_file=str(content["workflow_file"]), context=dict(content["context"]), options={}, labels={})


async def _give_up(client: FolderClient, run_id: str) -> None:
    # A damaged run cannot be ended, and does not continue.
    with contextlib.suppress(errors.WrongState, errors.JournalCorrupt, errors.NotFound):
        await client.call(use_cases.cancel_run, run_id)
