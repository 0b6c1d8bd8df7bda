"""Outputs of runs: slots, and the files that they were written to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from app import errors
from app.domain import plain, slots, task_outputs, views
from app.engine import stores
from app.flows.session_plan import rules
from app.services.recipes import PROJECT_DIALECT
from app.services.runs import Runs

if TYPE_CHECKING:
    from app.dialects.control_room import refs

VALUE_BYTES = 1024 * 1024  # Most bytes of an output as an argument, as JSON.
TOO_LARGE = "task_output_too_large"  # Code of a task whose argument names a larger output.


class RunOutputs:
    """Reads slots of ended runs."""

    def __init__(self, *, runs: Runs, store: stores.RunStore) -> None:
        self._runs = runs
        self._store = store

    async def wanted(self, asked: plain.Object) -> plain.Json:
        """Return one output of a task's run.

        Args:
            asked: `{run_id, task}` with `output` or `path`.

        Raises:
            errors.StepError: `task_output_missing`, `task_output_too_large`.
        """
        from app.dialects.control_room import refs

        field = task_outputs.PATH if task_outputs.PATH in asked else task_outputs.OUTPUT
        read: Callable[[str, str], Awaitable[plain.Json]] = self.path if field == task_outputs.PATH else self.value
        facts = {"task": asked["task"], "run_id": asked["run_id"], field: asked[field]}
        try:
            found = await read(asked["run_id"], asked[field])
        except (errors.NotFound, errors.JournalCorrupt, refs.BrokenReference) as error:
            message = f"the {field} {asked[field]!r:.80} of task {asked['task']} cannot be read: {error.message}"
            advice = "name another one, or retry that task"
            raise errors.StepError(f"{message}; {advice}", code=rules.OUTPUT_MISSING, detail=facts) from error
        size_bytes = len(plain.encode(found))
        if size_bytes > VALUE_BYTES:
            message = f"the {field} {asked[field]!r:.80} of task {asked['task']} has {size_bytes} bytes"
            advice = f"an argument has at most {VALUE_BYTES}; name a part of it, or the path of its file"
            raise errors.StepError(f"{message}; {advice}", code=TOO_LARGE, detail=facts)
        return found

    async def value(self, run_id: str, name: str) -> plain.Json:
        """Return a slot, or a value inside one.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the run does not exist, or is damaged; `slot_not_found`.
            refs.BrokenReference: the place does not exist.
        """
        from app.dialects.control_room import refs

        view = await self._runs.reader.view(run_id)
        if name in view.board.slots:
            return await self.content(view, view.board.slots[name])
        reference = _reference(name)
        if reference is None or reference.root not in view.board.slots:
            there = ", ".join(view.board.slots) or "none"
            raise errors.NotFound(f"run {run_id} has no slot of that name; there are: {there}", code="slot_not_found")
        content: Any = await self.content(view, view.board.slots[reference.root])
        if isinstance(content, str):
            content = refs.parsed(reference, content, refs.WORDING_VERSION)
        return refs.follow(reference, content)

    async def path(self, run_id: str, slot: str) -> str:
        """Return the file to which a slot's text was written.

        Raises:
            errors.NotFound, errors.JournalCorrupt: as `value`; `slot_not_written`.
        """
        written = paths(await self._runs.reader.view(run_id))
        if slot not in written:
            there = ", ".join(written) or "none"
            message = f"run {run_id} has written no file of that slot; there are files of: {there}"
            raise errors.NotFound(message, code="slot_not_written")
        return written[slot]

    async def view(self, run_id: str) -> views.RunView:
        """Return a run's present state.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the run does not exist, or is damaged.
        """
        return await self._runs.reader.view(run_id)

    async def content(self, view: views.RunView, slot: slots.Slot) -> plain.Json:
        """Return the complete content of a slot: the text of an artifact, or the payload of a pointer.

        Raises:
            errors.NotFound: the step that filled it has no output.
        """
        if slot.type == "artifact":
            return slot.text if slot.blob is None else await self._store.read_blob(view.start.run_id, slot.blob)
        # The newest line, since a resume repeats steps.
        lines = [record for record in view.living() if record.key == slot.key and record.done]
        if not lines:
            raise errors.NotFound(f"its step {slot.key} has left nothing", code="slot_not_found")
        blob = lines[-1].blob
        return lines[-1].output if blob is None else await self._store.read_blob(view.start.run_id, blob)


def paths(view: views.RunView) -> dict[str, str]:
    """Return the files to which a run has written its slots, by slot."""
    outputs: Any = view.start.recipe.get("outputs", ()) if view.start.dialect == PROJECT_DIALECT else ()
    slots_by_key = {f"commit.{output['slot']}": output["slot"] for output in outputs}
    committed = [record for record in view.living() if record.done and record.key in slots_by_key]
    return {slots_by_key[record.key]: record.output["path"] for record in committed if isinstance(record.output, dict)}


def _reference(name: str) -> refs.Reference | None:
    from app.dialects.control_room import refs

    try:
        return refs.read(name)
    except ValueError:
        return None
