"""References: how `$ref` and `{{…}}` name a value of the task or of a slot (execution-modes, appendix C)."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from app import errors, printable
from app.domain import json_text, plain, records, slots
from app.engine import ports

TASK = "task"  # Root of the run's task; no slot may have this name.
OUTPUTS = "outputs"  # Below `task`, the paths that the recipe's outputs were written to, by slot.
TASK_FIELDS = ("description", "args", "initial_args", "session_plan_task_id", "run_id", OUTPUTS)
"""Fields of the root `task`; `args` and `initial_args` are the same object."""

WORDING_VERSION = 3  # First driver version with the present wording of failures, which operations contain.

_MAX_CHARACTERS = 500
_SEGMENT = re.compile(r"([^.\[\]{}\x00-\x1f]+)((?:\[[0-9]{1,9}\])*)")
_ARGS = ("args", "initial_args")
OBJECTS = (*_ARGS, OUTPUTS)  # Facts of the task that have parts.


class BrokenReference(errors.StepError):
    """A reference cannot be resolved."""

    default_code = "ref_unresolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A parsed reference."""

    text: str  # Its text in the recipe, e.g. `discovery.matches[0].path`.
    root: str  # `task`, or the name of a slot.
    steps: tuple[str | int, ...]  # Names and positions from the root to the value.

    @property
    def source(self) -> str:
        """Return the name that journal lines give to the source: the slot, `task.description` or `task.args`."""
        if self.root != TASK or not self.steps:
            return self.root
        return f"{TASK}.args" if self.steps[0] in _ARGS else f"{TASK}.{self.steps[0]}"

    @property
    def arg(self) -> str | None:
        """Return the name of the task's argument that is read; None for other values, and for all arguments at once."""
        named = self.root == TASK and len(self.steps) > 1 and self.steps[0] in _ARGS
        return str(self.steps[1]) if named else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A slot with its value."""

    slot: slots.Slot  # The slot as cache.json shows it.
    value: plain.Json  # Payload of a pointer, text of an artifact; None if `blob` has it.
    blob: records.BlobRef | None = None  # Reference to a value over 64 kB.
    looked_at: tuple[str, ...] = ()  # Files and folders that a tool's arguments name.

    @property
    def part(self) -> plain.Json:
        """Return an artifact's text in the form of operations: the text, or `{"blob": …}`."""
        return self.value if self.blob is None else {"blob": self.blob.to_json()}

    @property
    def receipts(self) -> tuple[str, ...]:
        """Return the receipt behind a pointer; none for an artifact."""
        return () if self.slot.receipt_id is None else (self.slot.receipt_id,)


class Values:
    """All values that a run's references can name so far."""

    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._filled: dict[str, Filled] = {}
        self._task: dict[str, plain.Json] = {
            "description": ctx.run.description,
            "args": ctx.run.args,
            "initial_args": ctx.run.args,
            "session_plan_task_id": ctx.run.session_plan_task_id,
            # A fork names files by the run that it began with, which has written them.
            "run_id": ctx.run.root_id,
            OUTPUTS: dict[str, str](),
        }

    def fill(self, name: str, filled: Filled) -> None:
        """Store a slot, and show it."""
        self._filled[name] = filled
        self._ctx.fill(name, filled.slot)

    def wrote(self, slot: str, path: str) -> None:
        """Store the path of the file with a slot's text."""
        self._task[OUTPUTS][slot] = path

    def of(self, name: str) -> Filled:
        """Return a filled slot."""
        return self._filled[name]

    def writers(self, root: str) -> tuple[str, ...]:
        """Return the key of the step that filled a slot; none for `task`."""
        return (self._filled[root].slot.key,) if root in self._filled else ()

    def receipts(self, root: str) -> tuple[str, ...]:
        """Return the receipt behind a slot; none for `task` and for artifacts."""
        return self._filled[root].receipts if root in self._filled else ()

    def is_left_out(self, path: plain.Json) -> bool:
        """Return whether a path is a reference to an argument that was not given."""
        if not isinstance(path, dict):
            return False
        reference = read(path["$ref"])
        named = reference.root == TASK and len(reference.steps) == 2 and reference.steps[0] in ("args", "initial_args")
        return named and reference.steps[1] not in self._ctx.run.args

    def looked_at(self, root: str) -> tuple[str, ...]:
        """Return the files and folders in the arguments of a slot's tool; none for `task` and for artifacts."""
        return self._filled[root].looked_at if root in self._filled else ()

    async def content(self, name: str) -> plain.Json:
        """Return the whole content of a slot: the payload of a pointer, the text of an artifact."""
        filled = self._filled[name]
        return filled.value if filled.blob is None else await self._ctx.read(filled.blob)

    async def follow(self, reference: Reference) -> plain.Json:
        """Return the value of a reference; a reference into an artifact reads its text as JSON."""
        version = self._ctx.run.driver_version
        if reference.root == TASK:
            return follow(reference, self._task, version)
        value = await self.content(reference.root)
        if isinstance(value, str) and reference.steps:
            value = self.parsed(reference, value)
        return follow(reference, value, version)

    def parsed(self, reference: Reference, text: str) -> plain.Json:
        """Return the JSON in an artifact's text, as `parsed` does."""
        return parsed(reference, text, self._ctx.run.driver_version)

    def listed(self, reference: Reference, value: plain.Json) -> list[plain.Json]:
        """Return the list that a reference has led to; it may be the JSON in a text."""
        if isinstance(value, str):
            try:
                value = self.parsed(reference, value)
            except BrokenReference:
                # A text inside of a value need not be JSON, and is not the slot.
                if not reference.steps or self._ctx.run.driver_version < WORDING_VERSION:
                    raise
        if not isinstance(value, list):
            raise broken(reference, reference.text, "it is not a list")
        return value

    async def resolved(self, value: plain.Json) -> plain.Json:
        """Return a value with its `$ref` objects replaced by their values."""
        texts = dict.fromkeys(found["$ref"] for _, found in found_in(value))
        return replaced(value, {text: await self.follow(read(text)) for text in texts})


