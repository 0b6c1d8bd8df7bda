"""The composition root: the parts of an application, and their removal at its end."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import bootstrap, errors, main, settings
from app.bootstrap import temporal
from app.domain import operations, records, runs, states
from app.engine import ports, stores
from app.services import requests
from app.storage.runs import disk_store
from app.worker import pool
from tests.acceptance import programs

SERVE = bootstrap.OpenMode(address="http://127.0.0.1:1")


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project."""
    return programs.make_project(tmp_path / "project")


def chosen(project: programs.Project, **given: Any) -> settings.Settings:
    """Return the settings of a project."""
    return settings.load({}, project=project.path, home=project.path / "nobody", **given)


async def start_small(application: bootstrap.Application, **asked: Any) -> str:
    """Start the recipe `small`."""
    request = requests.StartRequest(recipe_id="small", args={"words": "gate"}, **asked)
    return (await application.runs.start(request)).run_id


async def test_room_runs_a_recipe_and_leaves_nothing_behind(project: programs.Project):
    """An application executes runs; at its end, all its tasks have ended and the next one can take the lock."""
    for _ in range(2):
        async with bootstrap.build(chosen(project), SERVE) as application:
            run_id = await start_small(application)
            assert await application.engine.ended(run_id) is states.RunState.DONE

        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not (project.data / "service.json").exists()


async def test_the_check_of_the_configuration_refuses_what_a_start_refuses(project: programs.Project):
    """For each file of the data directory, damaged, `config check` ends with 5 exactly if the start is refused."""
    async with bootstrap.build(chosen(project), SERVE) as application:
        await application.engine.ended(await start_small(application))
    for name in ("budgets", "keys", "policies", "prices", "store", "blobs", "rate_limits"):
        project.write(f"{name}.json", "{}")
    judged = {}
    for file in sorted(path for path in project.data.iterdir() if path.is_file() and "index.db" not in path.name):
        # Alone, since the order of the checks must not matter.
        alone = programs.Project(project.path.parent / file.name)
        (alone.path / ".control-room").mkdir(parents=True)
        alone.write(file.name, "{bad")
        checked = programs.control_room("config", "check", project=alone, code=None)
        refused = False
        try:
            app = main.create_app(chosen(alone))
            async with app.router.lifespan_context(app):
                pass
        except errors.ConfigurationError:
            refused = True
        judged[file.name] = (checked.returncode == 5, refused)

    assert [name for name, (checked, refused) in judged.items() if checked != refused] == []
    assert {name for name, (_, refused) in judged.items() if refused} == {
        "agents.json", "blobs.json", "budgets.json", "keys.json", "layout.json", "policies.json", "store.json",
    }  # fmt: skip


async def test_second_service_is_refused_and_takes_nothing_along(project: programs.Project):
    """While one application holds the lock, a second is refused with its address, and the first still works."""
    async with bootstrap.build(chosen(project), SERVE) as application:
        with pytest.raises(errors.DataDirectoryBusy) as refused:
            async with bootstrap.build(chosen(project), bootstrap.OpenMode(alone=True)):
                pass

        assert refused.value.detail["url"] == SERVE.address
        assert refused.value.detail["pid"] == os.getpid()
        assert await application.engine.ended(await start_small(application)) is states.RunState.DONE


async def test_looking_changes_nothing(project: programs.Project):
    """An application that only looks shows recipes, and creates no data directory."""
    before = sorted(project.path.rglob("*"))
    async with bootstrap.build(chosen(project), bootstrap.OpenMode(look_only=True)) as application:
        listed = await application.runs.list_runs(stores.RunQuery())
        recipes = [entry.recipe_id for entry in application.catalogue.all()]

    assert listed == []
    assert "small" in recipes
    assert sorted(project.path.rglob("*")) == before


async def test_every_operation_has_its_performer(project: programs.Project):
    """An application has a performer for each operation that a driver can request."""
    async with bootstrap.build(chosen(project), SERVE) as application:
        assert isinstance(application.engine, pool.Pool)
        performers = {*application.engine._active._loader._equipment.performers}

    assert {kind.kind for kind in _operations(operations.Operation)} == performers


