"""Dependencies: find missing files, and list existing ones in a prompt (workflow-dsl)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from app.dialects.orchestrate import variables
from app.domain import plain, runs, workspace_paths

CAP_BYTES = 256 * 1024
"""Most that is put into a prompt: instruction, names and contents; notes about omissions are added to this."""

LIST, CONTENT, NONE = "list", "content", "none"  # Modes: names of the files, their contents, or neither.
INSTRUCTIONS: Mapping[str, str] = {
    LIST: "The following files are required inputs for this task:",
    CONTENT: "The following file contents are provided for context:",
}
"""Text above the files if a step sets none."""

_LISTED_OMISSIONS = 10
_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file, or folder, that a pattern matches."""

    path: str  # Path relative to the workspace.
    required: bool  # Whether a required pattern matches it.
    size_bytes: int = 0  # Its size.
    text: str | None = None  # The part of its content that was read; None if not needed, or for a folder.
    whole: bool | None = None  # Whether that part is the whole file; None: its size shows it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A step's settings for the files in its prompt."""

    mode: str = NONE  # `list`, `content` or `none`.
    instruction: str | None = None  # Text above the files; None: the default of the mode.
    append: bool = False  # Whether the files follow the prompt.


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A prompt with its files."""

    prompt: str  # The prompt.
    truncation: plain.Object | None = None  # Omissions, for `debug.injection`; None: none.


def injection(depends_on: plain.Object | None) -> Injection:
    """Read the settings of a step; `true` means a list before the prompt."""
    params = (depends_on or {}).get("inject", False)
    if isinstance(params, bool):
        return Injection(mode=LIST if params else NONE)
    return Injection(
        mode=params.get("mode", NONE),
        instruction=params.get("instruction"),
        append=params.get("position", "prepend") == "append",
    )


def missing(required: Iterable[str], fitting: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the required patterns without a matching file, each once."""
    return [pattern for pattern in dict.fromkeys(required) if not fitting.get(pattern)]


def files(required: Iterable[str], optional: Iterable[str], fitting: Mapping[str, Sequence[str]]) -> dict[str, bool]:
    """Return every path that a pattern matches once, in the order of its bytes, and whether it is required."""
    needed = {path for pattern in required for path in fitting.get(pattern, ())}
    found = needed | {path for pattern in optional for path in fitting.get(pattern, ())}
    return {path: path in needed for path in sorted(found, key=_bytes)}


def excerpts(params: Mapping[str, bool], read: Mapping[str, plain.Object]) -> list[File]:
    """Return files with the parts of them that were read."""
    nothing: plain.Object = {"size_bytes": 0, "text": None}
    return [
        File(
            path=path,
            required=required,
            size_bytes=found["size_bytes"],
            text=found["text"],
            whole=found.get("whole"),
        )
        for path, required in params.items()
        for found in (read.get(path, nothing),)
    ]


def altered(read: Mapping[str, plain.Object]) -> dict[str, plain.Json]:
    """Return the files whose text differs from their content, by why: `masked_files` and `not_utf8_files`."""
    found = {f"{why}_files": [path for path, entry in read.items() if entry.get(why)] for why in ("masked", "not_utf8")}
    return {name: list(paths) for name, paths in found.items() if paths}


def composed(prompt: str, wanted: Injection, params: Iterable[File]) -> Composed:
    """Return a prompt with its files; without files, or in the mode `none`, the prompt is unchanged."""
    # By bytes, so that no locale changes the prompt.
    ordered = sorted(params, key=lambda file: _bytes(file.path))
    if wanted.mode == NONE or not ordered:
        return Composed(prompt=prompt)
    instruction = wanted.instruction or INSTRUCTIONS[wanted.mode]
    block, truncation = (_listed if wanted.mode == LIST else _quoted)(instruction, ordered)
    if wanted.append:
        return Composed(
            prompt=f"{prompt.removesuffix(chr(10))}\n\n{block}\n" if prompt else block, truncation=truncation
        )
    return Composed(prompt=f"{block}\n\n{prompt}" if prompt else block, truncation=truncation)


# -- names


def _listed(instruction: str, ordered: Sequence[File]) -> tuple[str, plain.Object | None]:
    lines = [(instruction, 0)]
    optional = [file for file in ordered if not file.required]
    for heading, group in (
        ("Required:", [file for file in ordered if file.required]),
        ("Optional (if available):", optional),
    ):
        if group and optional:
            lines.append((heading, 0))
        lines += [(f"- {file.path}", 1) for file in group]
    total, shown, kept = sum(len(_bytes(line)) + 1 for line, _ in lines), 0, 0
    for line, _ in lines:
        if shown + len(_bytes(line)) + 1 > CAP_BYTES:
            break
        shown, kept = shown + len(_bytes(line)) + 1, kept + 1
    reported = [line for line, _ in lines[:kept]]
    omitted = sum(count for _, count in lines[kept:])
    if not omitted:
        return "\n".join(reported), None
    reported.append(f"[... {omitted} more files truncated ({_size(total)} total)]")
    return "\n".join(reported), _truncation(total, shown, len(ordered) - omitted, 0, omitted)


# -- contents


