"""Guards: requests of other sites' pages and callers without the token are refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from app import clock
from app.api import gateway
from tests.unit.api import gateways

APP: ASGIApp = PlainTextResponse("served")


def client(app: ASGIApp, host: str = "127.0.0.1:8000") -> httpx.AsyncClient:
    """Return a client of an application."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{host}")


def site(**facts: Any) -> gateway.Gateway:
    """Return the gateway of a service with these settings."""
    return gateways.behind(APP, **facts)


SERVED = """
127.0.0.1:8000 localhost LOCALHOST:1 localhost. localhost.:8000 localhost: [::1] [::1]:8000 [::1]: [0:0::0:1]
[::ffff:127.0.0.1] [::FFFF:7F00:1]:80 room.example:80 [2001:db8::1] [2001:DB8:0::1]:80 [fd00::1]
""".split()

REFUSED = """
evil.example 127.0.0.1.evil.example localhost.evil.example:8000 [::2] [::1 ::1] ::1 [] [[::1]] [::1]x [::1]:x [::1%lo]
[::1]:80:80 [localhost] [127.0.0.1] [::ffff:127.0.0.2] localhost.. . localhost:80:80 localhost:65536 localhost:-1
localhost:+1 localhost:１ me@localhost localhost/ localhost? localhost# localhost,localhost 127.1 0x7f.0.0.1 2130706433
lоcalhost ｌocalhost 0.0.0.0 [::]
""".split()


@pytest.mark.parametrize("host", SERVED)
async def test_known_hosts_are_served(host: str) -> None:
    """Loopback names and those of the settings are served, on any port and in any spelling."""
    async with client(site(allowed_hosts=("room.example", "2001:db8::1", "[fd00::1]"))) as http:
        answer = await http.get("/", headers={"Host": host})

    assert answer.text == "served"


@pytest.mark.parametrize("host", [*REFUSED, "", "localhost, localhost", "localhost\tx"])
async def test_an_unknown_host_is_refused(host: str) -> None:
    """A name that someone else points at this address, or a text that is not a name, is refused with 400."""
    async with client(site()) as http:
        answer = await http.get("/", headers={b"Host": host.encode()})

    assert answer.status_code == 400
    assert answer.json()["code"] == "unknown_host"
    assert answer.headers["content-type"] == "application/problem+json"


async def test_two_hosts_are_refused() -> None:
    """A request with two Host headers is refused, even if they are equal."""
    async with client(site()) as http:
        request = http.build_request("GET", "/", headers=[("Host", "localhost"), ("Host", "localhost")])
        answer = await http.send(request)

    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8000", 200),
        ("https://127.0.0.1:8000", 200),
        ("https://desk.example", 200),
        ("http://127.0.0.1:3000", 403),
        ("http://localhost:8000", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_a_foreign_origin_is_refused(origin: str, status: int) -> None:
    """Only pages of this address, or of an origin in the settings, may call."""
    async with client(site(allowed_origins=("https://desk.example/",))) as http:
        answer = await http.post("/", headers={"Origin": origin})

    assert answer.status_code == status


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer the-right-token-1", 200),
        ("bearer the-right-token-1", 200),
        ("Bearer the-wrong-token-1", 401),
        ("Basic the-right-token-1", 401),
        ("the-right-token-1", 401),
        ("", 401),
        ("Bearer ", 401),
        ("Bearer \N{SNOWMAN}", 401),
    ],
)
async def test_a_token_is_asked_for(header: str, status: int) -> None:
    """With a token in the settings, every request must carry it."""
    async with client(site(api_token="the-right-token-1")) as http:
        answer = await http.get("/", headers=[(b"Authorization", header.encode())])

    assert answer.status_code == status
    assert (answer.headers.get("www-authenticate") == "Bearer") == (status == 401)


async def test_health_needs_no_token() -> None:
    """A monitor needs no token to see that the service is alive."""
    async with client(site(api_token="the-right-token-1")) as http:
        statuses = [(await http.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics", "/healthz/x")]

    assert statuses == [200, 200, 401, 401]


async def test_without_a_token_nothing_is_asked() -> None:
    """A service on loopback without a token answers every caller."""
    async with client(site()) as http:
        answer = await http.get("/")

    assert answer.status_code == 200


async def test_strangers_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Repeated refusals of a kind give one line in the log until a minute has passed, then a line with their number."""
    time = clock.FakeClock()
    async with client(gateways.behind(APP, time, api_token="the-right-token-1")) as http:
        for passing in (0, 60):
            time.advance(passing)
            for headers in (
                {"Host": "evil.example"},
                {"Origin": "http://evil.example"},
                {"Authorization": "Bearer no"},
            ):
                for _ in range(100):
                    await http.get("/", headers=headers)

    found = [(vars(record)["code"], vars(record)["left_out"]) for record in caplog.records]
    codes = ("unknown_host", "foreign_origin", "unauthorized")
    assert found == [(code, left_out) for left_out in (0, 99) for code in codes]
