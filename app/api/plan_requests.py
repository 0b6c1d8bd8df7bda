"""Bodies of requests about session plans."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from app.api import request_models
from app.services.plans import requests, task_checks


def _documented(kind: str, **limits: int) -> WithJsonSchema:
    # `requests` checks these limits for every caller; they are only documented here.
    return WithJsonSchema({"type": kind, **limits})


TaskNumber = Annotated[int, _documented("integer", minimum=requests.TASK_IDS[0], maximum=requests.TASK_IDS[-1])]
"""Number of a task."""

_Intent = Annotated[str, _documented("string", minLength=1, maxLength=requests.INTENT_CHARACTERS)]
Switch = Literal["on", "off"]  # Whether something is done.

_Description = Annotated[str, _documented("string", minLength=1, maxLength=requests.DESCRIPTION_CHARACTERS)]
_WORDS: dict[str, Any] = {"type": "string", "maxLength": requests.DOD_CHARACTERS}
_CHECKS: dict[str, Any] = {"type": "array", "items": {"type": "object"}, "maxItems": task_checks.MOST_CHECKS}


def _dod(value: Any) -> Any:
    # For a union, pydantic would report each kind that the value does not have, at positions that the body lacks.
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
        return value
    raise ValueError("must be a text, or a list of checks")


_Dod = Annotated[Any, BeforeValidator(_dod), WithJsonSchema({"anyOf": [_WORDS, _CHECKS]})]
_Question = Annotated[str, _documented("string", minLength=1, maxLength=requests.QUESTION_CHARACTERS)]
_Answer = Annotated[str, _documented("string", minLength=1, maxLength=requests.ANSWER_CHARACTERS)]
_RecipeId = Annotated[str, Field(min_length=1, max_length=200)]
_MOST_TASKS: dict[str, Any] = {"maxItems": requests.TASKS}
_RECIPE = "Recipe of the task; by default the router chooses one."
_ARGS = (
    "Arguments of the task's run; missing ones come from the recipe's defaults and from what the "
    'router finds in the description. A value may be an output of an earlier task: `{"$task": 1, '
    '"output": "edited_draft"}`.'
)
_DEPS = "Tasks that must be done first."
_DOD = "Definition of done: text, which is reviewed, or checks as in recipes, which the run must pass."
_REVIEW = "Whether textual definitions of done are reviewed when a task's run is done."
_QUESTION = "Question that must be answered before the task starts."


def _optional(description: str, **limits: int) -> Any:
    def document(schema: dict[str, Any]) -> None:
        # An omitted field is unchanged; null would have another meaning.
        schema.pop("default", None)
        schema.update(limits)

    return Field(None, description=description, json_schema_extra=document)


class RevisedBody(BaseModel):
    """An order for a plan at the revision that was seen."""

    model_config = request_models.strict({}, {"revision": 3})

    revision: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Expected revision; the change is refused with `plan_changed` if the plan has a different one.",
    )

    def seen(self, matched: int | None) -> int | None:
        """Return the revision that the body and its header name.

        Raises:
            errors.RequestInvalid: they name different revisions.
        """
        return request_models.seen_revision(self.revision, matched)


class TaskBody(BaseModel):
    """A task of a plan."""

    model_config = request_models.strict({"description": "Write scene 21", "recipe_id": "creative_draft_scene"})

    id: TaskNumber | None = Field(
        None, description="Number of the task, which dependencies refer to; by default the next number."
    )
    description: _Description = Field(description="What the task does.")
    recipe_id: _RecipeId | None = Field(None, description=_RECIPE)
    args: dict[str, Any] = Field(default_factory=dict, description=_ARGS)
    deps: list[TaskNumber] = Field(default_factory=list, description=_DEPS, json_schema_extra=_MOST_TASKS)
    dod: _Dod = Field("", description=_DOD)
    scoping_question: _Question | None = Field(None, description=_QUESTION)

    def task(self, idempotency_key: str | None = None) -> requests.NewTask:
        """Return the task that the body and its header describe."""
        fields = {name: getattr(self, name) for name in self.__class__.model_fields.keys() - {"revision"}}
        return requests.NewTask(**fields | {"deps": tuple(self.deps), "idempotency_key": idempotency_key})


class PlanBody(BaseModel):
    """A new plan: an `intent` alone, which the chief splits into tasks, or the tasks themselves."""

    model_config = request_models.strict(
        {"intent": "Write scenes 21 and 22, check consistency, and look at the foreshadowing"},
        {
            "intent": "Scenes 21 and 22",
            "tasks": [
                {"id": 1, "description": "Write scene 21"},
                {"id": 2, "description": "Write scene 22", "deps": [1]},
                {"id": 3, "description": "Consistency check of scenes 21 and 22", "deps": [1, 2]},
            ],
            "labels": {"book": "one"},
        },
    )

    intent: _Intent | None = Field(None, description="Goal of the whole plan; if tasks are given, it is only stored.")
    tasks: list[TaskBody] = Field(
        default_factory=list,
        description="Tasks, in the order in which they start.",
        json_schema_extra=_MOST_TASKS,
    )
    working_dir: str | None = Field(None, description="Workspace of the plan's runs; by default the project.")
    labels: request_models.Labels = Field(default_factory=dict, description="Labels of the plan's runs.")
    priority: request_models.Priority = Field(0, description="Priority of the plan's runs; higher values start first.")
    parent_run_id: str | None = Field(
        None,
        description="Parent run; by default the run of the agent or command that sends the request, if known. "
        "The depth of nested runs is limited.",
    )
    runs_above: request_models.RunsAbove = None
    review: Switch = Field("on", description=_REVIEW)

    def plan(self, idempotency_key: str | None) -> requests.NewPlan:
        """Return the plan that the body and its header describe."""
        tasks = tuple(task.task() for task in self.tasks)
        return requests.NewPlan(**dict(self) | {"tasks": tasks, "idempotency_key": idempotency_key})


class OrderBody(RevisedBody):
    """A new order of the tasks, or a setting of their reviews."""

    model_config = request_models.strict({"order": [2, 1, 3], "revision": 1}, {"review": "off"})

    order: Annotated[list[TaskNumber], Field(min_length=1, max_length=requests.TASKS)] | None = Field(
        None, description="Numbers of all tasks, each after its dependencies."
    )
    review: Switch | None = Field(None, description=_REVIEW)


class NewTaskBody(RevisedBody, TaskBody):
    """A further task."""

    model_config = request_models.strict({"description": "Check the pacing of scene 22", "deps": [2]})


class TaskEditBody(RevisedBody):
    """Changes to a task; omitted fields are unchanged."""

    model_config = request_models.strict({"description": "Write scene 22, from Mira's view", "deps": []})

    description: _Description = _optional("New description.")
    recipe_id: _RecipeId | None = Field(None, description="New recipe; null lets the router choose again.")
    args: dict[str, Any] = _optional("New arguments, which replace all current ones.")
    deps: list[TaskNumber] = _optional("New list of tasks that must be done first.", **_MOST_TASKS)
    dod: _Dod = _optional(_DOD)
    scoping_question: _Question | None = Field(
        None, description="New question, which stays open until it is answered; null removes the question."
    )

    def edit(self) -> requests.TaskEdit:
        """Return the change that the body describes."""
        fields = {name: getattr(self, name) for name in self.model_fields_set - {"revision"}}
        return requests.TaskEdit(**fields | ({"deps": tuple(fields["deps"])} if "deps" in fields else {}))


class ScopingAnswerBody(RevisedBody):
    """An answer to the question of a task."""

    model_config = request_models.strict({"answer": "The lantern and the ferry, in scenes 3 to 9"})

    answer: _Answer = Field(description="The answer, which the agents of the task receive.")
    args: dict[str, Any] = Field(default_factory=dict, description="Arguments that override those of the task.")
    recipe_id: _RecipeId | None = Field(
        None, description="Recipe of the task, if the question was which recipe to use."
    )

    def answered(self) -> requests.ScopingAnswer:
        """Return the answer from the body."""
        return requests.ScopingAnswer(answer=self.answer, args=self.args, recipe_id=self.recipe_id)


class RetryBody(RevisedBody):
    """Options for the retry of a failed task."""

    model_config = request_models.strict({}, {"fresh": True})

    fresh: bool = Field(
        False, description="Start a new run; by default the failed run is resumed and keeps its finished steps."
    )
