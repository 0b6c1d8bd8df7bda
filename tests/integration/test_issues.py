"""Issues over HTTP: created by runs and persons, listed in pages, protected against lost updates, stored in files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.domain import issues
from app.storage import issues as stored
from app.storage.disk import os_disk
from app.storage.index.sql import index as sql_index
from tests.integration import served
from tests.integration.project import Project

LISTED = set(issues.IssueSummary.__slots__)


async def add(service: served.Served, **body: Any) -> dict[str, Any]:
    """Create an issue and return it."""
    answer = await service.http.post("/api/issues", json={"title": "Look here"} | body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["etag"] == '"1"'
    return dict(answer.json())


async def listed(service: served.Served, **query: Any) -> list[dict[str, Any]]:
    """Return all pages of a list."""
    found: list[dict[str, Any]] = []
    address, params = "/api/issues", query
    while address:
        answer = await service.http.get(address, params=params or None)
        assert answer.status_code == 200, answer.text
        found += answer.json()
        address, params = answer.links.get("next", {}).get("url", ""), {}
    return found


async def test_a_failed_check_opens_an_issue(service: served.Served) -> None:
    """A failed definition of done creates an issue that names the run, the session, the step and the failed check."""
    args = {"scene_path": "Story/Scenes/SCN-the-arrival.md", "other_path": "Story/Scenes/SCN-the-bridge.md"}
    run = await service.run("picky", args=args, session_id="book-one")
    (issue,) = await listed(service, run_id=run["run_id"])
    shown = (await service.http.get(f"/api/issues/{issue['issue_id']}")).json()

    assert set(issue) == LISTED
    assert {name: shown[name] for name in LISTED} == issue
    told = (issue["status"], issue["kind"], issue["session_id"], issue["key"])
    assert told == ("open", "dod", "book-one", "dod[0].issue")
    assert shown["facts"]["key"] == "dod[0]"
    assert run["error"]["detail"]["failed_checks"][0]["issue"] == {"issue_id": issue["issue_id"]}
    file = service.project.data / "issues" / f"{issue['issue_id']}.json"
    assert json.loads(file.read_text(encoding="utf-8")) == shown


async def test_an_issue_found_again_keeps_what_a_person_wrote(service: served.Served) -> None:
    """A resume that fails the same check opens the closed issue again, with the person's title and notes."""
    args = {"scene_path": "Story/Scenes/SCN-the-arrival.md", "other_path": "Story/Scenes/SCN-the-bridge.md"}
    run = await service.run("picky", args=args)
    (issue,) = await listed(service)
    address = f"/api/issues/{issue['issue_id']}"
    edit = {"title": "Mine", "status": "closed", "note": "done"}
    assert (await service.http.patch(address, json=edit)).status_code == 200
    await service.http.post(f"/api/runs/{run['run_id']}/resume", json={})
    await service.until(run["run_id"], "failed", "done")
    shown = (await service.http.get(address)).json()

    assert (shown["status"], shown["title"], shown["closed_at"], shown["revision"]) == ("open", "Mine", None, 3)
    assert [note["text"] for note in shown["notes"]] == ["done"]
    assert len(await listed(service)) == 1


