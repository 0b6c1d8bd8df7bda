"""Formats of session plans: lists, checklists, changes, and the next commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app import printable
from app.cli import formats, options

QUESTION_CHARACTERS = 160  # Longest beginning of a question in an outline.

_MARKS = {"done": "[x]", "running": "[>]", "needs_scoping": "[?]", "failed": "[!]"}
_ORDER = ("done", "running", "pending", "blocked", "needs_scoping", "failed")
HINTS = 3  # Most commands of a kind.

_CORRECTIONS = {"args_invalid": "--arg NAME=…", "recipe_invalid": "--recipe ID", "unknown_recipe": "--recipe ID"}
"""Options of the edit without which a retry fails again, by the code of the error."""

Plan = Mapping[str, Any]
Task = Mapping[str, Any]
Gate = Mapping[str, Any]
Pause = tuple[str, str | None]  # The reason of a paused run, and the command that sends it on.


def _about(plan: Plan) -> str | None:
    # A service of version 0.1.0 shows no error.
    return f"{error['message']} [{error['code']}]" if (error := plan.get("error")) else plan["intent"]


def plans(found: Sequence[Plan]) -> str:
    """Return a list of plans."""
    rows = [
        (plan["session_id"], plan["status"], counts(plan["tasks"]), plan["created_at"], _about(plan)) for plan in found
    ]
    return formats.table(
        ("session_id", "status", "tasks", "created_at", "intent"), rows, none="there are no such plans"
    )


def plan(found: Plan, gates: Sequence[Gate] = (), pauses: Sequence[Pause] = ()) -> str:
    """Return a plan as a checklist, with open questions, gates and pauses of its runs, and commands to type next."""
    return _described(found, None, gates, pauses)


def outline(found: Plan) -> str:
    """Return the checklist of a plan with only the beginnings of questions."""
    return _described(found, QUESTION_CHARACTERS)


def counts(tasks: Mapping[str, int]) -> str:
    """Return how many tasks are in each state."""
    return ", ".join(f"{tasks[state]} {state}" for state in _ORDER if tasks.get(state)) or "no tasks"


def standing(found: Plan) -> str:
    """Return the state of a plan on one line."""
    states = [task["status"] for task in found["tasks"]]
    return f"plan {found['session_id']} {found['status']}: {counts({state: states.count(state) for state in states})}"


def change(task: Task) -> str:
    """Return the state of a task on one line; its question is printed when the plan rests."""
    more = {"running": _under_way, "done": took, "failed": _error, "blocked": after}
    more_text = more[task["status"]](task) if task["status"] in more else ""
    line = f"  {task['id']:<4} {task['status']:<13} {formats.cell(task['description'])}"
    return f"{line}  {more_text}" if more_text else line


def remarks(found: Plan, longest: int | None = None) -> Iterator[str]:
    """Yield what a person must know about a plan: missing tasks, questions of at most so many characters, failures."""
    if chief_is_at_work(found):
        run = f", in run {found['chief_run_id']}" if found["chief_run_id"] else ""
        yield f"the chief splits the intent into tasks{run}"
    if found["error"]:
        yield f"error: {formats.error(found['error'])}"
    for task in found["tasks"]:
        if task["status"] == "needs_scoping":
            yield f"task {task['id']} asks: {_clipped(question(task), longest)}"
        elif task["status"] == "failed":
            yield failure(task)
        elif task["status"] == "done" and task.get("partial"):
            yield f"task {task['id']} is done in part: control-room runs show {task['run_id']}{options.again()}"
    yield from (_proposed(each) for each in proposals(found))


def _dod(dod: Any) -> str:
    if isinstance(dod, str):
        return dod
    named = ((check["check"], check.get("path") or check.get("slot")) for check in dod)
    return "; ".join(f"{check} {what.get('$ref') if isinstance(what, dict) else what}" for check, what in named)


def deciding_run(task: Task) -> Any:
    """Return the run that decides about a task next: that of its review, if there is one."""
    review = task.get("review") or {}
    return review["run_id"] if review.get("status") in ("running", "waiting") else task["run_id"]


def proposals(found: Plan) -> list[Mapping[str, Any]]:
    """Return the open proposals of the chief."""
    return [each for each in found.get("proposals") or () if each["status"] == "open"]


def failure(task: Task) -> str:
    """Return why a task has failed."""
    return f"task {task['id']} failed: {_error(task)}"


def next_commands(found: Plan, gates: Sequence[Gate] = (), pauses: Sequence[Pause] = ()) -> list[str]:
    """Return the commands that can be typed next: answers to open questions first, then the most likely ones."""
    unpausing = dict.fromkeys(options.led(command) for _, command in pauses if command is not None)
    begun = {task["id"]: "dismiss" for task in found["tasks"] if task["status"] in ("running", "done")}
    decided = [_command(found, begun.get(each["task"], "accept"), each["id"]) for each in proposals(found)[:HINTS]]
    return [*formats.answer_commands(gates[:HINTS]), *unpausing, *_next_commands(found), *decided]


def _next_commands(found: Plan) -> list[str]:
    tasks = found["tasks"]
    asked = [_answer(found, task) for task in tasks if task["status"] == "needs_scoping"]
    failures = [task for task in tasks if task["status"] == "failed"][:HINTS]
    failed = [line for task in failures for line in _retried(found, task)]
    match found["status"]:
        case "draft" if chief_is_at_work(found):
            return [_command(found, "follow")]
        case "draft" if tasks:
            return [*asked[:HINTS], _command(found, "approve")]
        case "approved" | "paused" as status:
            return [*asked[:HINTS], _command(found, "start" if status == "approved" else "resume")]
        case "running":
            return [*asked[:HINTS], *failed] or [_command(found, "follow")]
        case "failed":
            left = not failed or any(task["status"] == "pending" for task in tasks)
            return [*failed, *([_command(found, "start")] if left else [])]
    return []


def _retried(found: Plan, task: Task) -> list[str]:
    option, retry = _CORRECTIONS.get((task["error"] or {}).get("code", "")), _command(found, "retry", task["id"])
    return [retry] if option is None else [_command(found, "edit", task["id"], option), retry]


def chief_is_at_work(found: Plan) -> bool:
    """Return whether the chief is still splitting the intent into tasks."""
    return bool(found["awaits_chief"])


def goes_on(found: Plan) -> bool:
    """Return whether to follow a plan: it runs, or the chief is still splitting its intent."""
    return bool(found["status"] == "running" or chief_is_at_work(found))


def question(task: Task) -> str:
    """Return the question about a task."""
    return str(task["scoping_question"] or "which recipe does it?")


def after(task: Task) -> str:
    """Return the tasks after which a task runs."""
    return f"after {', '.join(map(str, task['deps']))}" if task["deps"] else ""


def took(task: Task) -> str:
    """Return the duration of a task's run; empty if unknown."""
    from app import clock

    if not task["started_at"] or not task["ended_at"]:
        return ""
    return f"{(clock.instant(task['ended_at']) - clock.instant(task['started_at'])).total_seconds():.1f} s"


