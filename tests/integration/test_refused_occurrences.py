"""Refused occurrences: an occurrence of a trigger that starts no run is notified, once, also over a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import clock
from tests.integration import endpoints, scheduled
from tests.integration.project import Project
from tests.integration.test_notifications import ALLOWED, _add, _messages


async def test_a_refused_occurrence_is_notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names trigger, occurrence and reason without secrets; a start repeats it under the same id only."""
    monkeypatch.setenv("CHAT_TOKEN", "tok-5f2e9a77")
    project, time = Project(tmp_path), clock.FakeClock(scheduled.BEGIN)
    async with endpoints.receiver() as all_kinds, endpoints.receiver() as chosen, endpoints.receiver() as others:
        async with scheduled.in_process(project, time, **ALLOWED) as service:
            hook = await service.add(
                recipe_id="draft", webhook={"scheme": "none"}, args_from={"scene_path": "/path"}, labels={"book": "one"}
            )
            early = await service.http.post(hook["address"], json={})
            time.advance(60)
            await _add(service, url=all_kinds.url)
            await _add(service, url=chosen.url, kinds=["refused"], recipe_id="draft", label="book:one")
            await _add(service, url=others.url, kinds=["failed", "done"])
            id = {"webhook-id": "d-1"}
            late = await service.http.post(hook["address"], json={"path": ["tok-5f2e9a77"]}, headers=id)
            (first,) = await chosen.until(1)
        async with scheduled.in_process(project, time, **ALLOWED) as service:
            again = await service.http.post(hook["address"], json={"path": 7}, headers={"webhook-id": "d-2"})
            second = list((await _messages(chosen, 2)).values())[1]
            await _messages(all_kinds, 2)
            run = await service.run("quick")
            await others.until(1)

    assert [answer.json()["code"] for answer in (early, late, again)] == ["hook_refused"] * 3
    told = first.content["data"]
    assert (first.content["type"], told["kind"], told["recipe_id"]) == ("trigger.refused", "refused", "draft")
    assert (told["trigger_id"], told["occurrence"], told["labels"]) == (hook["trigger_id"], "d-1", {"book": "one"})
    assert "run_id" not in told
    assert told["reason"].endswith("[args_invalid]")
    assert told["text"] == f"The trigger {hook['name']} started no run of draft: {told['reason']}"
    assert "tok-5f2e9a77" not in str(first.content)
    assert second.content["data"]["occurrence"] == "d-2"
    assert {post.content["data"]["run_id"] for post in others.posts} == {run["run_id"]}


async def test_a_delivery_without_a_signature_is_not_notified(tmp_path: Path) -> None:
    """Its sender knows only the address, and must not be able to send messages."""
    async with endpoints.receiver() as receiver, scheduled.in_process(Project(tmp_path), **ALLOWED) as service:
        hook = await service.add(recipe_id="quick", webhook={"scheme": "github"})
        await _add(service, url=receiver.url)
        unsigned = await service.http.post(hook["address"], json={})
        run = await service.run("quick")
        (post,) = await receiver.until(1)

    assert unsigned.json()["code"] == "signature_invalid"
    assert post.content["data"]["run_id"] == run["run_id"]