async def test_an_issue_is_written_by_hand(service: served.Served) -> None:
    """An issue of a person is linked to a run and its receipts, belongs to their session, and is found by each link."""
    run = await service.run("quick", session_id="book-one")
    receipt = (await service.http.get(f"/api/runs/{run['run_id']}/cache/discovery")).json()["receipt_id"]
    issue = await add(service, body="See it.", kind="continuity", run_id=run["run_id"], receipts=[receipt, receipt])
    other = await add(service)

    assert (issue["session_id"], issue["receipts"], issue["key"]) == ("book-one", [receipt], None)
    assert (await add(service, receipts=[receipt]))["session_id"] == "book-one"
    assert (await add(service, session_id="book-one"))["session_id"] == "book-one"
    assert (other["kind"], other["run_id"], other["session_id"]) == ("note", None, None)
    assert [one["issue_id"] for one in await listed(service, run_id=run["run_id"])] == [issue["issue_id"]]
    assert [one["issue_id"] for one in await listed(service, kind="continuity")] == [issue["issue_id"]]
    assert len(await listed(service, session_id="book-one")) == 3
    assert len(await listed(service, status="open")) == 4
    assert await listed(service, status="closed") == []


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({"run_id": "20260210T143000Z-k3x9af"}, "unknown_run", "$.run_id"),
        ({"run_id": "../../x"}, "unknown_run", "$.run_id"),
        ({"session_id": "nobody"}, "unknown_session", "$.session_id"),
        ({"session_id": ""}, "unknown_session", "$.session_id"),
        ({"session_id": ".."}, "unknown_session", "$.session_id"),
        ({"session_id": "x" * 5000}, "unknown_session", "$.session_id"),
        ({"receipts": ["rcpt_00000000000000000000"]}, "unknown_receipt", "$.receipts[0]"),
        ({"receipts": ["x"] * 101}, "request_invalid", "$.receipts"),
        ({"receipts": "rcpt_1"}, "request_invalid", "$.receipts"),
        ({"receipts": [1]}, "request_invalid", "$.receipts[0]"),
        ({"title": ""}, "request_invalid", "$.title"),
        ({"title": " \t"}, "request_invalid", "$.title"),
        ({"title": "two\nlines"}, "request_invalid", "$.title"),
        ({"title": "two\x85lines"}, "request_invalid", "$.title"),
        ({"title": "two\u2028lines"}, "request_invalid", "$.title"),
        ({"title": "turned \u202e round"}, "request_invalid", "$.title"),
        ({"title": "x" * 201}, "request_invalid", "$.title"),
        ({"title": None}, "request_invalid", "$.title"),
        ({"body": "x" * 100_001}, "request_invalid", "$.body"),
        ({"kind": "Not a word"}, "request_invalid", "$.kind"),
        ({"kind": ""}, "request_invalid", "$.kind"),
        ({"status": "closed"}, "request_invalid", "$.status"),
        ({"issue_id": "mine"}, "request_invalid", "$.issue_id"),
        ({"kin": "dod"}, "request_invalid", "$.kin"),
    ],
)
async def test_an_invalid_issue_is_refused(service: served.Served, body: Any, code: str, path: str) -> None:
    """A wrong or unknown field, and a link without a target, is a 400 with its place, and creates no issue."""
    answer = await service.http.post("/api/issues", json={"title": "x"} | body)
    problem = answer.json()

    assert (answer.status_code, problem["code"]) == (400, code), answer.text
    assert path in [flaw["path"] for flaw in problem["flaws"]]
    assert await listed(service) == []
    assert list((service.project.data / "issues").iterdir()) == []


async def test_links_must_belong_together(service: served.Served) -> None:
    """A run or a receipt of another session is refused."""
    one, two = await service.run("quick", session_id="one"), await service.run("quick", session_id="two")
    receipt = (await service.http.get(f"/api/runs/{one['run_id']}/cache/discovery")).json()["receipt_id"]
    for body in ({"session_id": "one", "run_id": two["run_id"]}, {"run_id": two["run_id"], "receipts": [receipt]}):
        answer = await service.http.post("/api/issues", json={"title": "x"} | body)

        assert (answer.status_code, answer.json()["code"]) == (400, "session_mismatch")


