"""Formats: runs, recipes and checks as text for people."""

from __future__ import annotations

import difflib
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app import printable
from app.cli import options

_WIDEST_CELL = 60
_UNWRITTEN = ("storage_error", "database_away")  # Reasons of runs whose state cannot be written now.
_NEAREST, _RESEMBLANCE = 3, 0.5


def table(names: Sequence[str], rows: Iterable[Sequence[Any]], none: str | None = None, *, whole: bool = False) -> str:
    """Return rows under their headings, or `none` for an empty table; the last column is never padded.

    Args:
        whole: Whether the last column is not cut either, because its text is shown only there.
    """
    cells = [[*map(cell, row[:-1]), _on_one_line(row[-1]) if whole else cell(row[-1])] for row in rows]
    shown = [tuple(name.upper() for name in names), *map(tuple, cells)]
    if none is not None and len(shown) == 1:
        return none
    # All rows are needed before the first is printed, since columns are aligned.
    widths = [max(len(row[column]) for row in shown) for column in range(len(names))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in shown)


def cell(value: Any) -> str:
    """Return a value on one line, cut if it is too long for a column."""
    text = _on_one_line(value)
    return text if len(text) <= _WIDEST_CELL else text[: _WIDEST_CELL - 1] + "…"


def _on_one_line(value: Any) -> str:
    return "-" if value is None or value == "" else " ".join(str(value).split())


