"""Gemini CLI: takes our id for a new conversation; a conversation belongs to its working folder.

It writes its errors to standard error, with an exit code that is the HTTP status modulo 256. After a SIGTERM it ends
with code 0 and no message. A first prompt that was cut off is continued if its id is known, and sent anew if not.
"""

from __future__ import annotations

import re
from pathlib import Path

from app.agents.programs import results
from app.agents.programs.program import (
    Event,
    Failure,
    Invocation,
    ParsedOutput,
    Program,
    Turn,
    arguments,
    counted,
    within,
)
from app.domain import json_text

_BROKEN_OFF = re.compile(r"loop detected|maximum session turns|execution (stopped|blocked)", re.IGNORECASE)
_POLICY = Path(__file__).with_name("gemini_without_tools.toml")


def _invoke(turn: Turn) -> Invocation:
    form = "json" if turn.config.idle_seconds is None else "stream-json"
    without = ("--approval-mode=default", f"--admin-policy={_POLICY}", "--allowed-mcp-server-names=none")
    leading = ("--output-format", form, "--skip-trust")
    return Invocation(
        arguments=tuple(arguments(turn, leading, tools=("--yolo",), without=without)), stdin=turn.message()
    )


def _parse(event: Event, output: ParsedOutput) -> None:
    session_id = event.get("session_id")
    if isinstance(session_id, str) and session_id:
        output.session_id = session_id
    match event.get("type"):
        case None if "error" in event:
            results.parse_error(event, output)
        case None if "response" in event:
            output.complete = True
            output.text = str(event["response"] or "")
            _add_usage(event.get("stats"), output)
            _parse_warnings(event.get("warnings"), output)
        case "message" if event.get("role") == "assistant":
            reply_text = str(event.get("content") or "")
            # Only the end of the text so far can be half of a character.
            begun, end = (output.text[:-1], output.text[-1:]) if event.get("delta") else ("", "")
            output.text = begun + json_text.joined((end, reply_text))
        case "tool_use":
            # Text before a tool call is not a part of the answer; the program's other output format omits it.
            output.text = ""
        # Gemini CLI reports a broken-off reply as an error of the stream, and then reports success.
        case "error" if isinstance(event.get("message"), str) and _BROKEN_OFF.search(event["message"]):
            _parse_warnings([event["message"]], output)
        case "result":
            output.complete = True
            _add_usage(event.get("stats"), output)
            if event.get("status") != "success":
                words = within(event, "error", "message") or event.get("status")
                output.failure = Failure(message=str(words), reason=within(event, "error", "type"))


def _parse_warnings(warnings: object, output: ParsedOutput) -> None:
    """Find the reason why Gemini CLI itself broke off a reply; it reports this as a warning, not as an error."""
    reported = [words for words in warnings if isinstance(words, str)] if isinstance(warnings, list) else []
    for words in reported:
        if not output.text.strip() or _BROKEN_OFF.search(words):
            output.failure = output.failure or Failure(message=words, reason="broken_off")


def _add_usage(stats: object, output: ParsedOutput) -> None:
    models = within(stats, "models")
    for model in models.values() if isinstance(models, dict) else ():
        tokens = within(model, "tokens")
        if isinstance(tokens, dict):
            output.turn.add(tokens.get("prompt"), counted(tokens.get("candidates"), tokens.get("thoughts")))
    if output.turn.usage() is None:
        output.turn.add(within(stats, "input_tokens"), within(stats, "output_tokens"))


PROGRAM = Program(
    label="Gemini CLI",
    commands=("gemini",),
    path_variable="GEMINI_CLI_PATH",
    install="npm install -g @google/gemini-cli",
    invoke=_invoke,
    parse=_parse,
    unknown_session=("No previous sessions found", "Invalid session identifier"),
    empty_reply=("model returned an empty response",),
    used_session=(r"Session ID \S+ already exists",),
    variables={"GEMINI_CLI_NO_RELAUNCH": "true"},
    endpoint_variable="GOOGLE_GEMINI_BASE_URL",
    key_variable="GEMINI_API_KEY",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
)
"""How the backend calls Gemini CLI."""
