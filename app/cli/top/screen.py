"""The screen: a summary line, the gates and the runs, kept up to date while it is open."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from app import errors, interruption
from app.cli import asking, browser, use_cases
from app.cli.client import JsonObject
from app.cli.top import KEYS, answering, columns, feeds

_MEANINGS = """\
Steps: finished ones of all; a ? where the recipe can loop. Duration: since a worker took the run, pauses
included. Now: the running step, or why the run stopped. Quiet: time since the running step last wrote
something. Cost: what providers reported; - where none did."""

_TICK_SECONDS = 1.0
_SCROLLBAR = 2


async def watch(source: feeds.Source, server: str) -> None:
    """Show a service until the person quits.

    Raises:
        errors.ControlRoomError: the service cannot be reached, or refuses.
    """
    async with source.client:
        await source.check()
        app = TopApp(source, server)
        loop = asyncio.get_running_loop()
        # If it ended at once, the terminal would keep the state of the screen.
        with interruption.caught(lambda number: loop.call_soon_threadsafe(app.exit)):
            await app.run_async()


class TextScreen(ModalScreen[None]):
    """A text to read; any of its keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark", "dismiss", "Back")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Show the text and the keys."""
        with VerticalScroll(id="text"):
            yield Static(Text(self._text))
        yield Footer(show_command_palette=False)


