"""Calls: build the operation of a step from its fields and the variables at its place."""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.dialects.amplifier import agents, commands, replies, schema, templates
from app.domain import operations, plain, runs

FINAL_OUTPUT = "final_output"  # Slot that holds the result of a run.
COMMAND_TRANSIENT = ("exit_code", "idle", "timeout")
"""Error codes of commands that are retried: a command does not report why it failed."""

_OUTPUT_BYTES = 16 * 1024 * 1024
_ANY_EXIT_CODE = tuple(range(256))


def agent_calls(
    step: plain.Object, run: runs.RunStart, agent: plain.Object, scope: templates.Scope
) -> list[operations.AgentCall]:
    """Return the prompt of a step, once for each way to ask its agent, the preferred one first."""
    prompt_parts = templates.parts(step["prompt"], scope)
    mode = (f"MODE: {step['mode']}\n\n",) if "mode" in step else ()
    # Version 1 did not ask for JSON in words, and its prompts must not change.
    requested = (replies.ASKED,) if step.get("parse_json") and run.driver_version > 1 else ()
    return [
        operations.AgentCall(
            agent_id=voice.agent_id,
            archetype=agent.get("archetype"),
            backend=voice.backend,
            model=voice.model,
            prompt=_joined((*mode, *prompt_parts, *requested)),
            system=voice.system,
            tools=True,
            max_tokens=voice.max_tokens,
            on_cut_off=voice.on_cut_off,
            reply_schema=step.get("reply_schema"),
            timeout_seconds=step.get("timeout", schema.DEFAULT_TIMEOUT),
            idle_seconds=step.get("idle_seconds"),
            retry=retries(step, agents.TRANSIENT) or backoff(run.recipe),
        )
        for voice in agents.voices(agent, step, run.frozen.get("models", {}), drops_model=run.driver_version < 4)
    ]


def command(step: plain.Object, scope: templates.Scope, run: runs.RunStart) -> operations.Command:
    """Return the command of a step; Bash gets values as environment variables, so that it reads none as code.

    Args:
        run: The run; the driver version that began it decides how values are filled in.
    """
    filled = commands.filled_as_first(step["command"]) if run.driver_version == 1 else commands.filled(step["command"])
    values = {variable: templates.written(scope.find(name)) for name, variable in filled.names.items()}
    own = {name: templates.text(text, scope) for name, text in step.get("env", {}).items()}
    return operations.Command(
        argv=("bash", "-c", filled.text),
        cwd=templates.text(step.get("cwd", "."), scope),
        env={**own, **values},
        secrets=tuple(dict.fromkeys((*run.recipe.get("secrets", ()), *step.get("secrets", ())))),
        timeout_seconds=step.get("timeout", schema.DEFAULT_TIMEOUT),
        idle_seconds=step.get("idle_seconds"),
        # If a variable takes the exit code, every exit code is a result.
        exit_codes=_ANY_EXIT_CODE if "output_exit_code" in step else (0,),
        output_limit_bytes=_OUTPUT_BYTES,
        retry=retries(step, COMMAND_TRANSIENT),
    )


def child(step: plain.Object, files: Mapping[str, str], scope: templates.Scope) -> operations.ChildRun:
    """Return the run of another recipe, which gets only the step's `context`."""
    return operations.ChildRun(
        recipe_id=files.get(step["recipe"], step["recipe"]),
        args=templates.filled(step.get("context", {}), scope),
        timeout_seconds=step.get("timeout"),
    )


def result_of_command(output: plain.Object) -> str:
    """Return the output of a command, without the line ends at its end."""
    return re.sub(r"[\r\n]+\Z", "", str(output.get("stdout") or ""))


def result_of_child(output: plain.Object, version: int) -> plain.Json | None:
    """Return the result of a run of another recipe: its `final_output`, otherwise all its variables by name."""
    slots: Mapping[str, plain.Object] = output.get("slots") or {}
    if FINAL_OUTPUT in slots:
        return _of_slot(FINAL_OUTPUT, slots[FINAL_OUTPUT], version)
    return {name: _of_slot(name, slot, version) for name, slot in slots.items()}


def retries(step: plain.Object, codes: tuple[str, ...]) -> operations.RetryPolicy | None:
    """Return the retry policy of a step, or None."""
    params = step.get("retry")
    if params is None:
        return None
    first = float(schema.of("retry", params, "initial_delay"))
    linear = schema.of("retry", params, "backoff") == "linear"
    return operations.RetryPolicy(
        max_attempts=schema.of("retry", params, "max_attempts"),
        codes=codes,
        initial_seconds=first,
        factor=1.0 if linear else 2.0,
        added_seconds=first if linear else 0.0,
        max_seconds=float(schema.of("retry", params, "max_delay")),
    )


def backoff(recipe: plain.Object) -> operations.RetryPolicy | None:
    """Return the policy for repeating prompts that were refused as too many, or None."""
    params = recipe.get("rate_limiting", {}).get("backoff")
    if params is None or params.get("enabled") is False:
        return None
    return operations.RetryPolicy(
        max_attempts=schema.of("backoff", params, "max_attempts"),
        codes=("rate_limited",),
        initial_seconds=schema.of("backoff", params, "initial_delay_ms") / 1000,
        factor=float(schema.of("backoff", params, "multiplier")),
        max_seconds=schema.of("backoff", params, "max_delay_ms") / 1000,
    )


def _joined(parts: tuple[plain.Json, ...]) -> tuple[plain.Json, ...]:
    made: list[plain.Json] = []
    for part in parts:
        if made and isinstance(made[-1], str) and isinstance(part, str):
            made[-1] += part
        else:
            made.append(part)
    return tuple(made) or ("",)


def _of_slot(name: str, slot: plain.Object, version: int) -> plain.Json:
    if slot.get("blob") is not None:
        raise OverflowError(name)
    if slot.get("type") == "pointer" and version > 3:
        return {part: slot.get(part) for part in ("receipt_id", "sha256", "summary")}
    text = str(slot.get("text") or "")
    try:
        # Other languages, and earlier versions, do not report whether a slot's text is data.
        return replies.read(text, slot.get("data"), version)
    except replies.NoData:
        # A secret is masked in the JSON of a slot, too, even if that leaves no JSON.
        return text
