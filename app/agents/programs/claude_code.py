"""Claude Code: takes our id for a new conversation, and ends with one result record.

A first prompt that was cut off may or may not have left a conversation. The backend tries to continue it first: a new
conversation cannot have an id that is in use, and an unknown id costs no call of the model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from app.agents.configuration import BackendConfig
from app.agents.programs import results
from app.agents.programs.program import Invocation, Program, Turn, arguments, as_words
from app.domain import plain

_SYSTEM_FILE = "system.txt"
_LEAST_CAP_USD = 0.000001
_WAYS_OUT = (
    "Claude Code refuses --dangerously-skip-permissions to root. Run the service as another user; or, where it is a"
    " sandbox, set IS_SANDBOX=1 for the service; or name the tools it may use in `allowed_tools` of the backend."
)


def _invoke(turn: Turn) -> Invocation:
    prompt = turn.prompt
    streams = turn.config.idle_seconds is not None
    form = ["stream-json", "--verbose"] if streams else ["json"]
    allowed = turn.config.allowed_tools
    tools = ["--allowedTools", *allowed, "--permission-mode", "dontAsk"]
    listed = arguments(
        turn,
        ["--print", "--output-format", *form],
        tools=tools if allowed else ["--dangerously-skip-permissions"],
        without=["--tools", "", "--permission-mode", "dontAsk", "--strict-mcp-config"],
    )
    files = {}
    # A conversation keeps its first standing instruction, whatever a later prompt sends.
    if prompt.system and turn.folder is not None and not turn.instructed_otherwise:
        files[_SYSTEM_FILE] = prompt.system
        # A file, not an argument: every user of the machine can read arguments.
        listed += ["--append-system-prompt-file", str(turn.folder / _SYSTEM_FILE)]
    if prompt.reply_schema is not None:
        listed += ["--json-schema", plain.canonical(plain.plain(prompt.reply_schema)).decode()]
    if prompt.cap_usd is not None:
        # The program refuses a cap of zero.
        listed += ["--max-budget-usd", f"{max(prompt.cap_usd, _LEAST_CAP_USD):.6f}"]
    message = as_words(turn.message(with_system=not files, with_schema=False))
    return Invocation(arguments=tuple(listed), stdin=message, files=files)


def _refuses(config: BackendConfig, environ: Mapping[str, str]) -> str | None:
    sandboxed = environ.get("IS_SANDBOX") == "1" or environ.get("CLAUDE_CODE_BUBBLEWRAP")
    return None if os.geteuid() != 0 or config.allowed_tools or sandboxed else _WAYS_OUT


PROGRAM = Program(
    label="Claude Code",
    commands=("claude",),
    path_variable="CLAUDE_CLI_PATH",
    known_paths=(".claude/local/claude", ".local/bin/claude"),
    install="npm install -g @anthropic-ai/claude-code",
    invoke=_invoke,
    parse=results.parse,
    refuses=_refuses,
    wants_folder=True,
    unknown_session=("No conversation found with session ID", "does not match any session title"),
    used_session=(r"Session ID \S+ is already in use",),
    models={"haiku": "haiku", "sonnet": "sonnet", "opus": "opus"},
    variables={"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    endpoint_variable="ANTHROPIC_BASE_URL",
    key_variable="ANTHROPIC_API_KEY",
    keys=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_FOUNDRY_API_KEY",
        "AWS_BEARER_TOKEN_BEDROCK",
        "CLAUDE_CODE_CLIENT_KEY",
        "CLAUDE_CODE_OAUTH_TOKEN",
    ),
    limit_variable="CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    caps_cost=True,
    fields=frozenset({"allowed_tools"}),
)
"""How the backend calls Claude Code."""
