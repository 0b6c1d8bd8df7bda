"""The graph of a pipeline: its steps, the slots that flow between them, and what follows the last one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from app.dialects.control_room import done, prompts, refs
from app.domain import graphs, plain
from app.domain.records import Record
from app.domain.states import StepState

_FINDINGS = "findings"
_FINDING = "finding["
_ISSUE = ".issue"


def draw(document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
    """Return steps in order with the slots between them, then outputs, findings and the definition of done."""
    nodes = [*_tools(document), *_agents(document, frozen.get("prompts", {})), *_closing(document)]
    outer = [node for node in nodes if node.group is None]
    order = [graphs.Edge(source=one.id, target=other.id) for one, other in itertools.pairwise(outer)]
    inner = _inside([node for node in nodes if node.group is not None])
    by_id = {node.id: node for node in nodes}
    return graphs.Drawing(
        nodes=nodes,
        edges=[*order, *inner, *_slots_between(document)],
        locator=lambda: lambda key, record: _locate(by_id, key, record),
    )


def _steps(document: plain.Object, phase: str) -> list[plain.Object]:
    return [step for step in document.get(phase, ()) if step is not None]


def _tools(document: plain.Object) -> Iterator[graphs.Node]:
    for step in _steps(document, "phase_a"):
        yield graphs.Node(
            id=step["step_id"], label=f"{step['step_id']}: {step['tool']}", kind="tool", phase="a", actor=step["tool"]
        )


def _agents(document: plain.Object, templates: Mapping[str, plain.Object]) -> Iterator[graphs.Node]:
    for step in _steps(document, "phase_b"):
        step_id = step["step_id"]
        yield graphs.Node(
            id=step_id,
            label=f"{step_id}: {step['agent_archetype']}",
            kind="agent",
            phase="b",
            actor=step["agent_archetype"],
        )
        if templates.get(step_id, {}).get("tier") == "t1":
            for name in prompts.MICRO_STEPS:
                yield graphs.Node(id=f"{step_id}.{name}", label=name, kind="agent", phase="b", group=step_id)


def _closing(document: plain.Object) -> Iterator[graphs.Node]:
    for output in document.get("outputs", ()):
        yield graphs.Node(id=f"commit.{output['slot']}", label=f"write {output['slot']}", kind="step", phase="dod")
    if _FINDINGS in document:
        label = f"issues from {document[_FINDINGS]['$ref']}"
        yield graphs.Node(id=_FINDINGS, label=label, kind="step", phase="dod")
    for index, check in enumerate(document.get("dod", ())):
        label = ": ".join([check["check"], *([check["slot"]] if "slot" in check else [])])
        yield graphs.Node(id=f"dod[{index}]", label=label, kind="check", phase="dod")


def _inside(parts: list[graphs.Node]) -> Iterator[graphs.Edge]:
    for group, members in itertools.groupby(parts, key=lambda node: node.group):
        for one, other in itertools.pairwise([str(group), *(node.id for node in members)]):
            yield graphs.Edge(source=one, target=other)


def _slots_between(document: plain.Object) -> Iterator[graphs.Edge]:
    reads = {step["step_id"]: list(_references(step.get("args", {}))) for step in _steps(document, "phase_a")}
    reads |= {step["step_id"]: list(step["input_slots"]) for step in _steps(document, "phase_b")}
    for output in document.get("outputs", ()):
        reads[f"commit.{output['slot']}"] = [output["slot"], *_path_roots(output)]
    reads |= {_FINDINGS: list(_references(document.get(_FINDINGS)))} if _FINDINGS in document else {}
    for index, check in enumerate(document.get("dod", ())):
        reads[f"dod[{index}]"] = [check["slot"]] if "slot" in check else _path_roots(check)
    writers = {
        step["output_slot"]: step["step_id"] for phase in ("phase_a", "phase_b") for step in _steps(document, phase)
    }
    for reader, slots in reads.items():
        for slot in dict.fromkeys(slots):
            if slot in writers:
                yield graphs.Edge(source=writers[slot], target=reader, label=slot, kind="data")


def _references(value: plain.Json) -> Iterator[str]:
    return (refs.read(found["$ref"]).root for _, found in refs.found_in(value))


def _path_roots(part: plain.Object) -> list[str]:
    return [reference.root for reference in prompts.named_in_path(part["path"])]


def _locate(nodes: Mapping[str, graphs.Node], key: str, record: Record | None) -> graphs.Location | None:
    node = nodes.get(_owner(nodes, key))
    if node is None:
        return None
    # An issue of a check exists because the check has failed.
    means = StepState.FAILED if key.endswith(_ISSUE) and node.kind == "check" else StepState.DONE
    passage = graphs.Passage(node=node.id, visit=node.id, done_means=means)
    around = () if node.group is None else (graphs.Passage(node=node.group, visit=node.group),)
    # A part that was not needed, such as evidence without a claim, does not change the state of its step.
    is_left_out = key != node.id and record is not None and record.status is StepState.SKIPPED
    return graphs.Location(path=(*around, passage), aside=is_left_out)


def _owner(nodes: Mapping[str, graphs.Node], key: str) -> str:
    if key.startswith(_FINDING):
        return _FINDINGS
    if key == done.CLOSE:
        # This step closes the issues of checks of an earlier try.
        return next((name for name, node in nodes.items() if node.kind == "check"), "")
    while key and key not in nodes:
        key = key.rpartition(".")[0]
    return key
