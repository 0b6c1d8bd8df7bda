"""Request bodies: bounded in size, strict JSON, strict in types and names; the use cases check what the values mean."""

from __future__ import annotations

import asyncio
import functools
import re
from email import message
from typing import Annotated, Any
from urllib.parse import parse_qs

from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.types import Message, Receive, Scope

from app import errors
from app.api import callers, problems, refusals
from app.domain import approvals, concurrency, json_text, limits, plain
from app.services import requests
from app.services.triggers import pointers

DRAINED_BYTES = 64 * 1024 * 1024
"""Bytes of a too large body that are read and dropped, so that the client gets an answer instead of a reset."""

MOST_VALUES = 50_000  # Most values of a body: elements of lists and fields of objects.

MOST_TYPED = 5_000
"""Most values outside of recipes and arguments; each of these can have a wrong form."""

CHECKED_AT_ONCE = 16 * 1024  # Length of a body that is checked on the loop.

_FREE_FIELDS = frozenset({"args", "options", "recipe"})
_MANY = f"holds more than {MOST_TYPED} values"
_GONE = -1
_MOST_FIELDS = 10
_NULL = errors.RequestInvalid(
    "$: must be an object, or be omitted where that is allowed",
    flaws=[errors.Flaw(path="$", code="wrong_type", message="must be an object, or be omitted where that is allowed")],
)


class Body:
    """A request's body, read completely."""

    def __init__(self, content: bytes, value: plain.Json, receive: Receive) -> None:
        self.value = value
        """Content of the body; None if it is empty."""
        self._pending: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
        self._receive = receive

    async def again(self) -> Message:
        """Return the body to the reader of the request's messages, and then the messages after it."""
        return self._pending.pop() if self._pending else await self._receive()


class BodyLimits:
    """Reads a request's body completely, and refuses one that is too large or not strict JSON."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Each computing thread makes the loop wait for its turn, so large bodies are checked one by one.
        self._checking = asyncio.Lock()

    async def read(self, scope: Scope, receive: Receive) -> Body | problems.Problem | None:
        """Return a valid body, or the reason for its refusal; None if the client has disconnected."""
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        declared = headers.get(b"content-length", b"")
        expects = headers.get(b"expect", b"").lower() == b"100-continue"
        # A client that waits for `100 Continue` is refused before it sends anything. From any other client the service
        # reads for a while (`DRAINED_BYTES`): if a connection is closed with unread bytes, the kernel sends a reset,
        # which discards the answer.
        if expects and declared.isdigit() and int(declared) > self._max_bytes:
            return refusals.problem(_too_large(self._max_bytes))
        content, size = await _read(receive, self._max_bytes)
        if size < 0:
            return None
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        # Other senders of forms are browsers, and a page of another site must not be able to deliver.
        is_delivery = scope["path"].startswith(callers.OPEN_PREFIX)
        in_form = is_delivery and pointers.GITHUB_SIGNATURE.encode() in headers and is_form(content_type)
        checked = functools.partial(self._checked, content_type, content, size, is_delivery, in_form)
        if len(content) <= CHECKED_AT_ONCE:
            found = checked()
        else:
            async with self._checking:
                found = await asyncio.to_thread(checked)
        return found if isinstance(found, problems.Problem) else Body(content, found, receive)

    def _checked(
        self, content_type: str, content: bytes, size: int, is_delivery: bool, in_form: bool
    ) -> plain.Json | problems.Problem:
        if size > self._max_bytes:
            return refusals.problem(_too_large(self._max_bytes))
        if not content:
            return None
        try:
            if in_form:
                content = form_payload(content)
            elif not _is_json(content_type):
                return problems.of_status(415, "the body must be JSON in UTF-8 with Content-Type: application/json")
            # The sender of a delivery chooses its fields, so that none of them can be wrong.
            value = check(content, is_typed=False) if is_delivery else check(content)
        except errors.InputRefused as error:
            return refusals.problem(error)
        return refusals.problem(_NULL) if value is None else value


def is_form(content_type: str) -> bool:
    """Return whether a body is a form, GitHub's default for deliveries."""
    return content_type.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded"