def _operations(kind: type[operations.Operation]) -> Iterator[type[operations.Operation]]:
    for below in kind.__subclasses__():
        if below.__module__.startswith("app."):
            yield below
        yield from _operations(below)


async def test_only_the_service_continues_unfinished_runs(project: programs.Project):
    """A run that a service left unfinished is continued by the next service only, not by another application."""
    project.say(draft=[{"hang": True}, "later"])
    async with bootstrap.build(chosen(project, stop_grace_seconds=0.0), SERVE) as application:
        run_id = await start_small(application)
        while not any(step.key == "draft" for step in (await application.runs.reader.view(run_id)).open):
            await application.engine.changed(run_id, application.engine.change_number(run_id))

    async with bootstrap.build(chosen(project)) as other:
        await other.engine.recovered()
        assert other.engine.view(run_id) is None
    async with bootstrap.build(chosen(project), SERVE) as application:
        assert await application.engine.recovered() == 1
        assert await application.engine.ended(run_id) is states.RunState.DONE


async def test_a_run_started_before_recovery_is_not_recovered(
    project: programs.Project, monkeypatch: pytest.MonkeyPatch
):
    """A run that is started before the application has looked for unfinished runs does not count as recovered."""
    started = asyncio.Event()
    unhurried = disk_store.DiskStore.list_unfinished

    async def look_later(store: disk_store.DiskStore) -> list[stores.RunSummary]:
        await started.wait()
        return await unhurried(store)

    monkeypatch.setattr(disk_store.DiskStore, "list_unfinished", look_later)
    project.say(draft=[{"hang": True}])
    async with bootstrap.build(chosen(project, stop_grace_seconds=0.0), SERVE) as application:
        await start_small(application)
        started.set()
        assert await application.engine.recovered() == 0


async def test_secrets_are_masked_everywhere(project: programs.Project):
    """The service's token is not in any file of a run, even if an agent's reply contains it."""
    secret = "token-0123456789abcdef"
    project.say(draft=f"The token is {secret}.")
    async with bootstrap.build(chosen(project, api_token=secret), SERVE) as application:
        run_id = await start_small(application)
        await application.engine.ended(run_id)
        text = (await application.runs.reader.slot(run_id, "text"))["text"]

    written = [path for path in project.data.rglob("*") if path.is_file() and path.name != "replies.json"]
    assert text == "The token is ***."
    assert not [path for path in written if secret.encode() in path.read_bytes()]


async def test_broken_agents_file_keeps_the_room_shut(project: programs.Project):
    """An invalid `agents.json` prevents the start of the application, and every flaw is reported."""
    project.write("agents.json", {"agents": [{"id": 5}]})
    with pytest.raises(errors.ConfigurationError) as refused:
        async with bootstrap.build(chosen(project)):
            pass

    assert refused.value.code == "agents_invalid"
    assert refused.value.detail["flaws"]
    assert any(remark.fatal for remark in bootstrap.examine(chosen(project)))


async def test_child_of_a_step_is_started_once(project: programs.Project):
    """The same step of the same parent finds the child that it started, in a later process too."""
    call = await _call(project, "small", {"words": "gate"})
    async with bootstrap.build(chosen(project), SERVE) as application:
        first, again = await application.runs.start_child(call), await application.runs.start_child(call)
        other = await application.runs.start_child(dataclasses.replace(call, key="another"))
        await asyncio.gather(application.engine.ended(first), application.engine.ended(other))
        child = await application.store.read(first)
    async with bootstrap.build(chosen(project), SERVE) as application:
        later = await application.runs.start_child(call)

    assert first == again == later
    assert other != first
    assert (child.start.parent_run_id, child.start.depth) == (call.run.run_id, 1)


