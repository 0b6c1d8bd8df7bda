"""Tests of the chief's one call: its prompt, its result, and the effect of a faulty reply."""

from __future__ import annotations

import dataclasses
import json

import pytest

from app import errors
from app.domain import library, records
from app.domain.states import RunState
from app.engine import step_rules
from app.flows import decomposition
from app.tools import tool_performer, workspace
from tests import example_project
from tests.unit.dialects import example
from tests.unit.flows.decomposition import splitting
from tests.unit.flows.decomposition.splitting import Split, Tool, reply, task

DRIVER = splitting.DRIVER
FAULTY = reply(task(1, 2), task(2, 1))
CUT = {"error": {"code": "reply_cut_off", "message": "It was cut off."}}
BROKEN = {"error": {"code": "rate_limited", "message": "Too much.", "detail": {"status": 429}}}


async def test_an_intent_becomes_tasks(tmp_path):
    """One search and one call fill the slot with the chief's tasks; omitted fields get defaults."""
    split = Split(tmp_path, splitting.REPLY)

    assert await split.run() is RunState.DONE
    assert split.keys == ["look", "chief"]
    assert [(each.id, each.description, each.deps) for each in split.tasks()] == [
        (1, "Write scene 21", ()),
        (2, "Write scene 22", (1,)),
        (3, "Check consistency of scenes 21 and 22", (1, 2)),
        (4, "Foreshadowing audit", ()),
    ]
    assert split.tasks()[0].args == splitting.TASKS[0]["args"]
    assert split.tasks()[0].dod == "The scene is there."
    assert [each.scoping_question for each in split.tasks()] == [None, None, None, "Which themes?"]

    manifest = split.disk.files["run.json"]

    assert (manifest["current_step_index"], manifest["total_steps"]) == (2, 2)
    assert manifest["ending"]["reason"] == "decomposed"


async def test_the_chief_is_asked_as_it_is_configured(tmp_path):
    """The chief's role is the system prompt, tools are off, and a schema binds the reply."""
    split = Split(tmp_path, splitting.REPLY)
    await split.run()
    call = split.call("chief")

    assert (call.agent_id, call.archetype, call.backend, call.model) == ("chief-1", "chief", "script", None)
    assert call.system == "You are the chief."
    assert call.tools is False
    assert call.agent_session_id is None
    assert call.reply_schema["required"] == ["tasks"]


async def test_the_prompt_contains_the_found_files(tmp_path):
    """The search has the intent as criteria and a receipt in the session; the prompt contains the found files."""
    split = Split(tmp_path, splitting.REPLY)
    await split.run()
    look, found = split.call("look"), split.disk.files["cache.json"]["found"]

    assert (look.tool, look.args["search_criteria"]) == ("file_locator", splitting.INTENT)
    assert "- Story/Scenes/SCN-the-arrival.md (scene): The Arrival" in split.prompt()
    assert found["type"] == "pointer"
    assert [found["receipt_id"]] == split.disk.receipts


@pytest.mark.parametrize(
    "result", [step_rules.failed("tool_timeout", "It took too long."), records.Result(output={"matches": []})]
)
async def test_a_plan_needs_no_files(tmp_path, result):
    """After a search that fails or finds no files the chief is still asked, and its prompt says so."""
    split = Split(tmp_path, splitting.REPLY, tool=Tool(result))

    assert await split.run() is RunState.DONE
    assert "No files were found" in split.prompt()


async def test_many_files_are_read_from_where_they_are_kept(tmp_path):
    """A payload too large for the journal is used like any other: the prompt shows its first files."""
    matches = [{"path": f"{n}.md", "category": "scene", "title": "x" * 2_000} for n in range(100)]
    split = Split(tmp_path, splitting.REPLY, tool=Tool(records.Result(output={"matches": matches})))

    assert await split.run() is RunState.DONE
    assert json.loads(split.disk.steps[0])["output"] is None
    assert "- 11.md (scene)" in split.prompt()
    assert "- 12.md (scene)" not in split.prompt()


@pytest.mark.parametrize("faulty", [FAULTY, "", "ABSTAIN: too vague", "Gladly!", CUT, '{"tasks": []}'])
async def test_a_faulty_reply_is_corrected_once(tmp_path, faulty):
    """The second call contains the first prompt, the reply and its flaws; the tasks of its reply are used."""
    split = Split(tmp_path, faulty, splitting.REPLY)

    assert await split.run() is RunState.DONE
    assert split.keys == ["look", "chief", "chief.correction"]
    assert len(split.tasks()) == 4

    first, again = split.prompt("chief"), split.prompt("chief.correction")

    assert again.startswith(first)
    assert (faulty if isinstance(faulty, str) and faulty else "(nothing)") in again[len(first) :]
    assert "\n- $" in again[len(first) :]
    assert split.call("chief.correction").reply_schema == split.call("chief").reply_schema


async def test_the_correction_names_each_flaw_and_its_place(tmp_path):
    """The correction names every flaw with its path, not only the first."""
    split = Split(tmp_path, reply(task(1, 1), task(2, 7), task(2)), splitting.REPLY)
    await split.run()
    again = split.prompt("chief.correction")

    assert "- $.tasks[0].deps[0]: task 1 depends on itself\n" in again
    assert "- $.tasks[1].deps[0]: there is no task 7\n" in again
    assert "- $.tasks[2].id: the number 2 is given to $.tasks[1] already\n" in again


