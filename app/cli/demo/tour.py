"""The three parts of the demo: contradictions, a kill -9 in the middle of a draft, and a gate."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app import errors
from app.cli import browser, terminal
from app.cli.demo import service

SCENE = "Story/Scenes/SCN-the-locked-lamp-room.md"
DRAFTING: Mapping[str, Any] = {
    "description": "Draft scene 22, The Locked Lamp Room",
    "args": {"scene_path": SCENE, "canon_paths": ["Compendium/Characters", "Compendium/Places/PLACE-lantern-tower.md"]},
}
KILLED_IN = "draft"  # Step during which the demo kills the service.

_SHOWN_CHARACTERS = 72


class Tour:
    """Show the three parts on a running service.

    Args:
        drafting: Id of the recipe that drafts.
        agents: Description of its agents, e.g. `scripted agents`.
        opens: Whether to open the page of the drafting run in a browser.
    """

    def __init__(
        self, running: service.Service, project: Path, drafting: str, agents: str, *, opens: bool = False
    ) -> None:
        self._service = running
        self._project = project
        self._drafting = drafting
        self._agents = agents
        self._opens = opens
        self.pages: dict[str, tuple[str, str]] = {}
        """Recipe and page of each run, by its id."""

    def find_contradictions(self) -> None:
        """Compare the scenes with the canon, using only tools, and show each contradiction with its quotes."""
        heading("1 of 3: contradictions, found by a tool, without a model")
        run_id = self._start({"recipe_id": "find_contradictions", "description": "Check the scenes"})
        self._finish(run_id)
        pointer = self._service.get(f"/api/runs/{run_id}/cache/consistency")
        receipt = self._service.get(f"/api/audit/receipts/{pointer['receipt_id']}")
        for conflict in receipt["payload"]["conflicts"]:
            terminal.say(f"   {conflict['message']}")
            for statement in _opposed(conflict):
                quote = statement["quote"] or statement["value"]
                terminal.say(f"      “{_short(quote)}”  {statement['path']}:{statement['line']}")
        count = receipt["payload"]["conflict_count"]
        terminal.say(f"   {count} contradictions; each is an issue now: {self._service.url}/issues")

    def draft_through_a_kill(self) -> str:
        """Draft a scene, kill the service meanwhile, start it again, and return the draft's path."""
        heading("2 of 3: a draft by five agents, and a kill -9 in the middle")
        terminal.say(f"   the agents are {self._agents}")
        # The writer hangs, so that the kill interrupts an agent at work.
        self._service.script_writer(hangs=True)
        run_id = self._start({"recipe_id": self._drafting, **DRAFTING})
        if self._opens:
            browser.open_page(self.pages[run_id][1], lambda line: terminal.say(f"   {line}"))
        shown: set[tuple[str, str]] = set()
        before = self._watch(run_id, shown, until=_is_running(KILLED_IN))
        if _is_running(KILLED_IN)(before):
            self._kill_and_start_again(run_id)
        run = self._watch(run_id, shown)
        self._service.script_writer(hangs=False)
        terminal.say(f"   run {run_id} is {run['status']}")
        if run["status"] != "done":
            raise _failure(run)
        return self._draft_of(run_id)

    def ask_about(self, draft: str) -> None:
        """Run a recipe that asks before it publishes the draft, and answer its gate."""
        heading("3 of 3: a gate; the run waits for a person, without a process or a worker")
        run_id = self._start({"recipe_id": "publish_draft", "description": "Publish", "args": {"draft": draft}})
        shown: set[tuple[str, str]] = set()
        run = self._watch(run_id, shown)
        while run["status"] == "waiting":
            for gate in self._service.get(f"/api/gates?run_id={run_id}"):
                decision = _decided(gate["prompt"], gate["options"])
                self._service.post(f"/api/gates/{gate['gate_id']}", {"decision": decision})
            run = self._watch(run_id, shown)
        denied = (run["error"] or {}).get("code") == "approval_denied"
        terminal.say(f"   run {run_id} is {run['status']}{', because you denied it' if denied else ''}")
        if run["status"] != "done" and not denied:
            raise _failure(run)

    def say_pages(self) -> None:
        """Print the page of each run; the pages last as long as the service."""
        heading("the runs, to look at")
        for recipe_id, page in self.pages.values():
            terminal.say(f"   {recipe_id:<24} {page}")

    def _start(self, body: Mapping[str, Any]) -> str:
        terminal.say(f"   POST /api/runs {_short(json.dumps(dict(body), ensure_ascii=False), 2)}")
        run_id = str(self._service.post("/api/runs", dict(body))["run_id"])
        page = f"{self._service.url}/runs/{run_id}"
        self.pages[run_id] = body["recipe_id"], page
        terminal.say(f"   {page}")
        return run_id

    def _finish(self, run_id: str) -> None:
        *_, run = self._service.follow(run_id)
        if run["status"] != "done":
            raise _failure(run)

    def _watch(
        self,
        run_id: str,
        shown: set[tuple[str, str]],
        until: Callable[[Mapping[str, Any]], bool] = lambda run: False,
    ) -> dict[str, Any]:
        """Show the steps of a run as they begin and end, and return the run at its end, or when `until` is true."""
        run: dict[str, Any] = {}
        for run in self._service.follow(run_id):
            for step in run["steps"]:
                if (step["key"], step["status"]) not in shown:
                    shown.add((step["key"], step["status"]))
                    terminal.say(_line(step))
            if until(run):
                break
        return run

    def _kill_and_start_again(self, run_id: str) -> None:
        journal = self._project / ".control-room" / "runs" / run_id / "steps.jsonl"
        pid, before = self._service.pid, journal.read_bytes()
        self._service.kill()
        terminal.say(f"== kill -9 {pid}: the service died in the middle of the step {KILLED_IN}")
        self._service.start()
        kept = before.count(b"\n")
        # The promise of the whole demo, verified on the bytes of the journal.
        same = journal.read_bytes().startswith(before)
        state = "byte for byte as before, none is repeated" if same else "CHANGED"
        terminal.say(f"== the service runs again (process {self._service.pid}); {kept} finished steps, {state}:")

    def _draft_of(self, run_id: str) -> str:
        steps = self._service.get(f"/api/runs/{run_id}/steps")
        path = next(step["output"]["path"] for step in steps if step["key"].startswith("commit."))
        text = (self._project / path).read_text(encoding="utf-8")
        terminal.say(f"   {path}, by {self._agents}:")
        terminal.say(f"      “{_short(text, 3)}”")
        return str(path)


