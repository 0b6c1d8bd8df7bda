"""The answer to a gate: shows the exact content to decide on, the options, a message, and a confirmation."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from app import clock, errors, printable
from app.cli import http_client, use_cases
from app.cli.client import JsonObject
from app.cli.top import columns
from app.services import gates

_SHOWN_CHARACTERS = 20_000


class AnswerScreen(ModalScreen[None]):
    """Screen for answering a gate; it stays open until the service has the answer.

    Args:
        decision: Option that is selected at first; None: none.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "confirm", "Confirm"),
        Binding("up", "move(-1)", "Option above"),
        Binding("down", "move(1)", "Option below"),
        Binding("pageup", "scroll(-1)", "Read", show=False),
        Binding("pagedown", "scroll(1)", "Read", show=False),
        Binding("escape", "dismiss", "Back"),
    ]
    AUTO_FOCUS = "#message"

    def __init__(self, client: http_client.HttpClient, gate: JsonObject, decision: str | None) -> None:
        super().__init__()
        self._client = client
        self._gate = gate
        self._decision = decision
        # If the answer is sent again after a lost connection, it counts once.
        self._key = clock.RandomIds().token("top_")

    def compose(self) -> ComposeResult:
        """Show the question, its options, and room for a message."""
        gate = self._gate
        with Vertical(id="answer"):
            yield Static(Text(columns.line(f"{gate['recipe_id']} · {gate['key']} · {gate['run_id']}")))
            with VerticalScroll(id="prompt", can_focus=False):
                yield Static(Text(_content(gate)))
            yield OptionList(*(Option(Text(columns.line(option))) for option in gate["options"]), id="options")
            yield Input(placeholder="message (optional)", max_length=gates.MESSAGE_CHARACTERS, id="message")
            yield Static(id="hint", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Select the requested option."""
        options = self.query_one(OptionList)
        options.can_focus = False
        options.highlighted = self._gate["options"].index(self._decision) if self._decision is not None else None
        self._show_hint()

    def action_move(self, by: int) -> None:
        """Select another option."""
        options = self.query_one(OptionList)
        before = options.highlighted
        options.highlighted = (0 if before is None else before + by) % len(self._gate["options"])

    def action_scroll(self, by: int) -> None:
        """Scroll the content."""
        prompt = self.query_one("#prompt", VerticalScroll)
        prompt.scroll_relative(y=by * max(1, prompt.size.height - 1), animate=False)

    @on(OptionList.OptionHighlighted)
    def _chosen(self, event: OptionList.OptionHighlighted) -> None:
        self._decision = self._gate["options"][event.option_index]
        self._show_hint()

    @on(Input.Submitted)
    def action_confirm(self) -> None:
        """Send the answer."""
        if self._decision is None:
            self._show_hint("choose an option with the arrow keys first")
            return
        reply = gates.Reply(
            decision=self._decision,
            message=self.query_one(Input).value,
            shown_sha256=self._gate["shown_sha256"],
            idempotency_key=self._key,
        )
        # On the app's worker: a person who leaves the screen before the service answers still sees the result.
        self.app.run_worker(self._send(reply), group="answer", exclusive=True)

    async def _send(self, reply: gates.Reply) -> None:
        try:
            answered = await self._client.call(use_cases.answer_gate, self._gate["gate_id"], reply)
        except errors.ControlRoomError as error:
            fault = f"{error.message} [{error.code}]"
            if self._is_open():
                self._show_hint(fault)
            else:
                notify(self.app, fault)
            return
        notify(self.app, f"{answered['key']}: {answered['decision']}")
        if self._is_open():
            self.dismiss()

    def _is_open(self) -> bool:
        return self in self.app.screen_stack

    def _show_hint(self, fault: str | None = None) -> None:
        hint = f"Enter answers {self._decision!r}, for good" if self._decision is not None else "choose an option"
        whole = f"{hint}; up and down choose, Escape goes back"
        self.query_one("#hint", Static).update(Text(columns.line(fault or whole)))


def notify(app: App[None], line: str) -> None:
    """Show a line for a moment, unless the program ends."""
    if app.is_running:
        app.notify(columns.line(line), markup=False)


def _content(gate: JsonObject) -> str:
    """Return the content to decide on, as text."""
    parts = gate.get("shown") or ()
    # If a part was cut, only the prompt is complete.
    whole = not parts or any(part["truncated"] for part in parts)
    text = printable.visible(str(gate["prompt"]) if whole else "\n\n".join(part["text"] for part in parts))
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}…\n(cut here; `control-room gates show {gate['gate_id']}` shows all of it)"
