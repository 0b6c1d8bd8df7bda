"""Verdicts: judge a turn by all that a program leaves behind. Its exit code alone is not enough."""

from __future__ import annotations

import itertools
import re
import signal as signals
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from app.agents.programs import results
from app.agents.programs.program import STATUS_CODES, Failure, ParsedOutput, Program
from app.domain import operations, records
from app.engine import agent_ports
from app.processes import launcher_protocol

MOST_REPLY_BYTES = 16 * 1024 * 1024  # Longest reply of a program whose whole output is the reply.

_TAIL_CHARACTERS = 2_000
_REASON_CHARACTERS = 200
_BEGIN_LINES = 1
_TRACEBACK = "Traceback (most recent call last)"  # Begins what Python prints before the exception.
_LOGIN = re.compile(r"not logged in|run /login|invalid api key|no authentication information", re.IGNORECASE)
_STATUS = re.compile(r"(?:status(?: code)?:?|API Error:?|HTTP|error:?) (?:HTTP )?\(?([45]\d\d)\b", re.IGNORECASE)
_ENDED = {129: "SIGHUP", 130: "SIGINT", 137: "SIGKILL", 143: "SIGTERM"}
_LIMITS = {
    "timeout": ("agent_timeout", "did not answer within {:g} seconds", "timeout_seconds"),
    "idle": ("agent_idle", "wrote nothing for {:g} seconds", "idle_seconds"),
    "output": ("output_too_large", "wrote more than {} bytes", "limit_bytes"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """What a program leaves behind."""

    stdout: Iterator[bytes] = field(default_factory=lambda: iter(()))  # Lines of its standard output.
    stderr: bytes = b""  # End of its standard error.
    exit_code: int | None = 0  # Exit code; None if a signal ended it.
    signal: int | None = None  # The signal that ended it.
    cause: launcher_protocol.Cause = ""  # Why it was ended, if this process ended it.
    limits: Mapping[str, float] = field(default_factory=dict)  # The limit of each cause that has one.
    extra: bytes = b""  # The content of its file in the private folder.


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The result of a turn."""

    reply: agent_ports.AgentReply  # The reply, with the reported usage of the turn.
    sums: records.Usage | None  # The reported usage of the whole conversation; None if not reported.


def verdict(program: Program, result: ProcessResult, session_id: str | None = None) -> TurnResult:
    """Return the reply of a turn; without a report of completion, exit code 0 and a normal end, it is an error."""
    complaints = results.plain_text(result.stderr)
    # The first lines are kept for the message in case the output has no event.
    printed = itertools.chain(begun := list(itertools.islice(result.stdout, _BEGIN_LINES)), result.stdout)
    output = _parsed(program, replace(result, stdout=printed), complaints)
    error = (
        _ended(program, result)
        or _reported(program, result, output, complaints)
        or _incomplete(program, output, complaints or _text(begun))
    )
    # Some programs do not know the old conversation, begin a new one, and answer without the past.
    if error is None and session_id is not None and output.session_id not in (None, session_id):
        message = f"{program.label} began another conversation in place of {session_id:.80}."
        error = records.StepError(code="unknown_agent_session", message=message)
    if error is not None:
        facts = {"exit_code": result.exit_code, "stderr": complaints.strip()[-_TAIL_CHARACTERS:], **error.detail}
        error = replace(error, detail={name: fact for name, fact in facts.items() if fact not in (None, "")})
    reply = agent_ports.AgentReply(
        text="" if error else output.text,
        agent_session_id=output.conversation(),
        usage=output.turn.usage(),
        finish=records.LENGTH if output.is_cut_off else None,
        error=error,
    )
    return TurnResult(reply=reply, sums=output.sums.usage())


def _parsed(program: Program, result: ProcessResult, complaints: str) -> ParsedOutput:
    output = ParsedOutput()
    if program.prints_reply_only:
        content = _beginning(result.stdout, MOST_REPLY_BYTES + 1)
        if len(content) > MOST_REPLY_BYTES:
            output.unreadable = f"it has more than {MOST_REPLY_BYTES} bytes"
            return output
        output.text = results.plain_text(content).strip()
        output.complete = bool(output.text)
        return output
    for event in results.events(result.stdout):
        program.parse(event, output)
    for event in results.events([result.extra]):
        program.parse(event, output)
    # Programs write errors before the first event to standard error.
    if output.failure is None and not output.complete and (last := results.last_event(complaints)) is not None:
        program.parse(last, output)
    return output


def _beginning(lines: Iterator[bytes], size_bytes: int) -> bytes:
    # Not joined as a list: a program that prints a short line without end would take twenty times its output.
    content = bytearray()
    for line in lines:
        content += line
        if len(content) >= size_bytes:
            break
    return bytes(content)


def _ended(program: Program, result: ProcessResult) -> records.StepError | None:
    if result.cause in _LIMITS:
        code, what, name = _LIMITS[result.cause]
        limit = result.limits[result.cause]
        detail = {"cause": result.cause, name: limit}
        return records.StepError(code=code, message=f"{program.label} {what.format(limit)}.", detail=detail)
    if result.cause:
        detail = {"cause": result.cause}
        return records.StepError(code="agent_signalled", message=f"{program.label} was ended.", detail=detail)
    if result.signal is not None:
        return _signalled(program, _name(result.signal))
    return None


def _reported(
    program: Program, result: ProcessResult, output: ParsedOutput, complaints: str
) -> records.StepError | None:
    failure = output.failure
    # A reply that was cut off is still a reply; the recipe decides what to do with it.
    if (failure is None and result.exit_code == 0) or (failure and output.is_cut_off and output.text.strip()):
        return None
    # A shell reports in its exit code that a signal ended its child.
    if failure is None and result.exit_code in _ENDED:
        return _signalled(program, _ENDED[result.exit_code])
    words = failure.message if failure else ""
    complaints = complaints if complaints.strip() else f"exit code {result.exit_code}, without a message"
    if _says(program.unknown_session, words, complaints):
        return _failed("unknown_agent_session", f"{program.label} does not know the conversation", failure, complaints)
    if _says(program.used_session, words, complaints):
        return _failed("agent_session_exists", f"{program.label} has that conversation already", failure, complaints)
    if _says(program.empty_reply, words):
        return _failed("empty_reply", f"{program.label} received an empty reply from its model", failure, complaints)
    if output.is_cut_off:
        return _failed("reply_cut_off", f"{program.label} was cut off", failure, complaints)
    status = failure.status if failure and failure.status else _status(words or complaints)
    if status is None and _LOGIN.search(words or complaints):
        status = 401
    if failure is not None and failure.reason == "error_max_budget_usd":
        return _failed(operations.COST_CAP_REACHED, f"{program.label} reached its cap", failure, complaints)
    code = STATUS_CODES.get(status or 0, "agent_error")
    return _failed(code, f"{program.label} failed", failure, complaints, status)


def _says(patterns: tuple[str, ...], *texts: str) -> bool:
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns for text in texts)


def _incomplete(program: Program, output: ParsedOutput, reply_text: str) -> records.StepError | None:
    if output.complete or output.is_cut_off:
        return None
    reason = output.unreadable or _first_line(reply_text) or "it wrote nothing"
    message = f"{program.label} ended without a readable reply: {reason}"
    return records.StepError(code="reply_unreadable", message=message)


def _failed(
    code: str, what: str, failure: Failure | None, complaints: str, status: int | None = None
) -> records.StepError:
    words = failure.message if failure and failure.message else complaints
    reason = failure.reason if failure else None
    detail = {"status": status, "reason": None if reason is None else str(reason)[:_REASON_CHARACTERS]}
    return records.StepError(code=code, message=f"{what}: {_first_line(words) or 'it does not say why'}", detail=detail)


def _signalled(program: Program, name: str) -> records.StepError:
    return records.StepError(
        code="agent_signalled", message=f"{program.label} was ended by {name}.", detail={"signal": name}
    )


def _name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _status(words: str) -> int | None:
    found = _STATUS.search(words)
    return int(found[1]) if found else None


def _text(lines: list[bytes]) -> str:
    return results.plain_text(b"".join(lines))


def _first_line(words: str) -> str:
    lines = [line.strip() for line in words.strip().splitlines() if line.strip()]
    if any(line.startswith(_TRACEBACK) for line in lines):
        return lines[-1][:500]
    return next((line for line in lines if line.lower().startswith("error")), lines[0] if lines else "")[:500]
