"""How a pipeline ends: its outputs, its findings, its definition of done, and the failure of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app import errors, printable
from app.dialects.control_room import prompts, refs
from app.domain import operations, plain, records
from app.engine import ports

SLOT_NOT_NULL = "slot_not_null"
SLOT_FIELD_EQUALS = "slot_field_equals"
FILE_EXISTS = "file_exists"

CLOSE = "dod.close"  # Step that closes the issues of checks that failed before a resume.
CLOSING_VERSION = 2  # First driver version that closes issues.

_TITLE_CHARACTERS = 200
_IN_WORDS = {
    SLOT_NOT_NULL: "the {slot} is there",
    SLOT_FIELD_EQUALS: "the {slot} says what it must",
    FILE_EXISTS: "the file is written",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    index: int  # Position of the check in the recipe.
    check: plain.Object  # The check as the recipe has it.
    problem: str | None  # Reason of its failure; None if it passed.
    causes: tuple[str, ...] = ()  # Keys of the steps that a resume repeats.
    receipts: tuple[str, ...] = ()  # Receipts that prove it.

    @property
    def key(self) -> str:
        """Return the key of the check."""
        return f"dod[{self.index}]"

    @property
    def message(self) -> str:
        """Return the failure in one sentence."""
        return f"{self.key} {self.check['check']}: {self.problem}"


async def commit_outputs(ctx: ports.Context, values: refs.Values) -> None:
    """Write the recipe's `outputs`, except those whose path is an optional argument that is not given."""
    for output in ctx.run.recipe.get("outputs", ()):
        slot, key = output["slot"], f"commit.{output['slot']}"
        if ctx.run.driver_version >= CLOSING_VERSION and values.is_left_out(output["path"]):
            continue
        wanted = [output[name] for name in ("path", "otherwise") if name in output]
        named = [reference for path in wanted for reference in prompts.named_in_path(path)]
        place = place_of(key, slot, *refs.sources(named))
        try:
            paths = [await prompts.path(values, path) for path in wanted]
        except refs.BrokenReference as error:
            raise await refused(ctx, values, key, place, error) from error
        commit = operations.CommitFile(
            path=paths[0],
            text=values.of(slot).part,
            overwrite=output.get("overwrite", False),
            otherwise=paths[1] if len(paths) > 1 else None,
        )
        record = successful(await ctx.perform(key, commit, place))
        values.wrote(slot, record.output["path"] if isinstance(record.output, dict) else paths[0])


async def check(ctx: ports.Context, values: refs.Values) -> None:
    """Evaluate the recipe's `dod`; open an issue per failed check, and close those that a resume has met."""
    checks: Sequence[plain.Object] = ctx.run.recipe.get("dod", ())
    version = ctx.run.driver_version
    results = [await checked(ctx, values, index, requested) for index, requested in enumerate(checks)]
    failed = [result for result in results if result.problem is not None]
    met = tuple(f"{result.key}.issue" for result in results if result.problem is None)
    # Depends on the version: a run must request the operations in its journal, whichever release began it.
    if met and ctx.run.resumed and version >= CLOSING_VERSION:
        successful(await ctx.perform(CLOSE, operations.CloseFailedChecks(keys=met), place_of(CLOSE)))
    issues = [
        await ctx.perform(f"{result.key}.issue", _issue_of_check(result, version), place_of(f"{result.key}.issue"))
        for result in failed
    ]
    if failed:
        raise _failure(ctx, failed, issues)


async def checked(ctx: ports.Context, values: refs.Values, index: int, requested: plain.Object) -> CheckResult:
    """Return the result of one check; the check of a file is a step."""
    if requested["check"] == FILE_EXISTS:
        return await _checked_file(ctx, values, index, requested)
    filled = values.of(requested["slot"])
    return CheckResult(
        index=index,
        check=requested,
        problem=judge(requested, await values.content(requested["slot"]), ctx.run.driver_version),
        causes=(filled.slot.key,),
        receipts=filled.receipts,
    )


def successful(record: records.Record) -> records.Record:
    """Return a record that is done, or raise its failure."""
    if record.done:
        return record
    code, message, detail = "step_failed", record.status.value, {}
    if record.error is not None:
        code, message, detail = record.error.code, record.error.message, dict(record.error.detail)
    raise step_failed(record.key, code, message, detail)


def place_of(key: str, *sources: str) -> records.Place:
    """Return the place of a step after those of the agents."""
    return records.Place(step_id=key, phase="dod", input_slot_refs=tuple(dict.fromkeys(sources)))


async def refused(
    ctx: ports.Context, values: refs.Values, key: str, place: records.Place, error: refs.BrokenReference, **facts: Any
) -> errors.RunFailed:
    """Record that a step's input cannot be built, and return the run's failure.

    The step that filled the slot is a cause as well: only its repetition can repair the reference.
    """
    refusal = operations.Refusal(code=error.code, message=error.message, detail=error.detail, **facts)
    await ctx.perform(key, refusal, place)
    writers = values.writers(refs.read(error.detail["ref"]).root)
    return step_failed(key, error.code, error.message, error.detail, causes=(key, *writers))


def step_failed(
    key: str, code: str, message: str, detail: plain.Object | None = None, causes: Sequence[str] = ()
) -> errors.RunFailed:
    """Return the failure of a run that a failed step ends."""
    return errors.RunFailed(
        f"The step {key} failed: {message}",
        code=code,
        key=key,
        detail=detail,
        causes=causes or (key,),
        reason="step_failed",
    )


