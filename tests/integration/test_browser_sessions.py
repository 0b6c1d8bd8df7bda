"""The sign-in of browsers: a cookie that is valid only with the header of its own page."""

from __future__ import annotations

import base64
import datetime as dt
import json

import httpx
import pytest

from app import clock
from app.api import browser_sessions, callers
from tests.integration import served
from tests.integration.project import Project

TOKEN = "the-token-of-this-service"


async def signed_in(http: httpx.AsyncClient, **body: str) -> tuple[str, str]:
    """Sign in, and return the cookie and the header."""
    answer = await http.post("/api/session", json={"token": TOKEN} | body)
    assert answer.status_code == 201, answer.text
    assert "httponly" in (given := answer.headers["set-cookie"].lower())
    assert "samesite=strict" in given
    assert answer.headers["cache-control"] == "no-store"
    http.cookies.clear()
    return answer.headers["set-cookie"].split(";")[0], answer.json()["session"]


async def test_a_sign_in_replaces_the_token(project: Project) -> None:
    """Cookie and header together give access to the API, also for orders; each alone is refused."""
    async with served.in_process(project, api_token=TOKEN) as service:
        cookie, header = await signed_in(service.http, name="Ada")
        both = {"Cookie": cookie, browser_sessions.HEADER: header}
        opened = await service.http.get("/api/runs", headers=both)
        started = await service.http.post("/api/runs", json={"recipe_id": "quick"}, headers=both)
        shown = (await service.http.get("/api/session", headers=both)).json()
        ticket = await service.http.post("/api/tickets", headers=both)
        refused = [
            (await service.http.get("/api/runs", headers=one)).status_code
            for one in ({"Cookie": cookie}, {browser_sessions.HEADER: header}, both | {browser_sessions.HEADER: "x"})
        ]

    assert (opened.status_code, started.status_code, ticket.status_code) == (200, 201, 201)
    assert (shown["signed_in"], shown["name"], shown["required"]) == (True, "Ada", True)
    assert "session" not in shown
    assert refused == [401, 401, 401]


@pytest.mark.parametrize(
    "other", ['theme={"dark":true}', "a b=c", "lost", "path=/x", "\N{LATIN SMALL LETTER U WITH DIAERESIS}=1"]
)
async def test_cookies_of_other_ports_do_not_hide_the_sign_in(project: Project, other: str) -> None:
    """A browser sends the cookies of every port of a host, in any form, also in front of the sign-in's."""
    async with served.in_process(project, api_token=TOKEN) as service:
        cookie, header = await signed_in(service.http)
        sent = [(b"Cookie", f"{other}; {cookie}; {other}".encode()), (b"X-Control-Room-Session", header.encode())]
        together = await service.http.get("/api/runs", headers=sent)
        # A proxy that speaks HTTP/2 may send each cookie as a header of its own.
        apart = await service.http.get(
            "/api/runs", headers=[(b"Cookie", other.encode()), (b"Cookie", cookie.encode()), sent[1]]
        )

    assert (together.status_code, apart.status_code) == (200, 200)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_cookie_of_a_page_with_tls_is_never_sent_without_it(project: Project, scheme: str) -> None:
    """If a proxy ends TLS before the service, the cookie of a page with TLS is still sent over TLS only."""
    async with served.in_process(project, api_token=TOKEN, allowed_hosts=("runs.example",)) as service:
        headers = {"Host": "runs.example", "Origin": f"{scheme}://runs.example"}
        signed = await service.http.post("/api/session", json={"token": TOKEN}, headers=headers)
        left = await service.http.delete("/api/session", headers=headers)

    given = [answer.headers["set-cookie"].lower().split("; ") for answer in (signed, left)]
    assert (signed.status_code, left.status_code) == (201, 204)
    assert ["secure" in each for each in given] == [scheme == "https"] * 2


@pytest.mark.parametrize("name", ["Ada\nadmin", "Ada\N{RIGHT-TO-LEFT OVERRIDE}", "\x1b[2J"])
async def test_a_sign_in_has_a_printable_name(project: Project, name: str) -> None:
    """A sign-in refuses the names that the header of an author refuses, since orders are recorded under them."""
    async with served.in_process(project, api_token=TOKEN) as service:
        refused = await service.http.post("/api/session", json={"token": TOKEN, "name": name})
        accepted = await service.http.post("/api/session", json={"token": TOKEN, "name": " Zoë "})

    assert (refused.status_code, refused.json()["flaws"][0]["path"]) == (400, "$.name")
    assert (accepted.status_code, accepted.json()["name"]) == (201, "Zoë")


