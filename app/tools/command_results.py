"""Results of commands: make the record and the logs of a program that has ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from app.domain import operations, plain, records, states
from app.processes import commands
from app.tools import captures

DEFAULT_TIMEOUT_SECONDS = 24 * 60 * 60.0  # Wall-clock limit of one try if the operation sets none.

_LAST_WORDS_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a command that has ended."""

    result: records.Result  # Result for its record.
    stdout_log: str  # Text for its log of standard output; empty if it needs none.
    stderr_log: str  # Text for its log of standard error.


def heard(
    operation: operations.Command,
    ended: commands.Ended,
    wanted: captures.Rules | None,
    masker: plain.Masker,
    env_count: int,
    attempt: int,
) -> Report:
    """Prepare the outputs of a command, and make its result.

    Args:
        wanted: Rules for standard output; None: the output is kept unchanged.
        attempt: Number of the attempt; the log of a later one replaces what an earlier one may have left.
    """
    logs_all = operation.log is None or attempt > 1
    stderr = said(ended.stderr, operation.output_limit_bytes, masker, at_end=True)
    error = _error(operation, ended, stderr.text)
    facts = _facts(ended, stderr) | {"env_count": env_count}
    if wanted is None:
        stdout = said(ended.stdout, operation.output_limit_bytes, masker, at_end=False)
        output = {"stdout": stdout.text, "stdout_truncated": stdout.truncated, **facts}
        log = stdout.log if logs_all or stdout.truncated else ""
        return Report(result=_result(output, stdout.text, error), stdout_log=log, stderr_log=stderr.log)
    text = whole(ended.stdout, masker, at_end=False)
    made = captures.made_of(ended.stdout, text, _exit_code(ended, error), wanted)
    error = error or _breach(made)
    output = {"captured": dict(made.fields), "stdout_truncated": made.fields["truncated"], **facts}
    if error is not None:
        output |= {"stdout_tail": captures.tail(text), "stderr_tail": captures.tail(stderr.text)}
    log = noted(ended.stdout, text, at_end=False) if logs_all or made.keeps_log else ""
    return Report(result=_result(output, text, error), stdout_log=log, stderr_log=stderr.log)


def _facts(ended: commands.Ended, stderr: CapturedOutput) -> dict[str, plain.Json]:
    return {
        "exit_code": ended.exit_code,
        "signal": None if ended.signal is None else _signal_name(ended.signal),
        "stderr": stderr.text,
        "stdout_bytes": ended.stdout.size_bytes,
        "stderr_bytes": stderr.size_bytes,
        "stderr_truncated": stderr.truncated,
        "leftovers": ended.leftovers,
        "survivors": ended.survivors,
        "cpu_seconds": round(ended.cpu_seconds, 6),
        "peak_bytes": ended.peak_bytes,
    }


def _result(output: dict[str, plain.Json], said: str, error: records.StepError | None) -> records.Result:
    return records.Result(
        status=states.StepState.FAILED if error else states.StepState.DONE,
        output=output,
        summary=plain.preview(error.message if error else said or f"exit code {output['exit_code']}"),
        error=error,
    )


def _exit_code(ended: commands.Ended, error: records.StepError | None) -> int:
    return 0 if error is None else ended.exit_code or 1


def _breach(made: captures.Captured) -> records.StepError | None:
    if made.message is None:
        return None
    detail = {"context": dict(made.context), "exit_code": made.exit_code}
    return records.StepError(code="output_invalid", message=made.message, detail=detail)


def _error(operation: operations.Command, ended: commands.Ended, said: str) -> records.StepError | None:
    # Check limits before signals and exit codes: a program that was stopped at a limit has those, too.
    program = operation.argv[0]
    if ended.cause == "timeout":
        limit = operation.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        message = f"The command {program!r:.100} did not end within {limit:g} seconds."
        return records.StepError(code="timeout", message=message, detail={"timeout_seconds": limit})
    if ended.cause == "idle":
        message = f"The command {program!r:.100} wrote nothing for {operation.idle_seconds:g} seconds."
        return records.StepError(code="idle", message=message, detail={"idle_seconds": operation.idle_seconds})
    if ended.cause == "output":
        message = f"The command {program!r:.100} wrote more than {commands.CAP_BYTES} bytes."
        return records.StepError(code="output_too_large", message=message, detail={"limit_bytes": commands.CAP_BYTES})
    if ended.exit_code in operation.exit_codes:
        return None
    if ended.signal is not None:
        name = _signal_name(ended.signal)
        message = f"The command {program!r:.100} was ended by {name}."
        return records.StepError(code="signal", message=message, detail={"signal": name, "number": ended.signal})
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    reason = f": {lines[-1]:.{_LAST_WORDS_CHARACTERS}}" if lines else "."
    message = f"The command {program!r:.100} ended with exit code {ended.exit_code}{reason}"
    return records.StepError(code="exit_code", message=message, detail={"exit_code": ended.exit_code})


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedOutput:
    """One output, prepared for record and log."""

    text: str  # Part for the record, up to the operation's limit.
    log: str  # All that was kept, for the log; empty without output.
    size_bytes: int  # Its full size.
    truncated: bool  # Whether the record has only a part of it.


def said(output: commands.Output, limit_bytes: int, masker: plain.Masker, *, at_end: bool) -> CapturedOutput:
    """Prepare an output: mask the kept part first, and cut it afterwards."""
    text = whole(output, masker, at_end=at_end)
    encoded = text.encode()
    kept = encoded[max(len(encoded) - limit_bytes, 0) :] if at_end else encoded[:limit_bytes]
    return CapturedOutput(
        text=text if len(kept) == len(encoded) else kept.decode(errors="ignore"),
        log=noted(output, text, at_end=at_end),
        size_bytes=output.size_bytes,
        truncated=len(kept) < len(encoded) or len(output.content) < output.size_bytes,
    )


def whole(output: commands.Output, masker: plain.Masker, *, at_end: bool) -> str:
    """Return the whole kept part of an output, masked."""
    text = output.content.decode(errors="replace")
    if len(output.content) < output.size_bytes:
        return masker.mask_held(text, at_end=at_end)
    masked: str = masker.mask(text)
    return masked


def noted(output: commands.Output, text: str, *, at_end: bool) -> str:
    """Return the text of an output for a log, with a note of the number of missing bytes."""
    missing = output.size_bytes - len(output.content)
    if missing <= 0:
        return text
    note = f"[{missing} bytes are not kept]"
    return f"{note}\n{text}" if at_end else f"{text}\n{note}\n"
