"""Providers: make a command from a template, parameters and a prompt (workflow-dsl, provider execution model)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from app.dialects.orchestrate import variables
from app.domain import plain

STDIN = "stdin"  # Input mode that sends the prompt to the program's standard input.
ARGV_BYTES = 100_000  # Longest prompt that can be an argument.

BUILT_IN: Mapping[str, plain.Object] = {
    "claude": {
        "command": ["claude", "-p", "${PROMPT}", "--model", "${model}"],
        "input_mode": "argv",
        "defaults": {"model": "claude-sonnet-4-20250514"},
    },
    "gemini": {"command": ["gemini", "-p", "${PROMPT}"], "input_mode": "argv"},
    "codex": {"command": ["codex", "exec"], "input_mode": STDIN, "defaults": {"model": "gpt-5"}},
}
"""Providers that need no declaration (workflow-dsl, provider templates); one that a workflow declares replaces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The call of a program."""

    argv: tuple[str, ...]  # Program and arguments.
    stdin: str | None  # Text for its standard input; None: no input.
    ignored: tuple[str, ...]  # Parameters of the step that the template does not name.
    prompt_in_argv: bool  # Whether an argument contains the prompt, whose length is then limited.


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The reason why a program cannot be called."""

    message: str  # One sentence.
    context: plain.Object  # Error context.


def invocation(
    provider: plain.Object, supplied: plain.Object, prompt: str, scope: variables.Scope, *, deep: bool = True
) -> Invocation | Refused:
    """Build a call."""
    by_stdin = provider["input_mode"] == STDIN
    named = [name for token in provider["command"] for name in variables.names(token)]
    if by_stdin and variables.PROMPT in named:
        message = "${PROMPT} is used in the template of a provider that reads its prompt from standard input"
        return Refused(message=message, context={"invalid_prompt_placeholder": [variables.PROMPT]})
    of_params = variables.Filler(scope)
    defaults = provider.get("defaults", {})
    # Parameters first: they may contain variables, and the command uses their values.
    params = of_params.value(_merged(defaults, supplied) if deep else {**defaults, **supplied})
    in_template = variables.Filler(dataclasses.replace(scope, params=params, prompt=None if by_stdin else prompt))
    argv = tuple(map(in_template.text, provider["command"]))
    if of_params.gaps or in_template.gaps:
        return _refused(of_params.gaps, in_template.gaps)
    return Invocation(
        argv=argv,
        stdin=prompt if by_stdin else None,
        ignored=tuple(name for name in supplied if not _uses(named, name)),
        prompt_in_argv=variables.PROMPT in named,
    )


def problem_of_length(called: Invocation, prompt: str) -> str | None:
    """Return the reason why a prompt cannot be an argument, None if it can or need not be one."""
    size = len(prompt.encode(errors="replace")) if called.prompt_in_argv else 0
    if size <= ARGV_BYTES:
        return None
    return f"the prompt has {size} bytes, and an argument at most {ARGV_BYTES}; declare `input_mode: stdin`"


def _merged(defaults: plain.Object, supplied: plain.Object) -> dict[str, plain.Json]:
    def one(name: str, value: plain.Json) -> plain.Json:
        before = defaults.get(name)
        return _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value

    return {**defaults, **{name: one(name, value) for name, value in supplied.items()}}


def _uses(named: list[str], param: str) -> bool:
    return any(name == param or name.startswith(f"{param}.") for name in named)


def _refused(of_params: tuple[variables.Gap, ...], in_template: tuple[variables.Gap, ...]) -> Refused:
    first = (*in_template, *of_params)[0]
    context = variables.error_context(in_template, template=True) if in_template else {}
    for name, values in variables.error_context(of_params).items():
        context[name] = [*context.get(name, []), *(value for value in values if value not in context.get(name, []))]
    return Refused(message=f"${{{first.name}}} is undefined: {first.reason}", context=context)
