"""Requests for runs, checked as values before any effect."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from app import errors
from app.domain import concurrency, json_text, operations, plain, records, runs, shapes, states
from app.domain import limits as run_limits
from app.domain.approvals import Approvals
from app.domain.concurrency import Concurrency
from app.domain.limits import NO_LIMITS, RunLimits

SESSION_ID_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$"
"""Form of a session id, which also names a folder of receipts."""

LABEL_NAME_PATTERN = r"^[A-Za-z0-9_./-]{1,64}$"
"""Form of a label's name; it has no colon, which separates name and value in filters."""

LABEL_NAME_FORM = "must be 1 to 64 letters, digits, '_', '.', '/' and '-'"  # The same in words.

SESSION_ID_FORM = "must be 1 to 128 letters, digits, '_', '.' and '-', and not begin with '.'"
"""Form of a session id in words."""

IDEMPOTENCY_KEY_PATTERN = r"^[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$"
"""Form of an idempotency key: at most 255 printable characters."""

OWN_KEYS = ("child:", "plan:", "trigger:")
"""Prefixes of the keys of runs that runs, plans and triggers start; clients must not use them."""


def clients_key(key: str) -> str:
    """Return an idempotency key of a client unchanged.

    Raises:
        ValueError: Control Room uses such keys for the runs that it starts.
    """
    # A caller that guesses such a key could take the place of a run that is about to start, even of one outside of its
    # scope: the trigger, plan or run that starts it would find the caller's run instead.
    if key.startswith(OWN_KEYS):
        raise ValueError(f"must not begin with {' or '.join(OWN_KEYS)}, which Control Room uses itself")
    return key


LABELS = runs.LABELS  # Most labels of a run.
LABEL_CHARACTERS = 256  # Longest value of a label.
DESCRIPTION_CHARACTERS = 20_000  # Longest description.
PRIORITIES = range(-100, 101)  # Priorities; a higher priority starts first.
RUNS_ABOVE = range(1_001)  # Most runs that a request may declare above it.