@functools.lru_cache(maxsize=4096)
def read(text: str) -> Reference:
    """Read a reference."""
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"is longer than {_MAX_CHARACTERS} characters")
    steps: list[str | int] = []
    for segment in text.split("."):
        found = _SEGMENT.fullmatch(segment)
        if found is None or found[1] != found[1].strip():
            raise ValueError(f"has the part {segment!r:.80}, which is not a name that [N] follows")
        steps += [found[1], *(int(number) for number in re.findall("[0-9]+", found[2]))]
    return Reference(text=text, root=str(steps[0]), steps=tuple(steps[1:]))


def follow(reference: Reference, value: plain.Json, version: int = WORDING_VERSION) -> plain.Json:
    """Return the value of a reference, from the value of its root."""
    if value is None:
        raise broken(reference, reference.root, "it is null")
    at = reference.root
    for step in reference.steps:
        place = f"{at}[{step}]" if isinstance(step, int) else f"{at}.{step}"
        problem = _problem(step, value, at, version)
        if problem is not None:
            raise broken(reference, place, problem)
        value, at = value[step], place
        if value is None:
            raise broken(reference, at, "it is null")
    return value


def parsed(reference: Reference, text: str, version: int) -> plain.Json:
    """Return the JSON in an artifact's text; the driver's first version replaced halves of surrogate pairs."""
    try:
        return json_text.read(text, exact=version > 1)
    except errors.InputRefused as error:
        message = error.message if version >= WORDING_VERSION else f"the text {error.flaws[0].message}"
        raise broken(reference, reference.root, message) from error


def broken(reference: Reference, segment: str, problem: str) -> BrokenReference:
    """Return the error of a reference that breaks at a segment."""
    message = f"The reference {reference.text} breaks at {segment}: {problem}."
    return BrokenReference(message, detail={"ref": reference.text, "segment": segment, "problem": problem})


def sources(references: Iterable[Reference]) -> tuple[str, ...]:
    """Return the sources that references read, each once and in order."""
    return tuple(dict.fromkeys(reference.source for reference in references))


def task_problem(reference: Reference, args: Collection[str]) -> tuple[str, str] | None:
    """Return code and message of the flaw of a reference below `task`; None if it resolves."""
    if not reference.steps or reference.steps[0] not in TASK_FIELDS:
        return "unreachable_ref_root", f"{reference.text} names nothing of the task; it has {', '.join(TASK_FIELDS)}"
    if len(reference.steps) > 1 and reference.steps[0] not in OBJECTS:
        return "unreachable_ref_root", f"{reference.text} names a part of {TASK}.{reference.steps[0]}, which has none"
    if reference.arg is not None and reference.arg not in args:
        return (
            "undeclared_arg",
            f"{reference.text} names an argument that the recipe does not declare; add it to args_schema",
        )
    return None


def is_reference(value: plain.Json) -> bool:
    """Return whether a value of a recipe is a `$ref` object."""
    return isinstance(value, dict) and "$ref" in value


def found_in(value: plain.Json, place: json_text.Parts = ()) -> Iterator[tuple[json_text.Parts, plain.Json]]:
    """Yield every `$ref` object inside a value with its place, at any depth."""
    if is_reference(value):
        yield place, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from found_in(item, (*place, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from found_in(item, (*place, index))


def replaced(value: plain.Json, values: plain.Object) -> plain.Json:
    """Return a value with its `$ref` objects replaced by the given values."""
    if is_reference(value):
        return values[value["$ref"]]
    if isinstance(value, dict):
        return {name: replaced(item, values) for name, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, values) for item in value]
    return value


def _problem(step: str | int, value: plain.Json, at: str, version: int) -> str | None:
    match step, value:
        case int(), list():
            count = f"{len(value)} elements" if version < WORDING_VERSION else printable.counted(len(value), "element")
            return None if step < len(value) else f"it does not exist, since {at} has {count}"
        case str(), dict():
            return None if step in value else "it does not exist"
    return f"{at} is not {'a list' if isinstance(step, int) else 'an object'}"


def path_args(document: plain.Object) -> dict[str, bool]:
    """Return the arguments that tools get as paths, or that outputs are written to, and whether a tool reads each."""
    found: dict[str, bool] = {}
    for step in [*document.get("phase_a", ()), *document.get("phase_b", ())]:
        params: plain.Object = (step or {}).get("args") or {}
        for name, value in params.items():
            if name.endswith(("_path", "_paths")) and (arg := _arg_of(value)) is not None:
                is_read = not (name == "scene_path" and params.get("allow_missing_scene"))
                found[arg] = found.get(arg, False) or is_read
    for output in document.get("outputs", ()):
        if (arg := _arg_of(output.get("path"))) is not None:
            found.setdefault(arg, False)
    return found


def _arg_of(value: plain.Json) -> str | None:
    text = value.get("$ref") if isinstance(value, dict) else None
    return read(text).arg if isinstance(text, str) else None