async def test_a_refused_sign_in_sets_no_cookie(project: Project) -> None:
    """A refused sign-in sets no cookie."""
    async with served.in_process(project, api_token=TOKEN) as service:
        answers = [
            await service.http.post("/api/session", json={"token": given}) for given in ("", "wrong", TOKEN[:-1])
        ]

    assert [answer.status_code for answer in answers] == [401] * 3
    assert all("set-cookie" not in answer.headers for answer in answers)


async def test_signing_out_removes_the_cookie(project: Project) -> None:
    """Signing out replaces the cookie by an empty, expired one."""
    async with served.in_process(project, api_token=TOKEN) as service:
        await signed_in(service.http)
        answer = await service.http.delete("/api/session")

    assert answer.status_code == 204
    assert "max-age=0" in answer.headers["set-cookie"].lower()


async def test_another_site_cannot_sign_in(project: Project) -> None:
    """A sign-in from a page of another origin is refused."""
    async with served.in_process(project, api_token=TOKEN) as service:
        answer = await service.http.post(
            "/api/session", json={"token": TOKEN}, headers={"Origin": "http://evil.example"}
        )

    assert answer.status_code == 403


def scope(cookie: str, header: str, port: int = 8000) -> dict[str, object]:
    """Return a request that carries a sign-in."""
    host = f"127.0.0.1:{port}".encode()
    headers = [(b"host", host), (b"cookie", cookie.encode()), (browser_sessions.HEADER.encode(), header.encode())]
    return {"type": "http", "server": ("127.0.0.1", 8000), "headers": headers}


def sessions(time: clock.Clock, token: str | None = TOKEN) -> browser_sessions.BrowserSessions:
    """Return the browser sessions of a service."""
    return browser_sessions.BrowserSessions(callers.Credentials(token), time, clock.RandomIds())


def test_a_sign_in_expires() -> None:
    """A sign-in expires after twelve hours."""
    time = clock.FakeClock()
    value, header, _ = sessions(time).issue("Ada")
    carried = scope(f"control-room-8000={value}", header)

    assert sessions(time).find(carried) is not None

    time.advance(dt.timedelta(hours=12).total_seconds())

    assert sessions(time).find(carried) is None


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:8001", "control-room-8001"),
        ("[::1]:8001", "control-room-8001"),
        ("[::1]", "control-room"),
        ("room.example.org", "control-room"),
    ],
)
def test_the_cookie_is_named_by_the_port_that_the_browser_knows(host: str, name: str) -> None:
    """The cookie's name contains the port that the browser uses, since containers publish one port as several."""
    assert browser_sessions.cookie_name({"type": "http", "headers": [(b"host", host.encode())]}) == name


def test_another_token_ends_all_sign_ins() -> None:
    """Sign-ins survive a restart, but not a change of the token; each port has its own."""
    time = clock.FakeClock()
    value, header, _ = sessions(time).issue("Ada")
    carried = scope(f"control-room-8000={value}", header)

    assert sessions(time).find(carried) is not None
    assert sessions(time, "another-token").find(carried) is None
    assert sessions(time, None).find(carried) is None
    assert sessions(time).find(scope(f"control-room-8000={value}", header, port=9000)) is None


@pytest.mark.parametrize(
    "spoiled", ["", ".", "x", "x.y", "{payload}.", "{payload}.AAAA", "{other}.{signature}", "\N{SNOWMAN}.x"]
)
def test_a_forged_cookie_is_refused(spoiled: str) -> None:
    """A cookie that the service has not signed is not valid, in any form."""
    time = clock.FakeClock()
    value, header, _ = sessions(time).issue("Ada")
    payload, _, signature = value.partition(".")
    content = json.loads(base64.urlsafe_b64decode(payload + "=="))
    other = base64.urlsafe_b64encode(json.dumps(content | {"name": "Eve"}).encode()).decode().rstrip("=")
    forged = spoiled.format(payload=payload, other=other, signature=signature)

    assert sessions(time).find(scope(f"control-room-8000={forged}", header)) is None
