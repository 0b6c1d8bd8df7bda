"""Scoping: finds the recipe and arguments of a task, or the question that must be answered first.

Scoping asks no model: the router chooses by the description, then by the description with the answers (execution-modes,
task_router evolution), and the task's run is prepared without being started.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app import errors, printable
from app.domain import library, plain, plans, task_outputs
from app.services import arguments, recipes
from app.services.plans import requests, tasks
from app.services.plans.requests import ScopingAnswer
from app.services.recipes import Catalogue
from app.services.routing import RoutingResult
from app.services.starting import Starter

QUESTION_CHARACTERS = 4_000  # Longest question from scoping.
_UNMET = "No run can pass the checks"  # Beginning of a question, by which it is recognised.
MOST_NAMED = 8  # Most recipes that a question names; it gives only the number of the others.

_MISSING = "missing_arg"
_RECIPE = "$.recipe_id"
_ROOT = re.compile(r"\$\.(args\.[^.\[]+|args|recipe_id|description)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The part of a task that a request gives itself, so that it is refused for flaws in that part."""

    path: str  # Position of the task in the request: `$` or `$.tasks[i]`.
    names: frozenset[str]  # Fields and arguments that the request gives: `recipe_id`, `description`, `args.x`.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wants:
    flaws: Sequence[errors.Flaw] = ()  # Flaws of recipe and arguments, as for a run's request.
    missing: Sequence[str] = ()  # Required arguments that are missing.
    error: errors.RequestInvalid | None = None  # The error that reported the flaws.


def given(path: str, fields: Mapping[str, Any]) -> Given:
    """Return the fields of a task that a request gives.

    Args:
        fields: Fields that the request names, with their values.
    """
    names = {name for name in ("recipe_id", "description", "dod") if fields.get(name) is not None}
    return Given(path=path, names=frozenset(names | {f"args.{name}" for name in fields.get("args") or ()}))


