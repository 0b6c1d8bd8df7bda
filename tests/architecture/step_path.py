"""A measurement of a step's path: which functions of `app` a run calls, in every thread, from `POST` to its end."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import httpx

import app
from app import bootstrap, clock, main, settings
from app.domain import library, operations, records, runs, slots
from app.engine import ports
from tests import json_dialect

_ROOT = f"{Path(app.__file__).parent}/"
_FEW, _MANY = 1, 10
_REPETITIONS = 4
_WARM_UP = 3
_SLOWNESS = 50
_BETWEEN_RUNS_SECONDS = 0.6
_OF_EACH_STEP = 7
"""A function belongs to each step if a run of ten steps calls it at least this often more than a run of one."""

Calls = collections.Counter[tuple[str, str]]
"""Calls by module and function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """The calls and modules in a part of the path."""

    calls: int
    """Number of calls; a coroutine that is resumed counts as one."""
    modules: frozenset[str]
    """Modules, by their path in `app`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPath:
    """The path of one run."""

    post: Crossed
    """From a request to start a run to its answer."""
    step: Crossed
    """The addition of each further step to that run, with the polls for it."""


def measure(folder: Path) -> StepPath:
    """Execute runs of one and of ten steps, several times each, and count their calls.

    Every repetition makes the calls of a path, but not those of timers and polls that come in between. So each function
    counts with its fewest calls in any repetition.
    """
    posts, few = _fewest(folder / "few", _FEW)
    _, many = _fewest(folder / "many", _MANY)
    each = {function for function in many if many[function] - few[function] >= _OF_EACH_STEP}
    further = sum(max(0, many[function] - few[function]) for function in many) / (_MANY - _FEW)
    return StepPath(
        post=Crossed(calls=posts.total(), modules=frozenset(module for module, _ in posts)),
        step=Crossed(calls=round(further), modules=frozenset(module for module, _ in each)),
    )


def _fewest(folder: Path, steps: int) -> tuple[Calls, Calls]:
    folder.mkdir()
    tracer = _Tracer()
    with tracer.installed():
        traced = [_traced(folder / str(number), steps, tracer) for number in range(_REPETITIONS)]
    posts, runs_after = traced[0]
    for post, after in traced[1:]:
        posts &= post
        runs_after &= after
    return posts, runs_after


class _PacedClock(clock.SystemClock):
    """A clock that advances from run to run: for the last run, files written before the first one are old."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() / _SLOWNESS + self.ahead_seconds


class _SlowLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes slowly: on a busy machine no timer expires between two steps."""

    def time(self) -> float:
        return super().time() / _SLOWNESS


def _traced(folder: Path, steps: int, tracer: _Tracer) -> tuple[Calls, Calls]:
    with asyncio.Runner(loop_factory=_SlowLoop) as runner:
        return runner.run(_execute(folder, steps, tracer))


async def _execute(folder: Path, steps: int, tracer: _Tracer) -> tuple[Calls, Calls]:
    recipes = folder / ".control-room" / "recipes" / _NAME
    recipes.mkdir(parents=True)
    (recipes / "count.json").write_text(json.dumps({"steps": steps}), encoding="utf-8")
    chosen = settings.load({}, project=folder, home=folder, port=0, log_level="warning")
    time = _PacedClock()
    service = main.create_app(chosen, _platform(time))
    transport = httpx.ASGITransport(app=service)
    async with (
        service.router.lifespan_context(service),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http,
    ):
        for _ in range(_WARM_UP):
            await _until_done(http, await _start(http))
            time.ahead_seconds += _BETWEEN_RUNS_SECONDS
        post: Calls = collections.Counter()
        tracer.calls = post
        run_id = await _start(http)
        after: Calls = collections.Counter()
        tracer.calls = after
        await _until_done(http, run_id)
        tracer.calls = None
        return post, after


async def _start(http: httpx.AsyncClient) -> str:
    response = await http.post("/api/runs", json={"recipe_id": "count"})
    return str(response.json()["run_id"])


async def _until_done(http: httpx.AsyncClient, run_id: str) -> None:
    while (await http.get(f"/api/runs/{run_id}", params={"wait": 5})).json()["status"] != "done":
        continue


class _Tracer:
    """Counts calls in all threads that begin while it is installed, as long as `calls` is set."""

    def __init__(self) -> None:
        self.calls: Calls | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if self.calls is not None and event == "call" and path.startswith(_ROOT):
            self.calls[path[len(_ROOT) :], frame.f_code.co_qualname] += 1

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        sys.setprofile(self)
        threading.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


_NAME = "counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nothing(operations.Operation):
    kind: ClassVar[str] = "nothing"


class _Performer:
    async def perform(self, call: ports.Call) -> records.Result:
        return records.Result(output="ok")


class _Counted(json_dialect.JsonDialect):
    """A recipe language whose steps do no work and fill a slot each."""

    name = _NAME

    def parse(self, source: str, stem: str) -> library.Recipe:
        recipe = super().parse(source, stem)
        return dataclasses.replace(recipe, total_steps=recipe.document["steps"])

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        total = ctx.run.recipe["steps"]
        for index in range(total):
            key = f"step-{index}"
            record = await ctx.perform(key, _Nothing(), records.Place(step_id=key, step_index=index, output_slot=key))
            digest = record.output_sha256 or ""
            ctx.fill(key, slots.Slot(type="artifact", text="ok", sha256=digest, summary="", key=key))
            ctx.show(slots.Progress(finished_steps=index + 1, total_steps=total))
        return runs.Ending()


def _platform(time: clock.Clock) -> bootstrap.Platform:
    real = bootstrap.real_platform({})
    performers: Mapping[str, ports.Performer] = {_Nothing.kind: _Performer()}
    return dataclasses.replace(real, clock=time, dialects={**real.dialects, _NAME: _Counted()}, performers=performers)
