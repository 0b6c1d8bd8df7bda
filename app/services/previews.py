"""Previews: show what a resume or a fork would do, step by step, without doing it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from app import errors
from app.domain import limits, records, runs, usage_sums, views
from app.engine import fork_replay, ports, resuming, stores
from app.services import conversation_binding, faults, fork_requests, preview_reasons, run_reader, worst_cases
from app.services.fork_requests import Action, ForkRequest, Order, PreviewReport, StepPreviewed
from app.services.forking import Forks
from app.services.preview_reasons import Reasons
from app.services.resumptions import Resumptions
from app.services.starting import Starter

_MOST_STEPS = 2000


class Previews:
    """Reports the effects of orders."""

    def __init__(
        self,
        forks: Forks,
        resumptions: Resumptions,
        starter: Starter,
        drivers: Mapping[str, ports.Driver],
        resumable: Callable[[str], Awaitable[views.RunView]],
    ) -> None:
        self._forks = forks
        self._resumptions = resumptions
        self._starter = starter
        self._drivers = drivers
        self._resumable = resumable

    async def report(
        self, run_id: str, order: Order, request: ForkRequest, *, as_it_was: bool = False, is_executed: bool = False
    ) -> PreviewReport:
        """Return what an order would do; one that would be refused is reported with the problems.

        Args:
            as_it_was: Whether a resume would only let a process execute the run again, whatever its state.
            is_executed: Whether a process executes the run now.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the run does not exist, or is damaged.
        """
        run_reader.check_run_id(run_id)
        try:
            with faults.as_errors():
                if order == "fork":
                    return await self._fork(run_id, request)
                if not as_it_was:
                    view = await self._resumable(run_id)
                    if request.new_conversation:
                        conversation_binding.begun_again(view)
                if is_executed:
                    raise errors.Conflict(f"run {run_id} is being written by another process", code="run_busy")
                return await self._resume(run_id, request)
        except errors.NotFound:
            raise
        except (errors.InputRefused, errors.Conflict, errors.WrongState) as error:
            return _refused(run_id, order, error)

    async def _fork(self, run_id: str, request: ForkRequest) -> PreviewReport:
        planned = await self._forks.planned(run_id, request)
        replayed = planned.replayed
        kept = {record.position for record in replayed.kept}
        named = request.from_key is not None or request.line is not None
        why = Reasons(
            finished=replayed.finished,
            kept="the fork asks for exactly this",
            left_out=planned.left_out,
            root=preview_reasons.NAMED if named else preview_reasons.CAUSE,
            differs=replayed.differs,
        )
        return self._report(run_id, "fork", planned.start, planned.source, kept, why, replayed)

    async def _resume(self, run_id: str, request: ForkRequest) -> PreviewReport:
        wanted = request.resume()
        planned = await self._resumptions.planned(run_id, wanted)
        replayed, dead = planned.replayed, planned.dead
        if replayed.differs is not None:
            # A resume keeps its lines, so all of them must fit.
            message = resuming.misfit(
                planned.source.start, planned.start, replayed.differs.key, replayed.differs.message
            )
            raise errors.RequestInvalid(message, code="recipe_differs", key=replayed.differs.key)
        await self._resumptions.below(run_id, wanted)
        why = Reasons(
            finished=replayed.finished,
            kept="it is finished",
            left_out=dead,
            root=preview_reasons.NAMED if wanted.from_key is not None else preview_reasons.CAUSE,
            differs=None,
        )
        kept = {record.position for record in planned.candidates}
        return self._report(run_id, "resume", planned.start, planned.source, kept, why, replayed)

    def _report(
        self,
        run_id: str,
        order: Order,
        start: runs.RunStart,
        source: stores.Loaded,
        kept: AbstractSet[int],
        why: Reasons,
        replayed: fork_replay.Replayed,
    ) -> PreviewReport:
        living = fork_replay.living(source)
        others = [record for record in living if record.position not in kept]
        again = [] if replayed.finished else others
        paid = source.records if order == "resume" else ()
        bound, left = self._limit(start, replayed), _left(start, paid)
        made = _calls(source) if order == "resume" else 0
        limit = _limited(bound, start.limits.calls, made)
        driver = self._drivers[start.dialect]
        through = driver.speaks_through if isinstance(driver, ports.ConversingDriver) else None
        agents = worst_cases.agents_of(start, through)
        worst = worst_cases.of_run(left, limit, agents, self._starter.rules.worst_call)
        return PreviewReport(
            run_id=run_id,
            order=order,
            ok=True,
            problems=(),
            steps=tuple([*_steps(living, kept, why, order), *_next(replayed, again)][:_MOST_STEPS]),
            taken_over=len(living) - len(others),
            again=len(again),
            finished=replayed.finished,
            calls_at_most=limit.most,
            cost_usd_at_most=worst.cost_usd,
            paid_before=usage_sums.UsageTally(again).total,
            note=None if bound.most == 0 else _used_up(limit, left.limits) or _unknown(limit, worst),
            workspace=start.working_dir,
            workspace_note=fork_requests.WORKSPACE_NOTE,
        )

    def _limit(self, start: runs.RunStart, replayed: fork_replay.Replayed) -> limits.CallLimit:
        if replayed.finished:
            return limits.CallLimit(most=0)
        driver = self._drivers[start.dialect]
        if not isinstance(driver, ports.BoundedDriver):
            return limits.CallLimit(most=None, note="Runs of this kind have no known limit of their calls.")
        kept = [record.key for record in replayed.kept if _is_answered(record)]
        if isinstance(driver, ports.SettlingDriver):
            return driver.calls_left(start, kept, replayed.asks.keys())
        # The worst case of the whole run includes the calls whose replies are kept.
        return driver.call_limit(start).less(len(kept))


def _limited(limit: limits.CallLimit, allowed: int | None, made: int) -> limits.CallLimit:
    if allowed is None:
        return limit
    left = max(allowed - made, 0)
    return limits.CallLimit(most=left if limit.most is None else min(left, limit.most))


def _left(start: runs.RunStart, paid: Sequence[records.Record]) -> runs.RunStart:
    """Return a start whose limits are reduced to their remainders."""
    if start.limits.cost_usd is None and start.limits.tokens is None:
        return start
    spent = usage_sums.UsageTally(paid).total
    cost = (spent.cost_usd or 0.0) + (spent.cost_estimated_usd or 0.0)
    tokens = (spent.input_tokens or 0) + (spent.output_tokens or 0)
    left = {"cost_usd": cost, "tokens": tokens}
    limits = {name: _less(getattr(start.limits, name), used) for name, used in left.items()}
    return dataclasses.replace(start, limits=start.limits.changed(limits))


def _used_up(limit: limits.CallLimit, left: limits.RunLimits) -> str | None:
    rest = {"calls": None if left.calls is None else limit.most, "tokens": left.tokens, "cost": left.cost_usd}
    name = next((name for name, amount in rest.items() if amount == 0), None)
    return None if name is None else f"the run has used up its limit of {name}, and pauses before its next call"


def _unknown(limit: limits.CallLimit, worst: worst_cases.WorstCase) -> str | None:
    if limit.most is None:
        return limit.note
    reasons = [reason for reason in worst.unbounded if not reason.startswith("tokens:")]
    return None if worst.cost_usd is not None else "; ".join(reasons)


def _less(limit: float | None, used: float) -> float | None:
    return None if limit is None else max(limit - used, 0)


def _calls(source: stores.Loaded) -> int:
    """Return the calls that a run has made, including those that left no line."""
    cut_off = usage_sums.uncharged(source.decisions.reserved, source.records)
    return sum(map(usage_sums.is_call, source.records)) + len(cut_off)


def _is_answered(record: records.Record) -> bool:
    """Return whether a finished step is a call of an agent, or of a model's program, of this run or of its source."""
    return record.line.get("agent_id") is not None or record.line.get("provider") is not None


