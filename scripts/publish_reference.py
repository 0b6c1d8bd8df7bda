"""Write the reference pages that come from the code to docs/reference/: settings, HTTP interface, errors, commands.

    .venv/bin/python scripts/publish_reference.py [--check]

With --check the script writes no files; the exit code is 1 if a page differs from the code.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app import settings  # noqa: E402
from app.api import routes  # noqa: E402
from app.cli import root  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
MADE = "<!-- Made from the code by scripts/publish_reference.py; do not edit. -->"
EVERYWHERE = ("--json", "--project", "--server")


def main() -> None:
    """Write the pages, or compare them with the code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page differs")
    check = parser.parse_args().check
    stale = {name: text for name, text in _pages().items() if _current(FOLDER / name) != text}
    if check and stale:
        sys.exit(f"differs from the code: {', '.join(stale)}; run scripts/publish_reference.py")
    for name, text in stale.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)


def _pages() -> dict[str, str]:
    document = routes.create().openapi()
    pages = {
        "settings.md": _settings(),
        "http-api.md": _http(document),
        "errors.md": _errors(document),
        "commands.md": _commands(root.control_room, "control-room"),
    }
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in pages.items()}


def _current(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _head(title: str, *lines: str) -> Iterator[str]:
    yield from (f"# {title}", "", MADE, "", *lines, "")


def _settings() -> Iterator[str]:
    yield from _head(
        "Settings",
        "Every setting is an environment variable. Most are also options of `control-room serve`:",
        "`CONTROL_ROOM_MAX_RUNNING` is `--max-running`. `control-room config check` reports errors in",
        "them, and suggests the nearest name for an unknown variable.",
    )
    yield from ("| variable | default | meaning |", "| --- | --- | --- |")
    yield from (f"| `{item.env}` | {item.default} | {_cell(item.meaning)} |" for item in settings.documented())


def _http(document: Mapping[str, Any]) -> Iterator[str]:
    yield from _head(
        "HTTP routes",
        "Routes by subject. [The HTTP interface](http.md) describes what they have in common: callers,",
        "bodies, waiting, pages, streams. [errors.md](errors.md) lists the error codes.",
        "[openapi.json](../../openapi/openapi.json) has every field.",
    )
    for tag in document["tags"]:
        yield from (f"## {tag['name'].capitalize()}", "", tag["description"], "")
        yield from ("| route | purpose | parameters and body |", "| --- | --- | --- |")
        for path, item in document["paths"].items():
            for method, operation in item.items():
                if tag["name"] in operation["tags"]:
                    fields = ", ".join(_fields(document, operation))
                    yield f"| `{method.upper()} {path}` | {_cell(operation['description'])} | {fields} |"
        yield ""


def _fields(document: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] != "path" and parameter["name"] != "If-None-Match":
            yield f"`{parameter['name']}`" + ("" if parameter["in"] == "query" else " (header)")
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    for name in re.findall(r"#/components/schemas/(\w+)'", str(content.get("schema", ""))):
        yield from (f"`{field}`" for field in document["components"]["schemas"][name].get("properties", ()))


def _errors(document: Mapping[str, Any]) -> Iterator[str]:
    yield from _head(
        "HTTP errors",
        "Every error is a problem document (RFC 9457, `application/problem+json`) with a stable `code`.",
        "The routes that return each code are in [openapi.json](../../openapi/openapi.json). Errors of",
        "steps and runs are in the reference of each recipe language.",
    )
    yield from ("| code | status | title | example of `detail` |", "| --- | --- | --- | --- |")
    problems = (example["value"] for example in document["components"]["examples"].values())
    for problem in sorted(problems, key=lambda problem: (problem["status"], problem["code"])):
        title, detail = _cell(problem["title"]), _cell(problem["detail"])
        yield f"| `{problem['code']}` | {problem['status']} | {title} | {detail} |"


def _commands(command: click.Command, name: str) -> Iterator[str]:
    yield from _head(
        "Commands",
        "`control-room` executes in process by default; with `--server URL` or `CONTROL_ROOM_SERVER` it",
        "drives a running service, whose token or key is in `CONTROL_ROOM_API_TOKEN`. `--project DIR`",
        "chooses the project (default: the current folder), `--json` prints JSON.",
        "[agent-recipes](agent-recipes-cli.md) and [orchestrate](orchestrate-cli.md) have their own pages.",
        "",
        "Exit codes: 0 done, 1 failed, paused or waiting, 2 usage or validation, 3 cancelled, 4 not found, 5",
        "configuration or server, 130 interrupted and resumable, 141 the reader of the output is gone.",
        "",
        "| command | purpose |",
        "| --- | --- |",
        *(f"| [`{full}`](#{_anchor(full)}) | {_summary(inner)} |" for full, inner in _walk(command, name)),
    )
    for full, inner in _walk(command, name):
        yield from _section(full, inner)


def _section(full: str, command: click.Command) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    context = click.Context(command)
    usage = " ".join([full, *(argument.make_metavar(context) for argument in arguments)])
    yield from (f"## {full}", "", f"`{usage}`", "", *map(_wrapped, _paragraphs(command)), "")
    if command.epilog:
        yield from ("```text", command.epilog.removeprefix("\b\n"), "```", "")
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    shown = [option for option in options if option.opts[0] not in EVERYWHERE]
    if full == "control-room serve":
        shown = [option for option in shown if option.is_flag]
        yield from ("The [settings](settings.md) are further options.", "")
    if shown:
        yield from ("| option | meaning |", "| --- | --- |")
        yield from (f"| `{_option(option, context)}` | {_meaning(option, context)} |" for option in shown)
        yield ""


def _meaning(option: click.Option, context: click.Context) -> str:
    # As `--help` shows it: with the default and the limits of its value.
    _, shown = option.get_help_record(context) or ("", "")
    return _cell(shown)


def _option(option: click.Option, context: click.Context) -> str:
    name = " / ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return name
    return f"{name} {option.make_metavar(context)}".replace("|", "\\|")


def _paragraphs(command: click.Command) -> Iterator[str]:
    paragraphs = (command.help or "").replace("\b", "").split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        yield from ([""] if number else [])
        yield " ".join(paragraph.split())


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, width=100, break_long_words=False, break_on_hyphens=False)


def _summary(command: click.Command) -> str:
    return next(_paragraphs(command)).partition("; without --server")[0].rstrip(".") + "."


def _walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    if command.invoke_without_command:
        yield name, command
    for part, inner in command.commands.items():
        yield from _walk(inner, f"{name} {part}")


def _anchor(heading: str) -> str:
    return heading.replace(" ", "-")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
