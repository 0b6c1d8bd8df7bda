"""Tests of secrets named by recipes: no record of a run contains their values."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from app import clock
from app.domain import plain, records, runs, slots
from app.domain.states import RunState
from app.engine import ports, probes, runner
from app.engine.run_equipment import Equipment
from tests.unit.engine import logs, samples


class _Secretive:
    """A dialect that asks for one tool and names three variables and a text as secrets."""

    def secrets(self, document: Any) -> ports.Secrets:
        """Return the secrets."""
        return ports.Secrets(names=frozenset({"TOKEN", "PIN", "ABSENT"}), texts=frozenset({"from-recipe"}))

    async def drive(self, ctx: Any) -> Any:
        """Ask for one tool."""
        record = await ctx.perform("a", samples.tool("a", given="from-recipe"))
        ctx.project(lambda standing: {"state.json": {"seen": record.output, "own": "hunter22"}})
        return runs.Ending()


class _LoggingPerformer:
    async def perform(self, call: Any) -> records.Result:
        await call.write_log("log.txt", "token hunter22")
        return records.Result(output={"hunter22": ["hunter22 and from-recipe", "42"]}, summary="hunter22")


def _equipment(**environ: str) -> Equipment:
    return Equipment(
        performers={"tool_call": _LoggingPerformer()},
        clock=clock.FakeClock(),
        masker=plain.Masker(),
        probes=probes.NoProbes(),
        environ=environ,
    )


async def test_values_of_named_variables_are_masked(caplog):
    """Output, summary, operation, log and projections are masked; a short value is not, and a warning is logged."""
    disk = logs.Disk(samples.start())
    equipment = _equipment(TOKEN="hunter22", PIN="42")
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
    """A dialect that reads a reply as JSON and fills a slot with its text."""

    async def drive(self, ctx: Any) -> Any:
        """Decode the escaped text of the record."""
        record = await ctx.perform("a", samples.tool("a"))
        text = json.loads(record.output["reply"])
        ctx.fill("said", slots.Slot(type="artifact", text=text, sha256="0", summary=text, key="a"))
        return runs.Ending()


class _Escaping:
    async def perform(self, call: Any) -> records.Result:
        return records.Result(output={"reply": json.dumps("hunter22").replace("h", "\\u0068")})


async def test_an_escaped_secret_in_a_drivers_slot_is_masked() -> None:
    """A secret that a reply contains in escaped form is masked in the slot that the driver fills."""
    disk = logs.Disk(samples.start())
    equipment = Equipment(
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


class _Differing(_Secretive):
    """A dialect that asks for another tool under the key of the first one, with a text of its recipe."""

    async def drive(self, ctx: Any) -> Any:
        """Ask for another operation than the journal has."""
        await ctx.perform("a", samples.tool("other", given="from-recipe"))


class _Broken(_Secretive):
    """A dialect with a bug whose error contains a secret."""

    async def drive(self, ctx: Any) -> Any:
        """Fail after the step."""
        await super().drive(ctx)
        raise KeyError("hunter22")


@pytest.mark.parametrize("dialect", [_Differing(), _Broken()])
async def test_a_parked_runs_files_contain_no_secret(dialect: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The run.json, events and log lines of a parked run contain no secrets from its driver."""
    disk = logs.Disk(samples.start())
    equipment = _equipment(TOKEN="hunter22")
    first: Any = logs.ListLog(disk)
    whole: Any = _Secretive()
    await runner.Runner(first, whole, equipment, logs.CountedSlots(), lambda: None).run()
    disk.control = [line for line in disk.control if b'"ended"' not in line]
    again: Any = logs.ListLog(disk)
    state = await runner.Runner(again, dialect, equipment, logs.CountedSlots(), lambda: None).run()
    shown = disk.files["run.json"]
    told = str([event.data for event in disk.events]) + str(shown) + caplog.text

    assert (state, shown["status"], "***" in str(shown["error"])) == (RunState.PAUSED, "paused", True)
    assert [secret for secret in ("hunter22", "from-recipe") if secret in told] == []
