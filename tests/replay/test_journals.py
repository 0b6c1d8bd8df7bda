"""Golden journals of each dialect: its driver always asks for the same operations, and a wrong journal is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from typing import Any

import pytest

from app import clock, errors
from app.dialects import registry
from app.domain import decisions, operations, plain, records, usage_sums
from app.domain.states import RunState
from app.engine import driver_context, driver_scheduler, journal_lines, ports, probes, replay, runner, stores
from app.engine.run_equipment import Equipment
from app.flows import registry as flows
from tests.replay import golden
from tests.unit.dialects import prompting
from tests.unit.engine import logs
from tests.unit.flows.review import reviewing
from tests.unit.flows.session_plan import scripted

DRIVERS = {**registry.DIALECTS, **flows.DRIVERS}
"""All drivers of runs."""

ELSEWHERE: dict[str, dict[str, Any]] = {
    "control_room": {"description": "Something else"},
    "agent_recipes": {"args": {"backend": "x"}},
    "amplifier": {"args": {"x": "something else"}},
    "conference": {"args": {"message": "Something else?"}},
    "decomposition": {"args": {"intent": "Something else"}},
    "prompt": {"args": prompting.ARGS | {"text": "Something else."}},
    "orchestrate": {"args": {"who": "else", "on": True}},
    "review": {"args": {**reviewing.ARGS, "person": None, "description": "Something else", "outputs": []}},
    "session_plan": {"args": {"plan": dataclasses.replace(scripted.DRAFT, intent="something else").to_json()}},
}
"""For each dialect, a changed fact of the start that its operations contain."""


class Bench:
    """A driver that replays from lines alone."""

    def __init__(self, run: golden.Golden) -> None:
        self.run = run
        self.context = driver_context.DriverContext(run.start, lambda key, facts: None)
        self.scheduler = driver_scheduler.DriverScheduler(lambda: DRIVERS[run.start.dialect].drive(self.context))

    async def replay(self, lines: list[dict[str, Any]]) -> None:
        """Pass the lines to the driver."""
        read = [records.read(position, line) for position, line in enumerate(lines)]
        loaded = stores.Loaded(start=self.run.start, records=read, decisions=decisions.Decisions(), emitted=frozenset())
        await replay.replay(self.scheduler, loaded, self._read_blob)

    async def _read_blob(self, blob: records.BlobRef) -> plain.Json:
        content = self.run.blobs[blob.sha256]
        return content if blob.text else json.loads(content)


class Recorded:
    """A performer that returns only the results of the golden journal."""

    def __init__(self, run: golden.Golden) -> None:
        self._run = run
        self._lines = {line["key"]: line for line in run.lines}
        self.performed: list[str] = []

    async def perform(self, call: Any) -> records.Result:
        """Return the recorded result of a step."""
        line = self._lines[call.key]
        record = records.read(0, line)
        self.performed.append(call.key)
        output = record.output
        if record.blob is not None:
            content = self._run.blobs[record.blob.sha256]
            output = content if record.blob.text else json.loads(content)
        summary = None if isinstance(output, str) else record.summary
        return records.Result(
            status=record.status,
            output=output,
            summary=summary,
            error=record.error,
            usage=record.usage,
            agent_session_id=record.agent_session_id,
        )


def _all_operations(base=operations.Operation):
    return [kind for each in base.__subclasses__() for kind in (each, *_all_operations(each))]


def _lines(run):
    return copy.deepcopy([dict(line) for line in run.lines])


@pytest.fixture(params=golden.names())
def run(request):
    """Return each recorded run."""
    return golden.load(request.param)


def test_a_journal_is_kept_of_each_kind():
    """Every driver has journals, and the files are exactly those of the described runs and of the kept ones."""
    assert set(golden.names()) == golden.MADE.keys() | golden.KEPT
    assert not golden.MADE.keys() & golden.KEPT
    assert {name.split("/")[0] for name in golden.MADE} == set(DRIVERS)


async def test_a_whole_journal_ends_as_it_did(run):
    """The journal lines alone reproduce the ending, error, slots and progress."""
    bench = Bench(run)
    await bench.replay(_lines(run))
    board, failure = bench.context.board(), bench.scheduler.failure

    assert bench.scheduler.finished
    assert {name: slot.to_json() for name, slot in board.slots.items()} == run.slots
    assert board.progress.finished_steps == run.manifest["current_step_index"]
    assert board.progress.total_steps == run.manifest["total_steps"]
    assert board.progress.machine == _in_todays_form(run.manifest.get("machine"))
    if failure is None:
        assert run.ended["status"] == "done"
        assert bench.scheduler.result.to_json() == run.ended["ending"]
    else:
        assert isinstance(failure, errors.RunFailed)
        assert plain.plain(failure.to_json()) == run.ended["error"]
        causes = [position for position, line in enumerate(run.lines) if line["key"] in failure.causes]
        assert causes == run.ended["causes"]


async def test_after_each_prefix_the_next_line_is_asked_for(run):
    """After each prefix of a journal, the driver asks for the next recorded operation, at the recorded place."""
    for length in range(len(run.lines)):
        bench = Bench(run)
        await bench.replay(_lines(run)[:length])
        expected = run.lines[length]
        (ask,) = bench.scheduler.asks.values()

        assert ask.key == expected["key"]
        assert ask.fingerprint == expected["operation"]["hash"]
        assert plain.plain(ask.body) == expected["operation"].get("body", plain.plain(ask.body))
        shown = journal_lines.facts_of(ask.operation) | plain.plain(dataclasses.asdict(ask.place))
        assert {name: value for name, value in shown.items() if name in expected} == {
            name: expected[name] for name in shown if name in expected
        }


async def test_a_restart_after_each_prefix_ends_the_same(run):
    """The runner takes up a run after any line, performs only the rest, and leaves the same journal and files."""
    for length in range(len(run.lines) + 1):
        disk = logs.Disk(run.start)
        disk.steps = [plain.encode(line) for line in _lines(run)[:length]]
        disk.blobs = {digest: content.encode() for digest, content in run.blobs.items()}
        performer: Any = Recorded(run)
        kinds = {kind.kind for kind in _all_operations()}
        equipment = Equipment(
            performers=dict.fromkeys(kinds, performer),
            clock=clock.FakeClock(),
            masker=plain.Masker(),
            probes=probes.NoProbes(),
        )
        log: Any = logs.ListLog(disk)
        dialect = DRIVERS[run.start.dialect]
        state = await runner.Runner(log, dialect, equipment, logs.CountedSlots(), lambda: None).run()
        recorded = {name: run.manifest[name] for name in run.manifest.keys() - {"updated_at", "completed_at"}}
        manifest = _in_todays_form(recorded) | _unreported(run)

        assert state is RunState(run.ended["status"])
        assert performer.performed == [line["key"] for line in run.lines[length:]]
        assert [_without_times(json.loads(line)) for line in disk.steps] == [_without_times(line) for line in run.lines]
        assert disk.files["cache.json"] == run.slots
        assert {name: disk.files["run.json"][name] for name in manifest} == manifest


def _in_todays_form(shown):
    """Return a manifest in today's form.

    Older manifests contained 0 for an unreported price, and no reason for a run that is done in part.
    """
    if not isinstance(shown, dict):
        return shown
    priced = {name for name in shown if name in ("cost_usd", "costUsd")}
    steps = {"stepCostsUsd": {step: price or None for step, price in shown.get("stepCostsUsd", {}).items()}}
    told = {name: (value or None) if name in priced else _in_todays_form(value) for name, value in shown.items()}
    in_part = {"reason": "partial"} if "run_id" in shown and (shown.get("ending") or {}).get("partial") else {}
    return told | (steps if "stepCostsUsd" in shown else {}) | (in_part if shown.get("status") == "done" else {})


def _unreported(run):
    """Return the sums of a run whose calls reported no tokens, which older manifests contained as 0."""
    called = any(usage_sums.is_call(record) for record in run.records())
    if not called or any(line.get("usage") for line in run.lines):
        return {}
    return {"usage": run.manifest["usage"] | {"input_tokens": None, "output_tokens": None, "cost_usd": None}}


def _without_times(line):
    return {name: value for name, value in line.items() if name not in ("started_at", "completed_at", "duration_ms")}


async def test_a_line_of_another_operation_is_caught(run):
    """A journal whose line has another operation than the driver asks for is refused, with the operation asked for."""
    for position in range(len(run.lines)):
        lines = _lines(run)
        lines[position]["operation"] = {"hash": "sha256:" + "0" * 64}
        with pytest.raises(errors.NondeterminismFault) as caught:
            await Bench(run).replay(lines)

        assert caught.value.key == lines[position]["key"]
        assert caught.value.detail["line"] == position + 1
        assert caught.value.detail["asked"]["hash"] == run.lines[position]["operation"]["hash"]


async def test_the_driver_refuses_journals_with_altered_lines(run):
    """The driver refuses foreign keys, a missing line, swapped lines and lines after the end."""
    wrong = []
    for position in range(len(run.lines)):
        renamed = _lines(run)
        renamed[position]["key"] = "foreign"
        wrong.append(renamed)
        if position + 1 < len(run.lines):
            wrong.append(_lines(run)[:position] + _lines(run)[position + 1 :])
            swapped = _lines(run)
            swapped[position], swapped[position + 1] = swapped[position + 1], swapped[position]
            wrong.append(swapped)
    wrong.append([*_lines(run), _lines(run)[-1]])
    wrong.append([*_lines(run), _lines(run)[0] | {"key": "further"}])

    for lines in wrong:
        with pytest.raises(errors.NondeterminismFault):
            await Bench(run).replay(lines)


async def test_other_facts_at_the_start_are_caught(run):
    """A run does not replay with other facts at its start than those of its journal."""
    other = dataclasses.replace(run.start, **ELSEWHERE[run.start.dialect])
    with pytest.raises(errors.NondeterminismFault):
        await Bench(dataclasses.replace(run, start=other)).replay(_lines(run))


async def test_another_output_is_caught_where_it_is_read():
    """A changed payload or reply in the journal is refused by the next operation that reads it."""
    run = golden.load("control_room/creative_draft_scene")
    for position in range(1, len(run.lines) - 4):
        lines = _lines(run)
        line = lines[position]
        line["output"] = "changed" if line["phase"] == "b" else line["output"] | {"report": "changed"}

        with pytest.raises(errors.NondeterminismFault):
            await Bench(run).replay(lines)


async def test_another_outcome_is_caught_where_it_decides():
    """The driver refuses another outcome, or none, in a reply, because it leads to a step that was not recorded."""
    run = golden.load("agent_recipes/loop")
    for position in range(len(run.lines) - 1):
        for said in ("Nothing.", '{"outcome": "other", "otherDescription": "x"}'):
            lines = _lines(run)
            lines[position]["output"] = said

            with pytest.raises(errors.NondeterminismFault):
                await Bench(run).replay(lines)


async def test_the_wrong_journal_is_caught():
    """A journal that lost a line in its middle is refused; the error names the step found there and the lost step."""
    run = golden.load("wrong_agent_recipes")
    with pytest.raises(errors.NondeterminismFault) as caught:
        await Bench(run).replay(_lines(run))

    assert (caught.value.key, caught.value.detail["line"]) == ("commit", 3)
    assert list(caught.value.detail["asked"]) == ["review#2"]


NOT_BUNDLED = [
    "control_room/outputs_and_findings",
    "control_room/long_texts",
    "control_room/broken_reference",
    "control_room/failed_agent",
    "control_room/not_done",
    "control_room/evidence",
    "control_room/no_evidence",
    "control_room/outputs_and_findings_2",
    "control_room/not_done_2",
    "control_room/not_done_3",
    *(name for name in golden.MADE if name.startswith("agent_recipes/") and name != "agent_recipes/tasks"),
    *(name for name in golden.MADE if name.startswith(("amplifier/", "conference/", "decomposition/", "prompt/"))),
]
"""Runs whose recipes do not change."""


def test_a_run_fills_only_slots_that_its_recipe_shows(run):
    """The slots that a language derives from a recipe contain each that a kept run has filled."""
    driver = DRIVERS[run.start.dialect]
    shown = driver.slots(run.start.recipe) if isinstance(driver, ports.SlotNamingDialect) else None
    filled = {re.sub(r"(#[0-9]+)?\[[0-9]+\]", "[*]", name) for name in run.slots}

    assert isinstance(driver, ports.SlotNamingDialect) == (run.start.dialect in registry.DIALECTS)
    assert shown is None or filled <= set(shown)


@pytest.mark.parametrize("name", NOT_BUNDLED)
async def test_journals_are_those_of_todays_driver(name, tmp_path):
    """With an unchanged recipe, a run recorded anew has the kept journal, with the driver version of its start."""
    kept = golden.load(name)
    made = await golden.record(name, tmp_path / "project")

    assert [_without_times(line) for line in made["steps"]] == [_without_times(line) for line in kept.lines]
    assert made["start"]["driver_version"] == kept.start.driver_version <= DRIVERS[kept.start.dialect].driver_version
