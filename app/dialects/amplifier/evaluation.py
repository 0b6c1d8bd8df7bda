"""Evaluation: detect the places of a command that Bash, or a program, reads as code, number or name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from app.dialects.amplifier.shell import Shell

if TYPE_CHECKING:
    from tree_sitter import Node

EVALUATED = "evaluated_variable"  # Code of a place where Bash would execute code in a value.
UNSAFE = "unsafe_variable"  # Code of any other place where a value cannot be filled in.

WORDS = ("word", "concatenation", "raw_string", "ansi_c_string", "string", "translated_string")
"""Nodes of the parser that are one word of a command, or a part of one."""

_COMPARE = "compare in a condition of the recipe, or with [ ], and calculate with expr"
_CODE = f"is evaluated by Bash, with what the value may hide; {_COMPARE}"
_NAME = "names a variable of the shell, whose index Bash evaluates"
_SHELL = "is read as code by the shell that this starts; pass it as an argument: bash -c 'echo \"$1\"' _ {{name}}"
_FORMAT = "is in the format of printf, which reads % and \\ in it; write printf '%s' {{name}}"
_BACKQUOTES = "is in backquotes, which read their text twice; write $( ) in place of them"
DOLLAR = 'has a $ before it, with which Bash begins a name; write {{name}} alone, or "\\${{name}}" for the sign itself'
"""Reasons reported for a variable, by the character that begins its name."""
_LIST = "is one word, so that the loop is taken once; loop over $(printf '%s\\n' {{name}}), or use foreach"
_ALONE = 'is the whole command; put it into env and write: bash -c "$NAME"'
_PATTERN = 'is matched as text, not as a pattern; write grep -E -- {{name}} <<< "$TEXT"'
_EXPANSION = "is inside of ${…}; assign it to a variable of the shell first: value={{name}}"
ELSEWHERE = 'is at a place where no value can be filled in; put it into env and write "$NAME"'

"""Reason reported if no more specific one is known."""

_AROUND = frozenset(
    (
        "program", "command", "command_name", "list", "pipeline", "redirected_statement", "file_redirect",
        "herestring_redirect", "heredoc_redirect", "heredoc_body", "command_substitution", "process_substitution",
        "subshell", "compound_statement", "if_statement", "elif_clause", "else_clause", "while_statement",
        "for_statement", "c_style_for_statement", "do_group", "case_statement", "case_item", "function_definition",
        "negated_command", "test_command", "binary_expression", "unary_expression", "parenthesized_expression",
        "variable_assignment", "variable_assignments", "declaration_command", "array", "expansion", *WORDS,
    )
)  # fmt: skip
_NUMERIC = r"-(?:eq|ne|lt|le|gt|ge)"
_NUMBER_BEFORE = re.compile(rf"\s(?:{_NUMERIC}|-v|-R)\s+\Z")
_NUMBER_AFTER = re.compile(rf"\s+{_NUMERIC}\s")
_MATCH_BEFORE = re.compile(r"\s=~\s*\Z")
_NAMED_BEFORE = re.compile(r"\s-(?:v|R)\s+\Z")

_PREFIXES = frozenset(("command", "builtin", "exec", "env", "sudo", "time", "nohup", "nice", "timeout", "xargs"))
_EVALUATING = frozenset(("eval", "let", "trap", "alias", "bind", "complete"))
_NAMING = frozenset(
    ("unset", "read", "mapfile", "readarray", "getopts", "declare", "typeset", "local", "export", "readonly", "wait")
)
_SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))
_UNQUOTED = re.compile(r"""['"\\]""")
_CODE_OPTION = re.compile(r"-[a-z]*c[a-z]*")
_INTEGER_OPTION = re.compile(r"[-+][a-zA-Z]*[in][a-zA-Z]*")
_OF_PREFIX = re.compile(r"-|[A-Za-z_][A-Za-z0-9_]*=|[0-9.]+[a-z]?\Z")
_COMPARED = re.compile(rf"(\S+)\s+{_NUMERIC}\s+(\S+)")
_LENGTH = re.compile(r"\$\{#[^}]*\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COUNTERS = {
    "wc": re.compile(r"wc"),
    "grep": re.compile(r"-[EFGPhinsvwx]*c[a-zA-Z]*|--count"),
    "jq": re.compile(r"(?:.*\|)?\s*length\s*", re.DOTALL),
}
"""Programs that print only numbers if one of their words matches."""
_COUNTING = ("arithmetic_expansion", "subscript", "postfix_expression", "ternary_expression")
_NO_WORDS = ("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect")
_DEFAULTS = (":-", "-", ":=", "=", ":+", "+")


class Unsafe(Exception):
    """A place where a value cannot be filled in."""

    def __init__(self, reason: str, code: str = UNSAFE) -> None:
        super().__init__(reason)
        self.code = code  # Stable name of the reason.


def check(shell: Shell, node: Node) -> None:
    """Check everything around a place of a command, and raise `Unsafe` if a value cannot be filled in."""
    child, word, unprinted = node, node, False
    while (around := shell.around(child)) is not None:
        if child.type in WORDS:
            word = child
        if around.type in _COUNTING:
            raise Unsafe(_CODE, EVALUATED)
        if around.type == "simple_expansion":
            raise Unsafe(DOLLAR)
        if around.type not in _AROUND:
            raise Unsafe(_PATTERN if around.type == "regex" else ELSEWHERE)
        unprinted = unprinted or _unprinted(shell, around, child)
        if around.type in _RULES and not (unprinted and around.type == "variable_assignment"):
            _RULES[around.type](shell, around, child)
        if around.type == "test_command":
            _in_test(shell, around, word)
        child = around
    if node.type in ("variable_name", "special_variable_name"):
        raise Unsafe(_NAME, EVALUATED)


# -- surroundings of a place


def _unprinted(shell: Shell, around: Node, child: Node) -> bool:
    """Return whether a command reads a value without printing it: in a test, as a file's name, or to count it."""
    if around.type == "pipeline":
        return _last_counters(shell).get(around.id, 0) > child.start_byte
    if around.type in ("command", "redirected_statement") and child.type in _NO_WORDS:
        return child.type != "variable_assignment" and _counts(shell, around)
    return around.type in ("test_command", "file_redirect")


@lru_cache(maxsize=1)
def _last_counters(shell: Shell) -> Mapping[int, int]:
    pairs = ((around, one) for around in shell.all("pipeline") for one in around.children)
    return {around.id: one.start_byte for around, one in pairs if _counts(shell, one)}


def _counts(shell: Shell, node: Node) -> bool:
    command = node.child_by_field_name("body") if node.type == "redirected_statement" else node
    words = _words(shell, command)[0] if command is not None and command.type == "command" else ()
    counter = _COUNTERS.get(_base(words[0])) if words else None
    return counter is not None and any(counter.fullmatch(word) for word in words)


def _in_substitution(shell: Shell, around: Node, child: Node) -> None:
    source = shell.source(around)
    if source.startswith("`"):
        raise Unsafe(_BACKQUOTES)
    # Bash tries arithmetic first for two parentheses, while the parser reads a subshell.
    if source.startswith(("$((", "((")):
        raise Unsafe(_CODE, EVALUATED)


def _in_counting_loop(shell: Shell, around: Node, child: Node) -> None:
    if child.type not in ("do_group", "compound_statement"):
        raise Unsafe(_CODE, EVALUATED)


def _in_loop(shell: Shell, around: Node, child: Node) -> None:
    words = [one for one in around.children if one.type in WORDS]
    if words == [child] and child.type == "word" and set(shell.source(child)) == {"V"}:
        raise Unsafe(_LIST)


def _in_function(shell: Shell, around: Node, child: Node) -> None:
    if child.type == "word":
        raise Unsafe(ELSEWHERE)


def _in_array(shell: Shell, around: Node, child: Node) -> None:
    if shell.source(child).startswith("["):
        raise Unsafe(_CODE, EVALUATED)


def _in_assignment(shell: Shell, around: Node, child: Node) -> None:
    name = shell.source(around).partition("=")[0].rstrip("+")
    if name in _counted(shell):
        raise Unsafe(f"is put into {name}, which this command reads as a number; {_COMPARE}", EVALUATED)
    words = (word for one in shell.all("declaration_command") for word in one.children)
    if any(_INTEGER_OPTION.fullmatch(shell.source(word)) for word in words):
        raise Unsafe(_CODE, EVALUATED)


def _in_declaration(shell: Shell, around: Node, child: Node) -> None:
    if child.type in WORDS:
        raise Unsafe(_NAME, EVALUATED)


def _in_expansion(shell: Shell, around: Node, child: Node) -> None:
    operators = [one.type for one in around.children]
    plain = child.type in ("word", "concatenation") and re.fullmatch(r"[\w./:, -]+", shell.source(child))
    if len(operators) != 5 or operators[2] not in _DEFAULTS or not plain:
        raise Unsafe(_EXPANSION)


def _in_test(shell: Shell, around: Node, word: Node) -> None:
    before = shell.masked[around.start_byte : word.start_byte].replace("\\\n", "  ")
    after = shell.masked[word.end_byte : around.end_byte].replace("\\\n", "  ")
    doubled = shell.source(around).startswith("[[")
    if _NAMED_BEFORE.search(before):
        raise Unsafe(_NAME, EVALUATED)
    if doubled and (_NUMBER_BEFORE.search(before) or _NUMBER_AFTER.match(after)):
        raise Unsafe(_CODE, EVALUATED)
    if doubled and _MATCH_BEFORE.search(before):
        raise Unsafe(_PATTERN)


def _in_redirect(shell: Shell, around: Node, child: Node) -> None:
    statement = shell.around(around)
    command = statement.child_by_field_name("body") if statement is not None else None
    words = _words(shell, command)[0] if command is not None else ()
    read = child.type in ("heredoc_body", *WORDS) and words and _base(words[0]) in _SHELLS
    if read and ("-s" in words or all(word.startswith("-") for word in words[1:])):
        raise Unsafe(_SHELL, EVALUATED)


def _in_command(shell: Shell, around: Node, child: Node) -> None:
    words, positions = _words(shell, around)
    at = positions.get(child.id)
    if at is None:
        return
    if len(words) == 1 and set(shell.source(child)) == {"V"}:
        raise Unsafe(_ALONE)
    first = _effective(words)
    name = _base(words[first])
    if at > first and name in _EVALUATING:
        raise Unsafe(_CODE, EVALUATED)
    if at > first and name in _NAMING:
        raise Unsafe(_NAME, EVALUATED)
    if name == "test" and at > first and words[at - 1] in ("-v", "-R"):
        raise Unsafe(_NAME, EVALUATED)
    if name == "printf":
        _in_printf(words, first + 1, at)
    # A shell reads as code the word after its option -c; only further options may be between them.
    before = at - 1
    while before > 0 and words[before].startswith("-"):
        if _CODE_OPTION.fullmatch(words[before]) and any(_base(word) in _SHELLS for word in words[:before]):
            raise Unsafe(_SHELL, EVALUATED)
        before -= 1


def _in_printf(words: tuple[str, ...], first: int, at: int) -> None:
    if words[first : first + 1] == ("-v",):
        if at == first + 1:
            raise Unsafe(_NAME, EVALUATED)
        first += 2
    if words[first : first + 1] == ("--",):
        first += 1
    if at == first:
        raise Unsafe(_FORMAT)


_Rule: TypeAlias = "Callable[[Shell, Node, Node], None]"
_RULES: Mapping[str, _Rule] = {
    "command_substitution": _in_substitution,
    "subshell": _in_substitution,
    "compound_statement": _in_substitution,
    "c_style_for_statement": _in_counting_loop,
    "for_statement": _in_loop,
    "function_definition": _in_function,
    "array": _in_array,
    "variable_assignment": _in_assignment,
    "declaration_command": _in_declaration,
    "expansion": _in_expansion,
    "herestring_redirect": _in_redirect,
    "heredoc_redirect": _in_redirect,
    "command": _in_command,
}


# -- words


@lru_cache(maxsize=16)
def _words(shell: Shell, command: Node) -> tuple[tuple[str, ...], Mapping[int, int]]:
    nodes = [one for one in command.children if one.type not in _NO_WORDS]
    words = tuple(_UNQUOTED.sub("", shell.source(one)) for one in nodes)
    return words, {one.id: at for at, one in enumerate(nodes)}


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _effective(words: tuple[str, ...]) -> int:
    """Return the position of the command that prefixes such as `env` and `sudo` start."""
    at = 0
    while at + 1 < len(words) and (_base(words[at]) in _PREFIXES or (at and _OF_PREFIX.match(words[at]))):
        at += 1
    return at


@lru_cache(maxsize=1)
def _counted(shell: Shell) -> frozenset[str]:
    """Return the shell variables that a command reads as numbers, including those that these are built from."""
    # Only the index of a subscript, not the array.
    sources = [shell.source(one).partition("[")[2] for one in shell.all("subscript")]
    sources += [shell.source(one) for one in shell.all("arithmetic_expansion")]
    sources += [shell.source(one) for one in shell.all("compound_statement") if shell.source(one).startswith("((")]
    sources += [shell.source(one).partition("))")[0] for one in shell.all("c_style_for_statement")]
    # A numeric test in single brackets accepts only numbers.
    tests = [shell.source(one) for one in shell.all("test_command") if shell.source(one).startswith("[[")]
    sources += [" ".join(found) for one in tests for found in _COMPARED.findall(one)]
    waiting, counted = _VARIABLE.findall(_LENGTH.sub("", " ".join(sources))), set[str]()
    made = _copies(shell)
    while waiting:
        name = waiting.pop()
        if name not in counted:
            counted.add(name)
            waiting += made.get(name, ())
    return frozenset(counted)


def _copies(shell: Shell) -> Mapping[str, list[str]]:
    """Return the variables from which each shell variable is built, without the output of commands."""
    made = dict[str, list[str]]()
    for one in shell.all("variable_assignment"):
        name, _, value = shell.source(one).partition("=")
        if "$(" not in value and "`" not in value:
            made.setdefault(name.rstrip("+"), []).extend(_VARIABLE.findall(_LENGTH.sub("", value)))
    return made