class Scoper:
    """Determines what a task still needs before it can start."""

    def __init__(self, *, route: Callable[[str], RoutingResult], starter: Starter, catalogue: Catalogue) -> None:
        self._route = route
        self._starter = starter
        self._catalogue = catalogue

    async def refresh(self) -> None:
        """Read changed recipes now, so that no caller waits for that when tasks are scoped."""
        await self._catalogue.refresh()

    def scoped(self, plan: plans.Plan, task: plans.Task, asked: Given | None = None) -> plans.Task:
        """Return a task with its known recipe and arguments, and with the question that is then open.

        A question of the chief or of a person remains until it is answered; a question of the system is removed when
        the task has no flaw and no missing argument.

        Args:
            plan: Plan of the task.
            asked: Part that a person's request gives. Older arguments that the recipe lacks are then dropped, since no
                answer could remove them; other flaws lead to a question.

        Raises:
            errors.RequestInvalid: that part is invalid: an unknown or broken recipe, or unfit arguments.
        """
        routed = self._routed(task)
        if asked is not None:
            routed = self._fitted(routed, asked)
        wants = self._wants(plan, routed)
        if asked is not None:
            _refuse_given(wants, asked)
            self._refuse_unmet(routed, asked)
        if _waits_for_a_person(routed):
            return routed
        if routed.recipe_id is None:
            # A person is asked for the recipe; the router must not guess.
            return _asking(routed, self._which_recipe(), "names no recipe, and contains no words that identify one")
        if not wants.flaws and not wants.missing:
            return self.checked(_quiet(routed), "does not change what is wrong")
        lacking = ", ".join(wants.missing)
        unusable = f"gives no value of {lacking}" if lacking else "does not change what is wrong"
        return _asking(routed, self._what_else(routed, wants), unusable)

    def checked(self, task: plans.Task, unusable: str = "") -> plans.Task:
        """Return a task with a question about checks that no run can pass, or without it if they are corrected.

        A request for them is refused; they come from an edit of the file, or from a recipe that has changed since.

        Args:
            unusable: The flaw of an answer, if the same question must be asked again.
        """
        if _waits_for_a_person(task) or (task.scoping_question is not None and not _asks_about_checks(task)):
            return task
        problems = self._unmet(task)
        if not problems:
            return _quiet(task)
        return _asking(task, _listed(f"{_UNMET} of task {task.id}. Correct its dod: ", problems, "; "), unusable)

    def refuse_unready(self, plan: plans.Plan) -> None:
        """Refuse to start a plan with a task whose run would lack a backend here.

        Raises:
            errors.NotReady: names every flaw of every such task.
        """
        flaws: list[errors.Flaw] = []
        for number, task in enumerate(plan.tasks):
            if task.recipe_id is None or task.run_id is not None or task.status is plans.TaskState.DONE:
                continue
            try:
                self._prepare(plan, task)
            except errors.NotReady as lacking:
                flaws += [dataclasses.replace(flaw, path=f"$.tasks[{number}]") for flaw in lacking.flaws]
            except errors.RequestInvalid:
                # The question about it is asked when the task's turn comes.
                continue
        if flaws:
            raise errors.NotReady(f"the plan cannot start here: {flaws[0].message}", flaws=flaws)

    def unrouted(self, task: plans.Task) -> dict[str, plain.Json]:
        """Return the arguments of a task without those that the router found in its text."""
        routed_args = self._seeds(task.recipe_id, self._found(task))
        return {
            name: value for name, value in task.args.items() if name not in routed_args or routed_args[name] != value
        }

    def answered(self, task: plans.Task, answer: ScopingAnswer) -> plans.Task:
        """Return a task with the answer to its open question, before it is scoped again.

        If the question asks for a recipe, an answer that is the id of one names it.
        """
        questioned = task if task.scoping_question is not None else _asking(task, self._which_recipe())
        named = answer.recipe_id or self._named(task, answer.answer)
        args = plain.plain(answer.args)
        if named is None:
            return dataclasses.replace(questioned, scoping_answer=answer.answer, args={**task.args, **args})
        args = {**self._accepted_by(named, self.unrouted(task)), **args}
        return dataclasses.replace(questioned, scoping_answer=answer.answer, args=args, recipe_id=named, routed=False)

    # -- recipe and arguments

    def _routed(self, task: plans.Task) -> plans.Task:
        results = self._found(task)
        recipe_id, routed = task.recipe_id, False
        if task.recipe_id is None or task.routed:
            recipe_id = next((result.recipe_id for result in results if result.routable), None)
            routed = recipe_id is not None
        args = {**self._seeds(recipe_id, results), **task.args}
        return dataclasses.replace(task, recipe_id=recipe_id, routed=routed, args=args)

    def _fitted(self, task: plans.Task, asked: Given) -> plans.Task:
        known = self._accepted_by(task.recipe_id, task.args)
        args = {name: value for name, value in task.args.items() if name in known or f"args.{name}" in asked.names}
        return dataclasses.replace(task, args=args)

    def _refuse_unmet(self, task: plans.Task, asked: Given) -> None:
        recipe = self._recipe(task.recipe_id) if "dod" in asked.names and not isinstance(task.dod, str) else None
        if recipe is not None:
            from app.services.plans import task_checks

            language = self._catalogue.dialect(recipe.dialect)
            requests.refuse(task_checks.unmet_flaws(task.dod, recipe, language, asked.path))

    def _unmet(self, task: plans.Task) -> list[str]:
        recipe = None if isinstance(task.dod, str) else self._recipe(task.recipe_id)
        if recipe is None:
            return []
        from app.services.plans import task_checks

        language = self._catalogue.dialect(recipe.dialect)
        flaws = list(task_checks.flaws(task.checks, "$")) or task_checks.unmet_flaws(task.dod, recipe, language, "$")
        return [f"{flaw.path.removeprefix('$.')} {printable.clause(flaw.message)}" for flaw in flaws]

    def _found(self, task: plans.Task) -> list[RoutingResult]:
        """Return the router's results for the description, and for the description with the answers."""
        answers = [each.answer for each in tasks.answered(task)]
        texts = [task.description, *(["\n".join((task.description, *answers))] if answers else [])]
        return [self._route(text) for text in texts]

    def _seeds(self, recipe_id: str | None, found: Iterable[RoutingResult]) -> dict[str, plain.Json]:
        recipe = self._recipe(recipe_id)
        if recipe is None:
            return {}
        known, seeds = arguments.declared(recipe.args_schema), dict[str, plain.Json]()
        for result in found:
            if result.recipe_id == recipe_id:
                seeds = {name: value for name, value in result.initial_args.items() if name in known} | seeds
        return seeds

    def _recipe(self, recipe_id: str | None) -> library.Recipe | None:
        if recipe_id is None:
            return None
        try:
            return self._catalogue.find(recipe_id).recipe
        except errors.UnknownRecipe:
            return None

    def _accepted_by(self, recipe_id: str | None, args: Mapping[str, plain.Json]) -> dict[str, plain.Json]:
        recipe = self._recipe(recipe_id)
        if recipe is None or recipe.args_schema.get("additionalProperties", False) is not False:
            return dict(args)
        known = arguments.declared(recipe.args_schema)
        return {name: value for name, value in args.items() if name in known}

    def _named(self, task: plans.Task, text: str) -> str | None:
        recipe = self._recipe(text.strip()) if task.recipe_id is None else None
        return recipe.recipe_id if recipe is not None else None

    # -- flaws, and missing arguments

    def _wants(self, plan: plans.Plan, task: plans.Task) -> _Wants:
        if task.recipe_id is None:
            return _Wants()
        try:
            self._prepare(plan, task)
        except (errors.UnknownRecipe, errors.RecipeInvalid) as error:
            flaw = errors.Flaw(path=_RECIPE, code=error.code, message=error.message)
            return _Wants(flaws=[flaw], error=error)
        except errors.RequestInvalid as error:
            return _sorted(error, task_outputs.named(task.args))
        except errors.NotReady:
            # The machine lacks something, not the task.
            return _Wants()
        return _Wants()

    def _prepare(self, plan: plans.Plan, task: plans.Task) -> None:
        request = tasks.run_request(plan, task)
        try:
            self._starter.prepare_now(request)
        except errors.ArgsInvalid:
            if task_outputs.named(task.args):
                # Readiness is checked after arguments, and arguments from future outputs never fit.
                self._catalogue.refuse_unready(self._catalogue.get(task.recipe_id or ""), task.args)
            raise

    # -- questions

    def _which_recipe(self) -> str:
        entries = sorted(self._catalogue.all(), key=lambda entry: entry.layer == recipes.BUNDLED)
        usable = [entry.recipe for entry in entries if entry.usable and entry.recipe is not None]
        routable = [recipe for recipe in usable if recipe.task_patterns] or usable
        named = _listed("There are ", [_shown(recipe) for recipe in routable], most=MOST_NAMED)
        more = " The id of any other recipe will do, too." if len(routable) < len(usable) else ""
        return f"Which recipe is to do this? {named}{more}"

    def _what_else(self, task: plans.Task, wants: _Wants) -> str:
        recipe = self._recipe(task.recipe_id)
        if recipe is None or any(flaw.path == _RECIPE for flaw in wants.flaws):
            return f"{wants.flaws[0].message.rstrip('.')}. {self._which_recipe()}"[:QUESTION_CHARACTERS]
        rules: Mapping[str, Any] = recipe.args_schema.get("properties") or {}
        asked = wants.error.detail.get("questions", {}) if wants.error is not None else {}
        if asked and not wants.flaws and set(wants.missing) <= set(asked):
            return " ".join(asked[name]["question"] for name in wants.missing)[:QUESTION_CHARACTERS]
        missing = [_described(name, rules.get(name)) for name in wants.missing]
        wrong = [f"{flaw.path.removeprefix('$.args.')} ({flaw.message})" for flaw in wants.flaws]
        asks = f"The recipe {_shown(recipe)} needs these arguments: "
        complains = f"The recipe {_shown(recipe)} cannot take these arguments: "
        return _listed(asks if missing else complains, [*missing, *wrong], "; ")


