"""OpenCode: names its conversations itself, in every line that it writes, and has no record that ends a turn.

A first prompt that was cut off is repeated in its conversation if a line of it was seen, and in a new one otherwise.
After a call of a forbidden tool it ends at once, with code 0 and no further text.
"""

from __future__ import annotations

import json

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

_SPEAKER = "control-room-speaker"
_WITHOUT_TOOLS = {"agent": {_SPEAKER: {"mode": "primary", "permission": {"*": "deny"}, "tools": {"*": False}}}}


def _invoke(turn: Turn) -> Invocation:
    env = {}
    if not turn.prompt.tools:
        env["OPENCODE_CONFIG_CONTENT"] = _configuration(turn.environ.get("OPENCODE_CONFIG_CONTENT"))
    leading, without = ("run", "--format", "json"), ("--agent", _SPEAKER)
    listed = arguments(turn, leading, tools=("--auto",), without=without, begin=None, resume="--session")
    if not turn.resumes or turn.session_id is None:
        # Without a title from us, OpenCode asks the model for one, in a call of its own.
        listed += ["--title", f"{turn.prompt.run_id} {turn.prompt.key}"[:100]]
    # OpenCode quotes an argument that contains a space, and adds backslashes to the quotation marks in it.
    return Invocation(arguments=tuple(listed), stdin=turn.message(), env=env)


def _configuration(params: str | None) -> str:
    try:
        document = json.loads(params or "{}")
    except ValueError:
        document = {}
    stored = document if isinstance(document, dict) else {}
    agents = stored.get("agent") if isinstance(stored.get("agent"), dict) else {}
    return json.dumps({**stored, "agent": {**(agents or {}), **_WITHOUT_TOOLS["agent"]}})


def _parse(event: Event, output: ParsedOutput) -> None:
    session_id = event.get("sessionID")
    if isinstance(session_id, str) and session_id:
        output.session_id = session_id
    match event.get("type"):
        case "text":
            output.text = str(within(event, "part", "text") or "")
        case "tool_use":
            # Text before a tool call is not an answer, even if no text follows.
            output.text = ""
        case "step_start":
            # An end in the middle of a later step is not the end of the turn.
            output.complete = output.cut_off = False
        case "step_finish":
            output.complete = True
            reason = within(event, "part", "reason")
            output.cut_off = reason == "length"
            # OpenCode prints the text of such a step before or after its tool calls.
            output.text = "" if reason == "tool-calls" else output.text
            tokens = within(event, "part", "tokens")
            names = (("input",), ("cache", "read"), ("cache", "write"))
            read = counted(*(within(tokens, *name) for name in names))
            written = counted(within(tokens, "output"), within(tokens, "reasoning"))
            # A turn with tools has several steps, and each reports its own figures.
            output.turn.add(read, written, within(event, "part", "cost"))
        case "error":
            error = event.get("error")
            status = within(error, "data", "statusCode")
            output.failure = Failure(
                message=str(within(error, "data", "message") or within(error, "name") or "it does not say why"),
                status=status if isinstance(status, int) else None,
                reason=within(error, "name"),
            )


PROGRAM = Program(
    label="OpenCode",
    commands=("opencode",),
    path_variable="OPENCODE_CLI_PATH",
    known_paths=(".opencode/bin/opencode",),
    install="npm install -g opencode-ai",
    invoke=_invoke,
    parse=_parse,
    names_sessions="it",
    unknown_session=("Session not found",),
    variables={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
    keys=("OPENCODE_API_KEY",),
    names_vendors=True,
    limit_variable="OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX",
)
"""How the backend calls OpenCode."""
