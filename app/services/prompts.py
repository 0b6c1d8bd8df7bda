"""The prompt registry: merges templates of three layers by prompt type and variant (execution-modes, appendix F)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, get_args

from app import errors
from app.domain import json_schemas, json_text, library, plain
from app.services import folder_listings

REGISTRY_FILE = "prompts.json"  # Name of the file that lists the templates of a layer.
MAX_TEMPLATE_BYTES = 64 * 1024  # Largest template file.

_T = TypeVar("_T")

_SECTION = "pipeline_templates"
_TIERS: tuple[library.Tier, ...] = get_args(library.Tier)

_ENTRY: Mapping[str, plain.Json] = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "maxLength": 200},
        "variants": {
            "type": "object",
            "properties": {tier: {"type": "string", "minLength": 1, "maxLength": 500} for tier in _TIERS},
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
_SCHEMA: Mapping[str, plain.Json] = {
    "type": "object",
    "properties": {_SECTION: {"type": "object", "additionalProperties": _ENTRY}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFlaw:
    """One flaw in a file of a layer."""

    file: str  # The file.
    flaw: errors.Flaw  # The flaw, with its position.

    def to_json(self) -> dict[str, plain.Json]:
        """Return the flaw as plain JSON."""
        return {"file": self.file, **self.flaw.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRegistry:
    """The templates of all layers, merged."""

    templates: Mapping[str, library.PromptTemplate]  # Templates by prompt type; broken ones are left out.
    flaws: tuple[LayerFlaw, ...] = ()  # All flaws.
    unread: Mapping[str, str] = field(default_factory=dict)
    """Why a file cannot be read now, by prompt type; `*` stands for a layer's list of templates."""


def layers(bundled_recipes: Path, home: Path, data_directory: Path) -> tuple[Path, Path, Path]:
    """Return the prompt folders from the lowest layer to the highest: bundled, the user's, the project's."""
    return bundled_recipes / "prompts", home / ".control-room" / "prompts", data_directory / "prompts"


def load(folders: Sequence[Path]) -> PromptRegistry:
    """Merge the layers; a later one wins, separately for each variant of each prompt type.

    A template file is searched from the highest layer down, so that a project can replace only a file. A broken entry
    affects nothing else: the layers below are used instead.
    """
    merged: dict[str, library.PromptTemplate] = {}
    flaws: list[LayerFlaw] = []
    unread: dict[str, str] = {}
    for folder in folders:
        file = folder / REGISTRY_FILE
        entries, broken = _unchanging(_registry, file) if folder is folders[0] else _registry(file)
        flaws += broken
        unread |= _unread("*", broken)
        for prompt_type, entry in entries.items():
            variants, broken = _variants(file, prompt_type, entry, folders)
            flaws += broken
            unread |= _unread(prompt_type, broken)
            if variants or prompt_type in merged:
                merged[prompt_type] = _merged(merged.get(prompt_type), prompt_type, entry, variants)
    return PromptRegistry(templates=merged, flaws=tuple(flaws), unread=unread)


def _unread(prompt_type: str, broken: Sequence[LayerFlaw]) -> dict[str, str]:
    found = next((flaw for flaw in broken if flaw.flaw.code == folder_listings.UNREADABLE), None)
    return {} if found is None else {prompt_type: f"{found.file}: {found.flaw.message}"}


def _registry(file: Path) -> tuple[Mapping[str, Mapping[str, Any]], list[LayerFlaw]]:
    if folder_listings.is_absent(file):
        return {}, []
    try:
        document = json_text.read(_text(file, json_text.MAX_CHARACTERS), exact=True)
    except errors.InputRefused as error:
        return {}, [LayerFlaw(file=str(file), flaw=flaw) for flaw in error.flaws]
    broken = json_schemas.flaws(_SCHEMA, document)
    unknown = [name for name in document if name != _SECTION] if isinstance(document, dict) else []
    unread = [json_schemas.flaw((name,), "unknown_field", f"is not read; {_SECTION} is") for name in unknown]
    flaws = [LayerFlaw(file=str(file), flaw=flaw) for flaw in (*broken, *unread)]
    section = document.get(_SECTION) if isinstance(document, dict) else None
    entries = section if isinstance(section, dict) else {}
    if broken:
        entries = {name: entry for name, entry in entries.items() if not json_schemas.flaws(_ENTRY, entry)}
    return entries, flaws


