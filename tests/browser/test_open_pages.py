"""Many open pages: their cost for the service while little happens, measured without as many browsers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import httpx
import pytest

from tests.browser import service
from tests.integration.project import Project

PAGES = 50
SECONDS = 60
PAUSE_SECONDS = 20
"""Time after which an open page reads an address again if no event concerned it."""

ADDRESSES = ("/api/stats", "/api/sessions?limit=100", "/api/runs?status=done&limit=5", "/api/runs?limit=100")
"""Addresses that the home page and the list of runs read."""

MOST_CORES = 0.1


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def follow(http: httpx.AsyncClient, opened: asyncio.Semaphore, news: asyncio.Event) -> None:
    """Keep the stream of one page open, and set `news` at each event."""
    async with http.stream("GET", "/api/events") as stream:
        opened.release()
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                news.set()


async def read_again(http: httpx.AsyncClient, news: asyncio.Event) -> None:
    """Read what one page shows: after events, at most once a second; without events, rarely."""
    etags: dict[str, str] = {}
    while True:
        news.clear()
        for address in ADDRESSES:
            answer = await http.get(address, headers={"If-None-Match": etags.get(address, "")})
            etags[address] = answer.headers.get("ETag", "")
        await asyncio.sleep(1)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), PAUSE_SECONDS)


async def cost_of_pages(address: str, pid: int) -> float:
    """Return the processor time that fifty pages cost during a period in which one run starts and ends."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as http:
        opened = asyncio.Semaphore(0)
        heard = [asyncio.Event() for _ in range(PAGES)]
        pages = [asyncio.ensure_future(follow(http, opened, news)) for news in heard]
        for _ in range(PAGES):
            await opened.acquire()
        pages += [asyncio.ensure_future(read_again(http, news)) for news in heard]
        before = cpu_seconds(pid)
        (await http.post("/api/runs", json={"recipe_id": "quick"})).raise_for_status()
        await asyncio.sleep(SECONDS)
        cost = cpu_seconds(pid) - before
        assert not any(page.done() for page in pages)
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
    return cost


@pytest.mark.slow
def test_fifty_open_pages_cost_less_than_a_tenth_of_a_core(project: Project) -> None:
    """Fifty pages, each with one stream and rare requests, cost the service less than a tenth of a core."""
    with service.serving(project) as running:
        cost = asyncio.run(cost_of_pages(running.address, running.pid))

    assert cost < MOST_CORES * SECONDS