def _described(found: Plan, longest: int | None, gates: Sequence[Gate] = (), pauses: Sequence[Pause] = ()) -> str:
    parts = [_heading(found)]
    if found["tasks"]:
        parts.append(_checklist(found["tasks"]))
    reviewed = [f"task {task['id']} is done: {_verdict(task['review'])}" for task in _reviewed(found)]
    to_read = found["tasks"] if found["status"] in ("draft", "approved") else ()
    words = [(task["id"], _clipped(_dod(task["dod"]), longest)) for task in to_read if task["dod"]]
    defined = [f"task {task_id} will be done when: {dod}" for task_id, dod in words]
    waits = (_waits(found, gate) for gate in gates)
    parts.append(printable.block([*reviewed, *defined, *remarks(found, longest), *waits, *(why for why, _ in pauses)]))
    parts.append(printable.block(f"next: {command}" for command in next_commands(found, gates, pauses)))
    return "\n\n".join(part for part in parts if part)


def _heading(found: Plan) -> str:
    names = ("intent", "working_dir", "parent_run_id")
    more = [f"{name}: {found[name]}" for name in names if found[name]]
    labels = ", ".join(f"{name}={value}" for name, value in found["labels"].items())
    more += [f"labels: {labels}"] if labels else []
    more += [f"review: {_reviewer(found['reviewer'])}"] if found.get("reviewer") else []
    return printable.block([f"plan {found['session_id']} {found['status']} (revision {found['revision']})", *more])