def _variants(
    file: Path, prompt_type: str, entry: Mapping[str, Any], folders: Sequence[Path]
) -> tuple[dict[str, str], list[LayerFlaw]]:
    variants: dict[str, str] = {}
    flaws: list[LayerFlaw] = []
    for tier, name in entry.get("variants", {}).items():
        text, broken = _template(name, folders)
        if text is not None:
            variants[tier] = text
        place = (_SECTION, prompt_type, "variants", tier)
        located = [json_schemas.flaw(place, flaw.code, flaw.message) for flaw in broken]
        flaws += [LayerFlaw(file=str(file), flaw=flaw) for flaw in located]
    return variants, flaws


def _template(name: str, folders: Sequence[Path]) -> tuple[str | None, list[errors.Flaw]]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\x00" in name:
        return None, [errors.Flaw(path="$", code="outside", message=f"{name!r:.80} is not a path inside the folder")]
    broken: list[errors.Flaw] = []
    # The highest layer that has the file is used, even if it is broken: using a lower one would hide the fault.
    for file in (folder / path for folder in reversed(folders)):
        if folder_listings.is_absent(file):
            continue
        try:
            if file.is_relative_to(folders[0]):
                return _unchanging(_bundled, file), broken
            return _checked(file, folders), broken
        except errors.InputRefused as error:
            broken += [errors.Flaw(path="$", code=flaw.code, message=f"{file} {flaw.message}") for flaw in error.flaws]
    missing = errors.Flaw(path="$", code="file_not_found", message=f"there is no file {name!r:.80} in any layer")
    return None, broken or [missing]


def _unchanging(read: Callable[[Path], _T], file: Path) -> _T:
    found: _T = _read_once(read, file, folder_listings.mark_of(str(file)))
    return found


# A process that serves several projects, or is forked from one that has read them, reads bundled files only once.
@functools.lru_cache(maxsize=256)
def _read_once(read: Callable[[Path], Any], file: Path, _mark: folder_listings.Mark) -> Any:
    return read(file)


def _bundled(file: Path) -> str:
    return _checked(file, [file.parent])


def _checked(file: Path, folders: Sequence[Path]) -> str:
    if not folder_listings.is_inside(file, folders):
        raise _refused("outside", "is outside of the prompts folders")
    text = _text(file, MAX_TEMPLATE_BYTES)
    if not text.strip():
        raise _refused("empty", "is empty")
    return text.replace("\r\n", "\n")


def _text(file: Path, limit_bytes: int) -> str:
    try:
        if not file.is_file():
            raise _refused("not_a_file", "is not a regular file")
        with file.open("rb") as opened:
            # One byte more than allowed shows that a file is too large.
            content = opened.read(limit_bytes + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        code = folder_listings.UNREADABLE if folder_listings.passes(error) else "file_unreadable"
        raise _refused(code, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _refused("not_text", f"is not UTF-8 text: byte {error.start} is wrong") from error
    if len(content) > limit_bytes:
        raise _refused("too_large", f"is larger than {limit_bytes} bytes")
    if "\x00" in text:
        raise _refused("not_text", "contains a NUL character")
    return text


def _merged(
    below: library.PromptTemplate | None, prompt_type: str, entry: Mapping[str, Any], variants: Mapping[str, str]
) -> library.PromptTemplate:
    label = entry.get("label") or (below.label if below else prompt_type)
    return library.PromptTemplate(
        prompt_type=prompt_type, label=label, variants={**(below.variants if below else {}), **variants}
    )


def _refused(code: str, message: str) -> errors.InputRefused:
    return errors.InputRefused(message, flaws=[errors.Flaw(path="$", code=code, message=message)])
