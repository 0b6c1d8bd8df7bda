"""Files that steps depend on, and their injection into prompts: workflow-dsl, acceptance 22 to 24, 26 to 35, 53."""

from __future__ import annotations

from typing import Any

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import shell, step

KIB = 1024
PROMPT = "Do it.\n\nAnd do it well.\n"
LISTED = "The following files are required inputs for this task:"
CAT = {"cat": {"command": ["cat"], "input_mode": "stdin"}}


def ask(name: str, **depends_on: Any) -> dict[str, Any]:
    """Return a step whose output is its composed prompt."""
    return step(name, provider="cat", input_file="prompt.md", output_file=f"out/{name}", depends_on=depends_on)


def prompts(
    workspace: workspaces.Workspace, door: workspaces.Door, *steps: dict[str, Any], **context: Any
) -> list[str]:
    """Return the composed prompt of each step."""
    workspace.write("prompt.md", PROMPT)
    workspace.flow(*steps, providers=CAT)
    door(workspace, **context)
    return [workspace.read(f"out/{asked['name']}") for asked in steps]


def test_22_dependency_validation(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A missing required file fails the step with exit code 2 before its command, without retries."""
    workspace.write("there.txt")
    needs = {"required": ["there.txt", "missing.txt", "no/*.csv"]}
    workspace.flow(step("Need", "touch", "called", depends_on=needs, retries={"max": 5, "delay_ms": 60_000}))
    finished = door(workspace, code=1)
    need = finished.steps["Need"]

    assert (need["status"], need["exit_code"]) == ("failed", 2)
    assert finished.context("Need")["failed_deps"] == ["missing.txt", "no/*.csv"]
    assert "missing.txt" in need["error"]["message"]
    assert not (workspace.path / "called").exists()


def test_23_dependency_patterns(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Patterns are POSIX globs: `*` and `?` within a name, folders too, dotfiles only if named, no globstar."""
    for name in ("data/b.csv", "data/a1.csv", "data/.hidden.csv", "data/deep/c.csv", "data/[x].txt"):
        workspace.write(name)
    (star,) = prompts(
        workspace,
        door,
        ask("Star", required=["data/*.csv", "data/a?.csv", "data/.h*", "data/de*", "data/*/c.csv"], inject=True),
    )
    workspace.flow(step("Bare", "true", depends_on={"required": ["data/*.parquet"]}))
    door(workspace, code=1)
    workspace.flow(step("Deep", "true", depends_on={"required": ["data/**/c.csv"]}))
    globstar = door(workspace, code=2)
    listed = [line[2:] for line in star.splitlines() if line.startswith("- ")]

    assert listed == ["data/.hidden.csv", "data/a1.csv", "data/b.csv", "data/deep", "data/deep/c.csv"]
    assert "**" in globstar.output


def test_24_variable_in_dependencies(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Variables in dependencies are substituted before the lookup, and arguments of the run take precedence."""
    workspace.write("data/new/one.csv")
    needs = {"required": ["data/${context.set}/*.csv", "${context.file}"]}
    workspace.flow(
        shell("Make", "touch made.txt; printf made.txt"),
        step("Need", "true", depends_on=needs),
        step("Chained", "true", depends_on={"required": ["${steps.Make.output}"]}),
        context={"set": "old", "file": "data/new/one.csv"},
    )
    finished = door(workspace, set="new")
    missed = door(workspace, code=1)

    assert finished.steps["Chained"]["status"] == "completed"
    assert missed.context("Need")["failed_deps"] == ["data/old/*.csv"]


def test_26_optional_dependencies(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Missing optional files do not fail the step, and the prompt omits them."""
    workspace.write("a.txt")
    made = prompts(
        workspace,
        door,
        ask("Some", required=["a.txt"], optional=["missing.txt", "no/*.md"], inject=True),
        ask("None", optional=["missing.txt"], inject=True),
    )

    assert made == [f"{LISTED}\n- a.txt\n\n{PROMPT}", PROMPT]


def test_27_dependency_error_handler(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`on.failure` handles a missing dependency, and the run continues and completes."""
    workspace.flow(
        step("Need", "true", depends_on={"required": ["missing.txt"]}, failure="Handle"),
        shell("Between", "touch never"),
        shell("Handle", 'printf "%s" "$0"', "${steps.Need.exit_code}"),
    )
    finished = door(workspace)

    assert finished.state["status"] == "completed"
    assert finished.steps["Handle"]["output"] == "2"
    assert "Between" not in finished.steps or finished.steps["Between"]["status"] == "pending"
    assert not (workspace.path / "never").exists()


def test_28_basic_injection(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`inject: true` puts the default instruction and the list of files before the prompt; the file stays unchanged."""
    workspace.write("artifacts/system_design.md")
    workspace.write("artifacts/api_spec.md")
    (asked,) = prompts(workspace, door, ask("Ask", required=["artifacts/*.md"], inject=True))

    assert asked == f"{LISTED}\n- artifacts/api_spec.md\n- artifacts/system_design.md\n\n{PROMPT}"
    assert workspace.read("prompt.md") == PROMPT


def test_29_list_mode_injection(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`list` names every file, required files before optional ones if there are both."""
    for name in ("a/2.md", "a/1.md", "docs/standards.md"):
        workspace.write(name)
    (asked,) = prompts(
        workspace, door, ask("Ask", required=["a/*.md"], optional=["docs/*.md", "no.md"], inject={"mode": "list"})
    )

    listed = "Required:\n- a/1.md\n- a/2.md\nOptional (if available):\n- docs/standards.md"
    assert asked == f"{LISTED}\n{listed}\n\n{PROMPT}"


def test_30_content_mode_injection(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`content` quotes files whole; beyond 256 KiB it cuts, marks the cut, and records the amounts in the state."""
    workspace.write("a.md", "alpha ${not.one}\n")
    workspace.write("big/1.txt", "x" * (200 * KIB))
    workspace.write("big/2.txt", "y" * (200 * KIB))
    workspace.write("big/3.txt", "z" * KIB)
    small, big = prompts(
        workspace,
        door,
        ask("Small", required=["a.md"], inject={"mode": "content"}),
        ask("Big", required=["big/*.txt"], inject={"mode": "content"}),
    )
    finished = door(workspace)
    record = finished.steps["Big"]["debug"]["injection"]
    details = record["truncation_details"]
    shown = max(big.splitlines()[4:], key=len)

    assert small.startswith("The following file contents are provided for context:\n\n=== File: a.md (")
    assert small.endswith(f") ===\nalpha ${{not.one}}\n\n{PROMPT}")
    assert "injection" not in finished.steps["Small"].get("debug", {})
    assert record["injection_truncated"] is True
    assert (details["total_size"], details["files_shown"], details["files_truncated"], details["files_omitted"]) in (
        (401 * KIB, 2, 1, 1),
        (401 * KIB, 1, 1, 1),
    )
    assert details["shown_size"] <= 256 * KIB
    assert big.count("x") > 200 * KIB
    assert 50 * KIB < len(shown) < 56 * KIB
    assert f"=== File: big/2.txt ({len(shown)}/{200 * KIB} bytes) ===\n{shown}\n" in big
    assert "[... truncated:" in big
    assert "=== Files not shown (1 file" in big
    assert "- big/3.txt (" in big


def test_31_custom_instruction(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`instruction` replaces the default instruction in both modes."""
    workspace.write("a.md", "alpha")
    own = "Review these, ${item}:"
    listed, quoted = prompts(
        workspace,
        door,
        ask("List", required=["a.md"], inject={"mode": "list", "instruction": own}),
        ask("Content", required=["a.md"], inject={"mode": "content", "instruction": own}),
    )

    assert listed == f"{own}\n- a.md\n\n{PROMPT}"
    assert quoted.startswith(f"{own}\n\n=== File: a.md (")
    assert "The following" not in listed + quoted


def test_32_append_position(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """With `position: append` the files follow the prompt."""
    workspace.write("a.md", "alpha")
    listed, quoted = prompts(
        workspace,
        door,
        ask("List", required=["a.md"], inject={"mode": "list", "position": "append"}),
        ask("Content", required=["a.md"], inject={"mode": "content", "position": "append"}),
    )

    assert listed == f"{PROMPT}\n{LISTED}\n- a.md\n"
    assert quoted.startswith(f"{PROMPT}\nThe following file contents")
    assert quoted.rstrip().endswith("alpha")


def test_33_pattern_injection(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Patterns expand to all their files, each once, in byte order of their paths."""
    for name in ("src/b.py", "src/B.py", "src/a.py", "src/é.py", "src/10.py", "src/9.py", "tests/t.py"):
        workspace.write(name)
    (asked,) = prompts(workspace, door, ask("Ask", required=["tests/*.py", "src/*.py", "src/a.py"], inject=True))

    names = ["src/10.py", "src/9.py", "src/B.py", "src/a.py", "src/b.py", "src/é.py", "tests/t.py"]
    assert asked == "\n".join([LISTED, *(f"- {name}" for name in names)]) + f"\n\n{PROMPT}"


def test_34_optional_file_injection(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Quoted files omit missing optional files as well."""
    workspace.write("a.md", "alpha")
    some, none = prompts(
        workspace,
        door,
        ask("Some", required=["a.md"], optional=["missing.md"], inject={"mode": "content"}),
        ask("None", optional=["missing.md"], inject={"mode": "content", "position": "append"}),
    )

    assert "missing" not in some
    assert "alpha" in some
    assert none == PROMPT


def test_35_no_injection_default(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Without `inject`, with `false` and with the mode `none`, the prompt is the unchanged file."""
    workspace.write("a.md", "alpha")
    made = prompts(
        workspace,
        door,
        ask("Without", required=["a.md"]),
        ask("Off", required=["a.md"], inject=False),
        ask("Mode", required=["a.md"], inject={"mode": "none", "instruction": "Read:"}),
        ask("Empty", required=["a.md"], inject={}),
    )

    assert made == [PROMPT] * 4


def test_53_injection_shorthand(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`inject: true` is a list before the prompt, under the default instruction."""
    workspace.write("a.md")
    short, long = prompts(
        workspace,
        door,
        ask("Short", required=["a.md"], optional=["prompt.md"], inject=True),
        ask("Long", required=["a.md"], optional=["prompt.md"], inject={"mode": "list", "position": "prepend"}),
    )

    assert short == long
    assert short.startswith(f"{LISTED}\n")
