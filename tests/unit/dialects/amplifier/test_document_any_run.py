"""Any valid recipe with any replies: its run ends, reports its failures, and repeats no step after a restart."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import hypothesis
from hypothesis import strategies as st

from app.domain.states import RunState
from tests.examples import examples
from tests.unit.dialects.amplifier import recipe_harness
from tests.unit.dialects.amplifier.recipe_harness import broke, later, printed

CONTEXT = {"l": ["a", "b", "c"], "e": [], "o": {"l": [1, 2], "n": 3}, "x": "x", "n": 2, "w": "go"}
VARIABLES = ["x", "n", "o", "o.n", "o.l", "l", "item", "v", "v.n", "v.l", "step.id", "session.id", "gone"]
ENDS = (RunState.DONE, RunState.FAILED)

_names = st.sampled_from(["v", "x", "o"])
_texts = st.lists(st.sampled_from(VARIABLES), max_size=2).map(
    lambda names: " ".join(f"{{{{{name}}}}}" for name in names)
)
_conditions = st.sampled_from(["{{n}} > 1", "{{n}} != 0"]) | st.builds(
    lambda name, sign, other: f"{{{{{name}}}}} {sign} {other}",
    st.sampled_from(VARIABLES),
    st.sampled_from(["==", "!=", "!="]),
    st.sampled_from(["'x'", "2", "{{n}}", "true"]),
)
_lists = st.sampled_from(["{{l}}", "{{e}}", "{{o.l}}", "{{v.l}}", "{{x}}", "{{item}}"])
_widths = st.sampled_from([True, False, 1, 2])
_replies = st.sampled_from(
    ["fine", '{"n": 3, "l": [1, 2]}', "", '["x"]', broke(), broke("rate_limited"), broke("agent_timeout")]
)
_loops = st.fixed_dictionaries(
    {"foreach": _lists},
    optional={
        "parallel": _widths,
        "continue_on_error": st.booleans(),
        "max_iterations": st.integers(1, 3),
        "break_if": _conditions,
        "index_as": st.just("i"),
    },
)
_repeated = st.fixed_dictionaries(
    {"while_condition": _conditions},
    optional={
        "max_iterations": st.integers(1, 3),
        "update_context": st.fixed_dictionaries({"w": _texts}),
        "break_when": _conditions,
        "continue_on_error": st.booleans(),
    },
)
_around: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    _loops,
    st.tuples(_loops, _loops).map(lambda both: {**both[0], "nested_foreach": {**both[1], "as": "inner"}}),
    _repeated,
)
_more = st.fixed_dictionaries(
    {},
    optional={
        "condition": _conditions,
        "output": _names,
        "collect": st.just("v"),
        "on_error": st.sampled_from(["fail", "continue", "skip_remaining"]),
    },
)
_retries = st.fixed_dictionaries({}, optional={"retry": st.just({"max_attempts": 2, "initial_delay": 1})})
_asking = st.builds(
    lambda prompt, retry, json: {"agent": "helper", "prompt": f"Do {prompt}", **retry, **json},
    _texts,
    _retries,
    st.fixed_dictionaries({}, optional={"parse_json": st.booleans()}),
)
_commands = st.builds(lambda text: {"type": "bash", "command": f'echo "{text}"', "output_exit_code": "n"}, _texts)


def _grouped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda steps, more: {"substeps": steps, **more},
        st.lists(inner, min_size=1, max_size=3),
        st.fixed_dictionaries({}, optional={"parallel": _widths, "continue_on_error": st.booleans()}),
    )


_steps = st.recursive(
    st.builds(lambda *parts: {key: item for part in parts for key, item in part.items()}, _more, _around, _asking)
    | st.builds(lambda *parts: {key: item for part in parts for key, item in part.items()}, _more, _commands),
    lambda inner: st.builds(
        lambda *parts: {key: item for part in parts for key, item in part.items()}, _more, _around, _grouped(inner)
    ),
    max_leaves=5,
)
_limits = st.fixed_dictionaries(
    {},
    optional={
        "rate_limiting": st.sampled_from([{"max_concurrent_llm": 2}, {"min_delay_ms": 100}]),
        "recursion": st.just({"max_total_steps": 12}),
        "final_output": _names,
    },
)


def _numbered(steps: list[Any], counter: Any) -> list[Any]:
    made = []
    for one in steps:
        below = {"substeps": _numbered(one["substeps"], counter)} if "substeps" in one else {}
        made.append({"id": f"s{next(counter)}", **one, **below})
    return made


def _fitting(document: dict[str, Any]) -> dict[str, Any] | None:
    """Return a recipe without its refused fields and steps, or None if it has no other steps."""
    for _ in range(12):
        found = recipe_harness.own_flaws(document)
        if not found:
            return document
        for flaw in found:
            _cut(document, flaw.path)
        if not document["steps"]:
            return None
    return None


def _cut(document: Any, path: str) -> None:
    parts: list[Any] = []
    for piece in path.removeprefix("$").lstrip(".").replace("[", ".[").split("."):
        parts.append(int(piece[1:-1]) if piece.startswith("[") else piece)
    holder, last = document, parts[-1]
    if last in ("prompt", "command", "substeps", "agent", "id"):
        parts = parts[:-1]
        last = parts[-1]
    for part in parts[:-1]:
        try:
            holder = holder[part]
        except (KeyError, IndexError):
            return
    if isinstance(holder, list):
        if last < len(holder):
            holder[last] = {"id": f"t{id(holder) % 1000}x{last}", "agent": "helper", "prompt": "Do."}
    else:
        holder.pop(last, None)


class _StubWork(recipe_harness.StubWork):
    def __init__(self, said: list[Any]) -> None:
        super().__init__()
        self.said = said

    def _usual(self, call: Any) -> Any:
        said = self.said[sum(map(ord, call.key)) % len(self.said)]
        if call.operation.kind == "agent_call":
            return said
        return printed(said) if call.operation.kind == "command" and isinstance(said, str) else super()._usual(call)


def _run(document: Any, said: list[Any]) -> recipe_harness.Run:
    made = recipe_harness.Run(document)
    made.stub = _StubWork(said)
    return made


@hypothesis.settings(max_examples=examples(30), deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    st.lists(_steps, min_size=1, max_size=3), _limits, st.lists(_replies, min_size=1, max_size=5), st.integers(0, 40)
)
def test_any_run_ends_and_can_be_cut_anywhere(steps: list[Any], limits: Any, said: list[Any], cut: int) -> None:
    """No valid recipe parks its run; a run cut after any record ends alike, and a resume repeats no kept step."""
    document = _fitting(later(*_numbered(steps, itertools.count(1)), context=CONTEXT, **limits))
    hypothesis.assume(document is not None)

    async def lives() -> None:
        whole, again = _run(document, said), _run(document, said)
        assert await whole.run() in ENDS, whole.error
        again.disk.steps = whole.disk.steps[: cut % (len(whole.disk.steps) + 1)]
        recorded = {(line["key"], line["attempt"]) for line in again.lines()}
        assert await again.run() in ENDS, again.error
        assert recorded.isdisjoint(again.stub.asked)
        # Any of several parallel branches may be the first to fail.
        if not (whole.manifest["ending"]["failed_steps"] and "'parallel'" in repr(document)):
            assert again.manifest["ending"] == whole.manifest["ending"]
            assert again.manifest["error"] == whole.manifest["error"]
            assert again.slots == whole.slots
        if whole.manifest["status"] == "failed":
            kept = {line["key"] for line in whole.lines() if line["status"] == "done"}
            causes = {whole.error["key"]}
            before = len(whole.stub.asked)
            assert await whole.resume() in ENDS, whole.error
            assert (kept - causes).isdisjoint(key for key, _ in whole.stub.asked[before:])

    asyncio.run(lives())
