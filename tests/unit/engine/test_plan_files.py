"""Plan files: a file written by a person is read, or refused with each flaw and its place."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from app import errors
from app.domain import plain, plan_files, plans
from app.domain.plans import Plan, PlanState, Scoping, Task, TaskState

AT = "2026-02-10T14:30:00.000Z"

# The example of execution-modes, appendix G.
EXAMPLE = {
    "session_id": "sp_uuid",
    "created_by": "chief",
    "status": "running",
    "created_at": "2026-02-10T14:00:00Z",
    "tasks": [
        {
            "id": 1,
            "description": "Write Scene 21",
            "recipe_id": "creative_draft_scene",
            "deps": [],
            "dod": "Scene file exists, continuity pass",
            "status": "done",
            "run_id": "run_abc",
        },
        {
            "id": 3,
            "description": "Consistency check (scenes 21-22 vs canon)",
            "recipe_id": "analytical_consistency",
            "deps": [1],
            "status": "blocked",
            "run_id": None,
        },
        {
            "id": 4,
            "description": "Foreshadowing audit",
            "recipe_id": None,
            "deps": [],
            "scoping_question": "Which themes need foreshadowing? Which scenes?",
            "status": "needs_scoping",
            "run_id": None,
        },
    ],
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(texts, jsons, max_size=3)
others = st.dictionaries(texts.map(lambda text: f"my {text}"), jsons, max_size=2)
instants = st.none() | st.just(AT)
signatures = st.fixed_dictionaries(
    {"name": st.none() | texts, "claimed": st.booleans(), "via": st.sampled_from(["local", "token", "browser"])}
)


def tasks(task_id: int) -> st.SearchStrategy[Task]:
    """Return any task with the given number."""
    return st.builds(
        Task,
        id=st.just(task_id),
        description=texts,
        recipe_id=st.none() | texts,
        routed=st.booleans(),
        args=objects,
        deps=st.sets(st.integers(1, task_id - 1)).map(lambda deps: tuple(sorted(deps))) if task_id > 1 else st.just(()),
        dod=texts,
        scoping_question=st.none() | texts,
        asked_by=st.none() | st.sampled_from([plans.BY_CHIEF, plans.BY_USER, plans.BY_SYSTEM]),
        scoping_answer=st.none() | texts,
        scoping_before=st.lists(
            st.builds(Scoping, question=texts, answer=texts, asked_by=st.none() | texts), max_size=2
        ).map(tuple),
        status=st.sampled_from(TaskState),
        run_id=st.none() | texts,
        attempt=st.integers(0, 5),
        earlier_runs=st.lists(texts, max_size=2).map(tuple),
        forced=st.booleans(),
        error=st.none() | objects,
        started_at=instants,
        ended_at=instants,
        idempotency_key=st.none() | texts,
        request_sha256=st.none() | texts,
        other=others,
    )


any_plan = st.builds(
    Plan,
    session_id=texts,
    created_by=st.sampled_from([plans.BY_CHIEF, plans.BY_USER]),
    status=st.sampled_from(PlanState),
    intent=st.none() | texts,
    created_at=st.just(AT),
    updated_at=st.just(AT),
    revision=st.integers(1, 9),
    tasks=st.integers(0, 3).flatmap(lambda count: st.tuples(*(tasks(number + 1) for number in range(count)))),
    last_task_id=st.integers(0, 9),
    awaits_chief=st.booleans(),
    chief_run_id=st.none() | texts,
    error=st.none() | objects,
    working_dir=st.none() | texts,
    labels=st.dictionaries(texts, texts, max_size=2),
    priority=st.integers(-100, 100),
    parent_run_id=st.none() | texts,
    runs_above=st.integers(0, 4),
    request_sha256=st.none() | texts,
    approved_by=st.none() | signatures,
    started_by=st.none() | signatures,
    changed_by=st.none() | signatures,
    other=others,
)


@given(any_plan)
def test_a_written_plan_is_read_back_unchanged(plan: Plan) -> None:
    """Every written plan is read back field by field, and written again with the same bytes."""
    content = plain.encode(plan.to_json())
    read = plan_files.read(content)

    assert read == plan
    assert plain.encode(read.to_json()) == content


def test_the_example_of_the_document() -> None:
    """The document's example is read with the defaults of the service, and all of its fields are written back."""
    plan = plan_files.from_json(EXAMPLE)
    written = plan.to_json()

    assert [task.status.value for task in plan.tasks] == ["done", "blocked", "needs_scoping"]
    assert [task.attempt for task in plan.tasks] == [1, 0, 0]
    assert (plan.revision, plan.updated_at, plan.highest_task_id) == (1, "2026-02-10T14:00:00.000Z", 4)
    assert {name: written[name] for name in EXAMPLE if name not in ("tasks", "created_at")} == {
        name: EXAMPLE[name] for name in EXAMPLE if name not in ("tasks", "created_at")
    }
    for given_task, kept in zip(EXAMPLE["tasks"], written["tasks"], strict=True):
        assert given_task.items() <= kept.items()  # type: ignore[attr-defined]