def form_payload(body: bytes) -> bytes:
    """Return the field `payload` of a form.

    Raises:
        errors.RequestInvalid: `malformed_body`, the form does not have exactly one.
    """
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        fields = {}
    if len(given := fields.get("payload", [])) != 1:
        raise _malformed(errors.Flaw(path="$", code="no_payload", message="must be a form with one field `payload`"))
    return given[0].encode()


def check(body: bytes, *, is_typed: bool = True) -> plain.Json:
    """Return the content of a body, and refuse one that is not strict JSON.

    Args:
        is_typed: Whether its fields have forms, so that each can be wrong.

    Raises:
        errors.RequestInvalid: `malformed_body`, names each flaw with its position.
        errors.TooLarge: it is longer than the service reads, or contains too many values.
    """
    try:
        value = json_text.read(body.decode(), exact=True, most_values=MOST_VALUES)
    except UnicodeDecodeError as error:
        raise _malformed(errors.Flaw(path="$", code="not_text", message=f"byte {error.start} is not UTF-8")) from error
    except errors.InputRefused as error:
        if any(flaw.code == "too_large" for flaw in error.flaws):
            raise _too_large(json_text.MAX_CHARACTERS) from error
        if any(flaw.code == "too_many_values" for flaw in error.flaws):
            raise _too_many(error.flaws[0]) from error
        raise _malformed(*error.flaws) from error
    fields = value if is_typed and isinstance(value, dict) else {}
    for name, item in fields.items():
        if name not in _FREE_FIELDS and plain.holds_more(item, MOST_TYPED, _FREE_FIELDS):
            path = json_text.json_path((name,))
            raise _too_many(errors.Flaw(path=path, code="too_many_values", message=_MANY))
    if len(fields) > MOST_TYPED:
        raise _too_many(errors.Flaw(path="$", code="too_many_values", message=_MANY))
    return value


async def _read(receive: Receive, max_bytes: int) -> tuple[bytes, int]:
    chunks: list[bytes] = []
    size, more = 0, True
    while more and size <= DRAINED_BYTES:
        part = await receive()
        if part["type"] != "http.request":
            return b"", _GONE
        more = part.get("more_body", False)
        chunk = part.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            chunks.clear()
        else:
            chunks.append(chunk)
    return b"".join(chunks), size


@functools.lru_cache(maxsize=64)
def _is_json(content_type: str) -> bool:
    header = message.Message()
    header["content-type"] = content_type
    charset = header.get_param("charset", "utf-8")
    return header.get_content_type() == "application/json" and str(charset).lower() in ("utf-8", "utf8")


def _malformed(*flaws: errors.Flaw) -> errors.RequestInvalid:
    place = "" if flaws[0].path == "$" else f" at {flaws[0].path}"
    return errors.RequestInvalid(f"the body{place} {flaws[0].message}", code="malformed_body", flaws=flaws)


def _too_many(flaw: errors.Flaw) -> errors.TooLarge:
    return errors.TooLarge(f"{flaw.path}: {flaw.message}", code="too_many_values", flaws=[flaw])


def _too_large(max_bytes: int) -> errors.TooLarge:
    return errors.TooLarge(f"the body is larger than {max_bytes} bytes", detail={"max_bytes": max_bytes})


LabelName = Annotated[str, Field(pattern=requests.LABEL_NAME_PATTERN)]  # Name of a label.


def label_text(given: object) -> object:
    """Return a label written as `name=value` in its usual form, `name:value`."""
    return re.sub(r"\A([A-Za-z0-9_./-]{1,64})=", r"\1:", given) if isinstance(given, str) else given


