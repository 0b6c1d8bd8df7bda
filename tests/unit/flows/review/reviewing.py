"""A task that a scripted chief reviews, with the real driver, runner and performers of files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app import clock
from app.agents.backends import Backends
from app.agents.configuration import BackendConfig
from app.agents.performer import AgentPerformer
from app.domain import file_operations, library, operations, plain, records
from app.domain.states import RunState
from app.engine import ports, probes, refusal_performers, runner
from app.engine.run_equipment import Equipment
from app.flows import review
from app.flows.registry import DRIVERS
from app.tools import checks, file_performers, workspace
from tests.unit.agents import around
from tests.unit.engine import logs, samples
from tests.unit.flows.decomposition.splitting import Kept, chief

DRIVER: Any = DRIVERS[review.NAME]

DRAFT = "The lantern was cold.\nMira lit it."
"""The text that the task has written to its file."""

ARGS: Mapping[str, Any] = {
    "task": 1,
    "description": "Write scene 21",
    "dod": "Mira lights the lantern.",
    "run_id": "run-1",
    "outputs": [{"name": "draft", "path": "Drafts/a.md"}, {"name": "notes", "text": "All is well.", "characters": 12}],
    "receipts": [{"receipt_id": "rcpt_1", "name": "discovery (file_locator)"}],
    "tasks": ["1 running: Write scene 21", "2 blocked after 1: Write scene 22"],
}


def said(verdict: str = "met", evidence: str | None = '"Mira lit it" (Drafts/a.md)', **fields: Any) -> str:
    """Return a reply of the chief."""
    line = None if evidence is None else f"Evidence: {evidence}"
    return json.dumps({"verdict": verdict, "why": "She does.", "evidence": line, "proposals": []} | fields)


class Reviewed:
    """One review, with the file of its task in a folder."""

    def __init__(
        self,
        folder: Path,
        reply: Any = None,
        corrected: Any = None,
        *,
        decision: str = "met",
        tier: library.Tier = "t3",
        draft: str = DRAFT,
        **args: Any,
    ) -> None:
        place = folder / "work"
        (place / "Drafts").mkdir(parents=True)
        (place / "Drafts" / "a.md").write_text(draft, encoding="utf-8", newline="")
        script = folder / "script.json"
        replies = {"review": reply if reply is not None else said()}
        replies |= {} if corrected is None else {"review.correction": corrected}
        script.write_text(json.dumps(replies), encoding="utf-8")
        facts: dict[str, Any] = {
            "dialect": review.NAME,
            "recipe_id": review.RECIPE_ID,
            "recipe": {"id": review.RECIPE_ID},
            "frozen": plain.plain(DRIVER.freeze(review.RECIPE, library.Library(agents=(chief(tier),)))),
            "args": {**ARGS, "person": None, **args},
            "working_dir": str(place),
        }
        self.disk = logs.Disk(samples.start(**facts, driver_version=DRIVER.driver_version))
        self.asked: list[tuple[str, operations.Operation]] = []
        self._decision = decision
        self._script = script
        self._workspaces = workspace.Workspaces([place])

    async def perform(self, call: ports.Call) -> records.Result:
        """Answer the gate."""
        answer = {"gate_id": "g", "decision": self._decision, "message": "I looked.", "denied": False}
        return records.Result(output=answer)

    def call(self, key: str) -> Any:
        """Return the last operation performed under a key."""
        return dict(self.asked)[key]

    def prompt(self, key: str = "review") -> str:
        """Return the last prompt sent under a key."""
        (text,) = self.call(key).prompt
        return str(text)

    def result(self) -> dict[str, Any]:
        """Return the content of the slot."""
        found: dict[str, Any] = json.loads(self.disk.files["cache.json"]["review"]["text"])
        return found

    async def run(self) -> RunState:
        """Take the run up and continue until it rests."""
        config = BackendConfig(name="script", type="scripted", file=self._script)
        backends = Backends({"script": config}, around.surroundings())

        async def no_receipt(receipt_id: str) -> Mapping[str, Any]:
            return {"session_id": "another"}

        performers: dict[str, ports.Performer] = {
            operations.AgentCall.kind: AgentPerformer(backends, around.conversations()),
            operations.CheckEvidence.kind: checks.EvidencePerformer(self._workspaces, no_receipt),
            operations.Refusal.kind: refusal_performers.RefusalPerformer(),
            operations.Gate.kind: self,
            file_operations.ReadFiles.kind: file_performers.ReadFilesPerformer(self._workspaces),
        }
        equipment = Equipment(
            performers={kind: Kept(each, self.asked) for kind, each in performers.items()},
            clock=clock.FakeClock(),
            masker=plain.Masker(()),
            probes=probes.NoProbes(),
        )
        log: Any = logs.ListLog(self.disk)
        driven = runner.Runner(log, DRIVER, equipment, logs.CountedSlots(), lambda: None)
        state: RunState = await asyncio.wait_for(driven.run(), 60)
        return state
