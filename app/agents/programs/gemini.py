"""Gemini CLI: takes the id of a new conversation from us; a conversation belongs to its working folder.

It writes its errors on standard error, with an exit code that is the HTTP status modulo 256. After a SIGTERM it ends
with code 0 and says nothing. A first prompt that was cut off is gone on with if its id is known, and sent anew if not.
"""

from __future__ import annotations

import re
from pathlib import Path

from app.agents.programs import results
from app.agents.programs.program import Event, Failure, Invocation, ParsedOutput, Program, Turn, whole, within

_BROKEN_OFF = re.compile(r"loop detected|maximum session turns|execution (stopped|blocked)", re.IGNORECASE)
_POLICY = Path(__file__).with_name("gemini_without_tools.toml")


def _invoke(turn: Turn) -> Invocation:
    form = "json" if turn.config.idle_seconds is None else "stream-json"
    arguments = ["--output-format", form, "--skip-trust", *turn.config.arguments]
    if turn.prompt.tools:
        arguments.append("--yolo")
    else:
        arguments += ["--approval-mode=default", f"--admin-policy={_POLICY}", "--allowed-mcp-server-names=none"]
    if turn.prompt.model is not None:
        arguments += ["--model", turn.prompt.model]
    if turn.session_id is not None:
        arguments += ["--resume" if turn.resumes else "--session-id", turn.session_id]
    return Invocation(arguments=tuple(arguments), stdin=turn.message())


def _hear(event: Event, heard: ParsedOutput) -> None:
    session_id = event.get("session_id")
    if isinstance(session_id, str) and session_id:
        heard.session_id = session_id
    match event.get("type"):
        case None if "error" in event:
            results.hear_error(event, heard)
        case None if "response" in event:
            heard.complete = True
            heard.text = str(event["response"] or "")
            _add_usage(event.get("stats"), heard)
            _hear_warnings(event.get("warnings"), heard)
        case "message" if event.get("role") == "assistant":
            said = str(event.get("content") or "")
            heard.text = heard.text + said if event.get("delta") else said
        case "error" if isinstance(event.get("message"), str) and _BROKEN_OFF.search(event["message"]):
            _hear_warnings([event["message"]], heard)
        case "result":
            heard.complete = True
            _add_usage(event.get("stats"), heard)
            if event.get("status") != "success":
                words = within(event, "error", "message") or event.get("status")
                heard.failure = Failure(message=str(words), reason=within(event, "error", "type"))


def _hear_warnings(warnings: object, heard: ParsedOutput) -> None:
    """Understand why it broke a reply off itself, which it does not call an error."""
    told = [words for words in warnings if isinstance(words, str)] if isinstance(warnings, list) else []
    for words in told:
        if not heard.text.strip() or _BROKEN_OFF.search(words):
            heard.failure = heard.failure or Failure(message=words, reason="broken_off")


def _add_usage(stats: object, heard: ParsedOutput) -> None:
    models = within(stats, "models")
    for model in models.values() if isinstance(models, dict) else ():
        tokens = within(model, "tokens")
        if isinstance(tokens, dict):
            heard.turn.add(tokens.get("prompt"), whole(tokens.get("candidates")) + whole(tokens.get("thoughts")))
    if heard.turn.input_tokens is None:
        heard.turn.add(within(stats, "input_tokens"), within(stats, "output_tokens"))


PROGRAM = Program(
    label="Gemini CLI",
    commands=("gemini",),
    path_variable="GEMINI_CLI_PATH",
    install="npm install -g @google/gemini-cli",
    invoke=_invoke,
    hear=_hear,
    unknown_session=("No previous sessions found", "Invalid session identifier"),
    empty_reply=("model returned an empty response",),
    used_session=(r"Session ID \S+ already exists",),
    variables={"GEMINI_CLI_NO_RELAUNCH": "true"},
    endpoint_variable="GOOGLE_GEMINI_BASE_URL",
    key_variable="GEMINI_API_KEY",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
)
"""How Gemini CLI is spoken with."""