def runs(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return a list of runs."""
    names = ("run_id", "status", "recipe_id", "created_at", "started_by", "description")
    return table(names, [[_listed(run).get(name) for name in names] for run in summaries], none="no runs")


def _listed(run: Mapping[str, Any]) -> dict[str, Any]:
    ended = {"denied": "denied", "partial": "in part"}.get(run.get("reason") or "")
    notes = ", ".join(note for note in (ended, "pinned" if run.get("pinned") else None) if note)
    return {
        **run,
        "status": f"{run['status']} ({notes})" if notes else run["status"],
        "started_by": author(by) if (by := run.get("started_by")) else None,
    }


def run(detail: Mapping[str, Any]) -> str:
    """Return a run with its steps and slots."""
    # The line of the ending names the steps that are only partly done.
    reason = None if detail.get("reason") == "partial" else detail.get("reason")
    shown = {**detail, "reason": reason}
    heading = [(name, shown.get(name)) for name in ("run_id", "recipe_id", "forked_from", "status", "reason", "phase")]
    heading += [("task", detail["task"]["description"]), ("progress", _progress(detail))]
    heading += [(name, detail.get(name)) for name in ("created_at", "started_at", "updated_at", "completed_at")]
    heading += [("started by", author(by) if (by := detail.get("started_by")) else None)]
    heading += [("placed on", _placed(placed) if (placed := detail.get("placed")) else None)]
    parts = [facts([(name, value) for name, value in heading if value]), *_ending(detail), *_questions(detail)]
    if detail.get("steps"):
        parts.append(steps(detail["steps"]))
    if detail.get("cache_summary"):
        parts.append(slots(detail["cache_summary"]))
    return "\n\n".join(parts)


def author(found: Mapping[str, Any]) -> str:
    """Return the author of an order: the name, if known, otherwise the interface."""
    return f"{found['name'] or found['via']}{' (claimed)' if found['claimed'] else ''}"


def _placed(found: Mapping[str, Any]) -> str:
    return f"{found['host']} (worker {found['worker']})" if "host" in found else f"worker {found['worker']}"


def _questions(detail: Mapping[str, Any]) -> list[str]:
    """Return the commands that show the open questions of a run."""
    asked = [step["gate_id"] for step in detail.get("steps") or () if step.get("gate_id")]
    rows = [f"it asks; read the question with: control-room gates show {gate_id}{options.again()}" for gate_id in asked]
    return ["\n".join(rows)] if rows else []


def money(amount: float) -> str:
    """Return an amount in dollars, a small one with two significant digits."""
    if not 0 < amount < 0.01:
        return f"${amount:.2f}"
    return f"${amount:.{1 - math.floor(math.log10(amount))}f}"


def explanation(found: Mapping[str, Any]) -> str:
    """Return why a run does not move, the chain of causes, and the commands that continue it."""
    chain = [(link["run_id"], link["kind"], link["since"], link.get("until")) for link in found["chain"]]
    acts = list(dict.fromkeys(options.led(link["act"]) for link in found["chain"] if link.get("act")))
    parts = [printable.one_line(found["sentence"]), table(("run_id", "cause", "since", "until"), chain)]
    return "\n\n".join([*parts, *(["\n".join(acts)] if acts else [])])


def step_request(found: Mapping[str, Any]) -> str:
    """Return the recipient of a step's request, and an empty line before the request itself."""
    names = ("key", "attempt", "kind", "agent_id", "backend", "model", "tool")
    named = [(name, found[name]) for name in names if found.get(name) is not None]
    return facts([*named, *([("truncated", "yes")] if found["truncated"] else [])]) + "\n"


def bulk(answer: Mapping[str, Any], *, counted: bool) -> str:
    """Return the results of an order to many runs."""
    if counted:
        matched = answer["matched"]
        return f"{printable.counted(matched, 'run')} found; repeat with --expected {matched} to give the order"
    rows = [(one["run_id"], one["status"] or "deleted", "") for one in answer["done"]]
    rows += [(one["run_id"], "refused", one["problem"]["detail"]) for one in answer["refused"]]
    return table(("run_id", "status", "reason"), rows)


def moved(answer: Mapping[str, Any]) -> str:
    """Return the state of a run after an order."""
    reason = f" ({answer['reason']})" if answer.get("reason") else ""
    if answer.get("reason") in _UNWRITTEN:
        reason += ": the order is in its journal, and takes effect once the data directory can be written again"
    return printable.one_line(f"run {answer['run_id']} {answer['status']}{reason}")


def steps(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a list of steps."""
    rows = [
        (line.get("phase"), line["key"], actor(line), _standing(line), _spent(line), outcome(line)) for line in lines
    ]
    return table(("phase", "step", "by", "status", "tokens", "what came of it"), rows, none="no steps")


def _standing(line: Mapping[str, Any]) -> str:
    """Return the status of a step with its attempt, its place in a queue and its last sign of life."""
    queued, tries = line.get("queued"), f", attempt {line['attempt']}" if line.get("attempt", 1) > 1 else ""
    place = f" {queued['place']} of {queued['of']} at {queued['backend']}" if queued else ""
    alive = f", last output {line['output_at']}" if line.get("output_at") else ""
    unmet = line.get("phase") == "dod" and line.get("holds") is False
    taken = ", taken over" if line.get("taken_over") else ""
    return f"{'failed' if unmet else line['status']}{place}{tries}{alive}{taken}"


def _spent(line: Mapping[str, Any]) -> str | None:
    """Return tokens read and written, and the price, as far as they were reported."""
    usage = line.get("usage")
    if not usage:
        return None
    counts = [usage["input_tokens"], usage["output_tokens"]]
    tokens = "/".join("-" if count is None else str(count) for count in counts) if counts != [None, None] else ""
    price = "" if usage["cost_usd"] is None else money(usage["cost_usd"])
    return f"{tokens} {price}".strip() or None


def actor(line: Mapping[str, Any]) -> str | None:
    """Return the tool or archetype of a step."""
    return line.get("tool") or line.get("agent_archetype")


def outcome(line: Mapping[str, Any]) -> str | None:
    """Return a step's error or the beginning of its output."""
    return error(line["error"]) if line.get("error") else line.get("output_preview")


def error(failure: Mapping[str, Any]) -> str:
    """Return an error as one sentence with its code."""
    return f"{failure['message']} [{failure['code']}]"


def receipt(found: Mapping[str, Any]) -> str:
    """Return a receipt with its arguments and payload."""
    names = ("receipt_id", "run_id", "session_id", "key", "tool", "started_at", "completed_at", "sha256", "alteration")
    heading = [(name, found[name]) for name in names if found[name]]
    parts = [json.dumps(found[name], ensure_ascii=False, indent=1) for name in ("args", "payload")]
    return "\n\n".join([facts([*heading, ("intact", "yes" if found["intact"] else "no")]), *parts])


def issues(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a list of issues."""
    names = ("issue_id", "status", "kind", "severity", "created_at", "title")
    return table(names, [[issue[name] for name in names] for issue in found], none="there are no such issues")


def issue(found: Mapping[str, Any]) -> str:
    """Return an issue with all its notes."""
    names = (
        "issue_id", "status", "kind", "severity", "recipe_id", "run_id", "session_id", "key", "created_at", "closed_at",
        "revision",
    )  # fmt: skip
    heading = [f"{name}: {found[name]}" for name in names if found[name] is not None]
    proofs = [f"receipts: {', '.join(found['receipts'])}"] if found["receipts"] else []
    notes = [f"{note['at']} ({note['status']}): {note['text']}" for note in found["notes"]]
    parts = [
        printable.one_line(found["title"]), printable.block([*heading, *proofs]),
        printable.quoted(found["body"]) if found["body"] else "", printable.block(notes),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part)


def answer_commands(gates: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the commands that answer open gates, one for each option."""
    # Never several options in one command: a shell reads `approve|deny` as a pipe, and the command would approve.
    answers = [(gate["gate_id"], shlex.quote(option)) for gate in gates for option in gate["options"]]
    return [f"control-room gates answer {gate_id} {option}{options.again()}" for gate_id, option in answers]


def slots(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a list of slots."""
    rows = [(name, slot["type"], slot["preview"]) for name, slot in summaries.items()]
    return table(("slot", "type", "preview"), rows, none="no slots")


def verification(found: Mapping[str, Any]) -> str:
    """Return the results of the verification of a run's files."""
    names = ("file", "state", "lines", "line", "reason")
    parts = [f"run {found['id']} is {found['state']}"]
    parts.append(table(names, [[file[name] for name in names] for file in found["files"]]))
    return "\n".join([*parts, advice(found)] if found["advice"] else parts)


def advice(found: Mapping[str, Any]) -> str:
    """Return how to handle damage; for a run, the advice ends with a command."""
    return f"{found['advice']}{options.again() if found['kind'] == 'run' else ''}"


def repaired(found: Mapping[str, Any]) -> str:
    """Return what a repair keeps of a run, and what it loses."""
    run_id = found["run_id"]
    if not found["changed"]:
        return f"run {run_id} needs no repair"
    names = ("file", "kept", "lost", "aside", "reason")
    kept = table(names, [[file[name] for name in names] for file in found["files"]])
    then = f"control-room runs unpause {run_id}{options.again()}"
    if found["dry_run"]:
        message = f"a repair would cut run {run_id} back and leave it {found['status']}; nothing was changed"
        return f"{message}\n{kept}\nrepair it with: control-room runs repair {run_id} --yes{options.again()}"
    after = f"\ncontinue it from its last kept step with: {then}" if found["status"] == "paused" else ""
    return f"run {run_id} was cut back and is {found['status']}\n{kept}{after}"


def plan(found: Mapping[str, Any]) -> str:
    """Return what a run would do."""
    rows = [(node["id"], node.get("kind"), node.get("label")) for node in found["graph"]["nodes"]]
    heading = [("recipe", found["recipe_id"]), ("task", found["description"]), ("in", found["working_dir"])]
    args = [(f"arg {name}", json.dumps(value, ensure_ascii=False)) for name, value in found["args"].items()]
    most = f"unknown: {found['note']}" if found["calls_at_most"] is None else str(found["calls_at_most"])
    cost = found["cost_at_most_usd"]
    bounds = [
        ("calls of agents at most", most),
        ("cost at most", "unknown" if cost is None else printable.dollars(cost)),
    ]
    bounds += [("unbounded because", reason) for reason in found["unbounded"]]
    parts = [facts([*heading, *args, *bounds]), table(("step", "kind", "label"), rows)]
    if found["agents"]:
        names = ("agent_id", "backend", "model")
        agents = [[*(agent[name] for name in names), "yes" if agent["ready"] else "no"] for agent in found["agents"]]
        parts.append(table((*names, "ready"), agents))
    waits = ("workspace_busy", "concurrency")
    effects = ["the run would wait" if flaw["code"] in waits else "a step would fail" for flaw in found["warnings"]]
    parts += [f"{effect}: {flaw['message']}" for effect, flaw in zip(effects, found["warnings"], strict=True)]
    if not found["paths_checked"]:
        parts.append("not checked: whether files exist that arguments name in prompts and commands")
    return "\n\n".join([*parts, *(f"cannot run here: {flaw['message']}" for flaw in found["problems"])])


def recipes(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return a list of recipes, with the faults of broken ones."""
    if not entries:
        return "no recipes"
    names = ("recipe_id", "dialect", "layer", "label")
    rows = [[entry[name] if name != "label" or entry["valid"] else "(broken)" for name in names] for entry in entries]
    faults = [verdict(entry["recipe_id"], entry) for entry in entries if not entry["valid"]]
    return "\n\n".join([table(names, rows), *faults])


def recipe(entry: Mapping[str, Any]) -> str:
    """Return a recipe with its arguments and steps."""
    names = ("recipe_id", "label", "dialect", "layer", "path")
    parts = [facts([(name, entry[name]) for name in names if entry[name]])]
    if entry["args_schema"] and entry["args_schema"].get("properties"):
        required = set(entry["args_schema"].get("required") or ())
        rows = [
            (name, declared.get("type"), "required" if name in required else json.dumps(declared.get("default")))
            for name, declared in entry["args_schema"]["properties"].items()
        ]
        parts.append(table(("argument", "type", "default"), rows))
    if entry["graph"]:
        rows = [(node["id"], node.get("kind"), node.get("label")) for node in entry["graph"]["nodes"]]
        parts.append(table(("step", "kind", "label"), rows))
    if not entry["valid"]:
        parts.append(verdict(entry["recipe_id"], entry))
    return "\n\n".join(parts)


def verdicts(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the results of checks of recipes."""
    return "\n".join(verdict(each["target"], each) for each in found) or "no recipes"


def routing(found: Mapping[str, Any]) -> str:
    """Return the router's choice, and the reason."""
    args = [f"  {name} = {json.dumps(value, ensure_ascii=False)}" for name, value in found["initial_args"].items()]
    asked = [f"  {name}: {question}" for name, question in (found.get("questions") or {}).items()]
    return printable.block([f"{found['recipe_id'] or 'no recipe'}: {found['reason']}", *args, *asked])


def agents(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a list of agents with the problem of each that cannot work."""
    names = ("id", "archetype", "tier", "backend", "model")
    rows = [[*(agent.get(name) for name in names), agent["problem"] or "ready"] for agent in found]
    return table((*names, "state"), rows, none="no agents")


def backends(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a list of backends with their problems, not cut, since a problem includes its remedy."""
    return printable.block(f"backend {each['name']}: {each['problem'] or 'ready'}" for each in found)


def remarks(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the results of a check of the configuration, errors before warnings."""
    lines = [f"error: {each['setting']}: {each['message']}" for each in found if each["fatal"]]
    lines += [f"warning: {each['setting']}: {each['message']}" for each in found if not each["fatal"]]
    return printable.block(lines) or "the configuration is in order"


def flaw(found: Mapping[str, Any]) -> str:
    """Return a flaw and its position on one line."""
    place = found["path"] if found.get("line") is None else f"{found['path']} (line {found['line']})"
    return f"{place}: {found['message']}"


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a hint at similar names; empty if there are none."""
    near = difflib.get_close_matches(name, sorted(set(known)), _NEAREST, _RESEMBLANCE)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _progress(detail: Mapping[str, Any]) -> str:
    total = detail.get("total_steps")
    done = detail.get("current_step_index", 0)
    return f"{done} of {'?' if total is None else total} steps{last_gate(detail)}"


def last_gate(run: Mapping[str, Any]) -> str:
    """Return the end of a run's progress, if it waits at a gate after its last step."""
    done, total = run.get("current_step_index"), run.get("total_steps")
    at_end = done is not None and total is not None and done >= total
    return " + gate" if at_end and run.get("status") == "waiting" else ""


def partial(ending: Mapping[str, Any] | None) -> str | None:
    """Return where a done run fell short: failed and cut-off steps, a missing result; None if it did not."""
    ending = ending or {}
    shortfalls = []
    if ending.get("partial"):
        parts = (("failed", ending.get("failed_steps")), ("cut off", ending.get("cut_off_steps")))
        named = [f"{what}: {', '.join(keys)}" for what, keys in parts if keys]
        shortfalls.append(f"in part ({'; '.join(named)})" if named else "in part")
    if (variable := ending.get("missing_result")) is not None:
        shortfalls.append(f"without its result ({variable} was never set)")
    return ", ".join(shortfalls) or None


def _ending(detail: Mapping[str, Any]) -> list[str]:
    if detail.get("error"):
        return [printable.one_line(f"error: {error(detail['error'])}")]
    if newer := (detail.get("ending") or {}).get("superseded_by"):
        message = f"cancelled by run {newer['run_id']} of its concurrency key {newer['key']}"
        return [printable.one_line(message)]
    short = partial(detail.get("ending"))
    return [f"done {short}"] if short else []


def facts(pairs: Sequence[tuple[str, Any]]) -> str:
    """Return names with their values, in two columns."""
    width = max(len(name) for name, _ in pairs)
    return printable.block(f"{name:<{width}}  {value}" for name, value in pairs)


def verdict(name: str, found: Mapping[str, Any]) -> str:
    """Return the result of a check of a recipe."""
    if found["valid"]:
        lacks = found.get("lacks") or []
        return printable.block([f"{name}: valid, but not ready" if lacks else f"{name}: valid", *map(_indented, lacks)])
    return printable.block([f"{name}: not valid", *map(_indented, found["flaws"])])


def _indented(found: Mapping[str, Any]) -> str:
    return f"  {flaw(found)}"
