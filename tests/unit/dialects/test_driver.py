"""Tests of the control_room driver: its operations, their order, and how a run ends."""

from __future__ import annotations

import json

import pytest

from app.domain import operations
from app.domain.states import RunState
from tests.unit.dialects import bench


async def test_tools_then_agents_then_the_end():
    """Steps run in the order of the recipe, and each fills its slot."""
    pipeline = bench.Pipeline(bench.recipe())

    assert await pipeline.run() is RunState.DONE
    assert pipeline.disk.recorded() == ["find", "read", "brief", "draft"]
    assert list(pipeline.slots) == ["found", "text", "plan", "prose"]
    assert pipeline.asked("find").args == {"query": "Do it"}
    assert pipeline.asked("read").args == {"path": "a.md"}


async def test_a_line_has_phase_index_slots_and_sources():
    """Journal lines contain the fields that an audit needs (execution-modes, appendix A)."""
    pipeline = bench.Pipeline(bench.recipe())
    await pipeline.run()
    names = ("step_index", "step_id", "phase", "tool", "agent_archetype", "agent_id", "output_slot", "input_slot_refs")

    assert [[line[name] for name in names] for line in pipeline.lines()] == [
        [0, "find", "a", "finder", None, None, "found", ["task.description"]],
        [1, "read", "a", "reader", None, None, "text", ["found"]],
        [2, "brief", "b", None, "planner", "planner-1", "plan", ["found", "text"]],
        [3, "draft", "b", None, "writer", "writer-1", "prose", ["plan"]],
    ]
    assert [line["receipt_id"] is not None for line in pipeline.lines()] == [True, True, False, False]


async def test_pointers_and_artifacts():
    """A tool's slot refers to its receipt by the hash of its payload; an agent's slot contains its text."""
    pipeline = bench.Pipeline(bench.recipe())
    await pipeline.run()
    found, line = pipeline.slots["found"], pipeline.lines()[0]

    assert found["type"] == "pointer"
    assert found["receipt_id"] == line["receipt_id"]
    assert f"sha256:{found['sha256']}" == line["output_hash"]
    assert found["summary"] == "finder ran"
    assert pipeline.slots["plan"] == {
        "type": "artifact",
        "agent_id": "planner-1",
        "text": "brief said",
        "sha256": pipeline.lines()[2]["output_hash"].removeprefix("sha256:"),
        "summary": "brief said",
    }


SCHEMA = {"type": "object", "properties": {"pass": {"type": "boolean"}}, "required": ["pass"]}


@pytest.mark.parametrize(
    ("more", "evidence", "tier", "passed"),
    [
        ({}, "none", "t3", SCHEMA),
        ({"on_cut_off": "keep"}, "none", "t3", None),
        ({"evidence": True}, "none", "t3", SCHEMA),
        ({"evidence": True}, "any", "t3", None),
        ({}, "none", "t1", None),
    ],
)
async def test_a_schema_is_passed_on_where_the_reply_can_be_one_object(more, evidence, tier, passed):
    """Micro-steps, replies with a line of evidence, and replies that may be kept cut off get no schema."""
    brief, draft = bench.RECIPE["phase_b"]
    parts = {"t3": "Write it.", "t1": "--- triage\nA\n--- finding\nB\n--- evidence\nC"}
    registry = bench.stock({"write": parts}, {"writer": tier}, evidence)
    pipeline = bench.Pipeline(bench.recipe(phase_b=[brief, {**draft, "reply_schema": SCHEMA, **more}]), registry)
    await pipeline.run()

    assert pipeline.asked("draft.triage" if tier == "t1" else "draft").reply_schema == passed


async def test_a_check_reads_the_verdict_of_a_reply_with_a_schema():
    """The reply is kept whether it fits the schema or not; the check judges it."""
    brief, draft = bench.RECIPE["phase_b"]
    check = {"check": "slot_field_equals", "slot": "prose", "field": "pass", "expected": True}
    ended = []
    for reply in ('{"pass": true}', '{"pass": false}', "All is well."):
        pipeline = bench.Pipeline(bench.recipe(phase_b=[brief, {**draft, "reply_schema": SCHEMA}], dod=[check]))
        pipeline.tables.replies["draft"] = reply
        ended.append(await pipeline.run())

    assert ended == [RunState.DONE, RunState.FAILED, RunState.FAILED]


