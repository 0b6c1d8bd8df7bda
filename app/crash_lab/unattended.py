"""Unattended work: a webhook, a file and a schedule start a recipe, under a budget, and each end is announced.

Each process repeats the requests of people, senders and programs until the service has answered them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from app import bootstrap, clock, errors
from app.crash_lab import experiment_log, outcomes
from app.domain import budgets, limits, triggers
from app.domain.authors import LOCAL
from app.services import requests
from app.services.notifications import requests as notification_requests
from app.services.triggers import hooks
from app.services.triggers import requests as trigger_requests

NAME = "unattended"  # Name in reports.
KINDS: tuple[triggers.Kind, ...] = ("webhook", "files", "schedule")
"""Triggers in the order of their runs; one after the other, so that files have the same names."""

_KEY = "crashtest"
_HOOK_REQUEST = hooks.HookRequest(headers={"webhook-id": "msg_crashtest"}, body=b"{}", value={})
_FILE = "crashtest-drop.txt"
_MESSAGES = "messages.jsonl"
# One write per message: a kill must not leave half a message.
_NOTIFIER = ("/bin/sh", "-c", f'm=$(cat); printf "%s\\n" "$m" >> ../{_MESSAGES}')
_SOON = timedelta(seconds=0.3)
_SETTLE_SECONDS = 0.5
_CALLS = 1_000

Tried = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Repeats a request as long as the disk has no space."""
RunRests = Callable[[bootstrap.Application, str], Awaitable[bool]]  # Waits until a run rests.
Pause = Callable[[], Awaitable[None]]  # Waits for a short time.


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattended:
    """A recipe that triggers start."""

    request: requests.StartRequest  # The recipe and its arguments.
    place: Path = Path()  # Folder of the experiment, with the notes about answers.

    def noted(self, name: str) -> str | None:
        """Return the note with a name; None if there is none."""
        file = self.place / f"{name}.note"
        return file.read_text(encoding="utf-8") if file.exists() else None

    def note(self, name: str, text: str) -> None:
        """Note an answer."""
        (self.place / f"{name}.note").write_text(text, encoding="utf-8")

    def messages(self) -> dict[str, Counter[tuple[str, str]]]:
        """Return how often each message of each run arrived, by its kind and id."""
        found: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        file = self.place / _MESSAGES
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            message = json.loads(line)
            found[message["data"]["run_id"]][message["type"], message["id"]] += 1
        return found


async def rest(
    application: bootstrap.Application, asked: Unattended, tried: Tried, run_rests: RunRests, pause: Pause
) -> None:
    """Cause one occurrence of each kind, and wait until its run rests and its end has been announced."""
    await tried(lambda: _budget(application, asked))
    await tried(lambda: _endpoint(application, asked))
    for kind in KINDS:
        await tried(lambda kind=kind: _trigger(application, asked, kind))  # type: ignore[misc]
        if kind == "webhook":
            await tried(lambda: _deliver(application, asked))
        run_id = await _started(application, kind, tried, pause)
        await run_rests(application, run_id)
        while run_id not in asked.messages():
            application.unattended.check()
            await pause()


async def outcome(application: bootstrap.Application, asked: Unattended) -> outcomes.Outcome:
    """Return the outcome of the three runs, and the state of triggers, messages and the budget."""
    shown, run_ids = {}, []
    for trigger in await _known(application):
        results = [each.result for each in trigger.history[::-1] if each.result != "repeated"]
        shown[trigger.kind] = {"results": results, "waiting": trigger.waiting}
        run_ids += [(KINDS.index(trigger.kind), trigger.last_run_id)]
    runs = [await outcomes.of_run(application, run_id) for _, run_id in sorted(run_ids) if run_id]
    return outcomes.together(runs) | {
        "triggers": dict(sorted(shown.items())),
        # A message may arrive repeatedly, but with one id.
        "messages": [dict(Counter(kind for kind, _ in ids)) for _, ids in sorted(asked.messages().items())],
        "budget": await _counted(application, asked),
    }


