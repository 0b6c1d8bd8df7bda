"""Preflight: shows the steps that a request would run, their agents, and missing prerequisites, without writing."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app import errors
from app.domain import access, graphs, limits, plain, runs, shapes
from app.domain.approvals import Approvals
from app.domain.limits import NO_LIMITS, RunLimits
from app.engine import ports, stores
from app.services import conversation_binding, run_graphs, voting, worst_cases
from app.services.recipes import Catalogue
from app.services.requests import StartRequest
from app.services.starting import Starter
from app.tools import failures, reserved, workspace

_ACTING = ("agent", "tool")
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlanned(shapes.Shape):
    """A step that a run could take."""

    key: str  # Its node in the graph; the key of its first visit if it is not in a loop.
    kind: graphs.NodeKind  # Kind of the step.
    title: str  # Name for people.
    agent: str | None  # Agent or role of the step.
    tool: str | None  # Tool of the step.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlanned(shapes.Shape):
    """An agent that a run could ask."""

    agent_id: str  # Id of the agent.
    backend: str  # Backend of the agent.
    model: str | None  # Model named for the agent; None: the backend's own.
    ready: bool  # Whether its backend can be used here.
    fault: str | None  # Why the backend cannot be used, with advice.


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport(shapes.Shape):
    """The run that a request would start."""

    recipe_id: str | None  # Chosen recipe; None if none is chosen.
    dialect: str | None  # Language of the recipe.
    ok: bool  # Whether `POST /api/runs` would accept the request now.
    problems: tuple[errors.Flaw, ...]  # All obstacles.
    steps: tuple[StepPlanned, ...]  # Its steps, in the order of the recipe, at most 2,000.
    agents: tuple[AgentPlanned, ...]  # Agents that the run could ask.
    calls_at_most: int | None
    """Most calls of agents in the worst case, by loops, guardrails and retries, or by its limits; None: unknown."""
    workspace: str | None  # Folder in which the run would work.
    note: str | None  # Why no limit of the calls is known.
    description: str | None  # Task of the run.
    args: Mapping[str, plain.Json]  # Its arguments, completed with defaults and with values found in the project.
    working_dir: str | None  # The same as `workspace`.
    labels: Mapping[str, str]  # Its labels.
    priority: int  # Its priority.
    recipe_sha256: str | None  # Hash of the recipe.
    graph: graphs.Graph | None  # Its flow.
    cost_at_most_usd: float | None = None
    """Highest price of agents' calls, by its limits, or by the calls and the highest price of each; None: unknown."""
    tokens_at_most: int | None = None  # Most tokens read and written, determined likewise; None: unknown.
    unbounded: tuple[str, ...] = ()  # Why a worst case is unknown, with the agent or step that causes this.
    limits: RunLimits = shapes.omitted(NO_LIMITS)  # Its limits, including those of policies.
    approvals: Approvals | None = shapes.omitted()  # Approvals that its gates need, by the request or a policy.
    warnings: tuple[errors.Flaw, ...] = ()
    """What does not prevent the start: arguments that would make a step fail, by a path out of the workspace or a
    missing file, and runs for which this one would wait now: `workspace_busy`, `concurrency`.
    """
    paths_checked: bool = True
    """Whether `warnings` covers every file that an argument names. False: texts of arguments are used in prompts and
    commands, and the recipe does not declare which of them name files.
    """