async def test_a_prompt_is_role_task_and_template():
    """An agent gets its role, the task and its template with the named slots, but no tools."""
    pipeline = bench.Pipeline(bench.recipe())
    await pipeline.run()
    call = pipeline.asked("brief")

    assert pipeline.prompt("brief") == "Task: Do it\n\nFound: finder ran\nFirst: one\nPlan it."
    assert pipeline.prompt("draft") == "Task: Do it\n\nPlan:\nbrief said\nWrite it."
    assert call.system == "You planner."
    assert (call.agent_id, call.archetype, call.backend, call.tools) == ("planner-1", "planner", "table", False)


async def test_progress_counts_recipe_steps():
    """The manifest counts the finished steps of the recipe, and not those after the last one."""
    document = bench.recipe(outputs=[{"slot": "prose", "path": "out.md"}])
    pipeline = bench.Pipeline(document)
    await pipeline.run()
    manifest = pipeline.disk.files["run.json"]

    assert (manifest["current_step_index"], manifest["total_steps"]) == (4, 4)
    assert manifest["phase"] is None


async def test_references_inside_objects_and_lists():
    """A `$ref` is replaced at any place by a value of any kind, including false, zero and empty values."""
    args = {
        "deep": {"list": [{"$ref": "found.files[1].path"}, 3], "flag": {"$ref": "text.pass"}},
        "all": {"$ref": "found.files"},
        "literal": {"none": None},
    }
    steps = [*bench.RECIPE["phase_a"], {"step_id": "more", "tool": "finder", "args": args, "output_slot": "more"}]
    pipeline = bench.Pipeline(bench.recipe(phase_a=steps))

    assert await pipeline.run() is RunState.DONE
    assert pipeline.asked("more").args == {
        "deep": {"list": ["b.md", 3], "flag": True},
        "all": [{"path": "a.md"}, {"path": "b.md"}],
        "literal": {"none": None},
    }


@pytest.mark.parametrize(
    ("ref", "segment"),
    [
        ("found.files[7].path", "found.files[7]"),
        ("found.files[0].size", "found.files[0].size"),
        ("found.none", "found.none"),
        ("found.none.deeper", "found.none"),
        ("found.files.path", "found.files.path"),
        ("found[0]", "found[0]"),
        ("task.args.scene", "task.args.scene"),
        ("task.session_plan_task_id", "task.session_plan_task_id"),
    ],
)
async def test_a_broken_reference_fails_its_step(ref, segment):
    """A null or absent value on the way fails the step, with a record, and the exact segment is named."""
    steps = [bench.RECIPE["phase_a"][0], bench.RECIPE["phase_a"][1] | {"args": {"path": {"$ref": ref}}}]
    pipeline = bench.Pipeline(bench.recipe(phase_a=steps), args={"other": 1})

    assert await pipeline.run() is RunState.FAILED
    assert pipeline.error["code"] == "ref_unresolved"
    assert pipeline.error["key"] == "read"
    assert pipeline.error["detail"]["segment"] == segment
    assert segment in pipeline.error["message"]
    assert [(line["key"], line["status"], line["tool"]) for line in pipeline.lines()] == [
        ("find", "done", "finder"),
        ("read", "failed", "reader"),
    ]


async def test_a_resume_repeats_the_step_of_the_broken_slot():
    """The step that wrote the slot is a cause of the failure, since only its repetition can repair the reference."""
    pipeline = bench.Pipeline(bench.recipe())
    pipeline.tables.payloads["finder"] = {"files": []}
    await pipeline.run()
    ended = json.loads(pipeline.disk.control[-1])

    assert ended["causes"] == [0, 1]


async def test_an_absent_optional_argument_is_left_out():
    """A tool argument that is a reference to an absent optional argument is left out."""
    schema = {"properties": {"a": {"type": "string"}, "b": {}, "c": {}}, "required": ["c"]}
    args = {name: {"$ref": f"task.args.{name}"} for name in ("a", "b", "c")} | {"deep": {"$ref": "task.args.a.x"}}
    steps = [{"step_id": "only", "tool": "finder", "args": args, "output_slot": "found"}]
    pipeline = bench.Pipeline(
        {"recipe_id": "r", "args_schema": schema, "phase_a": steps}, args={"b": False, "c": "here"}
    )

    assert await pipeline.run() is RunState.DONE
    assert pipeline.asked("only").args == {"b": False, "c": "here"}
    assert pipeline.lines()[0]["input_slot_refs"] == ["task.args"]