class TopApp(App[None]):
    """The Textual application."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #status, #summary { height: auto; padding: 0 1; }
    #status.lost { background: $error; color: $text; }
    .heading { padding: 0 1; text-style: bold; }
    #gates { height: auto; max-height: 40%; }
    #runs { height: 1fr; }
    TextScreen, AnswerScreen { align: center middle; }
    #text, #answer { width: 90%; max-width: 110; height: auto; max-height: 90%; border: round $primary; padding: 0 1; }
    #prompt { height: auto; max-height: 60%; }
    #options { height: auto; max-height: 8; border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer('approve')", "Approve"),
        Binding("d", "answer('deny')", "Deny"),
        Binding("enter", "open", "Show", priority=False),
        Binding("o", "browse", "Open page"),
        Binding("question_mark", "keys", "Keys"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, source: feeds.Source, server: str) -> None:
        super().__init__()
        self._source = source
        self._server = server
        self._laid_out = False

    def compose(self) -> ComposeResult:
        """Lay out the lines and the tables."""
        yield Static(id="status", markup=False)
        yield Static(id="summary", markup=False)
        yield Static("Waiting for you", classes="heading", markup=False)
        yield DataTable(id="gates", cursor_type="row", zebra_stripes=False)
        yield Static("Runs", classes="heading", markup=False)
        yield DataTable(id="runs", cursor_type="row", zebra_stripes=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to follow the service."""
        self._laid_out = True
        self._draw()
        for feed in self._source.feeds:
            self.run_worker(self._source.follow(feed, self._draw), name=feed.name)
        self.set_interval(_TICK_SECONDS, self._draw)

    def on_resize(self) -> None:
        """Choose the columns for the new size."""
        self._draw()

    def on_data_table_row_selected(self) -> None:
        """Open the row on which Enter was pressed."""
        self.action_open()

    def action_answer(self, word: str) -> None:
        """Ask for the confirmation of an answer to the gate under the cursor."""
        gate = self._chosen("gates", self._source.board.gates, "gate_id")
        if gate is None:
            self.notify("no gate waits for an answer", markup=False)
            return
        decision, _ = asking.understood(word, gate["options"])
        self.run_worker(self._show_gate(gate, decision))

    def action_open(self) -> None:
        """Show the gate or the run under the cursor."""
        if self._has_focus("gates") and (gate := self._chosen("gates", self._source.board.gates, "gate_id")):
            self.run_worker(self._show_gate(gate, None))
        elif run := self._chosen("runs", self._source.board.runs, "run_id"):
            self.run_worker(self._show_run(run))

    def action_browse(self) -> None:
        """Open the page of the run under the cursor."""
        table = "gates" if self._has_focus("gates") else "runs"
        row = self._chosen(table, getattr(self._source.board, table), "gate_id" if table == "gates" else "run_id")
        if row is not None:
            page = f"{self._server.rstrip('/')}/runs/{row['run_id']}"
            browser.open_page(page, self._show_line)

    def action_keys(self) -> None:
        """Show the keys."""
        self.push_screen(TextScreen(f"{KEYS}\n\n{_MEANINGS}"))

    def _show_line(self, line: str) -> None:
        # From any thread.
        self.call_later(answering.notify, self, line)

    async def _show_gate(self, gate: JsonObject, decision: str | None) -> None:
        try:
            shown = await self._source.client.call(use_cases.show_gate, gate["gate_id"])
        except errors.ControlRoomError as error:
            answering.notify(self, error.message)
            return
        self._open(answering.AnswerScreen(self._source.client, shown, decision))

    async def _show_run(self, run: JsonObject) -> None:
        try:
            shown = await self._source.client.call(use_cases.show_run, run["run_id"])
        except errors.ControlRoomError as error:
            answering.notify(self, error.message)
            return
        self._open(TextScreen(columns.detail(shown)))

    def _open(self, screen: ModalScreen[None]) -> None:
        # The service's answer may arrive while the program ends.
        if self.is_running:
            self.push_screen(screen)

    def _has_focus(self, table: str) -> bool:
        return self.focused is not None and self.focused.id == table

    def _chosen(self, table: str, rows: list[Any], name: str) -> JsonObject | None:
        shown = self.screen_stack[0].query_one(f"#{table}", DataTable)
        if not shown.row_count:
            return None
        key = shown.coordinate_to_cell_key(shown.cursor_coordinate).row_key.value
        return next((row for row in rows if row[name] == key), None)

    def _draw(self) -> None:
        # An answer may arrive before the first screen is composed, and while the program ends: its workers are
        # cancelled only after its screens are removed.
        if not self.is_running or not self._laid_out:
            return
        board, now = self._source.board, self._source.clock.now()
        self._draw_status(board)
        self._fill("gates", columns.GATES, board.gates, "gate_id", now)
        self._fill("runs", columns.RUNS, columns.in_order(board.runs), "run_id", now)

    def _draw_status(self, board: feeds.Board) -> None:
        screen = self.screen_stack[0]
        status, reason = screen.query_one("#status", Static), next(iter(board.lost.values()), None)
        if board.lost_at is None:
            line = f"control-room top · {self._server}"
        else:
            since = columns.seconds(self._source.clock.monotonic() - board.lost_at)
            line = f"connection lost {since} ago, trying again: {reason}"
        status.set_class(board.lost_at is not None, "lost")
        status.update(Text(columns.line(line)))
        screen.query_one("#summary", Static).update(Text(columns.summary(board.stats, board.gates, board.runs)))

    def _fill(self, name: str, known: tuple[columns.Column, ...], rows: list[Any], key: str, now: datetime) -> None:
        """Show rows in a table; the cursor stays on its row."""
        table: DataTable[Text] = self.screen_stack[0].query_one(f"#{name}", DataTable)
        chosen = columns.fitting(known, self.size.width - _SCROLLBAR)
        if [(column.name, width) for column, width in chosen] != [
            (each.key.value, each.width) for each in table.columns.values()
        ]:
            table.clear(columns=True)
            for column, width in chosen:
                heading = Text(column.name, justify="right" if column.right else "left")
                table.add_column(heading, key=column.name, width=width)
        shown = {row[key]: [_cell(column, row, now) for column, _ in chosen] for row in rows}
        if list(shown) != [each.value for each in table.rows]:
            _refill(table, shown)
        for row_key, cells in shown.items():
            for (column, _), cell in zip(chosen, cells, strict=True):
                if table.get_cell(row_key, column.name) != cell:
                    table.update_cell(row_key, column.name, cell)


def _refill(table: DataTable[Text], shown: dict[str, list[Text]]) -> None:
    at = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value if table.row_count else None
    table.clear()
    for row_key, cells in shown.items():
        table.add_row(*cells, key=row_key)
    if at in shown:
        table.move_cursor(row=list(shown).index(at), animate=False)


def _cell(column: columns.Column, row: columns.Row, now: datetime) -> Text:
    # A Text, not a str: the table would parse markup in a str.
    return Text(column.show(row, now), justify="right" if column.right else "left", no_wrap=True, overflow="ellipsis")
