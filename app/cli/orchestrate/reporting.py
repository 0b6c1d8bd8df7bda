"""Reporting: the progress of a run, and its state when it rests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import clock, errors
from app.cli import exit_codes as common
from app.cli import formats, terminal
from app.cli.client import JsonObject
from app.cli.exit_codes import ExitCode
from app.cli.orchestrate import drawing, exit_codes, keys, log
from app.cli.orchestrate.places import STATE, Place

if TYPE_CHECKING:
    from app.cli.folder_client import FolderClient
    from app.cli.orchestrate.workflows import Workflow
    from app.cli.terminal import OutputOptions

_SHOWN = {"done": "completed", "cancelled": "failed"}


class RunReporter:
    """Report one run."""

    def __init__(self, place: Place, workflow: Workflow, run_id: str, output: OutputOptions) -> None:
        self._place = place
        self._workflow = workflow
        self._run_id = run_id
        self._output = output
        self._log = log.Log(run_id=run_id, trace=output.trace)
        self._fault = ""
        self._steps: Sequence[str] = [step["name"] for step in workflow.recipe.document["steps"]]

    async def follow(self, client: FolderClient, after: int | None) -> JsonObject:
        """Report the run until it rests; return its state then.

        Args:
            after: Number of the last event that was reported; None: the run is new.
        """
        from app.cli import following

        root, output = self._place.run_root(self._run_id), self._output
        with log.kept(root, output.level, self._workflow.masker(client.application.masker), verbose=output.verbose):
            self._report_begin("started" if after is None else "resumed")
            async with self._drawn(client) as drawn:

                async def show(event: JsonObject) -> None:
                    self._log.write_event(event)
                    self._report_fault(event)
                    if drawn is not None:
                        await drawn.show(event)
                    if output.prints_steps:
                        self._report_step(event)

                detail = await following.watch(client, self._run_id, show, after or 0)
            self._log_rest(detail)
        return detail

    def report_end(self, detail: JsonObject, fault: errors.ControlRoomError | None = None) -> ExitCode:
        """Report the state of the run; return its exit code.

        Args:
            fault: Error after the end of the run.
        """
        ending = exit_codes.of_run(detail) if fault is None else ExitCode.FAILED
        if fault is not None:
            terminal.warn(f"orchestrate: {formats.error(fault.to_json())}")
        if self._output.as_json:
            terminal.say_json(self._whole(detail, ending) | ({} if fault is None else {"error": fault.to_json()}))
        elif not self._output.quiet:
            terminal.say(f"run {self._run_id} {self._standing(detail)}")
        self.suggest_next(detail)
        return ending

    def suggest_next(self, detail: JsonObject) -> None:
        """Report the failure, if any, and how to continue the run."""
        status = detail["status"]
        if detail.get("error"):
            terminal.warn(f"orchestrate: {formats.error(detail['error'])}")
        if status == "done":
            return
        if common.is_interrupted(status):
            terminal.warn(f"interrupted; continue with: {self._place.command('resume', self._run_id)}")
            return
        terminal.warn(f"logs: {self._place.shown_root(self._run_id)}/logs")
        terminal.warn(f"continue with: {self._place.command('resume', self._run_id)}")

    # -- while it happens

    def _report_begin(self, what: str) -> None:
        root = self._place.shown_root(self._run_id)
        facts = {
            "workflow_file": self._workflow.shown, "workflow_checksum": self._workflow.checksum, "run_root": root,
        }  # fmt: skip
        self._log.say(log.LEVELS["info"], f"{what} by the command line", facts)
        if self._output.quiet and not self._output.as_json:
            terminal.say(self._run_id)
        elif not self._output.as_json:
            terminal.say(f"run {self._run_id} {what}: {root}")

    def _report_step(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "recipe.note":
            self._report_note(keys.read(event["key"]), event.get("data") or {})
        if event["type"] not in ("step.finished", "step.failed", "step.retrying", "step.interrupted"):
            return
        key, facts = keys.read(event["key"]), event.get("data") or {}
        failed = event["type"] == "step.failed" and not key.part.startswith("moved")
        if (key.part and not failed) or key.outermost not in self._steps:
            return
        number = self._steps.index(key.outermost) + 1
        status = str(facts.get("status") or event["type"].partition(".")[2])
        took = f" ({facts['duration_ms'] / 1000:.1f}s)" if facts.get("duration_ms") is not None else ""
        why = f": {formats.error(facts['error'])}" if facts.get("error") else ""
        terminal.say(f"[{number}/{len(self._steps)}] {key.step}: {_SHOWN.get(status, status)}{took}{why}")

    def _report_fault(self, event: Mapping[str, Any]) -> None:
        # The log of the run may be on the disk that is full. Each new attempt to write reports the fault again.
        fault = formats.error(event["data"]["error"]) if event["type"] == "storage.failed" else ""
        if fault and fault != self._fault:
            terminal.warn(f"the run waits: {fault}")
        self._fault = fault

    def _report_note(self, key: keys.Key, facts: Mapping[str, Any]) -> None:
        if key.outermost in self._steps and (note := _note(key.part.rpartition(".")[2], facts)):
            number = self._steps.index(key.outermost) + 1
            terminal.say(f"[{number}/{len(self._steps)}] {key.step}: {note}")

    @contextlib.asynccontextmanager
    async def _drawn(self, client: FolderClient) -> AsyncIterator[drawing.Drawing | None]:
        if not self._output.progress or self._output.quiet:
            yield None
            return

        async def items(loop: str) -> Sequence[Any]:
            # The snapshot is late; read the list of items after the snapshot was written.
            await client.application.store.maintenance.show(self._run_id)
            loops = _read(self._place.run_root(self._run_id)).get("for_each", {})
            found: Sequence[Any] = loops.get(loop, {}).get("items", ())
            return found

        live = terminal.is_drawn_on() and not self._output.verbose
        drawn = drawing.Drawing(self._steps, items, clock.SystemClock(), live=live)
        async with drawn.drawn():
            yield drawn

    # -- at its rest

    def _log_rest(self, detail: JsonObject) -> None:
        level = log.LEVELS["info" if detail["status"] == "done" else "error"]
        self._log.say(level, f"run rests: {self._standing(detail)}", {"status": detail["status"]})

    def _standing(self, detail: JsonObject) -> str:
        status, ending = detail["status"], detail.get("ending") or {}
        if common.is_interrupted(status):
            return "interrupted"
        if status == "paused":
            return f"paused: {detail.get('reason') or 'nothing to do'}"
        past = ", ".join(ending.get("failed_steps") or ()) if ending.get("partial") else ""
        return str(_SHOWN.get(status, status)) + (f", past failures of {past}" if past else "")

    def _whole(self, detail: JsonObject, ending: ExitCode) -> dict[str, Any]:
        state = _read(self._place.run_root(self._run_id))
        ended = {name: detail.get(name) for name in ("error", "ending", "completed_at")}
        status = "interrupted" if ending is ExitCode.INTERRUPTED else _SHOWN.get(detail["status"])
        root = self._place.shown_root(self._run_id)
        return {
            "run_id": self._run_id, **state, "status": status or detail["status"], **ended, "run_root": root,
            "exit_code": int(ending),
        }  # fmt: skip


def _note(kind: str, facts: Mapping[str, Any]) -> str:
    match kind:
        case keys.WAITING:
            files = "a file" if facts["min_count"] == 1 else f"{facts['min_count']} files"
            return f"waiting for {files}: {formats.cell(facts['waits_for'])} (at most {facts['timeout_sec']:g}s)"
        case keys.LEFT_BEHIND:
            left, alive = facts["leftovers"], facts["survivors"]
            ended = "1 process running, which was" if left == 1 else f"{left} processes running, which were"
            return f"left {ended} ended{f'; {alive} could not be' if alive else ''}"
        case keys.UNMOVED:
            return f"the file of item {facts['index']} was not moved: {facts['error']}"
    return ""


def _read(root: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((root / STATE).read_bytes())
        return found if isinstance(found, dict) else {}
    return {}