def has_open_checks(task: plans.Task) -> bool:
    """Return whether a task that has not begun has checks which its run must pass, or a question about them."""
    begun = task.begun or task.status is plans.TaskState.FAILED
    return not begun and (bool(task.checks) or _asks_about_checks(task))


def is_unscoped(task: plans.Task) -> bool:
    """Return whether a task has not been routed to a recipe yet, as in plans written by hand."""
    begun = task.begun or task.status is plans.TaskState.FAILED
    return not begun and task.recipe_id is None and task.scoping_question is None


def _sorted(error: errors.RequestInvalid, unknown: Container[str]) -> _Wants:
    # Flaws of the plan itself, such as its folder, do not lead to a question about the task; outputs of earlier tasks
    # are checked against the recipe when they are known.
    unfit = [flaw for flaw in error.flaws if (_name(flaw) or "").removeprefix("args.") not in unknown]
    own = [flaw for flaw in unfit if _ROOT.match(flaw.path)]
    missing = [flaw.path.removeprefix("$.args.") for flaw in own if flaw.code == _MISSING]
    return _Wants(flaws=[flaw for flaw in own if flaw.code != _MISSING], missing=missing, error=error)


def _refuse_given(wants: _Wants, asked: Given) -> None:
    flaws = [flaw for flaw in wants.flaws if _name(flaw) in asked.names]
    if flaws and wants.error is not None:
        located = [tasks.at_place(flaw, asked.path) for flaw in flaws]
        facts = {"code": wants.error.code, "detail": wants.error.detail}
        raise type(wants.error)(f"{located[0].path}: {located[0].message}", flaws=located, **facts)


