"""Prompt templates: variants by tier, placeholders, and the parts of a micro-step template (appendix F)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from app import errors
from app.dialects.control_room import refs
from app.domain import library, plain

MICRO_STEPS = ("triage", "finding", "evidence")
"""The parts of a split step of a T1 agent, in order; also the parts of a t1 template."""
MAX_VALUE_BYTES = 32 * 1024  # Largest payload value that a template may insert.

_CLOSEST: Mapping[library.Tier, Sequence[library.Tier]] = {
    "t1": ("t1", "t3", "t5"),
    "t3": ("t3", "t1", "t5"),
    "t5": ("t5", "t3", "t1"),
}
_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
_PART = re.compile(r"^---[ \t]+(\w+)[ \t]*\r?$", re.MULTILINE)


def variant(template: library.PromptTemplate, tier: library.Tier) -> library.Tier:
    """Return the variant for an agent of a tier: its own, or the closest existing one."""
    return next(name for name in _CLOSEST[tier] if name in template.variants)


@functools.lru_cache(maxsize=512)
def pieces(template: str) -> tuple[str | refs.Reference, ...]:
    """Cut a template into its own text and its placeholders, in order."""
    cut: list[str | refs.Reference] = []
    # A split by one group alternates: text, placeholder, text, …
    for index, part in enumerate(_PLACEHOLDER.split(template)):
        if index % 2:
            cut.append(_placeholder(part, template))
        elif "{{" in part:
            raise ValueError(f"line {_line(template, part)} has a {{{{ that begins no placeholder")
        elif part:
            cut.append(part)
    return tuple(cut)


@functools.lru_cache(maxsize=512)
def micro_parts(template: str) -> Mapping[str, str]:
    """Return the parts of a t1 template, by micro-step."""
    before, *parts = _PART.split(template)
    names, texts = parts[::2], [text.strip() for text in parts[1::2]]
    if before.strip() or tuple(names) != MICRO_STEPS or not all(texts):
        wanted = ", ".join(f"--- {name}" for name in MICRO_STEPS)
        raise ValueError(f"must consist of the parts {wanted}, in this order and each with its text")
    return dict(zip(names, texts, strict=True))


def named(template: str) -> list[refs.Reference]:
    """Return the references of a template's placeholders, in order."""
    return [piece for piece in pieces(template) if isinstance(piece, refs.Reference)]


def instructions(template: str) -> str:
    """Return a template's own text, without the values filled in."""
    return "".join(piece for piece in pieces(template) if isinstance(piece, str))


def text_of(reference: refs.Reference, value: plain.Json) -> str:
    """Render a value for a prompt: a text unchanged, any other value as JSON."""
    text = value if isinstance(value, str) else plain.encode(value).decode()
    size = len(text.encode())
    if size > MAX_VALUE_BYTES:
        raise refs.BrokenReference(
            f"{reference.text} has {size} bytes, more than the {MAX_VALUE_BYTES} that a prompt may take in.",
            code="value_too_large",
            detail={"ref": reference.text, "size_bytes": size, "limit_bytes": MAX_VALUE_BYTES},
        )
    return text


def opening(description: str, earlier: Mapping[str, str]) -> str:
    """Return the beginning of a prompt: the task, and the replies of earlier micro-steps."""
    sections = "".join(f"{name.capitalize()}:\n{text}\n\n" for name, text in earlier.items())
    return f"Task: {description}\n\n{sections}"


def joined(parts: Iterable[plain.Json]) -> tuple[plain.Json, ...]:
    """Return a prompt's parts with adjacent texts joined; `{"blob": …}` parts remain."""
    together: list[plain.Json] = []
    for part in parts:
        if isinstance(part, str) and together and isinstance(together[-1], str):
            together[-1] += part
        else:
            together.append(part)
    return tuple(together)


async def path(values: refs.Values, wanted: plain.Json) -> str:
    """Return the path from a recipe's text, `$ref`, or text with placeholders."""
    if refs.is_reference(wanted):
        wanted = f"{{{{{wanted['$ref']}}}}}"
    parts = [part if isinstance(part, str) else _in_path(part, await values.follow(part)) for part in pieces(wanted)]
    return "".join(parts)


def named_in_path(wanted: plain.Json) -> list[refs.Reference]:
    """Return the references that a path template uses."""
    return [refs.read(wanted["$ref"])] if refs.is_reference(wanted) else named(wanted)


def problems(template: str, tier: library.Tier, slots: Sequence[str], args: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield code and message of every flaw of a variant for a step."""
    try:
        texts = micro_parts(template).values() if tier == "t1" else (template,)
        references = [reference for text in texts for reference in named(text)]
    except ValueError as error:
        yield "invalid_template", str(error)
        return
    declared = set(args)
    for reference in dict.fromkeys(references):
        if reference.root != refs.TASK:
            if reference.root not in slots:
                yield "unknown_slot", f"names {reference.root}, which is not among the step's input_slots"
        elif (problem := refs.task_problem(reference, declared)) is not None:
            yield problem


def frozen(step: plain.Object, registry: library.Library) -> dict[str, plain.Json]:
    """Return the variant that a step will use, as plain JSON."""
    agent = registry.agent_of(step["agent_archetype"])
    template = registry.prompts.get(step["prompt_type"])
    if agent is None or template is None:
        raise errors.RecipeInvalid(f"the step {step['step_id']} has no agent or no prompt template here")
    tier = variant(template, agent.tier)
    return {"tier": tier, "template": template.variants[tier]}


def _in_path(reference: refs.Reference, value: plain.Json) -> str:
    if not isinstance(value, str) or not value.strip():
        raise refs.broken(reference, reference.text, "it is not a text, so it cannot be part of a path")
    return value


def _placeholder(inside: str, template: str) -> refs.Reference:
    try:
        return refs.read(inside.strip())
    except ValueError as error:
        raise ValueError(f"line {_line(template, inside)}: {{{{{inside:.80}}}}} {error}") from error


def _line(template: str, part: str) -> int:
    return template.count("\n", 0, template.find(part)) + 1
