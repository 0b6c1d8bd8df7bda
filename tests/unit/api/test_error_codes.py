"""Codes of errors: each that a response can carry is in the catalogue, from which the documents are made."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from app import errors
from app.api import problems, refusal_examples, refusals
from tests.architecture import sources

SERVED = tuple(
    f"app.{name}." for name in ("api", "ui", "services", "domain", "engine", "storage", "worker", "temporal")
)
"""Packages whose errors can reach a response."""

WEBSOCKET = (sources.ROOT / "docs" / "reference" / "websocket.md").read_text(encoding="utf-8")
"""The page that lists the codes of messages."""

CATALOGUE = (refusals.__name__, refusal_examples.__name__)
"""The modules of the catalogue."""

NOT_SENT = {
    "bad_agent_session_id": "arguments have no such ids by their schema",
    "chief_result_unusable": "the plan keeps it",
    "file_exists": "backups are a command",
    "file_not_found": "a flaw of a recipe",
    "input_refused": "each reader of files and replies puts another error in its place",
    "journal_differs": "the run is parked with it",
    "lease_lost": "a use case puts another error in its place",
    "not_plain_json": "a fault of the program",
    "outside": "a flaw of a recipe",
    "receipt_altered": "the receipt shows it as its alteration",
    "recipe_id_missing": "the run that was found is listed with it",
    "restore_not_empty": "restoring is a command",
    "review_unusable": "the plan keeps it",
    "run_exists": "a run gets another id",
    "run_pinned": "a report of a prune has its message",
    "slot_not_written": "the plan keeps it",
    "source_in_use": "copying between stores is a command",
    "transfer_refused": "copying between stores is a command",
    "workspace_busy": "only commands claim a workspace",
}
"""Codes that no response carries, and why."""

PUT_ANEW = {
    "plan_damaged": "what reads the file of a plan puts a conflict in its place",
    "stopping": "a use case puts an error for a service that is not there in its place",
}
"""Codes that an error inside of the program has with another status, and what a client gets."""

CLASSES: dict[str, type[errors.ControlRoomError] | type[errors.Fault]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type)
    and issubclass(kind, errors.ControlRoomError | errors.Fault)
    and set(kind.__mro__) & set(refusals.STATUS)
}
"""The errors that have a status, by name."""

MADE_BY = {*CLASSES, "of_status", "HTTPException"}
"""What makes a response that is an error."""


def test_every_code_is_in_the_catalogue() -> None:
    """A client finds each code of a response in the catalogue, and each code of a message on its page."""
    found = {code: places for code, places in _codes().items() if code not in refusals.EXAMPLES}
    unknown = {code: places for code, places in found.items() if f"`{code}`" not in WEBSOCKET}

    assert {code: places for code, places in unknown.items() if code not in NOT_SENT} == {}
    assert set(NOT_SENT) <= set(unknown)


def test_each_status_of_a_code_is_in_the_catalogue() -> None:
    """The catalogue has an example of a code for each status of the errors that carry it."""
    shown = {(example.code, example.status) for example in refusals.EXAMPLES.values()}
    known = {code for code, _ in shown}
    carried = {
        (code, status): module.name
        for module in sources.modules(sources.APP)
        if module.name.startswith(SERVED) and module.name not in CATALOGUE
        for code, status in _statuses_of(module.tree)
        if code in known
    }

    assert {(code, status) for code, status in carried.keys() - shown if code not in PUT_ANEW} == set()
    assert PUT_ANEW.keys() <= {code for code, _ in carried.keys() - shown}


def test_every_kind_of_code_is_seen() -> None:
    """The test sees literals, constants, defaults, statuses, and literals that go through a helper."""
    seen = {
        "gate_not_found",
        "approvals_need_keys",
        "wrong_state",
        "upgrade_required",
        "too_many_headers",
        "plan_changed",
    }

    assert seen <= set(_codes())


@cache
def _codes() -> dict[str, set[str]]:
    """Return every code that the program gives an error with a status, with the modules that do."""
    found: dict[str, set[str]] = {}
    for module in sources.modules(sources.APP):
        if module.name.startswith(SERVED) and module.name not in CATALOGUE:
            for code in _codes_of(module.tree):
                found.setdefault(code, set()).add(module.name)
    return found


def _codes_of(tree: ast.Module) -> Iterator[str]:
    takers = {
        function.name: names.index("code")
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and "code" in (names := [argument.arg for argument in function.args.args if argument.arg != "self"])
        and any(_is_named_code(given.get("code")) for name, _, given in _calls(function) if name in MADE_BY)
    }
    for name, call, given in _calls(tree):
        if name in takers and len(call.args) > takers[name]:
            yield from _values(call.args[takers[name]])
        elif name in MADE_BY:
            if "code" in given:
                yield from _values(given["code"])
            elif name in CLASSES:
                yield CLASSES[name].default_code
            elif call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, int):
                yield problems.of_status(call.args[0].value, "").code


def _statuses_of(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for name, _, given in _calls(tree):
        if name in CLASSES:
            codes = _values(given["code"]) if "code" in given else [CLASSES[name].default_code]
            status = next(refusals.STATUS[kind] for kind in CLASSES[name].__mro__ if kind in refusals.STATUS)
            yield from ((code, status) for code in codes)


def _calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call, dict[str | None, ast.expr]]]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            yield name, call, {keyword.arg: keyword.value for keyword in call.keywords}


def _is_named_code(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Name) and node.id == "code"


def _values(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(code)):
            yield code
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_values(body), *_values(orelse))
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.isupper():
            yield from _constants().get(name, ())


@cache
def _constants() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for module in sources.modules(sources.APP):
        for statement in module.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                    if re.fullmatch(r"[a-z]+(_[a-z]+)*", text):
                        found.setdefault(name, set()).add(text)
    return found