async def _budget(application: bootstrap.Application, asked: Unattended) -> None:
    if asked.noted("budget") is None:
        await application.budgets.put(budgets.Budget(name=_KEY, limits=limits.RunLimits(calls=_CALLS)), LOCAL)
        asked.note("budget", "made")


async def _endpoint(application: bootstrap.Application, asked: Unattended) -> None:
    new = notification_requests.NewEndpoint(argv=_NOTIFIER, kinds=("done", "failed"), idempotency_key=_KEY)
    _, existed = await application.unattended.endpoints.add(new, LOCAL)
    _refuse_lost(asked, "endpoint", existed)


async def _trigger(application: bootstrap.Application, asked: Unattended, kind: triggers.Kind) -> None:
    known = next((each for each in await _known(application) if each.kind == kind), None)
    _refuse_lost(asked, kind, known is not None)
    use_cases, address = application.unattended.triggers, asked.noted("address")
    if known is None:
        how: Any = {kind: _how(kind)}
        new = trigger_requests.NewTrigger(
            recipe_id=asked.request.recipe_id or "", args=asked.request.args, idempotency_key=f"{_KEY}-{kind}", **how
        )
        made = (await use_cases.add(new, LOCAL)).trigger
        address = made.address or ""
    elif kind == "webhook" and address is None:
        # The answer with its address was lost.
        edit = trigger_requests.TriggerEdit(webhook={"new_address": True})
        address = (await use_cases.edit(known.trigger_id, edit, LOCAL)).address or ""
    if kind == "webhook":
        asked.note("address", address or "")
    asked.note(kind, "made")
    file = asked.place / "project" / _FILE
    if kind == "files" and not file.exists():
        # Moved into the folder when complete: a file that was cut off and written again would be another file.
        fresh = asked.place / _FILE
        fresh.write_text("Rain.", encoding="utf-8")
        fresh.rename(file)


def _how(kind: triggers.Kind) -> dict[str, Any]:
    if kind == "schedule":
        return {"at": clock.stamp(clock.SystemClock().now() + _SOON)}
    return {"pattern": _FILE, "settle_seconds": _SETTLE_SECONDS, "existing": "start"} if kind == "files" else {}


async def _deliver(application: bootstrap.Application, asked: Unattended) -> None:
    _, _, trigger_id, secret = (asked.noted("address") or "").split("/")
    await application.unattended.hooks.accept(trigger_id, secret, _HOOK_REQUEST)


async def _started(application: bootstrap.Application, kind: triggers.Kind, tried: Tried, pause: Pause) -> str:
    while True:
        known = await tried(lambda: _known(application))
        trigger = next(each for each in known if each.kind == kind)
        if trigger.last_run_id is not None and not trigger.waiting:
            return str(trigger.last_run_id)
        application.unattended.check()
        await pause()


async def _known(application: bootstrap.Application) -> list[triggers.TriggerShown]:
    return await application.unattended.triggers.list_triggers()


def _refuse_lost(asked: Unattended, name: str, is_there: bool) -> None:
    if asked.noted(name) is not None and not is_there:
        raise errors.ControlRoomError(f"{name}: what was acknowledged is gone", code="accepted_lost")
    if is_there:
        asked.note(name, "made")


async def _counted(application: bootstrap.Application, asked: Unattended) -> str:
    """Compare the calls that the budget counts with those that began, and with those that were made."""
    (budget,) = await application.budgets.list()
    begun: set[experiment_log.Try] = set()
    for run_id in asked.messages():
        loaded = await application.store.read(run_id)
        begun |= {(run_id, *tried) for tried in loaded.decisions.reserved}
    keys = {(run_id, key) for run_id, key, _ in begun}
    made = {tried for tried in experiment_log.read(asked.place / "diary.jsonl").executed if tried[:2] in keys}
    calls = budget.used.calls
    return "each call once" if len(made) <= calls <= len(begun) else f"{calls} calls, {len(made)} made of {len(begun)}"
