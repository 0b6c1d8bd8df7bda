"""`control-room serve --open`: the browser opens the pages, and the service also runs on a machine without one."""

from __future__ import annotations

import os
import queue
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli import browser
from tests.acceptance import programs

DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project."""
    return programs.make_project(tmp_path / "project")


@pytest.mark.parametrize(("token", "page"), [("", "/"), ("a-token-of-this-test", "/sign-in")])
def test_the_browser_opens_when_the_service_answers(project: programs.Project, tmp_path: Path, token: str, page: str):
    """The browser gets the printed address, or the sign-in page if there is a token, and finds a page there."""
    given: dict[str, Any] = {"BROWSER": _recording_browser(tmp_path), "CONTROL_ROOM_API_TOKEN": token}
    with programs.service(project, "--open", **given) as service:
        with (tmp_path / "opened").open() as opened:
            address = opened.readline().strip()
        found = httpx.get(address, timeout=60, trust_env=False)
        assert service.stop() == 0

    assert address == service.url + page
    assert f"web UI: {address}" in service.said
    assert (found.status_code, found.headers["content-type"].split(";")[0]) == (200, "text/html")


def test_without_a_display_the_service_prints_its_address(project: programs.Project):
    """Without display and browser the service prints the address of its pages, and executes a recipe as usual."""
    given: dict[str, Any] = dict.fromkeys(DISPLAYS, "")
    with programs.service(project, "--open", **given) as service:
        run = service.wait(service.start_run())
        assert service.stop() == 0

    assert run["status"] == "done"
    assert [line for line in service.said if "browser" in line] == [
        f"no browser was opened, because this machine has no display; open {service.url}/ yourself"
    ]


def test_without_a_browser_the_service_prints_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """If the browser is missing, one line with the address is printed."""
    for name in DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BROWSER", str(tmp_path / "no-such-browser"))
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    browser.open_page("http://127.0.0.1:1/", lines.put)

    assert lines.get(timeout=60) == "no browser could be opened; open http://127.0.0.1:1/ yourself"


def _recording_browser(folder: Path) -> str:
    """Return a program that writes its first argument into a pipe."""
    os.mkfifo(folder / "opened")
    program = folder / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {folder}/opened\n')
    program.chmod(0o755)
    return str(program)
