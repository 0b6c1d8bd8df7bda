"""`control-room top` on a screen of Textual's pilot with the real service: answers, gates, a lost connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from app import clock
from app.cli import http_client
from app.cli.top import feeds, screen
from tests.integration import served
from tests.integration.project import Project

HOSTILE = "Ship [red]it[/red]?\x1b]0;pwned\x07 [@click=app.quit]here[/] \u202egnp.exe\nnext"
SHIP = """\
schema: "1.7"
name: ship
description: Ask, then ship.
version: 1.0.0
stages:
  - name: look
    steps:
      - id: note
        type: bash
        command: "true"
    approval:
      required: true
      prompt: {prompt}
  - name: ship
    steps:
      - id: ship
        type: bash
        command: "true"
"""


@pytest.fixture
def project(tmp_path) -> Project:
    """Return a project whose recipe `ship` asks a person."""
    made = Project(tmp_path / "project")
    made.write(".control-room/recipes/amplifier/ship.yaml", SHIP.format(prompt="Ship it?"))
    return made


class Screen:
    """The program on a screen, and the content that a person sees there."""

    def __init__(self, pilot: Pilot[None], source: Source) -> None:
        self.pilot = pilot
        self.app = pilot.app
        self.source = source

    def text(self) -> str:
        """Return the characters on the screen."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    def rows(self, table: str) -> list[str]:
        """Return the keys of a table's rows."""
        return [str(row.value) for row in self.app.screen_stack[0].query_one(f"#{table}", DataTable).rows]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        try:
            async with asyncio.timeout(served.WAIT_SECONDS):
                while not holds():
                    await self.pilot.pause(0.02)
        except TimeoutError:
            raise AssertionError(self.text()) from None

    async def sees(self, *texts: str) -> None:
        """Wait until texts are on the screen."""
        await self.until(lambda: all(text in self.text() for text in texts))

    async def press(self, *keys: str) -> None:
        """Press keys."""
        await self.pilot.press(*keys)


