"""GitHub Copilot CLI: takes our id for a new conversation; token counts are in a separate file.

A first prompt that was cut off is continued if its id is known, and sent anew if not; a new conversation with an id
that is in use silently continues the old one. A turn that a signal ended has exit code 0, so the backend relies on the
program's own report.
"""

from __future__ import annotations

from app.agents.programs.program import Event, Failure, Invocation, ParsedOutput, Program, Turn, arguments, within

_USAGE_FILE = "usage.json"


def _invoke(turn: Turn) -> Invocation:
    leading = (
        "--output-format",
        "json",
        "--no-color",
        "--no-ask-user",
        "--no-auto-update",
        "--disable-client-telemetry",
    )
    usage = () if turn.folder is None else ("--usage-output-file", str(turn.folder / _USAGE_FILE))
    without = (*usage, "--available-tools=none", "--disable-builtin-mcps")
    listed = arguments(turn, leading, tools=(*usage, "--allow-all"), without=without, resume="--resume=")
    return Invocation(arguments=tuple(listed), stdin=turn.message())


def _parse(event: Event, output: ParsedOutput) -> None:
    match event.get("type"):
        case "assistant.message":
            # A message that accompanies a tool call may be empty.
            output.text = str(within(event, "data", "content") or "") or output.text
        case "session.error":
            status = within(event, "data", "statusCode")
            output.failure = Failure(
                message=str(within(event, "data", "message") or "it does not say why"),
                status=status if isinstance(status, int) else None,
                reason=within(event, "data", "errorType"),
            )
        case "assistant.idle" if within(event, "data", "aborted"):
            output.failure = Failure(message="the turn was aborted", reason="aborted")
        case "result":
            output.complete = event.get("exitCode") == 0
            output.session_id = str(event.get("sessionId") or "") or None
        case None if isinstance(event.get("modelMetrics"), dict):
            for model in event["modelMetrics"].values():
                output.sums.add(within(model, "usage", "inputTokens"), within(model, "usage", "outputTokens"))


PROGRAM = Program(
    label="GitHub Copilot CLI",
    commands=("copilot",),
    path_variable="COPILOT_CLI_PATH",
    install="npm install -g @github/copilot",
    invoke=_invoke,
    parse=_parse,
    wants_folder=True,
    more_output=_USAGE_FILE,
    unknown_session=("No session, task, or name matched", "No session or task matched"),
    empty_reply=("No response was returned",),
    variables={"COPILOT_AUTO_UPDATE": "false"},
    endpoint_variable="COPILOT_PROVIDER_BASE_URL",
    key_variable="COPILOT_PROVIDER_API_KEY",
    keys=("COPILOT_GITHUB_TOKEN", "COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BEARER_TOKEN"),
    shares=("GH_TOKEN", "GITHUB_TOKEN"),
    limit_variable="COPILOT_PROVIDER_MAX_OUTPUT_TOKENS",
)
"""How the backend calls GitHub Copilot CLI."""