_SEPARATE = frozenset({"idempotency_key", "owner", "runs_above", "limits", "approvals", "concurrency"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """A requested run."""

    recipe_id: str | None = None  # Recipe to execute; None: the router chooses by the description.
    description: str | None = None  # The task, as text; None: the recipe's label.
    args: Mapping[str, plain.Json] = field(default_factory=dict)
    """Arguments; the recipe's defaults complete them."""
    options: Mapping[str, plain.Json] = field(default_factory=dict)
    """Options of the recipe's language, if it has any."""
    session_id: str | None = None  # Work session; None: the parent's, or a new one.
    session_plan_task_id: int | None = None  # Task of the plan that requests the run.
    working_dir: str | None = None  # Workspace, absolute or below the project; None: the project.
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels for finding the run again.
    priority: int = 0  # -100 to 100; a higher priority starts first.
    limits: RunLimits = NO_LIMITS  # Limits of the run, including the runs that it starts.
    approvals: Approvals | None = None
    """Approvals that gates of the run, and of the runs that it starts, need besides one answer."""
    concurrency: Concurrency | None = None  # Key that limits how many runs of it are under way.
    exclusive: bool = False  # Whether to refuse if a run of the recipe is unfinished.
    exclusive_workspace: bool = False
    """Whether no other run may use the workspace meanwhile; some recipes require this themselves."""
    share_workspace: bool = False  # Whether other runs may use it, no matter what the recipe requires.
    parent_run_id: str | None = None  # Run that requests this one.
    runs_above: int | None = None
    """Number of runs above this one, if its parent may be of another project; None: it is of this one."""
    recipe: plain.Json = None  # Recipe in the request, as an object or as text, if the settings allow it.
    dialect: str = "control_room"  # Language of a recipe in the request.
    idempotency_key: str | None = None  # Key by which a repeated request finds the same run.
    owner: Literal["service", "process"] = "service"  # Owner that continues the run.

    def sha256(self) -> str:
        """Return the hash that distinguishes a repetition from another request with the same key."""
        asked = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name not in _SEPARATE}
        # Requests of earlier releases had none of these, and keep their hash.
        bounds: dict[str, plain.Json] = {"limits": self.limits.to_json()} if self.limits != NO_LIMITS else {}
        bounds |= {"approvals": self.approvals.to_json()} if self.approvals is not None else {}
        if self.concurrency is not None:
            # The caller's key may change before the repetition.
            bounds["concurrency"] = dataclasses.replace(self.concurrency, within=None).to_json()
        return plain.sha256(plain.canonical(asked | bounds))


def times_again(found: Sequence[records.Record], dead: Collection[int], key: str) -> int:
    """Return how often resumes had a step performed once more although it was done, as of a run's journal.

    Args:
        dead: Positions of the lines that resumes have set aside.
    """
    return sum(record.key == key and record.done and record.position in dead for record in found)


def of_child(run: runs.RunStart, key: str, operation: operations.ChildRun, again: int = 0) -> StartRequest:
    """Return the request for the run that a step asks for, in the workspace and with the priority of its own run.

    Args:
        again: As `times_again` returns it.
    """
    return StartRequest(
        recipe_id=operation.recipe_id,
        args=operation.args,
        description=operation.description or None,
        working_dir=run.working_dir,
        priority=run.priority,
        parent_run_id=run.run_id,
        owner=run.owner,
        idempotency_key=runs.child_key(run.run_id, key, again),
    )


def of_other_child(request: StartRequest) -> StartRequest:
    """Return the request of a child with a key of its own, for a step that asked for another one before a resume."""
    return dataclasses.replace(request, idempotency_key=f"{request.idempotency_key}:{request.sha256()[:16]}")


def is_child_of(
    child: runs.RunStart, run: runs.RunStart, key: str, operation: operations.Operation, again: Callable[[str], int]
) -> bool:
    """Return whether a run is the one that an open step of another run asks for.

    Args:
        again: Returns `times_again` of a step of the other run.
    """
    if not isinstance(operation, operations.ChildRun):
        return False
    request = of_child(run, key, operation, again(key))
    if child.idempotency_key == request.idempotency_key:
        return not run.resumed or child.request_sha256 == request.sha256()
    return run.resumed and child.idempotency_key == of_other_child(request).idempotency_key


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest:
    """A request to resume an ended run."""

    from_key: str | None = None  # Step to go back to; None: the causes of the ending.
    args: Mapping[str, plain.Json] | None = None  # Arguments that override those of the run.
    options: Mapping[str, plain.Json] | None = None  # Options that override those of the run.
    current_recipe: bool = False  # Whether the present version of the recipe is frozen for the run.
    new_conversation: bool = False
    """Whether the conversation of the run begins again, from its content in the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(shapes.Shape):
    """State of a run after a request."""

    published_as: ClassVar[str] = "Accepted"

    run_id: shapes.RunId  # Id of the run.
    status: states.RunState
    """State of the run; for a new one `running` if the pool has capacity, otherwise `pending`."""
    reason: str | None = shapes.omitted()
    """Reason for this state, if any: `pausing` until the steps in flight end, `cancelling`, `paused_by_person`,
    `workspace_busy`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked(shapes.Shape):
    """Labels and pin of a run after a change."""

    run_id: shapes.RunId  # Id of the run.
    labels: Mapping[str, str]  # Its labels.
    pinned: bool  # Whether retention keeps the run.


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Moved):
    """Result of a request for a new run."""

    existed: bool = shapes.internal()  # Whether an earlier request with the same idempotency key started it.


def check(request: StartRequest) -> None:
    """Refuse values of the wrong form.

    Raises:
        errors.RequestInvalid: names every flaw.
    """
    flaws = [*_naming_flaws(request), *_task_flaws(request), *_label_flaws(request.labels), *_half_flaws(request)]
    if flaws:
        raise errors.RequestInvalid(flaws[0].message, flaws=flaws)


