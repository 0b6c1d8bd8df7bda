"""
Tests of secrets that recipes name: their values are in nothing that a run records.
"""

from __future__ import annotations

import logging
from typing import Any

from app import clock
from app.engine import plain, ports, probes, records, runner
from app.engine.states import RunState
from tests.unit.engine import logs, samples


class _Secretive:
    """
    A dialect that asks for one tool, and names two variables and a text.
    """

    def secrets(self, document: Any) -> ports.Secrets:
        """
        Return them.
        """
        return ports.Secrets(names=frozenset({"TOKEN", "PIN", "ABSENT"}), texts=frozenset({"from-recipe"}))

    async def drive(self, ctx: Any) -> Any:
        """
        Ask once.
        """
        from app.engine import runs

        record = await ctx.perform("a", samples.tool("a", given="from-recipe"))
        ctx.project(lambda standing: {"state.json": {"seen": record.output, "own": "hunter22"}})
        return runs.Ending()


class _Telling:
    async def perform(self, call: Any) -> records.Result:
        await call.write_log("log.txt", "token hunter22")
        return records.Result(output={"hunter22": ["hunter22 and from-recipe", "42"]}, summary="hunter22")


async def test_values_of_named_variables_are_masked(caplog):
    """
    Output, summary, operation, log and further files show stars; what is too short is told, not masked.
    """
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
