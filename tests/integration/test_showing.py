"""Lists, polls, steps, slots, logs and receipts (execution-modes, appendix D)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from typing import Any

import pytest

from tests.integration import project as projects
from tests.integration import served

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}


def next_page(link: str | None) -> str | None:
    """Return the address of the next page from a `Link` header."""
    found = re.fullmatch(r'<([^>]+)>; rel="next"', link or "")
    return found[1] if found else None


async def pages(service: served.Served, address: str) -> list[list[dict[str, Any]]]:
    """Return every page of a list."""
    found: list[list[dict[str, Any]]] = []
    following: str | None = address
    while following is not None:
        answer = await service.http.get(following)
        assert answer.status_code == 200, answer.text
        found.append(answer.json())
        following = next_page(answer.headers.get("link"))
    return found


async def test_runs_are_listed_newest_first(service: served.Served) -> None:
    """The list is a plain array of runs, newest first, each with its id, recipe, status and time."""
    started = [(await service.run("quick"))["run_id"] for _ in range(3)]
    listed = (await service.http.get("/api/runs")).json()

    assert {row["run_id"] for row in listed} == set(started)
    assert [row["created_at"] for row in listed] == sorted((row["created_at"] for row in listed), reverse=True)
    assert all((row["recipe_id"], row["status"]) == ("quick", "done") for row in listed)


async def test_runs_are_filtered(service: served.Served) -> None:
    """Status, recipe, label, session and time filter the list, and filters can be combined."""
    first = (await service.run("quick", labels={"book": "one"}, session_id="one"))["run_id"]
    second = (await service.run("picky", args={"scene_path": "a.md", "other_path": "b.md"}, session_id="two"))["run_id"]
    third = (await service.run("quick", labels={"book": "two:three"}, session_id="two"))["run_id"]
    middle = (await service.show(second))["created_at"]

    async def found(**query: str) -> set[str]:
        answer = await service.http.get("/api/runs", params=query)
        return {row["run_id"] for row in answer.json()}

    assert await found(status="failed") == {second}
    assert await found(recipe_id="quick") == {first, third}
    assert await found(label="book:two:three") == {third}
    assert await found(session_id="two") == {second, third}
    assert await found(session_id="two", status="done", label="book:two:three") == {third}
    assert await found(session_id="none") == set()
    assert await found(created_after=middle) == {second, third}
    assert await found(created_before=middle) == {first}
    assert await found(recipe_id="quick", label="book:one", status="done") == {first}
    assert await found(recipe_id="quick", status="failed") == set()


async def test_lists_are_paged(service: served.Served) -> None:
    """Pages follow one another by the `Link` header, keep the filters, and contain each run exactly once."""
    started = {(await service.run("quick"))["run_id"] for _ in range(5)}
    await service.run("picky", args={"scene_path": "a.md", "other_path": "b.md"})
    found = await pages(service, "/api/runs?limit=2&recipe_id=quick")

    assert [len(page) for page in found] == [2, 2, 1]
    assert {row["run_id"] for page in found for row in page} == started


@pytest.mark.parametrize(
    "query",
    [
        "status=sleeping",
        "limit=0",
        "limit=1001",
        "limit=many",
        "cursor=nonsense",
        "cursor=W10",
        "cursor=WyJhIiwgImIiXQ",
        "label=book",
        "created_after=yesterday",
        "created_after=2026-01-01T00:00:00",
        "recipe=quick",
        "recipe_id=%00",
        "cursor=%F0%9F%92%A9",
    ],
)
async def test_a_wrong_filter_is_refused(service: served.Served, query: str) -> None:
    """An invalid or unknown filter is refused with its name."""
    answer = await service.http.get(f"/api/runs?{query}")

    assert answer.status_code == 400
    assert answer.json()["flaws"][0]["path"].removesuffix(".0") == f"query.{query.partition('=')[0]}"


async def test_a_poll_that_knows_the_answer_gets_304(service: served.Served) -> None:
    """The entity tag changes only with the answer, and a poll with the present tag is answered without a body."""
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    first = await service.http.get(f"/api/runs/{run_id}")
    etag = first.headers["etag"]
    tags = (etag, f'W/{etag}, "other"', "*")
    again = [await service.http.get(f"/api/runs/{run_id}", headers={"If-None-Match": tag}) for tag in tags]
    other = await service.http.get(f"/api/runs/{run_id}", headers={"If-None-Match": '"other"'})

    assert [(answer.status_code, answer.content, answer.headers["etag"]) for answer in again] == [(304, b"", etag)] * 3
    assert (other.status_code, other.content) == (200, first.content)
    assert etag.strip('"') in hashlib.sha256(first.content).hexdigest()


async def test_a_waiting_poll_answers_at_the_next_change(service: served.Served) -> None:
    """A poll with `wait` is answered when the run changes, not before and not at the end of its time."""
    service.project.say("draft", hang=True)
    run_id = await service.start("unguarded")
    await service.until(run_id, step="draft")
    etag = (await service.http.get(f"/api/runs/{run_id}")).headers["etag"]
    waiting = asyncio.create_task(service.http.get(f"/api/runs/{run_id}?wait=15", headers={"If-None-Match": etag}))
    blind = asyncio.create_task(service.http.get(f"/api/runs/{run_id}?wait=15"))
    await asyncio.sleep(0)
    await service.http.post(f"/api/runs/{run_id}/cancel")
    answers = [await waiting, await blind]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert all(answer.headers["etag"] != etag for answer in answers)


async def test_a_waiting_poll_ends_with_its_time(service: served.Served) -> None:
    """A poll of a run that does not change is answered with 304 when its time is over."""
    service.project.say("draft", hang=True)
    run_id = await service.start("unguarded")
    await service.until(run_id, step="draft")
    etag, status = "", 200
    async with asyncio.timeout(served.WAIT_SECONDS):
        while status == 200:
            answer = await service.http.get(f"/api/runs/{run_id}?wait=0.2", headers={"If-None-Match": etag})
            etag, status = answer.headers["etag"], answer.status_code

    assert status == 304


async def test_an_ended_run_is_not_waited_for(service: served.Served) -> None:
    """A poll with `wait` for an ended run is answered at once."""
    run_id = (await service.run("quick"))["run_id"]
    etag = (await service.http.get(f"/api/runs/{run_id}")).headers["etag"]
    async with asyncio.timeout(30):
        answer = await service.http.get(f"/api/runs/{run_id}?wait=60", headers={"If-None-Match": etag})

    assert answer.status_code == 304


@pytest.mark.parametrize("query", ["?wait=0", "?wait=5", "?wait=0.5", "?wait=5e0", "?wait=%35", "?wait=60.0"])
async def test_a_poll_is_answered_alike_however_it_is_written(service: served.Served, query: str) -> None:
    """Polls in the usual form are answered before routing and others by the route, with the same answer."""
    run_id = (await service.run("quick"))["run_id"]
    usual = await service.http.get(f"/api/runs/{run_id}")
    answer = await service.http.get(f"/api/runs/{run_id}{query}")
    known = await service.http.get(f"/api/runs/{run_id}{query}", headers={"If-None-Match": usual.headers["etag"]})

    assert (answer.status_code, answer.content, answer.headers) == (200, usual.content, usual.headers)
    assert (known.status_code, known.content) == (304, b"")


@pytest.mark.parametrize("wait", ["61", "60.1", "-1", "soon", "nan", "inf", ""])
async def test_a_wait_out_of_bounds_is_refused(service: served.Served, wait: str) -> None:
    """A wait is from 0 to 60 seconds."""
    run_id = await service.start("quick")
    answer = await service.http.get(f"/api/runs/{run_id}?wait={wait}")

    assert (answer.status_code, answer.json()["flaws"][0]["path"]) == (400, "query.wait")


async def test_steps_are_the_whole_journal(service: served.Served) -> None:
    """Without a limit the step log is every line of steps.jsonl, field for field."""
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    steps = (await service.http.get(f"/api/runs/{run_id}/steps")).json()
    journal = (service.project.data / "runs" / run_id / "steps.jsonl").read_text().splitlines()

    assert steps == [json.loads(line) for line in journal]
    assert [step["step_id"] for step in steps][:4] == ["discover", "analyze", "draft", "polish"]


async def test_steps_are_paged(service: served.Served) -> None:
    """With a limit the step log comes in pages that follow one another."""
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    whole = (await service.http.get(f"/api/runs/{run_id}/steps")).json()
    found = await pages(service, f"/api/runs/{run_id}/steps?limit=2")
    refused = await service.http.get(f"/api/runs/{run_id}/steps?cursor=first")

    assert [step for page in found for step in page] == whole
    assert all(len(page) <= 2 for page in found)
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_cursor")


async def test_a_pointer_slot_names_its_receipt(service: served.Served) -> None:
    """A tool's slot is a pointer, and its receipt contains the full payload."""
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    slot = (await service.http.get(f"/api/runs/{run_id}/cache/discovery")).json()
    receipt = (await service.http.get(f"/api/audit/receipts/{slot['receipt_id']}")).json()

    assert set(slot) == {"slot", "type", "receipt_id", "sha256", "summary"}
    assert (slot["slot"], slot["type"]) == ("discovery", "pointer")
    assert (receipt["run_id"], receipt["tool"], receipt["key"]) == (run_id, "file_locator", "discover")
    assert receipt["payload"]["matches"]
    assert receipt["sha256"].removeprefix("sha256:") == slot["sha256"]