async def test_an_absent_optional_argument_inside_a_value_fails():
    """Inside a list or an object, an absent optional argument fails the step."""
    schema = {"properties": {"a": {"type": "string"}}}
    steps = [{"step_id": "only", "tool": "finder", "args": {"l": [{"$ref": "task.args.a"}]}, "output_slot": "found"}]
    pipeline = bench.Pipeline({"recipe_id": "r", "args_schema": schema, "phase_a": steps})

    assert await pipeline.run() is RunState.FAILED
    assert pipeline.error["detail"]["segment"] == "task.args.a"


async def test_a_failed_tool_fails_the_run_without_another_try():
    """The run's error is the step's, and no step follows."""
    pipeline = bench.Pipeline(bench.recipe())
    pipeline.tables.failing = {"read"}

    assert await pipeline.run() is RunState.FAILED
    assert [key for key, _ in pipeline.tables.asked] == ["find", "read"]
    assert pipeline.error == {
        "code": "broke",
        "message": "The step read failed: read broke",
        "key": "read",
        "detail": {"why": "told to"},
    }
    assert pipeline.disk.files["run.json"]["ending"] == {
        "reason": "step_failed",
        "partial": False,
        "failed_steps": ["read"],
    }


@pytest.mark.parametrize(
    ("reply", "code"),
    [(" \n", "empty_reply"), ("ABSTAIN", "abstained"), ("ABSTAIN: I know too little.\n", "abstained")],
)
async def test_a_blank_reply_fails_its_step(reply, code):
    """A blank reply and an abstention are failures."""
    pipeline = bench.Pipeline(bench.recipe())
    pipeline.tables.replies["brief"] = reply

    assert await pipeline.run() is RunState.FAILED
    assert (pipeline.error["code"], pipeline.error["key"]) == (code, "brief")
    assert [key for key, _ in pipeline.tables.asked] == ["find", "read", "brief"]


async def test_talk_of_abstaining_is_a_reply():
    """Only a reply that is an abstention as a whole is treated as one."""
    pipeline = bench.Pipeline(bench.recipe())
    pipeline.tables.replies["brief"] = "I shall not ABSTAIN: here is the plan."

    assert await pipeline.run() is RunState.DONE


T1 = "--- triage\nSee {{found}}?\n--- finding\nSay {{text.lines[1]}}.\n--- evidence\nQuote {{found}}.\n"


async def test_a_t1_agent_takes_three_micro_steps():
    """A t1 variant is asked in three parts; later parts see earlier replies, and the slot is finding plus evidence."""
    pipeline = bench.Pipeline(bench.recipe(), bench.stock({"make_plan": {"t1": T1}}, {"planner": "t1"}))
    pipeline.tables.replies = {"brief.triage": "yes", "brief.finding": "It is late.\n", "brief.evidence": '"late"'}

    assert await pipeline.run() is RunState.DONE
    assert pipeline.disk.recorded() == ["find", "read", "brief.triage", "brief.finding", "brief.evidence", "draft"]
    assert pipeline.prompt("brief.triage") == "Task: Do it\n\nSee finder ran?"
    assert pipeline.prompt("brief.finding") == "Task: Do it\n\nTriage:\nyes\n\nSay two."
    assert pipeline.prompt("brief.evidence") == (
        "Task: Do it\n\nTriage:\nyes\n\nFinding:\nIt is late.\n\nQuote finder ran."
    )
    assert pipeline.slots["plan"]["text"] == 'It is late.\n\n"late"'
    assert [line["step_index"] for line in pipeline.lines()] == [0, 1, 2, 2, 2, 3]
    assert [line["step_id"] for line in pipeline.lines()[2:5]] == ["brief"] * 3
    assert [line["input_slot_refs"] for line in pipeline.lines()[2:5]] == [["found"], ["text"], ["found"]]
    assert pipeline.disk.files["run.json"]["current_step_index"] == 4