async def test_a_long_faulty_reply_is_shown_from_its_beginning(tmp_path):
    """A correction has a bounded size: it shows the beginning of the reply, and the number of the flaws left out."""
    wrong = reply(*({"id": 0, "description": "x" * 3_000} for _ in range(35)))
    split = Split(tmp_path, wrong, splitting.REPLY)

    assert await split.run() is RunState.DONE
    assert json.loads(split.disk.steps[1])["blob"] is not None
    assert len(split.prompt("chief.correction")) < len(split.prompt("chief")) + 30_000
    assert f"(the beginning of {len(wrong)} characters)" in split.prompt("chief.correction")
    assert "more of that kind" in split.prompt("chief.correction")


async def test_a_second_faulty_reply_ends_the_run(tmp_path):
    """After one correction the run fails, with the flaws and with what a person can do."""
    split = Split(tmp_path, "Gladly!", FAULTY)

    assert await split.run() is RunState.FAILED

    error = split.error()

    assert (error["code"], error["key"]) == ("decomposition_invalid", "chief.correction")
    assert [flaw["code"] for flaw in error["detail"]["flaws"]] == ["dependency_cycle"]
    assert "in other words" in error["message"]
    assert "tasks" not in split.disk.files["cache.json"]


async def test_a_resume_after_two_faulty_replies_asks_anew(tmp_path):
    """A resume makes both calls again, but not the search."""
    split = Split(tmp_path, ["no", "still no"], ["no", splitting.REPLY])
    await split.run()

    assert await split.resume() is RunState.DONE
    assert split.keys == ["chief", "chief.correction"]


@pytest.mark.parametrize(("said", "corrected"), [([BROKEN, splitting.REPLY], None), ("no", [BROKEN, splitting.REPLY])])
async def test_a_broken_agent_ends_the_run_and_only_its_call_is_repeated(tmp_path, said, corrected):
    """The agent's error is the run's error, and a resume does not repeat what was already paid."""
    split = Split(tmp_path, said, corrected)

    assert await split.run() is RunState.FAILED

    error, broken = split.error(), split.keys[-1]

    assert (error["code"], error["key"], error["detail"]) == ("rate_limited", broken, {"status": 429})
    assert await split.resume() is RunState.DONE
    assert split.keys == [broken]


async def test_secrets_stay_out(tmp_path):
    """A secret in the chief's reply is in neither the journal, the slot, the correction's prompt nor the error."""
    for corrected in (reply(task(1, dod="hunter22")), "hunter22"):
        split = Split(tmp_path, "I know hunter22.", corrected)
        split.secrets = ("hunter22",)
        await split.run()
        kept = b"".join([*split.disk.steps, *split.disk.control]).decode()

        assert "hunter22" not in kept + str(split.disk.files) + str(split.disk.logs) + str(split.disk.events)
        assert "I know ***." in split.prompt("chief.correction")


MODES: list[tuple[str, ...]] = [("conference",), ("conference", "pipeline"), ()]

RUNS = {
    "planned": (splitting.REPLY, None),
    "corrected": ("no", splitting.REPLY),
    "invalid": ("no", FAULTY),
    "broken": (BROKEN, None),
    "long": ("no " * 30_000, reply(*(task(n, dod="long " * 300) for n in range(1, 16)))),
}


@pytest.mark.parametrize("name", RUNS)
async def test_a_run_cut_anywhere_ends_the_same(tmp_path, name):
    """A run cut at any line repeats no recorded step and reaches the same records, slots and ending."""
    whole = Split(tmp_path, *RUNS[name])
    ended = await whole.run()
    for length in range(len(whole.disk.steps)):
        cut = Split(tmp_path, *RUNS[name])
        cut.disk.steps = whole.disk.steps[:length]
        cut.disk.blobs = dict(whole.disk.blobs)

        assert await cut.run() is ended
        assert cut.keys == whole.keys[length:]
        assert cut.disk.recorded() == whole.disk.recorded()
        assert cut.disk.files["cache.json"] == whole.disk.files["cache.json"]
        assert cut.disk.files["run.json"]["error"] == whole.disk.files["run.json"]["error"]


def test_a_missing_chief_is_a_flaw():
    """A missing chief is a flaw, and the recipe cannot be frozen."""
    definition_cache = library.Library(agents=())

    assert [(flaw.path, flaw.code) for flaw in decomposition.check(definition_cache)] == [("$.intent", "no_chief")]
    assert DRIVER.check(decomposition.RECIPE, definition_cache) == decomposition.check(definition_cache)
    assert decomposition.check(splitting.stock()) == []
    with pytest.raises(errors.RequestInvalid) as refused:
        DRIVER.freeze(decomposition.RECIPE, definition_cache)

    assert refused.value.code == "no_chief"


def test_an_agent_reserved_for_conferences_is_not_the_chief():
    """An agent that is reserved for conferences is not chosen as the chief."""
    chiefs = [dataclasses.replace(splitting.chief(), id=f"chief-{n}", modes=modes) for n, modes in enumerate(MODES)]

    assert DRIVER.freeze(decomposition.RECIPE, library.Library(agents=tuple(chiefs)))["agent"]["id"] == "chief-1"
    assert decomposition.check(library.Library(agents=tuple(chiefs[:1])))


@pytest.mark.parametrize("intent", [splitting.INTENT, "x", "write scene 22 " * 1_333])
async def test_the_look_is_the_real_tool(tmp_path, intent):
    """The file locator accepts every possible intent of a run, and the prompt shows its results."""
    project = example_project.copy(tmp_path / "project")
    tool = tool_performer.ToolPerformer(example.TOOLS, workspace.Workspaces([project]))
    split = Split(tmp_path, splitting.REPLY, tool=tool, intent=intent, working_dir=str(project))

    assert await split.run() is RunState.DONE
    assert json.loads(split.disk.steps[0])["status"] == "done"
    assert ("- Story/SCN-outline.md (outline): " in split.prompt()) is (intent != "x")