def check_labels(labels: Mapping[str, str | None]) -> None:
    """Refuse changes of labels of the wrong form; None removes a label.

    Raises:
        errors.RequestInvalid: names every flaw.
    """
    texts = {name: text or "" for name, text in labels.items()}
    halves = [_half_flaw(parts) for parts in json_text.halves({"labels": texts})]
    flaws = [*_label_flaws(texts), *halves]
    if flaws:
        raise errors.RequestInvalid(flaws[0].message, flaws=flaws)


def key_flaws(key: str | None) -> list[errors.Flaw]:
    """Return the flaws of an idempotency key's form."""
    if key is None or re.fullmatch(IDEMPOTENCY_KEY_PATTERN, key):
        return []
    return [_flaw("header.Idempotency-Key", "Idempotency-Key must be 1 to 255 printable ASCII characters")]


def _naming_flaws(request: StartRequest) -> list[errors.Flaw]:
    named = sum(value is not None for value in (request.recipe_id, request.recipe))
    flaws = []
    if named == 2:
        flaws.append(_flaw("$.recipe", "give recipe_id or recipe, not both"))
    if named == 0 and not (request.description or "").strip():
        flaws.append(_flaw("$.recipe_id", "recipe_id or description is required", "missing"))
    if request.exclusive_workspace and request.share_workspace:
        flaws.append(_flaw("$.share_workspace", "give exclusive_workspace or share_workspace, not both"))
    if request.session_id is not None and not re.fullmatch(SESSION_ID_PATTERN, request.session_id):
        flaws.append(_flaw("$.session_id", f"session_id {SESSION_ID_FORM}"))
    return [*flaws, *key_flaws(request.idempotency_key)]


def _task_flaws(request: StartRequest) -> list[errors.Flaw]:
    flaws = []
    if len(request.description or "") > DESCRIPTION_CHARACTERS:
        flaws.append(_flaw("$.description", f"description is longer than {DESCRIPTION_CHARACTERS} characters"))
    if request.priority not in PRIORITIES:
        flaws.append(_flaw("$.priority", "priority must be from -100 to 100"))
    if request.concurrency is not None:
        flaws += concurrency.flaws(request.concurrency)
    return [*flaws, *run_limits.flaws(request.limits)] if request.limits != NO_LIMITS else flaws


def _label_flaws(labels: Mapping[str, str]) -> list[errors.Flaw]:
    flaws = [_flaw("$.labels", f"at most {LABELS} labels are allowed")] if len(labels) > LABELS else []
    for name, value in labels.items():
        place = json_text.json_path(("labels", name[:80]))
        if not re.fullmatch(LABEL_NAME_PATTERN, name):
            flaws.append(_flaw(place, f"a label's name {LABEL_NAME_FORM}"))
        if len(value) > LABEL_CHARACTERS:
            flaws.append(_flaw(place, f"a label's value has at most {LABEL_CHARACTERS} characters"))
    return flaws


def _half_flaws(request: StartRequest) -> list[errors.Flaw]:
    # Bytes of a command line that are not UTF-8 also become such halves.
    given = {"description": request.description, "args": dict(request.args), "labels": dict(request.labels)}
    halves = json_text.halves({name: value for name, value in given.items() if value is not None})
    return [_half_flaw(parts) for parts in halves]


def _half_flaw(parts: tuple[str | int, ...]) -> errors.Flaw:
    return _flaw(json_text.json_path(parts), "holds half of a surrogate pair", "lone_surrogate")


def _flaw(path: str, message: str, code: str = "invalid") -> errors.Flaw:
    return errors.Flaw(path=path, message=message, code=code)


def unchangeable(request: ResumeRequest, recipe_id: str) -> errors.RequestInvalid:
    """Return the error for a resume that changes a run without a recipe file."""
    changes = {
        "args": request.args is not None,
        "options": request.options is not None,
        "recipe": request.current_recipe,
    }
    message = f"a run of {recipe_id} cannot be resumed with changes; start another run instead"
    flaws = [
        errors.Flaw(path=f"$.{name}", code="unchangeable", message="cannot be changed")
        for name, is_changed in changes.items()
        if is_changed
    ]
    return errors.RequestInvalid(message, code="resume_unchangeable", flaws=flaws)
