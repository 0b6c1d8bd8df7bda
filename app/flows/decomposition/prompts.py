"""Prompts: the question to the chief, and its corrections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app import errors
from app.domain import plain
from app.flows.decomposition import kinds
from app.flows.decomposition.schema import Size

_FORM = (
    '{"tasks": [{"id": 1, "description": "…", "deps": [], "dod": "…", "args": {}, "scoping_question": null},'
    ' {"id": 2, "description": "…", "deps": [1], "dod": "…", "args": {}, "scoping_question": "…?"}]}'
)
_RULES = """Rules:
- One task for each thing that is to be done, in the order in which a person would do them; at most {most}.
- "description": one sentence that says what is done, to what. It holds the quoted words of its kind exactly as they
  stand there: by them, and by nothing else, a recipe is found for the task.
- "deps": the ids of the tasks whose results this one needs; [] if it can be done at once. No task waits for itself.
- "dod": when the task is done, in one sentence.
- "args": what its kind asks for, by name, as far as you know it; paths as they stand in the list of files. Leave out
  what you do not know.
- "scoping_question": null; or, if nobody could begin the task without knowing more, the one question that a person must
  answer first. Prefer a question to a guess.
- A wish that fits no kind becomes a task in your own words, with a scoping_question.
- Name no tools, no recipes and no agents: others choose them."""


_OUTPUTS = """- Where a task needs what an earlier one leaves, "args" says so in place of the value:
  {"$task": 1, "output": "NAME"} is the text that task 1 leaves under that name, {"$task": 1, "path": "NAME"} the file
  that it is written to. Task 1 must be among the "deps", directly or through others. An example: a task that checks
  what task 1 has drafted has "deps": [1], "args": {"scene_paths": [{"$task": 1, "path": "edited_draft"}]}."""


def request(
    size: Size, intent: str, found: Sequence[plain.Object], known: Sequence[kinds.Kind], *, outputs: bool = True
) -> str:
    """Return the prompt for a chief larger than T1.

    Args:
        found: Files that may matter, each with `path`, `category` and `title`.
        known: Kinds of tasks, with those that the intent names first.
        outputs: Whether the prompt explains that arguments can be outputs of earlier tasks.
    """
    rules = _RULES.format(most=size.tasks)
    parts = [
        f"This is wanted:\n{intent.strip()}",
        _files(found),
        _kinds(size, known, outputs=outputs),
        f"{rules}\n{_OUTPUTS}" if outputs else rules,
        f"Answer with JSON alone, in this form:\n{_FORM}",
    ]
    return "\n\n".join(parts)


def correction(requested: str, size: Size, reply: str, flaws: Sequence[errors.Flaw]) -> str:
    """Return the correction prompt, with the reply and its flaws."""
    reported = "".join(f"- {flaw.path}: {flaw.message}\n" for flaw in flaws[: size.flaws])
    left = len(flaws) - size.flaws
    more = f"- and {left} more of that kind\n" if left > 0 else ""
    return (
        f"{requested}\n\nYou answered:\n{_beginning(reply, size.repeated_characters)}\n\n"
        f"That cannot be used:\n{reported}{more}\nAnswer again with all tasks, with JSON alone."
    )


def _files(found: Sequence[plain.Object]) -> str:
    if not found:
        return "No files were found that this is about."
    listed = "\n".join(f"- {file['path']} ({file['category']}): {file['title']}" for file in found)
    return f"Files that this may be about:\n{listed}"


def _kinds(size: Size, known: Sequence[kinds.Kind], *, outputs: bool) -> str:
    if not known:
        return "Nothing is known of what can be done here: ask a scoping_question of every task."
    listed = "\n".join(line for kind in known for line in _kind(size, kind, outputs=outputs))
    return f"Kinds of tasks that can be done here, each with the words that must stand in a description:\n{listed}"


def _kind(size: Size, kind: kinds.Kind, *, outputs: bool) -> Iterable[str]:
    phrases = " or ".join(f'"{phrase}"' for phrase in kind["phrases"][: size.phrases])
    yield f"- {phrases}: {kind['label']}" if phrases else f"- {kind['label']}"
    for argument in kind["args"]:
        needed = "required" if argument["required"] else "may be left out"
        about = f": {argument['about']}" if argument["about"] else ""
        yield f"  - {argument['name']} ({kinds.type_name(argument)}, {needed}){about}"
    if outputs and (leaves := kind.get("leaves")):
        writes = kind.get("writes", ())
        yield f"  - leaves {', '.join(f'{name} (with a file)' if name in writes else name for name in leaves)}"


def _beginning(reply: str, most: int) -> str:
    if not reply.strip():
        return "(nothing)"
    return reply if len(reply) <= most else f"{reply[:most]}\n(the beginning of {len(reply)} characters)"
