"""Tests of secrets that recipes name: their values are in nothing that a run records."""

from __future__ import annotations

import json
import logging
from typing import Any

from app import clock
from app.domain import plain, records, runs, slots
from app.domain.states import RunState
from app.engine import ports, probes, runner
from tests.unit.engine import logs, samples


class _Secretive:
    """A dialect that asks for one tool, and names two variables and a text."""

    def secrets(self, document: Any) -> ports.Secrets:
        """Return them."""
        return ports.Secrets(names=frozenset({"TOKEN", "PIN", "ABSENT"}), texts=frozenset({"from-recipe"}))

    async def drive(self, ctx: Any) -> Any:
        """Ask once."""
        record = await ctx.perform("a", samples.tool("a", given="from-recipe"))
        ctx.project(lambda standing: {"state.json": {"seen": record.output, "own": "hunter22"}})
        return runs.Ending()


class _Telling:
    async def perform(self, call: Any) -> records.Result:
        await call.write_log("log.txt", "token hunter22")
        return records.Result(output={"hunter22": ["hunter22 and from-recipe", "42"]}, summary="hunter22")


async def test_values_of_named_variables_are_masked(caplog):
    """Output, summary, operation, log and further files show stars; what is too short is told, not masked."""
    disk = logs.Disk(samples.start())
    equipment = runner.Equipment(
        performers={"tool_call": _Telling()},
        clock=clock.FakeClock(),
        masker=plain.Masker(),
        probes=probes.NoProbes(),
        environ={"TOKEN": "hunter22", "PIN": "42"},
    )
    log: Any = logs.ListLog(disk)
    dialect: Any = _Secretive()
    with caplog.at_level(logging.WARNING):
        state = await runner.Runner(log, dialect, equipment, logs.CountedSlots(), lambda: None).run()
    kept = b"".join(disk.steps).decode() + str(disk.files) + str(disk.logs)

    assert state is RunState.DONE
    assert "hunter22" not in kept
    assert "from-recipe" not in b"".join(disk.steps).decode()
    assert disk.files["state.json"] == {"seen": {"***": ["*** and ***", "42"]}, "own": "***"}
    assert disk.logs == {"log.txt": "token ***"}
    assert [record.getMessage() for record in caplog.records] == ["secrets too short to be masked: PIN"]


class _Decoding(_Secretive):
    """A dialect that reads a reply as JSON and shows what stands in it."""

    async def drive(self, ctx: Any) -> Any:
        """Put together what the record holds in pieces."""
        record = await ctx.perform("a", samples.tool("a"))
        text = json.loads(record.output["reply"])
        ctx.fill("said", slots.Slot(type="artifact", text=text, sha256="0", summary=text, key="a"))
        return runs.Ending()


class _Escaping:
    async def perform(self, call: Any) -> records.Result:
        return records.Result(output={"reply": json.dumps("hunter22").replace("h", "\\u0068")})


async def test_what_a_driver_puts_together_is_masked() -> None:
    """A secret that a reply has escaped, so that its record does not show it, is in no slot either."""
    disk = logs.Disk(samples.start())
    equipment = runner.Equipment(
        performers={"tool_call": _Escaping()},
        clock=clock.FakeClock(),
        masker=plain.Masker(["hunter22"]),
        probes=probes.NoProbes(),
    )
    log: Any = logs.ListLog(disk)
    dialect: Any = _Decoding()
    made = runner.Runner(log, dialect, equipment, logs.CountedSlots(), lambda: None)
    await made.run()
    shown = made.view().board.slots["said"]

    assert (shown.text, shown.summary) == ("***", "***")
    assert shown.sha256 == plain.sha256(b"***")