LabelValue = Annotated[str, Field(max_length=requests.LABEL_CHARACTERS)]  # Value of a label.
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=requests.LABELS)]  # Labels of a run.
Priority = Annotated[int, Field(ge=requests.PRIORITIES[0], le=requests.PRIORITIES[-1])]  # Priority of a run.
SessionId = Annotated[str, Field(pattern=requests.SESSION_ID_PATTERN)]  # Id of a work session.
Description = Annotated[str, Field(max_length=requests.DESCRIPTION_CHARACTERS)]  # A task, as text.

RunsAbove = Annotated[
    Annotated[int, Field(ge=requests.RUNS_ABOVE[0], le=requests.RUNS_ABOVE[-1])] | None,
    Field(
        description="Number of runs above the new run, if the parent run may belong to another project; by "
        "default it belongs to this service."
    ),
]
"""Number of runs above the requested one."""


def strict(*examples: dict[str, Any], **schema: Any) -> ConfigDict:
    """Return the rules of a body: only its own fields, and only the declared types."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": list(examples)} | schema)


_LIMITS = {
    "cost_usd": "Cost of agent calls in US dollars, reported or estimated.",
    "tokens": "Tokens that agents read and write.",
    "calls": "Agent calls, including repeated ones.",
    "wall_seconds": "Time since the run first started.",
    "active_seconds": "Time during which steps of the run are executing.",
}


def limit(name: str) -> Any:
    """Return the field of a limit."""
    least, most = limits.RANGES[name]
    return Field(None, ge=least, le=most, description=_LIMITS[name])


class LimitsBody(BaseModel):
    """Limits of a run, including the runs that it starts."""

    model_config = strict({"cost_usd": 5, "calls": 40}, {"tokens": 2_000_000, "wall_seconds": 7200})

    cost_usd: float | None = limit("cost_usd")
    tokens: int | None = limit("tokens")
    calls: int | None = limit("calls")
    wall_seconds: float | None = limit("wall_seconds")
    active_seconds: float | None = limit("active_seconds")

    def limits(self) -> limits.RunLimits:
        """Return the limits that the body sets."""
        return limits.RunLimits(**dict(self))

    def changes(self) -> dict[str, float | None]:
        """Return the limits that the body names; None removes a limit."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class ApprovalsBody(BaseModel):
    """Approvals that the gates of a run need besides one answer."""

    model_config = strict({"count": 2, "not_starter": True})

    count: int = Field(1, ge=1, le=approvals.MOST, description="Number of keys that must give the same decision.")
    not_starter: bool = Field(False, description="Whether the key that started the run does not count.")


class ConcurrencyBody(BaseModel):
    """Limit of the runs of one key that may be under way."""

    model_config = strict({"key": "deploy"}, {"key": "book", "limit": 2, "policy": "cancel_waiting"})

    key: Annotated[str, Field(pattern=concurrency.KEY_PATTERN)] = Field(description="Key that the runs share.")
    limit: int = Field(
        1,
        ge=1,
        le=concurrency.MOST_RUNS,
        description="Maximum number of runs with this key that are under way at the same time.",
    )
    policy: concurrency.Policy = Field(
        "queue",
        description="What happens at the limit: the new run waits (`queue`) or is refused with 409 (`reject`), "
        "or the earlier runs with the key are cancelled, all of them (`cancel_running`) or only "
        "those that have not started (`cancel_waiting`).",
    )

    def given(self) -> concurrency.Concurrency:
        """Return the key with its limit and policy."""
        return concurrency.Concurrency(**dict(self))


