"""The course of a plan over HTTP: requested, read, scoped, approved, started and awaited."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from tests import example_project
from tests.acceptance import programs

INTENT = "write scene 21 and 22, check consistency, foreshadowing audit"

WRITTEN = "# A scene\n\nKael stepped from the boat onto the wet stone."

REPLIES: dict[str, Any] = {
    "brief": "Kael must enter the tower.",
    "draft": "# A scene\n\nKael stepped off the boat.",
    "polish": WRITTEN,
    "continuity": '{"pass": true, "findings": []}',
    "review": json.dumps(
        {
            "verdict": "met",
            "why": "Kael is there.",
            "evidence": 'Evidence: "the courier" (Compendium/Characters/CHAR-kael.md)',
            "proposals": [],
        }
    ),
    "*": "Nothing to add.",
}
"""The replies of the tasks' agents."""

CANON = ["Compendium/Characters"]
SCENES = {
    "21": {"scene_path": "Story/Scenes/SCN-the-arrival.md", "canon_paths": CANON},
    "22": {"scene_path": "Story/Scenes/SCN-the-locked-lamp-room.md", "canon_paths": CANON},
}
"""Arguments of the two scenes, as a person gives them."""

AUTHORS = ("planner", "writer", "editor", "continuity", "critic")

Plan: TypeAlias = dict[str, Any]


def make_project(folder: Path, *, chief: str | None = None, scripted: tuple[str, ...] = AUTHORS) -> programs.Project:
    """Copy the example project and let some of its agents answer from a script.

    Args:
    chief: The chief's reply; None: the bundled chief is asked, on the local model.
    scripted: Roles that answer from the script; the others are the bundled ones.
    """
    project = programs.Project(example_project.copy(folder))
    roles = [*scripted, *(["chief"] if chief is not None else [])]
    agents = [
        {"id": f"{role}-test", "archetype": role, "tier": "t3", "backend": "script", "role": f"You are the {role}."}
        for role in roles
    ]
    project.write("agents.json", {"agents": agents, "backends": programs.AGENTS["backends"]})
    project.write("replies.json", REPLIES | ({} if chief is None else {"chief": chief}))
    return project


@dataclass(frozen=True)
class Journey:
    """One plan, as a user sees it over HTTP."""

    http: httpx.Client
    session_id: str

    @classmethod
    def begin(cls, http: httpx.Client, intent: str = INTENT, review: str = "on") -> Journey:
        """Request a plan."""
        answer = http.post("/api/sessions", json={"intent": intent, "review": review})
        assert answer.status_code == 201, answer.text
        plan = answer.json()
        assert (plan["status"], plan["intent"], plan["tasks"]) == ("draft", intent, [])
        return cls(http, plan["session_id"])

    def plan(self) -> Plan:
        """Return the current plan."""
        return self._checked(self.http.get(self._address()))

    def until(self, holds: Callable[[Plan], bool]) -> Plan:
        """Wait until a condition on the plan is true."""
        etag = ""
        for _ in range(400):
            # The first request does not wait: if the condition is already true, no further change may come.
            wait = {"wait": 20 if etag else 0}
            answer = self.http.get(self._address(), params=wait, headers={"If-None-Match": etag})
            if answer.status_code == 304:
                continue
            plan = self._checked(answer)
            if holds(plan):
                return plan
            etag = answer.headers["ETag"]
        raise AssertionError(f"it did not come to hold: {plan}")

    def split(self) -> Plan:
        """Wait until the chief has created the tasks, or failed."""
        return self.until(lambda plan: bool(plan["tasks"]) or plan["status"] == "failed")

    def ended(self) -> Plan:
        """Wait until the plan is done or has failed."""
        return self.until(lambda plan: plan["status"] in ("done", "failed"))

    def move(self, name: str) -> Plan:
        """Approve, start, pause or resume the plan."""
        return self._checked(self.http.post(self._address(name)))

    def answer(self, task: int, answer: str, **more: Any) -> Plan:
        """Answer the question of a task."""
        return self._checked(self.http.post(self._address("tasks", task, "answer"), json={"answer": answer} | more))

    def edit(self, task: int, **changes: Any) -> Plan:
        """Change a task."""
        return self._checked(self.http.patch(self._address("tasks", task), json=changes))

    def remove(self, task: int) -> Plan:
        """Remove a task."""
        return self._checked(self.http.delete(self._address("tasks", task)))

    def run(self, run_id: str) -> Plan:
        """Return a run of the plan."""
        return self._checked(self.http.get(f"/api/runs/{run_id}"))

    def _address(self, *parts: str | int) -> str:
        return "/".join(["/api/sessions", self.session_id, *map(str, parts)])

    @staticmethod
    def _checked(answer: httpx.Response) -> Plan:
        assert answer.status_code == 200, answer.text
        found: Plan = answer.json()
        return found


def by_id(plan: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the tasks of a plan by their numbers."""
    return {task["id"]: task for task in plan["tasks"]}


def statuses(plan: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return number and status of each task, in order."""
    return [(task["id"], task["status"]) for task in plan["tasks"]]


def kept(project: programs.Project, session_id: str) -> Plan:
    """Return the content of a plan's file."""
    found: Plan = json.loads((project.data / "sessions" / session_id / "plan.json").read_text(encoding="utf-8"))
    return found


def prompts(project: programs.Project, run_id: str) -> dict[str, str]:
    """Return the prompts of a run, by the names of its logs."""
    logs = (project.data / "runs" / run_id / "logs").glob("*.prompt.md")
    return {path.name: path.read_text(encoding="utf-8") for path in logs}