def evidence_rejected(record: records.Record, step_id: str, requested: Sequence[str]) -> errors.RunFailed:
    """Return the failure of a run whose agent's evidence is not valid.

    Only another reply can have other evidence, so a resume repeats the prompts too.
    """
    code, message, detail = "evidence_rejected", record.status.value, {}
    if record.error is not None:
        code, message, detail = record.error.code, record.error.message, dict(record.error.detail)
    return errors.RunFailed(
        f"The reply of the step {step_id} was rejected for its evidence: {message}",
        code=code,
        key=record.key,
        detail=detail,
        causes=[*requested, record.key],
        reason="evidence_rejected",
    )


def in_words(checks: Sequence[plain.Object]) -> tuple[str, ...]:
    """Return the requirements of checks, each in a few words for people."""
    words = (_IN_WORDS[each["check"]].format(slot=str(each.get("slot", "")).replace("_", " ")) for each in checks)
    return tuple(dict.fromkeys(words))


def judge(requested: plain.Object, value: plain.Json, version: int = refs.WORDING_VERSION) -> str | None:
    """Return the reason why a slot fails its check, None if it passes.

    Args:
        version: Version of the driver that began the run.
    """
    slot = requested["slot"]
    if requested["check"] == SLOT_NOT_NULL:
        empty = value is None or (isinstance(value, str) and value.strip() in ("", "null"))
        return f"the slot {slot} is empty" if empty else None
    try:
        found = field_of(slot, requested["field"], value, version)
    except refs.BrokenReference as error:
        return error.message
    expected = requested["expected"]
    if same(found, expected):
        return None
    return f"{slot}.{requested['field']} is {_short(found)}, not {_short(expected)}"


def field_of(slot: str, field: str, value: plain.Json, version: int = refs.WORDING_VERSION) -> plain.Json:
    """Return the value at a dot-path inside a slot; it may be JSON null."""
    reference = refs.read(field_path(slot, field))
    if isinstance(value, str):
        value = refs.parsed(reference, value, version)
    try:
        return refs.follow(reference, value, version)
    except refs.BrokenReference as error:
        if error.detail["segment"] == reference.text and error.detail["problem"] == "it is null":
            # At the end of a path, null is a value to compare with; on the way, the path ends at it.
            return None
        raise


def field_path(slot: str, field: str) -> str:
    """Return the reference for a slot and a dot-path inside it."""
    return f"{slot}{field}" if field.startswith("[") else f"{slot}.{field}"


def same(one: plain.Json, other: plain.Json) -> bool:
    """Return whether two JSON values are equal: types count, the order of names does not, 1 and 1.0 are one number."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
        # Booleans first: in Python True equals 1, in JSON it does not.
        case bool(), bool():
            return one is other
        case (bool(), _) | (_, bool()):
            return False
        case ((int() | float()), (int() | float())):
            return one == other
    return type(one) is type(other) and bool(one == other)


async def _checked_file(ctx: ports.Context, values: refs.Values, index: int, requested: plain.Object) -> CheckResult:
    key = f"dod[{index}]"
    place = place_of(key, *refs.sources(prompts.named_in_path(requested["path"])))
    try:
        path = await prompts.path(values, requested["path"])
    except refs.BrokenReference as error:
        failure = await refused(ctx, values, key, place, error)
        return CheckResult(index=index, check=requested, problem=error.message, causes=failure.causes)
    record = await ctx.perform(key, operations.Check(check=FILE_EXISTS, subject=path), place)
    if record.error is not None:
        problem: str | None = record.error.message
    else:
        holds = isinstance(record.output, dict) and record.output.get("holds") is True
        problem = None if holds else f"there is no file {path}"
    return CheckResult(index=index, check=requested, problem=problem, causes=(key,))


def _failure(ctx: ports.Context, failed: Sequence[CheckResult], issues: Sequence[records.Record]) -> errors.RunFailed:
    listed = "; ".join(_clause(result.message, ctx.run.driver_version) for result in failed)
    checks = [
        {
            "key": result.key,
            "check": dict(result.check),
            "message": result.problem,
            "issue": issue.output if issue.done else None,
        }
        for result, issue in zip(failed, issues, strict=True)
    ]
    return errors.RunFailed(
        f"The definition of done is not met, {len(failed)} of {len(ctx.run.recipe['dod'])} checks failed: {listed}.",
        code="dod_failed",
        key=failed[0].key,
        detail={"failed_checks": checks},
        causes=list(dict.fromkeys(cause for result in failed for cause in result.causes)),
    )


def _issue_of_check(result: CheckResult, version: int) -> operations.OpenIssue:
    return operations.OpenIssue(
        title=f"Definition of done: {result.message}"[:_TITLE_CHARACTERS],
        body=f"The check {result.key} of the definition of done failed: {_clause(str(result.problem), version)}.",
        facts={"kind": "dod", "key": result.key, "check": dict(result.check), "message": result.problem},
        receipts=result.receipts,
        severity="error" if version >= CLOSING_VERSION else None,
    )


def _clause(message: str, version: int) -> str:
    return message if version < refs.WORDING_VERSION else printable.clause(message)


def _short(value: plain.Json) -> str:
    return plain.preview(plain.encode(value).decode())
