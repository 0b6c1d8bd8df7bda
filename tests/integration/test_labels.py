"""Orders that change labels and pins: shown, found and counted everywhere, in any state of the run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration import served
from tests.integration.project import Project

AUTHOR = {"X-Control-Room-Author": "Ada"}


async def labelled(service: served.Served, run_id: str, **body: Any) -> tuple[int, Any]:
    """Change a run's labels and its pin, and return the answer."""
    answer = await service.http.patch(f"/api/runs/{run_id}", json=body, headers=AUTHOR)
    return answer.status_code, answer.json()


async def found(service: served.Served, **query: str) -> list[str]:
    """Return the runs that a list shows."""
    return [row["run_id"] for row in (await service.http.get("/api/runs", params=query)).json()]


async def test_an_ended_run_is_labelled(project: Project) -> None:
    """Detail, list, filter, search, statistics, events and the journal agree, at once and after a restart."""
    project.say("*", text="The lantern was dark.", usage={"input_tokens": 5, "output_tokens": 7})
    async with served.in_process(project) as service:
        run_id = (
            await service.run(
                "draft", labels={"book": "one", "old": "x"}, args={"scene_path": "Story/Scenes/SCN-the-arrival.md"}
            )
        )["run_id"]
        before = await service.show(run_id)
        answered = await labelled(service, run_id, labels={"book": "two", "old": None, "words": "lantern"}, pinned=True)
        again = await labelled(service, run_id, labels={"book": "two"})
        after = await service.show(run_id)
        lists = [
            await found(service, **query) for query in ({"label": "book:two"}, {"q": "lantern"}, {"label": "old:x"})
        ]
        usage = (await service.http.get("/api/usage?by=label&label_key=book")).json()
        told = (await service.http.get(f"/api/runs/{run_id}/events")).text
    async with served.in_process(project) as service:
        later = await service.show(run_id)
    control = [json.loads(line) for line in (project.data / "runs" / run_id / "control.jsonl").read_text().splitlines()]
    shown = json.loads((project.data / "runs" / run_id / "run.json").read_text())

    assert answered == (200, {"run_id": run_id, "labels": {"book": "two", "words": "lantern"}, "pinned": True})
    assert again == answered
    assert after["labels"] == later["labels"] == shown["labels"] == answered[1]["labels"]
    assert after["pinned"] is later["pinned"] is shown["pinned"] is True
    assert (after["status"], after["completed_at"]) == ("done", before["completed_at"])
    assert lists == [[run_id], [run_id], []]
    assert [row["name"] for row in usage["rows"]] == ["two"]
    assert [line["kind"] for line in control].count("labelled") == 1
    assert control[-1]["labels"] == {"book": "two", "old": None, "words": "lantern"}
    assert control[-1]["author"]["name"] == "Ada"
    assert '"type":"run.labelled"' in told


async def test_a_run_is_labelled_while_it_works_and_while_it_waits_in_the_queue(project: Project) -> None:
    """A running run shows its labels at once and continues; a queued one keeps its place."""
    project.say("draft", hang=True)
    async with served.in_process(project, max_running=1) as service:
        working = await service.start("unguarded")
        await service.until(working, step="draft")
        queued = await service.start("quick")
        answers = [await labelled(service, run_id, labels={"book": "one"}) for run_id in (working, queued)]
        shown = [await service.show(run_id) for run_id in (working, queued)]
        listed = await found(service, label="book:one")
        await service.http.post(f"/api/runs/{working}/cancel")
        ended = await service.until(queued, "done", "failed")

    assert [status for status, _ in answers] == [200, 200]
    assert [run["labels"] for run in shown] == [{"book": "one"}] * 2
    assert shown[0]["status"] == "running"
    assert shown[1]["steps"] == []
    assert sorted(listed) == sorted([working, queued])
    assert (ended["status"], ended["labels"]) == ("done", {"book": "one"}), (ended["error"], ended["steps"])
    assert (ended["status"], ended["labels"]) == ("done", {"book": "one"})


async def test_many_runs_are_labelled_by_one_order(service: served.Served) -> None:
    """A bulk order changes labels and pins of runs in any state."""
    runs = [(await service.run("quick", labels={"book": "one"}))["run_id"] for _ in range(2)]
    body = {
        "action": "label",
        "filter": {"label": "book:one"},
        "expected": 2,
        "labels": {"kept": "yes"},
        "pinned": True,
    }
    answer = (await service.http.post("/api/runs/bulk", json=body)).json()

    assert sorted(one["run_id"] for one in answer["done"]) == sorted(runs)
    assert {one["status"] for one in answer["done"]} == {"done"}
    assert sorted(await found(service, label="kept:yes")) == sorted(runs)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "$"),
        ({"labels": {"a b": "x"}}, "$.labels['a b']"),
        ({"labels": {"a": 1}}, "$.labels.a"),
        ({"labels": {"a": "x" * 257}}, "$.labels.a"),
        ({"labels": {"a": "\ud800"}}, "$.labels.a"),
        ({"pinned": "yes"}, "$.pinned"),
        ({"labels": {f"n{number}": "x" for number in range(33)}}, "$.labels"),
    ],
)
async def test_malformed_changes_are_refused(service: served.Served, body: dict[str, Any], path: str) -> None:
    """A malformed change is refused with its place, and is not written."""
    run_id = (await service.run("quick"))["run_id"]
    answer = await service.http.patch(
        f"/api/runs/{run_id}", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    control = (service.project.data / "runs" / run_id / "control.jsonl").read_text()

    assert answer.status_code == 400, answer.text
    assert answer.json()["flaws"][0]["path"].startswith(path.split("[")[0])
    assert "labelled" not in control


async def test_a_run_has_a_limited_number_of_labels(service: served.Served) -> None:
    """Labels that exceed the limit together with existing ones are refused; after a removal, they are accepted."""
    run_id = (await service.run("quick", labels={f"a{number}": "x" for number in range(32)}))["run_id"]
    refused = await labelled(service, run_id, labels={"more": "x"})
    taken = await labelled(service, run_id, labels={"more": "x", "a0": None})
    unknown = await labelled(service, "never", labels={"more": "x"})

    assert (refused[0], refused[1]["flaws"][0]["path"]) == (400, "$.labels")
    assert (taken[0], len(taken[1]["labels"])) == (200, 32)
    assert (unknown[0], unknown[1]["code"]) == (404, "run_not_found")