async def test_an_issue_is_changed_and_closed(service: served.Served) -> None:
    """Title, body, status and notes can be changed; each change raises the revision once, an empty change does not."""
    issue = await add(service)
    address = f"/api/issues/{issue['issue_id']}"
    edited = (await service.http.patch(address, json={"title": "New", "body": "Text"})).json()
    closed = await service.http.patch(address, json={"status": "closed", "note": "done", "revision": 2})
    again = (await service.http.patch(address, json={"status": "closed"})).json()
    opened = (await service.http.patch(address, json={"status": "open"}, headers={"If-Match": '"3"'})).json()

    assert (edited["title"], edited["body"], edited["revision"]) == ("New", "Text", 2)
    assert edited["edited_at"] == edited["updated_at"]
    assert closed.headers["etag"] == '"3"'
    assert closed.json()["closed_at"] == closed.json()["notes"][0]["at"]
    assert closed.json()["notes"][0] | {"at": ""} == {"at": "", "text": "done", "status": "closed"}
    assert again == closed.json()
    assert (opened["status"], opened["closed_at"], opened["revision"], len(opened["notes"])) == ("open", None, 4, 1)
    assert (await service.http.get(address)).json() == opened
    assert [one["revision"] for one in await listed(service)] == [4]


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        ({}, {}, 400, "request_invalid"),
        ({"revision": 1}, {}, 400, "request_invalid"),
        ({"note": " "}, {}, 400, "request_invalid"),
        ({"note": "x" * 10_001}, {}, 400, "request_invalid"),
        ({"status": "wontfix"}, {}, 400, "request_invalid"),
        ({"title": ""}, {}, 400, "request_invalid"),
        ({"kind": "dod"}, {}, 400, "request_invalid"),
        ({"run_id": None}, {}, 400, "request_invalid"),
        ({"note": "x", "revision": "1"}, {}, 400, "request_invalid"),
        ({"note": "x", "revision": 0}, {}, 400, "request_invalid"),
        ({"note": "x"}, {"If-Match": "1"}, 400, "request_invalid"),
        ({"note": "x"}, {"If-Match": 'W/"1"'}, 400, "request_invalid"),
        ({"note": "x", "revision": 1}, {"If-Match": '"2"'}, 400, "request_invalid"),
        ({"note": "x", "revision": 2}, {}, 409, "issue_changed"),
        ({"note": "x"}, {"If-Match": '"2"'}, 409, "issue_changed"),
    ],
)
async def test_an_invalid_issue_change_is_refused(
    service: served.Served, body: Any, headers: dict[str, str], status: int, code: str
) -> None:
    """An invalid change, or one of an older revision, leaves the issue unchanged."""
    issue = await add(service)
    answer = await service.http.patch(f"/api/issues/{issue['issue_id']}", json=body, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    if code == "issue_changed":
        assert answer.json()["facts"]["issue"] == issue
    assert (await service.http.get(f"/api/issues/{issue['issue_id']}")).json() == issue


async def test_a_repetition_finds_its_issue(service: served.Served) -> None:
    """The same key and body find the issue in its present form, even after its run was deleted."""
    run = await service.run("quick")
    body, headers = {"title": "Once", "body": "Only.", "run_id": run["run_id"]}, {"Idempotency-Key": "key 1"}
    made = await service.http.post("/api/issues", json=body, headers=headers)
    address = made.headers["location"]
    await service.http.patch(address, json={"title": "Mine", "status": "closed"})
    await service.http.delete(f"/api/runs/{run['run_id']}")
    again = await service.http.post("/api/issues", json=body | {"kind": "note", "receipts": []}, headers=headers)
    other = await service.http.post("/api/issues", json=body | {"body": "More."}, headers=headers)
    gone = await service.http.post("/api/issues", json=body, headers={"Idempotency-Key": "key 2"})

    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    assert (again.status_code, again.headers["etag"], again.headers["location"]) == (200, '"2"', address)
    assert (again.json()["title"], again.json()["status"]) == ("Mine", "closed")
    assert again.json() == (await service.http.get(address)).json()
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert other.json()["facts"] == {"issue_id": made.json()["issue_id"]}
    assert (gone.status_code, gone.json()["code"]) == (400, "unknown_run")
    assert len(await listed(service)) == 1


async def test_repetitions_that_race_make_one_issue(service: served.Served) -> None:
    """Concurrent requests with one key create one issue and receive it; other keys create their own."""
    headers = {"Idempotency-Key": "race"}
    posts = [service.http.post("/api/issues", json={"title": "x"}, headers=headers) for _ in range(20)]
    posts += [service.http.post("/api/issues", json={"title": "y"}, headers=headers) for _ in range(5)]
    answers = await asyncio.gather(*posts)
    codes = [answer.status_code for answer in answers]
    another = await service.http.post("/api/issues", json={"title": "x"}, headers={"Idempotency-Key": "race2"})

    assert (codes.count(201), codes.count(409)) in [(1, 5), (1, 20)]
    assert len({answer.json()["issue_id"] for answer in answers if answer.status_code < 300}) == 1
    assert another.status_code == 201
    assert len(await listed(service)) == 2


async def test_a_key_survives_a_restart(project: Project) -> None:
    """A key is stored in the issue, and is valid after a restart."""
    headers = {"Idempotency-Key": "k"}
    async with served.in_process(project) as service:
        first = await service.http.post("/api/issues", json={"title": "x"}, headers=headers)
        await service.http.patch(first.headers["location"], json={"note": "seen"})
    async with served.in_process(project) as service:
        again = await service.http.post("/api/issues", json={"title": "x"}, headers=headers)
        other = await service.http.post("/api/issues", json={"title": "y"}, headers=headers)

    assert (again.status_code, again.json()["revision"]) == (200, 2)
    assert other.status_code == 409


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "a\tb", "\u00e4"])
async def test_an_invalid_idempotency_key_is_refused(service: served.Served, key: str) -> None:
    """A key that is not a line of printable characters is a 400, and creates no issue."""
    answer = await service.http.post("/api/issues", json={"title": "x"}, headers={b"Idempotency-Key": key.encode()})

    assert (answer.status_code, answer.json()["code"]) == (400, "request_invalid"), answer.text
    assert await listed(service) == []


