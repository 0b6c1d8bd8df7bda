"""Step flow: perform the operations of one step in order, until it has a result."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from app.dialects.orchestrate import dependencies, frames, providers, results, steps, variables
from app.domain import file_operations, operations, plain, records
from app.engine import ports

CURRENT_VERSION = 3
"""First version of the driver in which calls of providers count as calls of agents, and `on.always` of a loop handles
its failure.
"""
SECOND_VERSION = 2
"""First version of the driver in which parameters are merged within objects, names in patterns may contain wildcards,
waits and leftover processes are reported, and loops refuse lists that were cut off.
"""
WAITING, LEFT_BEHIND, UNMOVED = "waiting", "left_behind", "unmoved"  # Names of notes, after the key of their step.

_VALUE_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The place and state of a step's execution."""

    key: str  # Its key.
    place: records.Place  # Its place.
    scope: variables.Scope  # Values of variables.
    running: dict[str, plain.Json] = field(default_factory=dict)  # State shown for the step while it runs.


@dataclass(slots=True, kw_only=True)
class StepResult:
    """The result of a step."""

    records: list[records.Record] = field(default_factory=list)  # Records of its operations, in order.
    result: plain.Object = field(default_factory=dict)  # Its fields in the state.
    exit_code: int | None = None  # Its exit code; None if it was skipped.
    decided: int = 0  # Number of its first records that decided that it runs.

    def causes(self) -> list[str]:
        """Return the keys that a resume repeats: the step with its lookups, but not the decision that it runs."""
        # The failed step may have left a file behind that its condition excludes: the resume would skip it.
        return [record.key for record in self.records[self.decided :]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    required: Sequence[str] = ()
    optional: Sequence[str] = ()
    fitting: Mapping[str, Sequence[str]] = field(default_factory=dict)


class _Stopped(Exception):
    """The step has its result before its own operation was performed."""


async def execute(ctx: ports.Context, step: plain.Object, spot: Spot) -> StepResult:
    """Execute a step that is not a loop; a failure is also a result."""
    execution = _Execution(ctx, step, spot)
    try:
        await execution.look_at_condition()
        await execution.look_at_needs()
        await (execution.wait() if "wait_for" in step else execution.call())
    except _Stopped:
        pass
    return execution.step_result


async def enter(ctx: ports.Context, step: plain.Object, spot: Spot) -> tuple[StepResult, Sequence[plain.Json] | None]:
    """Check the requirements of a loop, and return its items; None if it is skipped or cannot begin."""
    execution = _Execution(ctx, step, spot)
    try:
        await execution.look_at_condition()
        await execution.look_at_needs()
        return execution.step_result, await execution.items()
    except _Stopped:
        return execution.step_result, None


class _Execution:
    def __init__(self, ctx: ports.Context, step: plain.Object, spot: Spot) -> None:
        self._ctx = ctx
        self._step = step
        self._spot = spot
        self._filler = variables.Filler(spot.scope)
        self._needs = _Needs()
        self._is_second = ctx.run.driver_version >= SECOND_VERSION
        self._injected: plain.Object = {}
        self.step_result = StepResult()

    # -- before the step's own operation

    async def look_at_condition(self) -> None:
        if "when" not in self._step:
            return
        condition = steps.read(self._step["when"], self._filler)
        await self._refuse_gaps()
        found = await self._find("when", condition.patterns)
        if condition.holds({pattern: len(listed) for pattern, listed in found.items()}):
            self.step_result.decided = len(self.step_result.records)
            return
        detail = {"when": self._filler.value(self._step["when"])}
        reason = f"the condition of {self._step['name']} does not hold"
        await self._perform(self._spot.key, operations.Skip(reason=reason, detail=detail))
        self.step_result.result = results.skipped()
        raise _Stopped

    async def look_at_needs(self) -> None:
        declared = self._step.get("depends_on", {})
        required, optional = (
            [self._filler.pattern(pattern) for pattern in declared.get(kind, ())] for kind in ("required", "optional")
        )
        await self._refuse_gaps()
        fitting = await self._find("files", tuple(dict.fromkeys([*required, *optional])))
        if absent := dependencies.missing(required, fitting):
            message = f"files are missing that the step needs: {', '.join(absent)}"
            await self._refuse("missing_dependencies", message, {"failed_deps": absent})
        self._needs = _Needs(required=required, optional=optional, fitting=fitting)

    async def items(self) -> Sequence[plain.Json]:
        loop = self._step["for_each"]
        if "items" in loop:
            listed: Sequence[plain.Json] = loop["items"]
            return listed
        found = variables.items(loop["items_from"], self._spot.scope, whole=self._is_second)
        if isinstance(found, variables.Gap):
            context = {"invalid_reference": [{"reference": found.name, "reason": found.reason}]}
            await self._refuse("invalid_reference", f"{found.name} {found.reason}", context)
        return found

    # -- the step's own operation

    async def wait(self) -> None:
        wanted = self._step["wait_for"]
        pattern = self._filler.pattern(wanted["glob"])
        await self._refuse_gaps()
        await self._refuse_unsafe([pattern], pattern=True)
        self._emit_wait(pattern, wanted)
        requested = file_operations.WaitForFiles(
            pattern=pattern,
            literal=self._filler.literals.get(pattern) if self._is_second else None,
            min_count=wanted["min_count"],
            poll_ms=wanted["poll_ms"],
            timeout_seconds=wanted["timeout_sec"],
            retry=self._retry(),
        )
        output = await self._perform(self._spot.key, requested)
        self._finish(results.of_wait(self.step_result.records, output or {}))

    def _emit_wait(self, pattern: str, wanted: plain.Object) -> None:
        facts = {"waits_for": pattern, "min_count": wanted["min_count"], "timeout_sec": wanted["timeout_sec"]}
        self._spot.running.update(facts)
        if self._is_second:
            self._ctx.emit(f"{self._spot.key}.{WAITING}", facts)

    async def call(self) -> None:
        prompt = await self._prompt()
        called = await (self._provider(prompt) if "provider" in self._step else self._argv(prompt))
        command = await self._command(called)
        traced = bool(self._ctx.run.options.get("debug"))
        notes = _trace(self._step, self._spot.scope, command, self._needs.fitting, prompt) if traced else {}
        output = await self._perform(self._spot.key, command, notes) or {}
        provides = "provider" in self._step
        made = results.of_command(self.step_result.records, output, called.argv, provides=provides)
        reported = _debugged(self._ctx.run.working_dir, called, output) if traced else {}
        if self._is_second and (left := results.left_behind(output)):
            self._ctx.emit(f"{self._spot.key}.{LEFT_BEHIND}", left)
        self._finish(made, {**self._injected, **reported})

    async def _prompt(self) -> str:
        path = await self._path("input_file")
        wanted = dependencies.injection(self._step.get("depends_on"))
        params = dependencies.files(self._needs.required, self._needs.optional, self._needs.fitting)
        quoted = tuple(params) if wanted.mode == dependencies.CONTENT else ()
        read: Mapping[str, Any] = {}
        if path is not None or quoted:
            requested = file_operations.ReadFiles(paths=(path,) if path else (), excerpts=quoted)
            read = (await self._ask("input", requested))["files"]
        text = "" if path is None else read[path]["text"]
        composed = dependencies.composed(text, wanted, dependencies.excerpts(params, read))
        injection = {} if composed.truncation is None else {"injection": composed.truncation}
        self._injected = {**injection, **dependencies.altered(read)}
        return composed.prompt

    async def _argv(self, prompt: str) -> providers.Invocation:
        argv = tuple(map(self._filler.text, self._step["command"]))
        await self._refuse_gaps()
        stdin = prompt if "input_file" in self._step else None
        return providers.Invocation(argv=argv, stdin=stdin, ignored=(), prompt_in_argv=False)

    async def _provider(self, prompt: str) -> providers.Invocation:
        name, params = self._step["provider"], self._step.get("provider_params", {})
        template = self._ctx.run.recipe["providers"][name]
        called = providers.invocation(template, params, prompt, self._spot.scope, deep=self._is_second)
        if isinstance(called, providers.Refused):
            await self._refuse("invalid_provider_call", called.message, called.context)
        if (problem := providers.problem_of_length(called, prompt)) is not None:
            await self._refuse("prompt_too_large", f"{problem} for the provider {name}", {"prompt_too_large": name})
        return called

    async def _command(self, called: providers.Invocation) -> operations.Command:
        step = self._step
        output_file, schema_file = await self._path("output_file"), await self._path("output_schema")
        if (
            output_file
            and (problem := dependencies.problem_of_target(output_file, self._spot.scope.run["root"])) is not None
        ):
            await self._refuse_path(output_file, problem)
        capture = operations.Capture(
            mode=step["output_capture"],
            allow_parse_error=step["allow_parse_error"],
            schema_file=schema_file,
            require=tuple(step.get("output_require", ())),
        )
        return operations.Command(
            argv=called.argv,
            env=step.get("env", {}),
            secrets=tuple(step.get("secrets", ())),
            stdin=called.stdin,
            output_file=output_file,
            capture=capture,
            provider=step.get("provider") if self._ctx.run.driver_version >= CURRENT_VERSION else None,
            log=self._spot.key,
            timeout_seconds=step.get("timeout_sec"),
            idle_seconds=step.get("idle_seconds"),
            retry=self._retry(),
        )

    def _retry(self) -> operations.RetryPolicy | None:
        options = self._ctx.run.options
        return frames.retries(self._step, options.get("max_retries", 0), options.get("retry_delay_ms", 0)).policy()

    def _finish(self, result: plain.Object, debug: plain.Object | None = None) -> None:
        noted = {**result.get("debug", {}), **(debug or {})}
        self.step_result.result = {**result, "debug": noted} if noted else result
        self.step_result.exit_code = results.exit_code(self.step_result.records[-1])

    # -- lookups and refusals

    async def _find(self, name: str, patterns: Sequence[str]) -> Mapping[str, Sequence[str]]:
        if not patterns:
            return {}
        await self._refuse_unsafe(patterns, pattern=True)
        # A value may contain wildcard characters: a file of exactly that name has precedence over a match.
        literals = {text: self._filler.literals.get(text, text) if self._is_second else text for text in patterns}
        requested = tuple(dict.fromkeys(pattern for text in patterns for pattern in (literals[text], text)))
        output = await self._ask(name, file_operations.FindFiles(patterns=requested))
        found: Mapping[str, Sequence[str]] = output["found"]
        return {text: found[literals[text]] or found[text] for text in patterns}

    async def _path(self, name: str) -> str | None:
        if name not in self._step:
            return None
        path = self._filler.text(self._step[name])
        await self._refuse_gaps()
        await self._refuse_unsafe([path])
        return path

    async def _refuse_unsafe(self, named: Sequence[str], *, pattern: bool = False) -> None:
        for path in named:
            if (problem := dependencies.problem(path, pattern=pattern)) is not None:
                await self._refuse_path(path, problem)

    async def _refuse_path(self, path: str, problem: str) -> NoReturn:
        await self._refuse("unsafe_path", f"the path {path!r:.200} {problem}", {"unsafe_path": path[:1000]})

    async def _refuse_gaps(self) -> None:
        if gaps := self._filler.gaps:
            message = f"${{{gaps[0].name}}} is undefined: {gaps[0].reason}"
            await self._refuse("undefined_vars", message, variables.error_context(gaps))

    async def _refuse(self, code: str, message: str, context: plain.Object) -> NoReturn:
        await self._perform(self._spot.key, operations.Refusal(code=code, message=message, detail=context))
        self._stop()

    async def _ask(self, name: str, operation: operations.Operation) -> Any:
        output = await self._perform(f"{self._spot.key}.{name}", operation)
        if self.step_result.records[-1].error is not None:
            self._stop()
        return output

    async def _perform(self, key: str, operation: operations.Operation, notes: Mapping[str, str] | None = None) -> Any:
        place = dataclasses.replace(self._spot.place, notes=notes) if notes else self._spot.place
        record = await self._ctx.perform(key, operation, place)
        self.step_result.records.append(record)
        return record.output if record.blob is None else await self._ctx.read(record.blob)

    def _stop(self) -> NoReturn:
        self._finish(results.of_refusal(self.step_result.records))
        raise _Stopped


def _trace(
    step: plain.Object,
    scope: variables.Scope,
    command: operations.Command,
    fitting: Mapping[str, Sequence[str]],
    prompt: str,
) -> dict[str, str]:
    reported = {
        "variables": {name: _value(name, scope) for name in dict.fromkeys(_names_in(step))},
        "dependencies": {pattern: list(found) for pattern, found in fitting.items()},
        "command": results.shown(command.argv),
        "input_file": step.get("input_file"),
        "output_file": command.output_file,
        "env": sorted(command.env),
        "secrets": list(command.secrets),
    }
    texts = {"debug": json.dumps(reported, indent=2, ensure_ascii=False) + "\n"}
    return {**texts, "prompt.txt": prompt} if prompt else texts


def _debugged(working_dir: str, called: providers.Invocation, output: plain.Object) -> plain.Object:
    reported: dict[str, plain.Json] = {"command": results.shown(called.argv), "cwd": working_dir}
    if called.ignored:
        reported["ignored_params"] = list(called.ignored)
    return reported | ({"env_count": output["env_count"]} if "env_count" in output else {})


def _value(name: str, scope: variables.Scope) -> plain.Json:
    found = variables.resolved(name, scope)
    return None if isinstance(found, variables.Gap) else variables.written(found)[:_VALUE_CHARACTERS]


def _names_in(template: plain.Json) -> Iterator[str]:
    match template:
        case str():
            yield from variables.names(template)
        case Mapping():
            for part in template.values():
                yield from _names_in(part)
        case list() | tuple():
            for part in template:
                yield from _names_in(part)