def _steps(
    living: Iterable[records.Record], kept: AbstractSet[int], why: Reasons, order: Order
) -> Iterator[StepPreviewed]:
    kept_as: Action = "taken_over" if order == "fork" else "kept"
    other: Action = "dropped" if why.finished else "again"
    for record in living:
        is_kept = record.position in kept
        yield StepPreviewed(
            key=record.key,
            action=kept_as if is_kept else other,
            why=why.kept if is_kept else why.other(record),
            usage=record.usage,
            **fork_requests.fields(record.line),
        )


def _next(found: fork_replay.Replayed, again: Sequence[records.Record]) -> Iterator[StepPreviewed]:
    known = {record.key for record in again}
    for key, ask in found.asks.items():
        if key not in known:
            agent_id, tool = getattr(ask.operation, "agent_id", None), getattr(ask.operation, "tool", None)
            yield StepPreviewed(key=key, action="next", why="it has not been finished", agent_id=agent_id, tool=tool)


def _refused(run_id: str, order: Order, error: errors.ControlRoomError) -> PreviewReport:
    return PreviewReport(
        run_id=run_id,
        order=order,
        ok=False,
        problems=fork_requests.as_flaws(error),
        steps=(),
        taken_over=0,
        again=0,
        finished=False,
        calls_at_most=None,
        cost_usd_at_most=None,
        paid_before=records.Usage(),
        note=None,
        workspace=None,
        workspace_note=fork_requests.WORKSPACE_NOTE,
    )