class Client(http_client.HttpClient):
    """A client whose answers a test can delay."""

    def __init__(self, address: str) -> None:
        super().__init__(address, None)
        self.answers = asyncio.Event()
        """Set while answers to single requests are passed on."""
        self.answers.set()

    async def call(self, wanted: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the answer, or raise the refusal, once answers are passed on."""
        try:
            return await super().call(wanted, *args, **kwargs)
        finally:
            await self.answers.wait()


class Source(feeds.Source):
    """A source that remembers the function to call at changes."""

    client: Client
    changed: Callable[[], None]

    async def follow(self, feed: feeds.Feed, changed: Callable[[], None]) -> None:
        """Keep one field of the board up to date."""
        self.changed = changed
        await super().follow(feed, changed)


@contextlib.asynccontextmanager
async def opened(address: str, size: tuple[int, int] = (120, 30)) -> AsyncIterator[Screen]:
    """Open the screen with a service."""
    async with Client(address) as client:
        source = Source(client, clock.SystemClock())
        await source.check()
        app = screen.TopApp(source, address)
        async with app.run_test(size=size, notifications=True) as pilot:
            yield Screen(pilot, source)


async def waiting(service: served.Served) -> str:
    """Start a run and wait until it asks a person."""
    run_id = await service.start("ship")
    await service.until(run_id, "waiting")
    return run_id


async def asked_too_late(service: served.Served, top: Screen) -> None:
    """Open the answer to a gate that another client decides meanwhile."""
    await waiting(service)
    await top.until(lambda: len(top.rows("gates")) == 1)
    (gate_id,) = top.rows("gates")
    await top.press("a")
    await top.sees("Enter answers 'approve', for good")
    await service.http.post(f"/api/gates/{gate_id}", json={"decision": "deny"})


async def test_the_screen_lists_gates_above_runs(project: Project) -> None:
    """Gates are listed above the runs with questions, runs with states; new ones appear on the open screen."""
    async with served.on_a_port(project) as service, opened(str(service.http.base_url)) as top:
        assert top.rows("gates") == []
        done = await service.run("quick")
        asked = await waiting(service)
        await top.until(lambda: top.rows("runs") == [asked, done["run_id"]])
        await top.sees("Ship it?", "approve / deny", "? waiting", "✓ done")
        await top.sees("waiting: 1 gate", "running: 0 of", "today: $0.00")


async def test_approves_a_gate_after_confirmation(project: Project) -> None:
    """`a` shows the question, Enter approves the gate, the run continues, and the gate leaves the list."""
    async with served.on_a_port(project) as service, opened(str(service.http.base_url)) as top:
        run_id = await waiting(service)
        await top.until(lambda: len(top.rows("gates")) == 1)
        await top.press("a")
        await top.sees("Enter answers 'approve', for good")
        assert (await service.show(run_id))["status"] == "waiting"
        await top.press("enter")
        await service.until(run_id, "done")
        await top.until(lambda: not top.rows("gates"))


async def test_a_run_is_known_by_its_task(project: Project) -> None:
    """The task is beside the state in a terminal of 80 columns, and a gate shows its question once."""
    async with served.on_a_port(project) as service, opened(str(service.http.base_url), (80, 24)) as top:
        run_id = await service.start("ship", description="Send the letter")
        await service.until(run_id, "waiting")
        await top.sees("Send the letter")
        # Runs and gates arrive in separate feeds.
        await top.until(lambda: len(top.rows("gates")) == 1)
        await top.press("a")
        await top.sees("Enter answers 'approve', for good", "up and down choose")
        content = str(top.app.screen.query_one("#prompt Static", Static).render())

    assert content == "Ship it?"


async def test_denies_with_a_message(project: Project) -> None:
    """`d`, a message and Enter deny the gate with the message; Escape before Enter sends no answer."""
    async with served.on_a_port(project) as service, opened(str(service.http.base_url)) as top:
        run_id = await waiting(service)
        await top.until(lambda: len(top.rows("gates")) == 1)
        (gate_id,) = top.rows("gates")
        await top.press("d")
        await top.sees("Enter answers 'deny', for good")
        await top.press("escape")
        await top.until(lambda: len(top.app.screen_stack) == 1)
        await top.press("d")
        await top.sees("Enter answers 'deny', for good")
        await top.press("t", "o", "o", "space", "s")
        await top.press("enter")
        await service.until(run_id, "failed", "cancelled", "done")
        gate = (await service.http.get(f"/api/gates/{gate_id}")).json()

    assert (gate["decision"], gate["message"], gate["denied"]) == ("deny", "too s", True)


async def test_an_answer_that_came_too_late_is_shown(project: Project) -> None:
    """If another client answered first, the screen reports this and stays open."""
    async with served.on_a_port(project) as service, opened(str(service.http.base_url)) as top:
        await asked_too_late(service, top)
        await top.press("enter")
        await top.sees("[gate_decided]")


@pytest.mark.slow
async def test_an_answer_that_comes_after_escape_is_shown(project: Project) -> None:
    """A person who presses Escape during an answer later sees its result, even a refusal."""
    async with served.on_a_port(project) as service, opened(str(service.http.base_url)) as top:
        await asked_too_late(service, top)
        top.source.client.answers.clear()
        await top.press("enter", "escape")
        await top.until(lambda: len(top.app.screen_stack) == 1)
        top.source.client.answers.set()
        await top.sees("[gate_decided]")


@pytest.mark.slow
async def test_a_change_while_the_program_ends_is_left_alone(project: Project) -> None:
    """A feed that is answered after the screens are closed, before its worker is cancelled, draws no text."""
    async with served.on_a_port(project) as service, opened(str(service.http.base_url)) as top:
        await waiting(service)
        await top.until(lambda: len(top.rows("gates")) == 1)

    assert not top.app.screen_stack
    top.source.changed()


async def test_hostile_texts_are_only_text(project: Project) -> None:
    """The table and the full view show markup unchanged, and write out control and direction characters."""
    project.write(".control-room/recipes/amplifier/ship.yaml", SHIP.format(prompt='"' + _yaml(HOSTILE) + '"'))
    async with served.on_a_port(project) as service, opened(str(service.http.base_url), (200, 40)) as top:
        run_id = await service.start("ship", description=HOSTILE)
        await service.until(run_id, "waiting")
        await top.sees("Ship [red]it[/red]?\\x1b]0;pwned\\x07 [@click=app.quit]here[/] \\u202egnp.exe\\nnext")
        await top.press("a")
        await top.sees("\\u202egnp.exe", "Enter answers 'approve'")
        assert not set("\x1b\x07\u202e") & set(top.text())
        await top.press("escape", "tab", "enter")
        await top.sees("recipe_id", "[red]it[/red]")
        assert not set("\x1b\x07\u202e") & set(top.text())


@pytest.mark.parametrize("size", [(20, 8), (250, 60)])
async def test_fits_any_terminal(project: Project, size: tuple[int, int]) -> None:
    """The question, the state and the task fit into any terminal; a wider one shows more."""
    async with served.on_a_port(project) as service, opened(str(service.http.base_url), size) as top:
        await waiting(service)
        await top.until(lambda: len(top.rows("gates")) == len(top.rows("runs")) == 1)
        widths = [
            sum(column.get_render_width(table) for column in table.columns.values())
            for table in top.app.screen.query(DataTable)
        ]
        await top.press("a")
        await top.until(lambda: bool(top.app.screen.query(Input)))

    assert all(width <= max(size[0], 26) for width in widths), widths


async def test_a_lost_connection_is_shown_and_returns(project: Project) -> None:
    """While the service is away the screen reports this and keeps its content; later it shows the changes."""
    async with _Line() as line, served.on_a_port(project) as service:
        line.leads_to(service)
        first = await waiting(service)
        async with opened(line.address) as top:
            await top.until(lambda: top.rows("runs") == [first])
            line.cut()
            await top.sees("connection lost")
            assert top.rows("runs") == [first]
            second = await waiting(service)
            line.leads_to(service)
            await top.until(lambda: top.rows("runs") == [second, first])
            await top.until(lambda: "lost" not in top.app.screen.query_one("#status", Static).classes)
            assert "connection lost" not in top.text()


def test_a_live_run_stays_however_many_ended_since() -> None:
    """A run in both lists is shown once, as in the later answer; a run in one of them is shown."""
    old = {"run_id": "a", "created_at": "1", "updated_at": "5", "status": "running"}
    ended = [{"run_id": str(n), "created_at": str(n), "updated_at": "9", "status": "done"} for n in range(2, 5)]
    board = feeds.Board(live=[ended[2] | {"updated_at": "8", "status": "running"}, old], newest=ended[::-1])

    assert [(run["run_id"], run["status"]) for run in board.runs] == [
        ("4", "done"),
        ("3", "done"),
        ("2", "done"),
        ("a", "running"),
    ]


async def test_keys_are_shown(project: Project) -> None:
    """`?` shows the keys, Escape closes them, `q` quits."""
    async with served.on_a_port(project) as service, opened(str(service.http.base_url)) as top:
        await top.press("question_mark")
        await top.sees("approve or deny the gate under the cursor")
        await top.press("escape")
        await top.until(lambda: len(top.app.screen_stack) == 1)
        await top.press("q")
        await top.until(lambda: top.app._exit)


class _Line:
    """A port that forwards to a service, and that a test can cut and restore."""

    def __init__(self) -> None:
        self._target: tuple[str, int] | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> _Line:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()

    def leads_to(self, service: served.Served) -> None:
        """Forward new connections to a service."""
        url = service.http.base_url
        self._target = url.host, url.port or 80

    def cut(self) -> None:
        """End all connections, and accept no more."""
        self._target = None
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._target is None:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back}
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while part := await source.read(65_536):
            target.write(part)
            await target.drain()
    target.close()


def _yaml(text: str) -> str:
    return text.encode("unicode_escape").decode()
