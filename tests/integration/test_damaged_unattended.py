"""Damaged files of triggers and endpoints: they are listed with the reason, refused in orders, and left unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration import served
from tests.integration.project import Project

NOT_JSON = '{"cut": '
"""Content of a file that a full disk or an editor cut off."""

TRIGGERS, ENDPOINTS = "/api/triggers", "/api/notifications/endpoints"


@pytest.mark.parametrize(
    ("address", "folder", "new", "name"),
    [
        (TRIGGERS, "triggers", {"recipe_id": "quick", "webhook": {}}, "trigger_id"),
        (ENDPOINTS, "outbox", {"argv": ["true"]}, "endpoint_id"),
    ],
)
@pytest.mark.parametrize("content", [NOT_JSON, "[]", "{}", None])
async def test_a_damaged_file_is_listed_and_refused(
    project: Project, address: str, folder: str, new: dict[str, Any], name: str, content: str | None
) -> None:
    """A file that is not what its folder holds is listed as damaged beside the others, and never overwritten."""
    async with served.in_process(project) as service:
        key = {"Idempotency-Key": "once"}
        known = (await service.http.post(address, json=new, headers=key)).json()[name]
        whole = (await service.http.post(address, json=new)).json()[name]
    file = project.data / folder / f"{known}.json"
    # None: the file of another one, under this name.
    written = file.with_name(f"{whole}.json").read_text() if content is None else content
    file.write_text(written)
    async with served.in_process(project) as service:
        listed = (await service.http.get(address)).json()
        refused = [
            await service.http.delete(f"{address}/{known}"),
            await service.http.post(address, json=new, headers=key),
        ]

    assert [(one[name], f"{folder}/{known}.json is damaged" in str(one)) for one in listed] == [
        (whole, False),
        (known, True),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(409, "file_damaged")] * 2
    assert file.read_text() == written