class StartBody(BaseModel):
    """A new run: `recipe_id`, or a `description` for which the router chooses a recipe."""

    model_config = strict(
        {
            "recipe_id": "creative_draft_scene",
            "args": {
                "scene_path": "Story/Scenes/SCN-the-arrival.md",
                "canon_paths": ["Compendium/Characters/CHAR-kael.md"],
            },
        },
        {"description": "Draft scene 22"},
        {"description": "draft scene 21 in Story/Scenes/SCN-the-arrival.md", "labels": {"book": "one"}, "priority": 5},
    )

    recipe_id: str | None = Field(None, description="Recipe to execute; by default the router chooses one.")
    description: Description | None = Field(None, description="The task, as text; by default the recipe's label.")
    args: dict[str, Any] = Field(default_factory=dict, description="Arguments; the recipe's defaults fill the rest.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the recipe's language; most languages have none."
    )
    session_id: SessionId | None = Field(
        None, description="Work session of the receipts; by default the parent's, or a new one."
    )
    session_plan_task_id: int | None = Field(None, description="Task of the session plan that starts the run.")
    working_dir: str | None = Field(
        None,
        description="Workspace, absolute or below the project, inside the allowed folders; by default the project.",
    )
    labels: Labels = Field(default_factory=dict, description="Labels for finding the run.")
    priority: Priority = Field(0, description="Priority of the run; higher values start first.")
    limits: LimitsBody = Field(
        default_factory=LimitsBody,
        description="Limits of the run, including the runs that it starts; at a limit it is paused and can be "
        "continued.",
    )
    approvals: ApprovalsBody | None = Field(
        None, description="Approvals required at the gates of the run and of the runs that it starts."
    )
    concurrency: ConcurrencyBody | None = Field(
        None, description="Limits how many runs with one key are under way at the same time."
    )
    exclusive: bool = Field(False, description="Refuse with 409 if a run of the recipe is unfinished.")
    exclusive_workspace: bool = Field(
        False, description="Lock the workspace from start to end against other runs that lock it."
    )
    share_workspace: bool = Field(
        False, description="Do not lock the workspace; by default, runs of agent recipes lock it."
    )
    parent_run_id: str | None = Field(
        None,
        description="Parent run; by default the run of the agent or command that sends the request, if known. "
        "The depth of nested runs is limited.",
    )
    runs_above: RunsAbove = None
    recipe: dict[str, Any] | str | None = Field(
        None,
        description="Inline recipe, as an object or as text, if CONTROL_ROOM_INLINE_RECIPES allows it.",
    )
    dialect: str = Field("control_room", description="Language of the inline recipe.")

    @field_validator("recipe")
    @classmethod
    def _is_no_name(cls, recipe: dict[str, Any] | str | None) -> dict[str, Any] | str | None:
        # No language has a recipe of one word, so this is the id of a recipe.
        if isinstance(recipe, str) and re.fullmatch(r"[\w.-]{1,128}", recipe):
            raise ValueError("must contain a whole recipe, not its name; did you mean recipe_id?")
        return recipe

    def request(self, idempotency_key: str | None) -> requests.StartRequest:
        """Return the request from the body and its header."""
        given = dict(self) | {"limits": self.limits.limits()}
        given["approvals"] = self.approvals and approvals.Approvals(**dict(self.approvals))
        given["concurrency"] = self.concurrency and self.concurrency.given()
        return requests.StartRequest(**given, idempotency_key=idempotency_key)


class EmptyBody(BaseModel):
    """An empty body; an address that needs no body also accepts an empty object."""

    model_config = strict({})


Labelling = Annotated[
    dict[LabelName, LabelValue | None],
    Field(max_length=requests.LABELS, description="Labels to set; null removes a label. Other labels are unchanged."),
]
"""Changes of labels."""

Pinning = Annotated[bool | None, Field(description="Whether retention keeps the run; null leaves this unchanged.")]
"""A change of a pin."""


def seen_revision(named: int | None, matched: int | None) -> int | None:
    """Return the revision that a body and its `If-Match` name; None for any.

    Raises:
        errors.RequestInvalid: they name different revisions.
    """
    if None not in (matched, named) and matched != named:
        flaw = errors.Flaw(path="$.revision", message="is not the one that If-Match names")
        raise errors.RequestInvalid(f"{flaw.path}: {flaw.message}", flaws=[flaw])
    return named if matched is None else matched