def _checklist(tasks: Sequence[Task]) -> str:
    rows = [
        (
            _MARKS.get(task["status"], "[ ]"),
            task["id"],
            f"{task['status']}, forced" if task["forced"] else task["status"],
            ", ".join(map(str, task["deps"])),
            task["recipe_id"],
            task["run_id"],
            task["description"],
        )
        for task in tasks
    ]
    return formats.table(("", "task", "status", "after", "recipe", "run", "description"), rows)


def _reviewer(reviewer: Mapping[str, Any]) -> str:
    tasks = ", ".join(map(str, reviewer["tasks"]))
    if reviewer["by"] == "chief":
        return f"{reviewer['agent_id']} judges whether these tasks are done: {tasks}"
    return f"a person is asked at a gate whether these tasks are done: {tasks} ({reviewer['why']})"


def _under_way(task: Task) -> str:
    run_id = deciding_run(task)
    if run_id == task["run_id"]:
        return f"run {run_id}"
    return f"review {run_id}{' waits for a person' if task['review']['status'] == 'waiting' else ''}"


def _reviewed(found: Plan) -> list[Task]:
    return [task for task in found["tasks"] if task["status"] == "done" and task.get("review")]


def _verdict(review: Mapping[str, Any]) -> str:
    usage = review["usage"] or {}
    names = [name for name in ("input_tokens", "output_tokens") if usage.get(name)]
    tokens = [f"{usage[name]} {name.replace('_', ' ')}" for name in names]
    tokens += [f"{usage['cost_usd']} USD"] if usage.get("cost_usd") else []
    parts = [review["why"] or "", review["evidence"] or "", ", ".join(tokens)]
    return "; ".join([f"{review['verdict']}, by the {review['by']}", *(formats.cell(part) for part in parts if part)])


def _proposed(each: Mapping[str, Any]) -> str:
    what = {"add_task": "a further task", "edit_task": "another task {task}", "remove_task": "no task {task}"}
    fields = formats.cell(", ".join(f"{name}: {value}" for name, value in each["fields"].items()))
    change = what.get(each["kind"], each["kind"]).format(task=each["task"])
    return f"proposal {each['id']}, after task {each['after_task']}: {change}; {fields or formats.cell(each['why'])}"


def _waits(found: Plan, gate: Gate) -> str:
    task = next((task["id"] for task in found["tasks"] if gate["run_id"] in (task["run_id"], deciding_run(task))), None)
    who = f"run {gate['run_id']}" if task is None else f"task {task}"
    return f"{who} waits at the gate {gate['key']}: {_clipped(gate['prompt'], QUESTION_CHARACTERS)}"


def _clipped(text: str, longest: int | None) -> str:
    if longest is None:
        return text
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def _error(task: Task) -> str:
    return formats.error(task["error"]) if task["error"] else ""


def _answer(found: Plan, task: Task) -> str:
    # If the recipe is known, the system asks for its arguments.
    wants_args = task["asked_by"] == "system" and task["recipe_id"] is not None
    return _command(found, "answer", task["id"], '"…"', *(["--arg NAME=…"] if wants_args else []))


def _command(found: Plan, verb: str, *parts: object) -> str:
    return " ".join(["control-room plan", verb, *map(str, (found["session_id"], *parts))]) + options.again()