async def test_a_failed_micro_step_names_itself():
    """The failed micro-step is the cause, so that a resume keeps the ones before it."""
    pipeline = bench.Pipeline(bench.recipe(), bench.stock({"make_plan": {"t1": T1}}, {"planner": "t1"}))
    pipeline.tables.failing = {"brief.finding"}

    assert await pipeline.run() is RunState.FAILED
    assert pipeline.error["key"] == "brief.finding"
    assert json.loads(pipeline.disk.control[-1])["causes"] == [3]


async def test_a_t1_agent_without_a_t1_variant_takes_one_step():
    """An agent without a t1 variant is asked in one step."""
    pipeline = bench.Pipeline(bench.recipe(), bench.stock(tiers={"planner": "t1"}))
    await pipeline.run()

    assert pipeline.disk.recorded() == ["find", "read", "brief", "draft"]


async def test_an_artifact_over_64_kb_travels_as_a_handle():
    """Operations that pass on a long text do not contain a copy of it."""
    pipeline = bench.Pipeline(bench.recipe(outputs=[{"slot": "plan", "path": "plan.md"}]))
    pipeline.tables.replies["brief"] = "long " * 20_000

    assert await pipeline.run() is RunState.DONE
    prompt = pipeline.asked("draft").prompt
    assert prompt[0] == "Task: Do it\n\nPlan:\n"
    assert prompt[1]["blob"]["size_bytes"] == 100_000
    assert prompt[2] == "\nWrite it."
    assert pipeline.asked("commit.plan").text == prompt[1]
    assert pipeline.slots["plan"]["text"] is None
    assert pipeline.slots["plan"]["blob"] == prompt[1]["blob"]


async def test_a_payload_over_64_kb_is_read_through_its_handle():
    """A reference into a large payload finds its value."""
    pipeline = bench.Pipeline(bench.recipe())
    pipeline.tables.payloads["finder"] = {"files": [{"path": "far.md"}], "filler": "x" * 70_000}

    assert await pipeline.run() is RunState.DONE
    assert pipeline.asked("read").args == {"path": "far.md"}


async def test_a_value_too_large_for_a_prompt_fails_the_step():
    """A payload value over 32 kB fails the step instead of being cut silently."""
    pipeline = bench.Pipeline(bench.recipe())
    pipeline.tables.payloads["reader"] = {"lines": ["x" * 33_000]}

    assert await pipeline.run() is RunState.FAILED
    assert pipeline.error["code"] == "value_too_large"
    assert pipeline.error["key"] == "brief"
    assert pipeline.lines()[-1]["agent_id"] == "planner-1"


async def test_limits_of_a_step_reach_its_operation():
    """The operation has the step's `timeout_seconds` and `on_interrupted`."""
    steps = [step | {"timeout_seconds": 5, "on_interrupted": "ask"} for step in bench.RECIPE["phase_b"]]
    pipeline = bench.Pipeline(bench.recipe(phase_b=steps))
    await pipeline.run()

    assert pipeline.asked("brief").timeout_seconds == 5
    assert pipeline.asked("draft").on_interrupted == "ask"
    assert pipeline.asked("find").on_interrupted == "rerun"


async def test_slot_contents_are_never_expanded_again():
    """The output of a tool or an agent stays unchanged even if it looks like a placeholder."""
    pipeline = bench.Pipeline(bench.recipe())
    pipeline.tables.payloads["reader"] = {"lines": ["{{task.args.secret}} {{plan}}"]}
    pipeline.tables.replies["brief"] = "{{found}} {{nothing.at.all}}"

    assert await pipeline.run() is RunState.DONE
    assert "First: {{task.args.secret}} {{plan}}\n" in pipeline.prompt("brief")
    assert "Plan:\n{{found}} {{nothing.at.all}}\n" in pipeline.prompt("draft")


async def test_the_operations_of_a_tool_step_are_tool_calls():
    """The driver requests only the operations of the recipe."""
    pipeline = bench.Pipeline(bench.recipe())
    await pipeline.run()

    assert [type(operation) for _, operation in pipeline.tables.asked] == [
        operations.ToolCall,
        operations.ToolCall,
        operations.AgentCall,
        operations.AgentCall,
    ]