class Preflight:
    """Examines requests without starting them.

    Args:
        can_wait: Whether runs can wait here for other runs; in the process of a command they cannot.
    """

    def __init__(
        self,
        starter: Starter,
        catalogue: Catalogue,
        refuse_locked: Callable[[Mapping[str, plain.Json]], Awaitable[None]],
        store: stores.RunStore,
        *,
        can_wait: bool = True,
    ) -> None:
        self._starter = starter
        self._catalogue = catalogue
        self._refuse_locked = refuse_locked
        self._store = store
        self._can_wait = can_wait

    async def report(self, request: StartRequest, scope: access.Scope | None = None) -> PreflightReport:
        """Return the run that a request would start; a refused request is reported with its problems.

        Args:
            scope: Runs that the caller may see; None: all.

        Raises:
            errors.ControlRoomError: faults other than the request's.
        """
        await self._catalogue.refresh()
        try:
            return await self.examine(request, scope)
        except (errors.InputRefused, errors.Unroutable) as error:
            return _refused(request, error)

    async def examine(self, request: StartRequest, scope: access.Scope | None = None) -> PreflightReport:
        """Return the run that a request would start.

        Args:
            scope: Runs that the caller may see; None: all.

        Raises:
            errors.RequestInvalid, errors.Unroutable: the request cannot become a run.
        """
        report, start = await asyncio.to_thread(self._examined, request)
        problems = report.problems
        try:
            await self._refuse_locked(report.args)
        except (errors.Conflict, errors.InputRefused) as error:
            place = f"$.args.{conversation_binding.ARGUMENT}"
            problems += (errors.Flaw(path=place, code=error.code, message=error.message),)
        # Only previews need it.
        from app.services import start_obstacles

        others = await start_obstacles.of(self._store, request, start, scope, can_wait=self._can_wait)
        problems += others.refusals
        return dataclasses.replace(
            report, ok=not problems, problems=problems, warnings=(*report.warnings, *others.waits)
        )

    def _examined(self, request: StartRequest) -> tuple[PreflightReport, runs.RunStart]:
        """Return the report without what other runs hold, and the start; meant for a thread, since it reads files."""
        start, recipe_version = self._starter.examine(request)
        driver = self._catalogue.dialect(start.dialect)
        lacks: tuple[errors.Flaw, ...] = ()
        try:
            self._catalogue.refuse_unready(recipe_version, start.args)
        except errors.NotReady as missing:
            lacks = missing.flaws
        limit = driver.call_limit(start) if isinstance(driver, ports.BoundedDriver) else limits.CallLimit(most=None)
        drawing = run_graphs.drawn(driver, start.recipe, start.frozen)
        named = driver.path_args(start.recipe) if isinstance(driver, ports.PathArgsDialect) else {}
        agents = list(worst_cases.agents_of(start, recipe_version.recipe.speaks_through))
        worst = worst_cases.of_run(start, limit, agents, self._starter.rules.worst_call)
        if start.approvals is not None:
            flaw = voting.lacking(start, self._starter.rules.approvers())
            lacks += () if flaw is None else (flaw,)
        report = PreflightReport(
            recipe_id=start.recipe_id,
            dialect=start.dialect,
            ok=not lacks,
            problems=lacks,
            steps=tuple(
                _step(node) for node in drawing.nodes[: graphs.MOST_NODES] if node.kind not in ("start", "end")
            ),
            agents=tuple(map(self._agent, agents)),
            calls_at_most=worst.calls,
            workspace=start.working_dir,
            note=limit.note if worst.calls is None else None,
            description=start.description,
            args=start.args,
            working_dir=start.working_dir,
            labels=start.labels,
            priority=start.priority,
            recipe_sha256=start.recipe_sha256,
            graph=run_graphs.of_recipe(recipe_version.recipe, driver, recipe_version),
            cost_at_most_usd=worst.cost_usd,
            tokens_at_most=worst.tokens,
            unbounded=worst.unbounded,
            limits=start.limits,
            approvals=start.approvals,
            warnings=self._warnings(named, start),
            paths_checked=getattr(driver, "declares_paths", False)
            or not any(_has_text(value) for name, value in start.args.items() if name not in named),
        )
        return report, start

    def _warnings(self, named: Mapping[str, bool], start: runs.RunStart) -> tuple[errors.Flaw, ...]:
        # A task of a plan may read files that earlier tasks write.
        if start.session_plan_task_id is not None:
            return ()
        return tuple(_path_flaws(start.args, named, start.working_dir, self._starter.hidden))

    def _agent(self, agent: Mapping[str, Any]) -> AgentPlanned:
        fault = self._catalogue.readiness.backend_fault(agent["backend"], agent.get("model"))
        return AgentPlanned(
            agent_id=agent["id"],
            backend=agent["backend"],
            model=agent.get("model"),
            ready=fault is None,
            fault=fault,
        )


def _has_text(value: plain.Json) -> bool:
    return any(isinstance(item, str) and item for item in (value if isinstance(value, list) else [value]))


def _step(node: graphs.Node) -> StepPlanned:
    agent, tool = (node.actor if node.kind == kind else None for kind in _ACTING)
    return StepPlanned(key=node.id, kind=node.kind, title=node.label, agent=agent, tool=tool)


def _refused(request: StartRequest, error: errors.ControlRoomError) -> PreflightReport:
    flaws = error.flaws if isinstance(error, errors.InputRefused) else ()
    problems = flaws or (errors.Flaw(path="$", code=error.code, message=error.message),)
    return PreflightReport(
        recipe_id=request.recipe_id,
        dialect=None,
        ok=False,
        problems=tuple(problems),
        steps=(),
        agents=(),
        calls_at_most=None,
        workspace=None,
        note=None,
        description=request.description or None,
        args=dict(request.args),
        working_dir=None,
        labels=dict(request.labels),
        priority=request.priority,
        recipe_sha256=None,
        graph=None,
    )


def _path_flaws(
    args: Mapping[str, plain.Json], named: Mapping[str, bool], working_dir: str, hidden: reserved.Reserved
) -> Iterator[errors.Flaw]:
    """Yield the paths that lead out of the workspace, or that a step reads and that do not exist.

    Args:
        named: Arguments that name files, and whether a step reads them.
        hidden: Files in the working folder that steps must not see.
    """
    files = workspace.Workspace(reserved.Root.of(Path(working_dir), hidden))
    for name, is_read in named.items():
        given = args.get(name)
        for number, path in enumerate(given if isinstance(given, list) else [given]):
            if not isinstance(path, str):
                continue
            try:
                # Which files a pattern matches is known only when its step runs.
                if files.kind(path) is not None or not is_read or _PATTERN.search(path):
                    continue
                failure = failures.missing(path)
            except errors.ToolFailed as outside:
                failure = outside
            place = f"$.args.{name}[{number}]" if isinstance(given, list) else f"$.args.{name}"
            yield errors.Flaw(path=place, code=failure.code, message=f"argument {name}: {failure.message}")
