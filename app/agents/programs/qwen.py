"""Qwen Code: takes our id for a new conversation, and ends with one result record in an array.

A first prompt that was cut off is continued if its id is known, and sent anew if not.
"""

from __future__ import annotations

from app.agents.programs import results
from app.agents.programs.program import Invocation, Program, Turn, arguments, as_words

_REMAINING_TOOLS = (
    "agent,cron_create,cron_delete,cron_list,enter_worktree,exit_worktree,get_goal,list_agents,loop_wakeup,"
    "record_artifact,report_findings,send_message,skill,task_stop,tool_call,tool_search,update_goal"
)
# An empty list of core tools still allows the tools outside the core, so those are excluded by name.
_WITHOUT_TOOLS = (
    "--core-tools", "none", "--exclude-tools", _REMAINING_TOOLS, "--allowed-mcp-server-names", "none",
    "--approval-mode", "default",
)  # fmt: skip


def _invoke(turn: Turn) -> Invocation:
    # If the option is given twice, Qwen Code ends at once and only prints its usage.
    chosen = any(argument.partition("=")[0] == "--auth-type" for argument in turn.config.arguments)
    service = [] if chosen or turn.config.base_url is None else ["--auth-type", "openai"]
    form = ("--output-format", "json" if turn.config.idle_seconds is None else "stream-json")
    listed = arguments(turn, service, tools=("--yolo", *form), without=(*_WITHOUT_TOOLS, *form))
    return Invocation(arguments=tuple(listed), stdin=as_words(turn.message()))


PROGRAM = Program(
    label="Qwen Code",
    commands=("qwen",),
    path_variable="QWEN_CLI_PATH",
    install="npm install -g @qwen-code/qwen-code",
    invoke=_invoke,
    parse=results.parse_sums,
    unknown_session=("No saved session found with ID",),
    used_session=(r"Session ID \S+ already exists",),
    variables={"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"},
    endpoint_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    keys=("BAILIAN_CODING_PLAN_API_KEY", "DASHSCOPE_API_KEY", "OPENAI_API_KEY"),
    limit_variable="QWEN_CODE_MAX_OUTPUT_TOKENS",
)
"""How the backend calls Qwen Code."""
