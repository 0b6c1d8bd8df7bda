"""Issues of findings over HTTP: a repeated check updates, closes and opens them, and a resume closes failed checks."""

from __future__ import annotations

from typing import Any

from tests.integration import planning, project, served

LONG = "The bell " + "rang and rang " * 40 + "until noon."
SCENES = ("Story/Scenes/SCN-3.md", "Story/Scenes/SCN-5.md")
PROSE = {
    "recipe_id": "prose",
    "label": "Look at the prose",
    "args_schema": {
        "properties": {"scene_path": {"type": "string"}, "wanted": {"type": "string", "default": "README.md"}},
        "required": ["scene_path"],
    },
    "phase_a": [project.tool_step("measure", "prose_analyzer", "prose", scene_path={"$ref": "task.args.scene_path"})],
    "findings": {"$ref": "prose.findings"},
    "dod": [{"check": "file_exists", "path": {"$ref": "task.args.wanted"}}],
}


async def _look(service: served.Served, scene: str, **args: str) -> dict[str, Any]:
    return await service.run("prose", args={"scene_path": scene} | args)


async def _issues(service: served.Served, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await service.http.get("/api/issues", params=query)).json()
    return found


async def _file(service: served.Served, issue_id: str) -> str:
    shown = (await service.http.get(f"/api/issues/{issue_id}")).json()
    return str(shown["facts"]["finding"]["path"])


def _prepare(service: served.Served) -> None:
    service.project.write("README.md", "x")
    service.project.add_recipe(PROSE)
    for scene in SCENES:
        service.project.write(scene, f"# {scene}\n\n{LONG}\n")


async def test_a_finding_lives_as_long_as_it_is_found(service: served.Served) -> None:
    """Two runs create one issue; a run on the corrected scene closes its issue and leaves the other scene's."""
    _prepare(service)
    for scene in (*SCENES, SCENES[0]):
        assert (await _look(service, scene))["status"] == "done"
    before = await _issues(service, kind="finding", severity="hint")
    files = {row["issue_id"]: await _file(service, row["issue_id"]) for row in before}
    service.project.write(SCENES[0], "# Scene\n\nThe bell rang.\n")
    mended = await _look(service, SCENES[0])
    opened, closed = await _issues(service, status="open"), await _issues(service, status="closed")
    shown = (await service.http.get(f"/api/issues/{closed[0]['issue_id']}")).json()

    assert sorted(set(files.values())) == list(SCENES)
    assert {row["recipe_id"] for row in before} == {"prose"}
    assert {files[row["issue_id"]] for row in closed} == {SCENES[0]}
    assert {files[row["issue_id"]] for row in opened} == {SCENES[1]}
    assert shown["notes"][0]["text"] == f"Not found any more by the run {mended['run_id']}."
    assert shown["closed_by"] == mended["run_id"]
    assert mended["steps"][-1]["key"] == "findings.close"


async def test_a_failed_run_closes_no_finding_and_its_resume_does(service: served.Served) -> None:
    """A failed definition of done leaves the finding open; a resume that satisfies it closes both issues."""
    _prepare(service)
    await _look(service, SCENES[0])
    service.project.write(SCENES[0], "# Scene\n\nThe bell rang.\n")
    failed = await _look(service, SCENES[0], wanted="later.md")
    between = await _issues(service, status="open")
    service.project.write("later.md", "x")
    await service.http.post(f"/api/runs/{failed['run_id']}/resume")
    await service.until(failed["run_id"], "done")

    assert failed["status"] == "failed"
    assert {(row["kind"], row["severity"]) for row in between} == {("dod", "error"), ("finding", "hint")}
    assert await _issues(service, status="open") == []


async def test_a_retried_task_closes_the_issues_of_its_failed_run(tmp_path: Any) -> None:
    """When a failed task of a plan succeeds in a fresh run, the issues of its first run are closed."""
    made = project.Project(tmp_path / "project")
    made.add_recipe(PROSE)
    made.write(SCENES[0], "# Scene\n\nThe bell rang.\n")
    args = {"scene_path": SCENES[0], "wanted": "later.md"}
    async with served.in_process(made) as service:
        body = {"tasks": [{"description": "look", "recipe_id": "prose", "args": args}]}
        plan = (await service.http.post("/api/sessions", json=body)).json()
        address = f"/api/sessions/{plan['session_id']}"
        for verb in ("approve", "start"):
            assert (await service.http.post(f"{address}/{verb}")).status_code == 200
        await _task(service, address, "failed")
        left = await _issues(service, status="open")
        made.write("later.md", "x")
        assert (await service.http.post(f"{address}/tasks/1/retry", json={"fresh": True})).status_code == 200
        await _task(service, address, "done")

        assert [row["kind"] for row in left] == ["dod"]
        assert await _issues(service, status="open") == []


async def test_severity_is_set_changed_and_asked_for(service: served.Served) -> None:
    """A person sets and changes the severity of an issue; an unknown severity is refused with the valid ones."""
    made = (await service.http.post("/api/issues", json={"title": "x", "severity": "hint"})).json()
    changed = await service.http.patch(f"/api/issues/{made['issue_id']}", json={"severity": "error"})
    refused = await service.http.get("/api/issues?severity=bad")

    assert (made["severity"], changed.json()["severity"]) == ("hint", "error")
    assert [row["issue_id"] for row in await _issues(service, severity="error")] == [made["issue_id"]]
    assert await _issues(service, severity="hint") == []
    assert "'error', 'warning' or 'hint'" in refused.json()["detail"]


async def _task(service: served.Served, address: str, status: str) -> None:
    etag = ""
    while True:
        answer = await service.http.get(f"{address}?wait=5", headers={"If-None-Match": etag})
        if answer.status_code == 200:
            etag = answer.headers["etag"]
            if planning.states(answer.json()) == {1: status}:
                return