@pytest.mark.parametrize("deleted", [False, True])
async def test_an_altered_receipt_is_shown_as_altered(service: served.Served, deleted: bool) -> None:
    """A receipt shows whether it is unchanged; an altered one is shown with its present payload and the reason."""
    run = await service.run("quick")
    receipt_id = (await service.http.get(f"/api/runs/{run['run_id']}/cache/discovery")).json()["receipt_id"]
    if deleted:
        await service.http.delete(f"/api/runs/{run['run_id']}")
    before = (await service.http.get(f"/api/audit/receipts/{receipt_id}")).json()
    path = service.project.data / "audit" / "sessions" / run["session_id"] / "tool_receipts.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"payload": "forged", "intact": True}) + "\n")
    after = (await service.http.get(f"/api/audit/receipts/{receipt_id}")).json()

    assert (before["intact"], before["alteration"]) == (True, None)
    assert (after["intact"], after["payload"]) == (False, "forged")
    assert after["alteration"] == f"the receipt {receipt_id} holds another payload than its hash says"


async def test_an_artifact_slot_has_its_text(service: served.Served) -> None:
    """An agent's slot contains its whole text, its hash and its writer."""
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    slot = (await service.http.get(f"/api/runs/{run_id}/cache/draft")).json()

    assert set(slot) == {"slot", "type", "agent_id", "text", "sha256", "summary"}
    assert (slot["slot"], slot["type"], slot["agent_id"], slot["text"]) == (
        "draft",
        "artifact",
        "writer-1",
        projects.REPLY,
    )
    assert slot["sha256"] == hashlib.sha256(projects.REPLY.encode()).hexdigest()


