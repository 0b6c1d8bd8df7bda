"""Changes that a resume may make to a run."""

from __future__ import annotations

from typing import Any

import pytest

from app import errors
from app.flows import registry
from app.services import requests, starting
from tests.unit.engine import samples

NOTHING: Any = None


async def renew(dialect: str, **asked: Any) -> dict[str, Any]:
    """Return the changes that a resume makes to a run, without a catalogue or folders."""
    starter = starting.Starter(
        catalogue=NOTHING, route=NOTHING, workspaces=NOTHING, clock=NOTHING, ids=NOTHING, rules=NOTHING
    )
    return await starter.renewed(samples.start(dialect=dialect, recipe_id=dialect), requests.ResumeRequest(**asked))


@pytest.mark.parametrize("dialect", registry.DRIVERS)
@pytest.mark.parametrize(
    ("asked", "paths"),
    [
        ({"args": {"message": "x"}}, ["$.args"]),
        ({"args": {}}, ["$.args"]),
        ({"options": {"debug": True}}, ["$.options"]),
        ({"current_recipe": True}, ["$.recipe"]),
        ({"args": {"text": "x"}, "current_recipe": True}, ["$.args", "$.recipe"]),
    ],
)
async def test_a_run_without_a_recipe_file_is_not_changed(
    dialect: str, asked: dict[str, Any], paths: list[str]
) -> None:
    """A run without a recipe file accepts no changes at a resume, and the message refers to another run."""
    with pytest.raises(errors.RequestInvalid) as caught:
        await renew(dialect, **asked)

    assert caught.value.code == "resume_unchangeable"
    assert [flaw.path for flaw in caught.value.flaws] == paths
    assert "start another run" in caught.value.message
    assert await renew(dialect, from_key="chief") == {}
