"""Starting: turns a request into the frozen start of a run."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from app import clock, errors
from app.agents import json_files
from app.domain import json_words, keys, library, plain, policies, runs
from app.domain.approvals import Approvals, strictest
from app.domain.limits import RunLimits
from app.engine import stores
from app.flows import registry as flows
from app.services import arguments, requests, worst_cases
from app.services.recipe_versions import RecipeVersion
from app.services.recipes import PROJECT_DIALECT, Catalogue
from app.services.requests import ResumeRequest, StartRequest
from app.services.routing import RoutingResult
from app.services.workspaces import Workspaces
from app.tools import reserved

if TYPE_CHECKING:
    from app.services import story_args

_RECIPES_NAMED = 20
_IDS_TRIED = 8  # Two runs created in the same second can get the same six random characters.
_AT_ONCE = 500  # Values in arguments and options that are processed on the loop.


class PolicySource(Protocol):
    """The policies of the project."""

    value: policies.Policies  # The present policies.


@dataclass(slots=True)
class NoPolicies:
    """A project without policies."""

    value: policies.Policies = policies.NONE  # Always empty.


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRules:
    """Rules for new runs, in addition to their recipes."""

    max_depth: int = 3  # Deepest level of runs that start runs.
    inline_recipes: bool = False  # Whether a request may contain a recipe of its own.
    backends: tuple[str, ...] = ()  # Names of the existing backends.
    worst_call: worst_cases.Quote = worst_cases.nothing_known
    """Returns the most that a call of an agent takes."""
    policies: PolicySource = field(default_factory=NoPolicies)  # Policies for runs of recipes.
    approvers: Callable[[], Sequence[keys.Key]] = tuple  # Returns the keys that may answer gates; it blocks.
    runs_folder: Path | None = None  # Folder that contains the folders of runs.


class Starter:
    """Makes the complete, frozen start of a run, or reports all flaws of the request."""

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        route: Callable[[str], RoutingResult],
        workspaces: Workspaces,
        clock: clock.Clock,
        ids: clock.Ids,
        rules: StartRules,
    ) -> None:
        self._catalogue = catalogue
        self._route = route
        self._workspaces = workspaces
        self._clock = clock
        self._ids = ids
        self.rules = rules
        """Rules for new runs, in addition to their recipes."""

    @property
    def hidden(self) -> reserved.Reserved:
        """Return the parts of working folders that steps must not see."""
        return self._workspaces.reserved

    async def prepare(
        self, request: StartRequest, parent: runs.RunStart | None = None, own: RecipeVersion | None = None
    ) -> runs.RunStart:
        """Return the result of `prepare_now`, or raise its errors; files and long requests are read on a thread."""
        if request.recipe is not None or plain.holds_more([dict(request.args), dict(request.options)], _AT_ONCE):
            return await asyncio.to_thread(self.prepare_now, request, parent, own)
        if own is None:
            await self._catalogue.refresh()
            try:
                own, seeds = self._choose(request)
            except errors.ControlRoomError:
                # Flaws that do not depend on the recipe come first.
                requests.check(request)
                self._depth(request, parent)
                raise
            if seeds or _searches_project(own.recipe, request.args):
                return await asyncio.to_thread(self.prepare_now, request, parent)
        return self.prepare_now(request, parent, own)

    def prepare_now(
        self, request: StartRequest, parent: runs.RunStart | None = None, own: RecipeVersion | None = None
    ) -> runs.RunStart:
        """Return the start of a run.

        Args:
            parent: The run named by `parent_run_id`.
            own: Recipe to execute if no recipe file defines it.

        Raises:
            errors.RequestInvalid: a value of the wrong form, an unknown or broken recipe, wrong arguments; or
                `unknown_backend`.
            errors.Unroutable: the request has only a description, and no recipe matches it.
            errors.NotReady: a backend, program or recipe that the run could need is unusable.
        """
        start, recipe_version = self.examine(request, parent, own)
        self._catalogue.refuse_unready(recipe_version, start.args)
        return start

    def examine(
        self, request: StartRequest, parent: runs.RunStart | None = None, own: RecipeVersion | None = None
    ) -> tuple[runs.RunStart, RecipeVersion]:
        """Return the start of a run, even if its backends are not ready, and the version that it executes.

        Raises:
            errors.RequestInvalid, errors.Unroutable: as `prepare_now`.
        """
        requests.check(request)
        # Depth first: a chain of runs that start one another must end at its limit, even with other flaws.
        depth = self._depth(request, parent)
        recipe_version, seeds = (own, {}) if own is not None else self._choose(request)
        # An argument that was given as an option is missing as an argument, too.
        if request.options:
            arguments.check_options(request.options, recipe_version.recipe)
        folder = request.working_dir
        working_dir = self._workspaces.project if folder is None else self._workspaces.choose(folder)
        # Later sources override earlier ones: words of the description, files of the project, values of the request.
        recipe, filled = recipe_version.recipe, self._found(recipe_version.recipe, request, seeds, working_dir)
        args = recipe_version.fit({**seeds, **filled.args, **request.args}, filled.questions)
        self._refuse_unknown_backend(recipe, args)
        limits, approvals = self._terms(request, recipe.recipe_id, parent)
        start = runs.RunStart(
            recipe_id=recipe.recipe_id,
            description=request.description or recipe.label,
            args=args,
            options=dict(request.options),
            session_id=request.session_id or (parent.session_id if parent else self._ids.token("sess_")),
            session_plan_task_id=request.session_plan_task_id,
            labels=dict(request.labels),
            priority=request.priority,
            limits=limits,
            approvals=approvals,
            concurrency=request.concurrency,
            working_dir=working_dir,
            exclusive_workspace=request.exclusive_workspace or (recipe.holds_workspace and not request.share_workspace),
            idempotency_key=request.idempotency_key,
            request_sha256=request.sha256() if request.idempotency_key else None,
            parent_run_id=parent.run_id if parent else None,
            depth=depth,
            owner=request.owner,
            **self._identity(),
            **recipe_version.frozen(),
        )
        return start, recipe_version

    def _identity(self) -> dict[str, Any]:
        now = self._clock.now()
        run_id, runs_folder = self._ids.run_id(now), self.rules.runs_folder
        folder = None if runs_folder is None else str(runs_folder / run_id)
        return {"run_id": run_id, "created_at": clock.stamp(now), "folder": folder}

    def _terms(
        self, request: StartRequest, recipe_id: str, parent: runs.RunStart | None
    ) -> tuple[RunLimits, Approvals | None]:
        """Return the limits of a run and the approvals of its gates, by its request and by policies."""
        limits, approvals, policy = request.limits, request.approvals, self.rules.policies.value
        if parent is not None:
            # No request asks for less than the run above it needs.
            approvals = strictest(approvals, parent.approvals)
        if policy.policies:
            # A policy is applied last, so that no request evades it.
            limits, approvals = policy.limits_of(recipe_id, limits), policy.approvals_of(recipe_id, approvals)
        return limits, approvals

    def route(self, description: str) -> RoutingResult:
        """Return the recipe for a description, with the arguments from it and from the project, and open questions.

        Meant for a thread, since it reads files of the project.
        """
        routed = self._route(description)
        if not routed.routable or routed.recipe_id is None:
            return routed
        recipe, request = self._catalogue.find(routed.recipe_id).recipe, StartRequest(description=description)
        if recipe is None:
            return routed
        filled = self._found(recipe, request, routed.initial_args, self._workspaces.project)
        questions = {name: question.question for name, question in filled.questions.items()}
        return dataclasses.replace(routed, initial_args={**routed.initial_args, **filled.args}, questions=questions)

    def check(self, request: StartRequest, parent: runs.RunStart | None = None) -> int:
        """Refuse flaws of a request that do not depend on its recipe, and return the number of runs above.

        Raises:
            errors.RequestInvalid: a value has the wrong form, the folder is not allowed, or the run would be too deep.
        """
        requests.check(request)
        self._workspaces.choose(request.working_dir)
        return self._depth(request, parent)

    async def renewed(self, start: runs.RunStart, request: ResumeRequest) -> dict[str, plain.Json]:
        """Return the facts that a resume replaces in a run's frozen start; its recipe is read again, on a thread.

        Raises:
            errors.RequestInvalid: the recipe is gone or broken, the arguments do not fit it, `unknown_backend`, or
                `resume_unchangeable`: the run has no recipe file.
        """
        if request.args is None and request.options is None and not request.current_recipe:
            return {}
        return await asyncio.to_thread(self._renew, start, request)

    def place(self, request: StartRequest, parent: runs.RunStart | None) -> dict[str, plain.Json]:
        """Return the facts about a fork's parent that replace those of its source.

        Raises:
            errors.RequestInvalid: `depth_exceeded`.
        """
        depth = self._depth(request, parent)
        facts: dict[str, plain.Json] = {"depth": depth} if depth else {}
        return facts | {"parent_run_id": None if parent is None else parent.run_id}

    def forked(
        self,
        source: runs.RunStart,
        in_force: RunLimits,
        overrides: Mapping[str, plain.Json],
        labels: Mapping[str, str | None],
        parent: runs.RunStart | None = None,
    ) -> runs.RunStart:
        """Return the start of a new run that takes over steps of another one.

        Args:
            in_force: Present limits of the source.
            overrides: As `renewed` and `place` return them.
            labels: Changes of the labels; None removes a label.
        """
        own: dict[str, plain.Json] = {
            **self._identity(),
            "id_root": source.root_id,
            "root_created_at": source.root_at,
            "forked_from": source.run_id,
            "session_plan_task_id": None,
            "idempotency_key": None,
            "request_sha256": None,
            "owner": "service",
            "resumed": False,
            "pinned": False,
        }
        start = source.overridden({**overrides, **own, "labels": labels})
        # An agent that was replaced for the source stays replaced, and no fork evades a policy.
        policy = self.rules.policies.value
        return dataclasses.replace(
            start,
            started_by=None,
            limits=policy.limits_of(source.recipe_id, in_force),
            approvals=policy.approvals_of(
                source.recipe_id, strictest(start.approvals, parent.approvals if parent else None)
            ),
            concurrency=start.concurrency and start.concurrency.of_fork(),
        )

    async def create(
        self, start: runs.RunStart, create: Callable[[runs.RunStart], Awaitable[stores.Created]]
    ) -> tuple[runs.RunStart, stores.Created]:
        """Create a run, under another id if a run has its id already, and return its start, too.

        Raises:
            errors.ControlRoomError: as `create`.
        """
        for _ in range(_IDS_TRIED):
            with contextlib.suppress(errors.RunExists):
                return start, await create(start)
            start = dataclasses.replace(start, **self._identity())
        return start, await create(start)

    def agent(self, start: runs.RunStart, name: str) -> Mapping[str, Any] | None:
        """Return an agent that a run froze or that is configured now, or one made of a backend's name; else None."""
        frozen = start.frozen.get("agents")
        agents: list[Any] = list(frozen.values()) if isinstance(frozen, dict) else []
        if start.dialect not in flows.DRIVERS:
            agents += [agent.to_json() for agent in self._catalogue.get(start.recipe_id).definition_cache.agents]
        found = next((agent for agent in agents if isinstance(agent, dict) and agent.get("id") == name), None)
        return {"id": name, "backend": name} if found is None and name in self.rules.backends else found

    def _renew(self, start: runs.RunStart, request: ResumeRequest) -> dict[str, plain.Json]:
        if start.dialect in flows.DRIVERS:
            raise requests.unchangeable(request, start.recipe_id)
        args, options = {**start.args, **(request.args or {})}, {**start.options, **(request.options or {})}
        if not request.current_recipe:
            recipe = self._as_frozen(start)
            fields = {"args": arguments.fit(args, recipe)}
        else:
            recipe_version = self._catalogue.get(start.recipe_id)
            recipe, fields = recipe_version.recipe, {"args": recipe_version.fit(args), **recipe_version.frozen()}
        arguments.check_options(options, recipe)
        self._refuse_unknown_backend(recipe, fields["args"])
        return fields | {"options": options}

    def _depth(self, request: StartRequest, parent: runs.RunStart | None) -> int:
        depth = parent.depth + 1 if parent else request.runs_above or 0
        if depth > self.rules.max_depth:
            message = f"maximum run depth is {self.rules.max_depth}; this run would be at depth {depth}"
            flaw = errors.Flaw(path="$.parent_run_id", code="too_deep", message=message)
            raise errors.RequestInvalid(message, code="depth_exceeded", flaws=[flaw])
        return depth

    def _unroutable(self, reason: str) -> errors.Unroutable:
        usable = (entry.recipe for entry in self._catalogue.all() if entry.usable)
        there = [recipe for recipe in usable if recipe is not None and recipe.task_patterns]
        named = [f"{recipe.recipe_id} ({recipe.task_patterns[0]})" for recipe in there[:_RECIPES_NAMED]]
        hint = f" Descriptions can find: {'; '.join(named)}." if named else ""
        recipes: plain.Json = [
            {"recipe_id": recipe.recipe_id, "task_patterns": list(recipe.task_patterns)} for recipe in there
        ]
        message = f"{reason}{hint} To choose the recipe yourself, name it in recipe_id."
        return errors.Unroutable(message, detail={"reason": reason, "recipes": recipes})

    def _choose(self, request: StartRequest) -> tuple[RecipeVersion, Mapping[str, plain.Json]]:
        if request.recipe is not None:
            return self._brought(request), {}
        if request.recipe_id is not None:
            return self._catalogue.get(request.recipe_id), {}
        routed = self._route(request.description or "")
        if not routed.routable or routed.recipe_id is None:
            raise self._unroutable(routed.reason)
        recipe_version = self._catalogue.get(routed.recipe_id)
        declared = arguments.declared(recipe_version.recipe.args_schema)
        return recipe_version, {name: value for name, value in routed.initial_args.items() if name in declared}

    def _found(
        self, recipe: library.Recipe, request: StartRequest, seeds: Mapping[str, plain.Json], working_dir: str
    ) -> story_args.Found:
        """Search the project for arguments that neither the request nor its description gives."""
        from app.services import story_args

        if recipe.dialect != PROJECT_DIALECT:
            return story_args.Found()
        return story_args.find(
            recipe,
            {**seeds, **request.args},
            description=request.description or "",
            working_dir=working_dir,
            hidden=self._workspaces.reserved,
            planned=request.session_plan_task_id is not None,
            named=frozenset(seeds) - frozenset(request.args),
        )

    def _refuse_unknown_backend(self, recipe: library.Recipe, args: Mapping[str, plain.Json]) -> None:
        name, backends = recipe.speaks_through, self.rules.backends
        if name is None or args.get(name) in (None, *backends):
            return
        message = (
            f"there is no backend {json_words.shown(args[name])}; {json_files.nearest(str(args[name]), list(backends))}"
        )
        flaw = errors.Flaw(path=f"$.args.{name}", code="unknown_backend", message=message)
        detail = {"backend": args[name], "backends": list(backends)}
        raise errors.RequestInvalid(message, code="unknown_backend", flaws=[flaw], detail=detail)

    def _brought(self, request: StartRequest) -> RecipeVersion:
        if not self.rules.inline_recipes:
            message = "inline recipes are disabled; set CONTROL_ROOM_INLINE_RECIPES to allow them"
            flaw = errors.Flaw(path="$.recipe", code="inline_recipes_off", message=message)
            raise errors.RequestInvalid(message, code="inline_recipes_off", flaws=[flaw])
        source = request.recipe if isinstance(request.recipe, str) else json.dumps(request.recipe)
        examined = self._catalogue.examine(source, request.dialect, "inline")
        if examined.recipe_version is None or examined.flaws:
            raise errors.RecipeInvalid("the inline recipe is not valid", flaws=examined.flaws)
        return examined.recipe_version

    def _as_frozen(self, start: runs.RunStart) -> library.Recipe:
        source = json.dumps(start.recipe, ensure_ascii=False)
        return self._catalogue.dialect(start.dialect).parse(source, start.recipe_id)


def _searches_project(recipe: library.Recipe, args: Mapping[str, plain.Json]) -> bool:
    """Return whether arguments of a recipe are searched in the files of the project."""
    if recipe.dialect != PROJECT_DIALECT:
        return False
    from app.services import story_args

    return bool(story_args.wanted(recipe, args))