async def test_a_large_artifact_comes_whole(service: served.Served) -> None:
    """A text too large for a journal line is shown whole, while the run is active and afterwards."""
    text = "".join(f"Kael passed stone {number} and house {number * 7 % 9973}. " for number in range(4_000))
    service.project.say("draft", text=text)
    service.project.say("polish", hang=True)
    run_id = await service.start("draft", args=ARRIVAL)
    await service.until(run_id, step="polish")
    living = (await service.http.get(f"/api/runs/{run_id}/cache/draft")).json()
    await service.http.post(f"/api/runs/{run_id}/cancel")
    await service.until(run_id, "cancelled")
    resting = (await service.http.get(f"/api/runs/{run_id}/cache/draft")).json()

    assert living == resting
    assert living["text"] == text
    assert "blob" not in living


async def test_an_absent_slot_is_answered_with_those_there_are(service: served.Served) -> None:
    """An unknown slot is a 404 that names the existing slots."""
    run_id = (await service.run("quick"))["run_id"]
    answer = await service.http.get(f"/api/runs/{run_id}/cache/discoveries")

    assert (answer.status_code, answer.json()["code"]) == (404, "slot_not_found")
    assert answer.json()["facts"]["slots"] == ["discovery"]


async def test_logs_contain_the_prompts_and_replies_of_agents(service: served.Served) -> None:
    """The prompt and the reply of each agent can be listed and read."""
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    names = (await service.http.get(f"/api/runs/{run_id}/logs")).json()
    prompt = await service.http.get(f"/api/runs/{run_id}/logs/draft.1.prompt.md")
    reply = await service.http.get(f"/api/runs/{run_id}/logs/draft.1.reply.md")

    assert {"draft.1.prompt.md", "draft.1.reply.md"} <= set(names)
    assert "Write it." in prompt.text
    assert projects.REPLY in reply.text
    assert prompt.headers["content-type"].startswith("text/plain")
    assert prompt.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["none.md", "%2e%2e%2fstart.json", ".hidden", "a%00b", "%5c..%5cstart.json"])