def test_ours_come_first() -> None:
    """A file begins with the fields of the document and ends with unknown fields."""
    written = plan_files.from_json({"zz": 1, "session_id": "s", "tasks": []}).to_json()

    assert list(written)[:3] == ["session_id", "created_by", "status"]
    assert list(written)[-1] == "zz"


def test_all_flaws_of_a_plan_file_are_reported_together() -> None:
    """All flaws of a file are reported together, each with its place."""
    damaged: dict[str, Any] = {
        "status": "going",
        "created_at": "yesterday",
        "labels": {"a": 1},
        "priority": 101,
        "revision": True,
        "tasks": [
            {"id": 0, "deps": "1", "args": [], "status": 3},
            "write",
            {"id": 2, "description": ["x"], "deps": [1.0], "scoping_before": [{"question": "q"}], "error": "no"},
        ],
    }
    with pytest.raises(errors.InputRefused) as refused:
        plan_files.from_json(damaged)

    assert refused.value.code == "plan_damaged"
    assert {flaw.path for flaw in refused.value.flaws} == {
        "$.session_id",
        "$.status",
        "$.created_at",
        "$.labels",
        "$.priority",
        "$.revision",
        "$.tasks[0].id",
        "$.tasks[0].description",
        "$.tasks[0].deps",
        "$.tasks[0].args",
        "$.tasks[0].status",
        "$.tasks[1]",
        "$.tasks[2].description",
        "$.tasks[2].deps",
        "$.tasks[2].scoping_before",
        "$.tasks[2].error",
    }


def test_dependencies_that_cannot_be_are_damage() -> None:
    """A plan with a dependency cycle, or a dependency on itself or an unknown task, is refused."""
    tasks = [{"id": 1, "description": "a", "deps": [2]}, {"id": 2, "description": "b", "deps": [1, 2, 3]}]
    with pytest.raises(errors.InputRefused) as refused:
        plan_files.from_json({"session_id": "s", "tasks": tasks})

    assert [(flaw.path, flaw.code) for flaw in refused.value.flaws] == [
        ("$.tasks[1].deps[1]", "self_dependency"),
        ("$.tasks[1].deps[2]", "unknown_dependency"),
        ("$.tasks[0].deps[0]", "dependency_cycle"),
    ]


@pytest.mark.parametrize(
    "instant", ["0001-01-01T00:00:00+23:00", "2026-02-10T14:00:00", "", 5, "9999-12-31T23:59:59-12:00"]
)
def test_instants_are_instants(instant: Any) -> None:
    """A value that is not an instant with an offset is refused."""
    with pytest.raises(errors.InputRefused) as refused:
        plan_files.from_json({"session_id": "s", "created_at": instant, "tasks": []})

    assert [flaw.path for flaw in refused.value.flaws] == ["$.created_at"]


@pytest.mark.parametrize("name", ["approved_by", "started_by", "changed_by"])
@pytest.mark.parametrize(
    "author",
    ["Ada", [], {}, {"name": 1, "claimed": True, "via": "local"}, {"name": None, "claimed": True, "via": ["local"]}],
)
def test_authors_are_authors(name: str, author: Any) -> None:
    """A value without the form of an author is a flaw with its place."""
    with pytest.raises(errors.InputRefused) as refused:
        plan_files.from_json({"session_id": "s", name: author, "tasks": []})

    assert [flaw.path for flaw in refused.value.flaws] == [f"$.{name}"]


@given(st.recursive(jsons, lambda inner: st.fixed_dictionaries({}, optional={"tasks": st.lists(inner), "id": inner})))
def test_any_json_is_read_or_refused(value: Any) -> None:
    """Any JSON is either read as a plan or refused with places."""
    found: Plan | None = None
    flaws: tuple[errors.Flaw, ...] = ()
    try:
        found = plan_files.read(json.dumps(value).encode())
    except errors.InputRefused as refused:
        flaws = refused.flaws

    assert (found is None) is bool(flaws)
    assert all(flaw.path.startswith("$") for flaw in flaws)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    """Bytes that are not JSON are refused as a damaged plan."""
    with pytest.raises(errors.InputRefused) as refused:
        plan_files.read(content)

    assert refused.value.code == "plan_damaged"