async def test_a_child_that_cannot_be_started_is_an_error_of_its_step(project: programs.Project):
    """An unknown recipe or invalid arguments of a child are an error of its step."""
    async with bootstrap.build(chosen(project), SERVE) as application:
        with pytest.raises(errors.UnknownRecipe):
            await application.runs.start_child(await _call(project, "absent", {}, application))
        with pytest.raises(errors.ArgsInvalid):
            await application.runs.start_child(await _call(project, "small", {}, application))


async def test_changed_prompt_counts_at_the_next_start(project: programs.Project):
    """A template that is edited while the service runs is used by the next run, and not by one that has begun."""
    async with bootstrap.build(chosen(project), SERVE) as application:
        first = await start_small(application)
        await application.engine.ended(first)
        project.write("prompts/templates/small_draft.md", "Write it in verse.\n\n{{plan}}\n")
        second = await start_small(application)
        await application.engine.ended(second)
        prompts = [(await application.runs.log(run_id, "draft.1.prompt.md")).decode() for run_id in (first, second)]

    assert "verse" not in prompts[0]
    assert "verse" in prompts[1]


@pytest.mark.parametrize("text", ["point:0", ":1", "point:x", "point:-3"])
def test_crash_point_must_be_readable(text: str):
    """An invalid crash point is a configuration error, and not a crash point that never happens."""
    with pytest.raises(errors.ConfigurationError):
        bootstrap.real_platform({settings.CRASH_AT: text})


async def test_a_user_without_a_home_may_run_recipes(project: programs.Project, monkeypatch: pytest.MonkeyPatch):
    """A recipe runs for a user whose home directory cannot be determined, as in a container."""

    def refuse(cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(refuse))
    async with bootstrap.build(chosen(project), SERVE) as application:
        run_id = await start_small(application)

        assert await application.engine.ended(run_id) == states.RunState.DONE


def test_project_is_prepared_once(tmp_path: Path):
    """The data directory is created for its owner alone, and a repeated preparation does not change it."""
    (tmp_path / "new").mkdir()
    place = settings.load({}, project=tmp_path / "new").project
    first, identity = bootstrap.prepare_project(place), (place.data_directory / "data_directory_id").read_text()

    assert bootstrap.prepare_project(place) == first
    assert (place.data_directory / "data_directory_id").read_text() == identity
    assert first.stat().st_mode & 0o077 == 0
    assert json.dumps(sorted(path.name for path in first.iterdir()))


async def _call(
    project: programs.Project, recipe_id: str, args: dict[str, Any], application: bootstrap.Application | None = None
) -> ports.Call:
    if application is None:
        async with bootstrap.build(chosen(project), SERVE) as opened:
            return await _call(project, recipe_id, args, opened)
    parent: runs.RunStart = (await application.store.read(await start_small(application))).start

    async def nothing(*_: Any) -> None:
        return None

    return ports.Call(
        run=parent,
        key="child",
        attempt=1,
        operation=operations.ChildRun(recipe_id=recipe_id, args=args),
        place=records.Place(step_id="child"),
        due_at=None,
        read_blob=nothing,
        write_log=nothing,
    )


def test_a_configured_backend_that_cannot_work_is_a_warning(
    project: programs.Project, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker warns of a backend that the project configures or chooses; of other bundled ones, it only informs."""
    configured = {
        "default_backend": "codex",
        "backends": {"wrong": {"type": "template", "command": ["no-such-program", "{prompt}"]}},
    }
    data = project.path / ".control-room"
    data.mkdir(exist_ok=True)
    (data / "agents.json").write_text(json.dumps(configured))
    lacks = {"backend:wrong": "absent", "backend:codex": "absent", "backend:qwen": "absent", "tools": None}
    with caplog.at_level("INFO"):
        found = temporal._served(chosen(project), lacks)

    assert found == {"tools"}
    assert [(line.levelname, line.getMessage()) for line in caplog.records] == [
        ("WARNING", "does not serve backend:wrong: absent"),
        ("WARNING", "does not serve backend:codex: absent"),
        ("INFO", "does not serve backend:qwen: absent"),
    ]