async def test_a_damaged_issue_is_not_made_again(service: served.Served) -> None:
    """A repetition that finds a damaged file is refused, and does not change the file."""
    headers = {"Idempotency-Key": "k"}
    made = (await service.http.post("/api/issues", json={"title": "x"}, headers=headers)).json()
    file = service.project.data / "issues" / f"{made['issue_id']}.json"
    file.write_text("{", encoding="utf-8")
    answer = await service.http.post("/api/issues", json={"title": "x"}, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (409, "issue_damaged")
    assert file.read_text(encoding="utf-8") == "{"


async def test_changes_that_race_lose_nothing(service: served.Served) -> None:
    """Of two changes to one revision, one is refused; changes without a revision are all applied."""
    issue = await add(service)
    address = f"/api/issues/{issue['issue_id']}"
    seen = [{"title": title, "revision": 1} for title in ("One", "Two")]
    answers = await asyncio.gather(*(service.http.patch(address, json=body) for body in seen))
    notes = await asyncio.gather(*(service.http.patch(address, json={"note": f"n{n}"}) for n in range(20)))
    shown = (await service.http.get(address)).json()
    (row,) = await listed(service)

    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert {answer.status_code for answer in notes} == {200}
    assert {note["text"] for note in shown["notes"]} == {f"n{n}" for n in range(20)}
    assert shown["revision"] == row["revision"] == 22
    assert shown["title"] == next(answer.json()["title"] for answer in answers if answer.status_code == 200)


@pytest.mark.parametrize("issue_id", ["iss_none", "..", "%2e%2e%2fagents", "x" * 3000, "iss%00", "ä"])
async def test_an_issue_that_is_not_there(service: served.Served, issue_id: str) -> None:
    """An unknown or malformed issue id never reaches another file."""
    for answer in (
        await service.http.get(f"/api/issues/{issue_id}"),
        await service.http.patch(f"/api/issues/{issue_id}", json={"note": "x"}),
    ):
        assert answer.status_code in (404, 405), answer.text
        assert answer.json()["code"] in ("issue_not_found", "not_found", "method_not_allowed")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"issue_id": "other"}', "[" * 100_000, "\ud800"])
async def test_a_damaged_issue_file_is_neither_shown_nor_changed(service: served.Served, content: str) -> None:
    """A damaged file is neither shown nor changed, and does not affect other issues."""
    issue = await add(service)
    file = service.project.data / "issues" / f"{issue['issue_id']}.json"
    file.write_text(content, encoding="utf-8", errors="surrogatepass")
    kept = file.read_bytes()
    answers = [
        await service.http.get(f"/api/issues/{issue['issue_id']}"),
        await service.http.patch(f"/api/issues/{issue['issue_id']}", json={"note": "x"}),
    ]

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(409, "issue_damaged")] * 2
    assert file.read_bytes() == kept
    assert (await add(service))["revision"] == 1


async def test_a_record_of_any_age_is_shown_whole(service: served.Served) -> None:
    """An issue of an older release or a person is shown with every field, and can be changed."""
    folder = service.project.data / "issues"
    old = {"issue_id": "iss_old", "title": "Old", "facts": {"kind": "dod"}, "status": "odd", "created_at": "yesterday"}
    (folder / "iss_old.json").write_text(json.dumps(old), encoding="utf-8")
    shown = (await service.http.get("/api/issues/iss_old")).json()
    changed = (await service.http.patch("/api/issues/iss_old", json={"note": "seen"})).json()

    assert (shown["kind"], shown["status"], shown["revision"], shown["notes"]) == ("dod", "open", 1, [])
    assert changed["revision"] == 2
    assert [one["issue_id"] for one in await listed(service, limit=1)] == ["iss_old"]