def _name(flaw: errors.Flaw) -> str | None:
    match = _ROOT.match(flaw.path)
    return None if match is None else match[1]


def _asks_about_checks(task: plans.Task) -> bool:
    return task.asked_by == plans.BY_SYSTEM and _UNMET in (task.scoping_question or "")


def _waits_for_a_person(task: plans.Task) -> bool:
    return task.scoping_question is not None and task.scoping_answer is None and task.asked_by != plans.BY_SYSTEM


def _quiet(task: plans.Task) -> plans.Task:
    if task.scoping_question is None or task.scoping_answer is not None:
        return task
    return dataclasses.replace(task, scoping_question=None, asked_by=None)


def _asking(task: plans.Task, question: str, unusable: str = "") -> plans.Task:
    """Return a task with an open question.

    Args:
        unusable: The flaw of an answer, if the same question must be asked again.
    """
    asked, answer = task.scoping_question or "", task.scoping_answer
    # The remark about an answer precedes the question, as long as the question is the same.
    if asked.endswith(question):
        question = asked if answer is None else f"The answer {plain.preview(answer)!r:.90} {unusable}. {question}"
    return dataclasses.replace(
        task,
        scoping_question=question[:QUESTION_CHARACTERS],
        asked_by=plans.BY_SYSTEM,
        scoping_answer=None,
        scoping_before=tasks.answered(task),
    )


def _shown(recipe: library.Recipe) -> str:
    return recipe.recipe_id if recipe.label == recipe.recipe_id else f"{recipe.recipe_id} ({recipe.label})"


def _described(name: str, rule: object) -> str:
    about = rule.get("description") if isinstance(rule, Mapping) else None
    return f"{name} ({about})" if isinstance(about, str) and about else name


def _listed(beginning: str, names: Sequence[str], between: str = ", ", most: int = QUESTION_CHARACTERS) -> str:
    for count in range(min(len(names), most), 0, -1):
        rest = f"{between}and {len(names) - count} more" if count < len(names) else ""
        text = f"{beginning}{between.join(names[:count])}{rest}."
        if len(text) <= QUESTION_CHARACTERS:
            return text
    return f"{beginning}{len(names)} of them."[:QUESTION_CHARACTERS]