def _quoted(instruction: str, ordered: Sequence[File]) -> tuple[str, plain.Object | None]:
    readable = [file for file in ordered if file.text is not None]
    parts, room = [instruction], CAP_BYTES - len(_bytes(instruction))
    shown_bytes = complete = cut = 0
    for file in readable:
        part, shown, whole = _quote(file, room)
        if part is None:
            break
        parts.append(part)
        room -= len(_bytes(part)) + 2
        shown_bytes, complete, cut = shown_bytes + shown, complete + whole, cut + (not whole)
        # An excerpt of less than a kilobyte would not help.
        if not whole and room <= _KIB:
            break
    rest = readable[complete + cut :]
    if rest:
        parts.append(_omissions(rest))
    if not rest and not cut:
        return "\n\n".join(parts), None
    total = sum(file.size_bytes for file in readable)
    return "\n\n".join(parts), _truncation(total, shown_bytes, complete + cut, cut, len(rest))


def _quote(file: File, room: int) -> tuple[str | None, int, bool]:
    text = file.text or ""
    content = _bytes(text)
    part = f"=== File: {file.path} ({_size(file.size_bytes)}) ===\n{text.removesuffix(chr(10))}"
    # Masked secrets can make the text of a whole file shorter than the file.
    is_whole = len(content) >= file.size_bytes if file.whole is None else file.whole
    if is_whole and len(_bytes(part)) + 2 <= room:
        return part, file.size_bytes, True

    def cut(shown: int, kept: str) -> str:
        note = f"[... truncated: {_size(shown)} of {_size(file.size_bytes)} shown]"
        return f"=== File: {file.path} ({shown}/{file.size_bytes} bytes) ===\n{kept}\n{note}"

    # The note is longest when it names all bytes, so the rest always has room for it.
    left = room - len(_bytes(cut(file.size_bytes, ""))) - 2
    kept = content[: max(left, 0)].decode("utf-8", "ignore")
    if not kept:
        return None, 0, False
    shown = min(len(_bytes(kept)), file.size_bytes)
    return cut(shown, kept), shown, False


def _omissions(rest: Sequence[File]) -> str:
    size = _size(sum(file.size_bytes for file in rest))
    lines = [f"=== Files not shown ({len(rest)} {'file' if len(rest) == 1 else 'files'}, {size}) ==="]
    lines += [f"- {file.path} ({_size(file.size_bytes)})" for file in rest[:_LISTED_OMISSIONS]]
    more = len(rest) - _LISTED_OMISSIONS
    return "\n".join([*lines, f"[... {more} more files]"] if more > 0 else lines)


def _truncation(total: int, shown: int, files_shown: int, truncated: int, omitted: int) -> plain.Object:
    details = {
        "total_size": total,
        "shown_size": shown,
        "files_shown": files_shown,
        "files_truncated": truncated,
        "files_omitted": omitted,
    }
    return {"injection_truncated": True, "truncation_details": details}


def _size(size_bytes: int) -> str:
    return f"{size_bytes} bytes" if size_bytes < _KIB else f"{round(size_bytes / _KIB)} KiB"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


MAX_CHARACTERS = 4096  # Longest path, with variables substituted.

_DRIVE = re.compile(r"[A-Za-z]:")
_STAND_IN = "v"
_OWN_FOLDER = ".orchestrate"


def problem(path: str, *, pattern: bool = False) -> str | None:
    """Return the reason why a path cannot be used, None if it can."""
    parts = path.split("/")
    if not path.strip():
        return "is blank"
    if len(path) > MAX_CHARACTERS:
        return f"is longer than {MAX_CHARACTERS} characters"
    if "\0" in path:
        return "holds the character U+0000"
    if "\\" in path:
        return "contains a backslash; separate folders with /"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute; paths are relative to the workspace"
    if ".." in parts:
        return "contains `..`; paths must stay inside the workspace"
    if pattern and "**" in parts:
        return "contains `**`, which is not supported; list the files with a command, or name each depth"
    return None


def problem_of_target(path: str, run_root: str) -> str | None:
    """Return why a step cannot write to a path, None if it can: steps may not write a run's own files."""
    parts, own = PurePosixPath(path).parts, PurePosixPath(run_root).parts
    if parts[: len(own)] == own and parts[len(own) : len(own) + 1] != (runs.ARTIFACTS,):
        return f"is in the run's own folder, where steps may write only below {runs.ARTIFACTS}/"
    return problem(path)


def problem_of_template(template: str, *, kind: str) -> str | None:
    """Return why a path cannot be used for any values of its variables, None if it may be usable.

    Args:
        kind: What it names: `file`, `folder` or `glob`.
    """
    path = variables.with_stand_ins(template, _STAND_IN)
    found = problem(path, pattern=kind == "glob")
    if found is not None or kind == "glob":
        return found
    # A run may write below `artifacts` of its own folder, which is in `.orchestrate`.
    own = (part for part in workspace_paths.parts_of(path) if part != _OWN_FOLDER)
    if (why := workspace_paths.why_reserved(own)) is not None:
        return f"is not a path inside the workspace: {why}"
    return "names a folder; write the name of a file" if kind == "file" and path.endswith("/") else None