@pytest.mark.parametrize(
    "query", [{"status": "odd"}, {"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"cursor": "W10"}, {"label": "a:b"}]
)
async def test_an_invalid_list_request_is_refused(service: served.Served, query: dict[str, Any]) -> None:
    """Unknown filters and invalid cursors are a 400."""
    answer = await service.http.get("/api/issues", params=query)

    assert (answer.status_code, answer.json()["code"]) in [(400, "request_invalid"), (400, "bad_cursor")]


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[sql_index.SqlIndex]:
    """Return an index with ten thousand issues."""
    made = sql_index.SqlIndex(f"sqlite:///{tmp_path / 'index.db'}")
    await made.start()
    records = (
        {
            "issue_id": f"iss_{n}",
            "title": "x",
            "kind": ("dod", "finding")[n % 2],
            "status": ("open", "closed")[n % 5 == 0],
            "run_id": f"r{n % 100}",
            "created_at": f"2026-02-{1 + n // 1000:02}T14:30:00.000Z",
        }
        for n in range(10_000)
    )
    await made.put_issues([issues.summary(record) for record in records])
    yield made
    await made.close()


async def test_pages_are_read_from_an_index(index: sql_index.SqlIndex, tmp_path: Path) -> None:
    """Each filter of the list has an index in the same order: no page scans the table or sorts."""
    for query in ({}, {"kind": "dod"}, {"status": "closed"}, {"run_id": "r7"}, {"session_id": "none"}):
        await check_pages(index, query, tmp_path)


async def check_pages(index: sql_index.SqlIndex, query: dict[str, Any], tmp_path: Path) -> None:
    """Read every page of a list, and check how the database reads it."""
    import sqlite3

    clause = " AND ".join(f"{name} = '{value}'" for name, value in query.items()) or "1"
    asked = (
        f"EXPLAIN QUERY PLAN SELECT issue_id FROM issues WHERE {clause}"
        " AND (created_at, issue_id) < ('2026-02-05', 'x') ORDER BY created_at DESC, issue_id DESC LIMIT 100"
    )
    with sqlite3.connect(tmp_path / "index.db") as database:
        plan = " ".join(str(row) for row in database.execute(asked))
    found, cursor = [], None
    while page := await index.list_issues(issues.IssueQuery(limit=1000, cursor=cursor, **query)):
        found += page
        cursor = (page[-1].created_at, page[-1].issue_id)
    wanted = {"kind": 5000, "status": 2000, "run_id": 100, "session_id": 0}

    assert "USING" in plan
    assert "INDEX ix_issues_" in plan
    assert "TEMP B-TREE" not in plan
    assert len({one.issue_id for one in found}) == len(found) == wanted.get(next(iter(query), ""), 10_000)
    assert [(one.created_at, one.issue_id) for one in found] == sorted(
        ((one.created_at, one.issue_id) for one in found), reverse=True
    )


async def test_many_files_are_read_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files without rows are listed in pages; the next start reads only the file whose row is not reliable."""
    folder = project.data / "issues"
    folder.mkdir(parents=True)
    for number in range(450):
        record = {"issue_id": f"iss_{number:04}", "title": "x", "created_at": "2026-02-10T14:30:00.000Z"}
        (folder / f"iss_{number:04}.json").write_text(json.dumps(record), encoding="utf-8")
    async with served.in_process(project) as service:
        first = await listed(service, limit=300)
        # Wait for the comparison of the start, too: files that it had begun to read would be counted below.
        assert (await service.http.get("/api/runs")).json() == []
    read: list[str] = []
    reading = os_disk.OsDisk.read

    def noted(disk: Any, path: str, *where: int) -> bytes:
        read.append(path)
        return reading(disk, path, *where)

    monkeypatch.setattr(os_disk.OsDisk, "read", noted)
    (folder / "iss_new.json").write_text('{"issue_id": "iss_new", "title": "By hand"}', encoding="utf-8")
    async with served.in_process(project) as service:
        second, _ = await asyncio.gather(*(listed(service, limit=450) for _ in range(2)))

    assert [one["issue_id"] for one in first] == [f"iss_{number:04}" for number in reversed(range(450))]
    assert [one["issue_id"] for one in second] == [*(one["issue_id"] for one in first), "iss_new"]
    assert [path for path in read if path.startswith("issues/")] == ["issues/iss_new.json"]


def test_the_store_is_the_port() -> None:
    """The issue store has every method of its port."""
    names = [name for name in vars(issues.IssueStore) if not name.startswith("_")]

    assert [name for name in names if not callable(getattr(stored.Issues, name, None))] == []


async def test_a_project_without_issues_lists_none(project: Project) -> None:
    """A fresh data directory has an empty list."""
    async with served.in_process(project) as service:
        assert await listed(service) == []
