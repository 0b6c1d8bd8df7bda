"""Following: show a session plan until it is at rest."""

# A plan that waits for a person ends the command with 1: with 0, `plan start X && publish` would publish half a
# plan. Without a service, every command that leaves a plan running follows it, since ending would interrupt a run
# that was just started.

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from app import interruption
from app.cli import exit_codes, halting, plan_formats, plan_use_cases, terminal
from app.cli.client import Client, JsonObject

_SILENCE_SECONDS = 2.0  # Silence after which to check whether the runs of a plan only wait for people.


async def follow(client: Client, plan: JsonObject, as_json: bool) -> int:
    """Show the changes of a plan until it rests; return the exit code for its state.

    Args:
        plan: The current plan.
    """
    printer = _Printer(quiet=as_json)
    waiting: list[JsonObject] = []
    try:
        printer.show(plan)
        while not rests(plan) and not waiting and not client.stopping:
            revision = plan["revision"]
            found = await client.call(plan_use_cases.wait_for_plan, plan["session_id"], _SILENCE_SECONDS, revision)
            if found is None or found["revision"] == revision:
                waiting = await _waiting(client, plan)
            plan = found or plan
            printer.show(plan)
    except (terminal.PipeClosed, OSError):
        # After a signal, which has ended the reader too, nothing more is printed.
        if not interruption.received() and not rests(plan) and await client.stop():
            with contextlib.suppress(terminal.PipeClosed):
                _print_next(plan, is_interrupted=True)
        raise
    if as_json:
        terminal.say_json(plan)
    else:
        printer.rest(plan)
    for line in plan_formats.remarks(plan, plan_formats.QUESTION_CHARACTERS):
        if line not in printer.remarks:
            terminal.warn(line)
    return await _report_end(client, plan, waiting)


def rests(plan: JsonObject) -> bool:
    """Return whether no task of a plan runs or will begin by itself."""
    from app.domain import plan_files
    from app.flows.session_plan import rules

    return rules.is_settled(plan_files.from_json(plan))


class _Printer:
    """Prints the state of tasks, once each."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._status = ""
        self._tasks: dict[int, tuple[str, str | None, str | None]] = {}
        self._begun = False
        self._last = ""
        self.remarks: set[str] = set()
        """Remarks about failures that were printed already."""

    def show(self, plan: JsonObject) -> None:
        if not self._begun:
            self._show_plan(plan)
        for task in plan["tasks"]:
            self._show_task(task)
        if plan["status"] != self._status:
            self._show_plan(plan)
        self._begun = True

    def rest(self, plan: JsonObject) -> None:
        if plan["tasks"] and self._last != plan_formats.standing(plan):
            self._say(plan_formats.standing(plan))

    def _show_plan(self, plan: JsonObject) -> None:
        remarks = [] if plan["tasks"] else [*plan_formats.remarks(plan)]
        standing = plan_formats.standing(plan) if plan["tasks"] else f"plan {plan['session_id']} {plan['status']}"
        self._say(": ".join([standing, *remarks]), *remarks)
        self._status = plan["status"]

    def _show_task(self, task: JsonObject) -> None:
        status, run_id, review = task["status"], task["run_id"], (task.get("review") or {}).get("status")
        if status == "running" and run_id is None:
            # The run is about to be made; more will be printed then.
            return
        # The plan's own line covers states that existed at the beginning, unless the task continues.
        fresh = self._tasks.get(task["id"]) != (status, run_id, review) and (self._begun or status == "running")
        self._tasks[task["id"]] = (status, run_id, review)
        if fresh:
            self._say(plan_formats.change(task), plan_formats.failure(task))

    def _say(self, line: str, *remarks: str) -> None:
        if not self._quiet:
            terminal.say(line)
            self.remarks.update(remarks)
        self._last = line


async def _waiting(client: Client, plan: JsonObject) -> list[JsonObject]:
    """Return the runs of a plan if all of them wait only for people."""
    begun = [plan_formats.deciding_run(task) for task in plan["tasks"] if task["status"] == "running"]
    begun += [plan["chief_run_id"]] if plan_formats.chief_is_at_work(plan) else []
    if None in begun:
        return []
    held = [await halting.halts(client, run_id) for run_id in begun]
    stuck = [bool(each) and not await halting.expires(client, each) for each in held]
    return [detail for each in held for detail in each] if all(stuck) else []


async def _report_end(client: Client, plan: JsonObject, waiting: Sequence[JsonObject]) -> int:
    # Raising a limit unpauses the runs of plans, and the command that follows the plan executes them.
    await halting.print_halts(client, waiting, f"control-room plan follow {plan['session_id']}")
    interrupted = client.stopping and not rests(plan)
    _print_next(plan, is_interrupted=interrupted, waits=bool(waiting))
    if interrupted:
        return exit_codes.ExitCode.INTERRUPTED
    return exit_codes.ExitCode.FAILED if waiting else exit_codes.of_plan(plan["status"])


def _print_next(plan: JsonObject, *, is_interrupted: bool, waits: bool = False) -> None:
    if is_interrupted:
        terminal.warn("interrupted")
    for command in plan_formats.next_commands(plan) if not waits else ():
        terminal.warn(f"  continue with: {command}")