def heading(text: str) -> None:
    """Print the heading of a part."""
    terminal.say("")
    terminal.say(f"== {text}")


def _opposed(conflict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return one statement for each of the contradictory values."""
    by_value = {statement["value"]: statement for statement in reversed(conflict["statements"])}
    return list(reversed(by_value.values()))


def _is_running(key: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda run: any((step["key"], step["status"]) == (key, "running") for step in run["steps"])


def _line(step: Mapping[str, Any]) -> str:
    actor = step.get("tool") or step.get("agent_archetype") or ""
    line = f"   {step['status']:<8} {step.get('phase') or '-':<4} {step['key']:<22} {actor:<16}"
    attempt = f" (attempt {step['attempt']})" if step.get("attempt", 1) > 1 else ""
    result = (step.get("error") or {}).get("message") or step.get("output_preview") or ""
    if step["status"] == "running":
        return f"{line.rstrip()}{attempt}"
    return f"{line} {_short(result)}{attempt}".rstrip()


def _short(text: str, lines: int = 1) -> str:
    return textwrap.shorten(text, lines * _SHOWN_CHARACTERS, placeholder="…")


def _decided(prompt: str, options: list[str]) -> str:
    """Ask the person at the terminal; the first option is the default, and the answer if there is no terminal."""
    choice = " / ".join(options)
    terminal.say(f"   | {prompt}")
    if not terminal.is_answered():
        terminal.say(f"   [{choice}] {options[0]} (the default: no terminal to ask at)")
        return options[0]
    while True:
        terminal.prompt(f"   [{choice}; Enter: {options[0]}] ")
        try:
            word = input().strip().lower()
        except EOFError:
            word = ""
            terminal.say("")
        chosen = next((option for option in options if option.startswith(word)), None)
        if chosen:
            return chosen


def _failure(run: Mapping[str, Any]) -> errors.ControlRoomError:
    error = run["error"] or {}
    return errors.RunFailed(
        f"run {run['run_id']} is {run['status']}: {error.get('message', 'no reason was recorded')}",
        code=error.get("code", "run_failed"),
    )
