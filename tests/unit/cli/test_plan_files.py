"""Session plans in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import errors
from app.cli import plans
from app.services.plans import requests

TASKS = [
    {"id": 1, "description": "Write scene 21"},
    {"id": 2, "description": "Write scene 22", "deps": [1], "args": {"x": 1}},
]


def test_file_is_read_as_the_service_would(tmp_path: Path):
    """A file contains a request as for `POST /api/sessions`, also with a byte order mark."""
    file = tmp_path / "plan.json"
    file.write_text(
        json.dumps({"intent": "Both", "tasks": TASKS, "labels": {"book": "one"}, "priority": 3}), "utf-8-sig"
    )

    assert plans.read_plan(file) == requests.NewPlan(
        intent="Both",
        tasks=(
            requests.NewTask(id=1, description="Write scene 21"),
            requests.NewTask(id=2, description="Write scene 22", deps=(1,), args={"x": 1}),
        ),
        labels={"book": "one"},
        priority=3,
    )


@pytest.mark.parametrize(
    ("content", "path", "code"),
    [
        (b"{", "$", "syntax"),
        (b"\xff\xfe", "$", "not_text"),
        (b'{"intent": "a", "intent": "b"}', "$.intent", "repeated_name"),
        (b'{"intent": "a\\u0000b"}', "$.intent", "nul_character"),
        (b'{"intent": "a\\ud800b"}', "$.intent", "lone_surrogate"),
        (b"[]", "$", "wrong_type"),
        (b'{"task": []}', "$.task", "unknown_field"),
        (b'{"tasks": [{"description": "x"}, {"id": 1}]}', "$.tasks[1].description", "missing"),
        (b'{"tasks": [{"description": "x", "deps": "1"}]}', "$.tasks[0].deps", "wrong_type"),
        (b'{"tasks": [{"description": "x", "id": "1"}]}', "$.tasks[0].id", "wrong_type"),
    ],
)
def test_file_that_holds_no_plan_is_refused(tmp_path: Path, content: bytes, path: str, code: str):
    """An invalid plan file is refused with places and the codes of the service."""
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    with pytest.raises(errors.InputRefused) as caught:
        plans.read_plan(file)

    assert (path, code) in [(flaw.path, flaw.code) for flaw in caught.value.flaws]


def test_an_unreadable_plan_file_is_refused(tmp_path: Path):
    """A missing file, or a folder in its place, is refused as unreadable."""
    for place in (tmp_path / "none.json", tmp_path):
        with pytest.raises(errors.RequestInvalid) as caught:
            plans.read_plan(place)

        assert caught.value.code == "file_unreadable"