async def test_an_absent_log_is_not_found(service: served.Served, name: str) -> None:
    """A log that does not exist, or is in another folder, is a 404."""
    run_id = (await service.run("quick"))["run_id"]
    answer = await service.http.get(f"/api/runs/{run_id}/logs/{name}")

    assert answer.status_code == 404


@pytest.mark.parametrize("run_id", ["20260101T000000Z-aaaaaa", "nobody", "..", "%2e%2e", "x" * 65, "a%00b", "a b", "ä"])
@pytest.mark.parametrize("part", ["", "/steps", "/cache/draft", "/events", "/logs", "/logs/a.md"])
async def test_an_unknown_run_is_not_found(service: served.Served, run_id: str, part: str) -> None:
    """An unknown run is a 404 everywhere, in any form of its id."""
    # Clients remove two dots, and would request the events of all runs, which do not end.
    if (run_id, part) == ("..", "/events"):
        return
    answer = await service.http.get(f"/api/runs/{run_id}{part}")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


async def test_an_unknown_receipt_is_not_found(service: served.Served) -> None:
    """A receipt that does not exist is a 404."""
    answers = [
        await service.http.get(f"/api/audit/receipts/{name}")
        for name in ("rcpt_00000000000000000000", "%2e%2e%2fruns", "nobody")
    ]

    assert [answer.status_code for answer in answers] == [404, 404, 404]


async def test_a_long_run_shows_its_newest_steps(project: projects.Project) -> None:
    """The consolidated answer lists the newest 200 steps and their number; others are read by their index."""
    tools = [projects.tool_step(f"s{n:03}", "file_locator", f"slot{n}", search_criteria="arrival") for n in range(190)]
    agents = [projects.agent_step(f"t{n:03}", "writer", "write", ["slot0"], f"text{n}") for n in range(20)]
    project.write(".control-room/prompts/templates/write.t3.md", "Write {{slot0}}.")
    project.add_recipe({"recipe_id": "long", "label": "Long", "phase_a": tools, "phase_b": agents, "dod": []})
    async with served.in_process(project) as service:
        ended = await service.run("long")
        path = f"/api/runs/{ended['run_id']}/steps"
        whole = (await service.http.get(path)).json()
        found = await pages(service, f"{path}?attempts=true&limit=80")
        usual = (await service.http.get(f"{path}?attempts=true")).json()
        jumped = await service.http.get(f"{path}?attempts=true&limit=5&cursor=204")
        known = await service.http.get(
            jumped.request.url.raw_path.decode(), headers={"If-None-Match": jumped.headers["etag"]}
        )
        refused = await service.http.get(f"{path}?attempts=true&cursor=first")

    shown = [step for page in found for step in page]
    assert [len(page) for page in found] == [80, 80, 50]
    assert [step["key"] for step in shown] == [line["key"] for line in whole]
    assert (shown[10:], usual, jumped.json()) == (ended["steps"], shown[:200], shown[205:])
    assert (known.status_code, refused.status_code, refused.json()["code"]) == (304, 400, "bad_cursor")
    assert ended["status"] == "done"
    assert (len(ended["steps"]), ended["steps_total"], len(whole)) == (200, 210, 210)
    assert ended["steps"][-1]["step_id"] == "t019"
