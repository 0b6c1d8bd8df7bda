"""Providers, time limits and retries: workflow-dsl, acceptance 8 to 10, 20, 21, 40, 44, 48 to 51."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import loop, orchestrate, shell, step

PROMPT = 'Look at "this":\n\n- ${run.id} and $$ are\t`literal`, $(so) is *.\n'
ECHO = """
import json, sys
print(json.dumps({"argv": sys.argv[1:], "stdin": sys.stdin.read()}))
"""
COUNT = """
import os, sys, time
name, wanted, code = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(f"{name}.tries", "a") as file:
    file.write(f"{time.time()}\\n")
tries = len(open(f"{name}.tries").readlines())
if tries <= wanted and code == 124:
    os.execlp("sleep", "sleep", "60")
sys.exit(code if tries <= wanted else 0)
"""
STUBBORN = "trap 'touch termed' TERM; echo $$$$ > pid; echo begun; while :; do sleep 0.05; done"


def echoing(*arguments: str, **fields: object) -> dict[str, object]:
    """Return a provider that prints its arguments and its input."""
    return {"command": ["python3", "echo.py", *arguments], **fields}


def test_08_provider_templates(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Template, defaults and parameters make the arguments, and the prompt is one of them, character by character."""
    workspace.write("echo.py", ECHO)
    workspace.write("prompt.md", PROMPT)
    tool = echoing("-p", "${PROMPT}", "--model=${model}", "--heat", "${heat}", defaults={"model": "small", "heat": 1})
    workspace.flow(
        step("Usual", provider="tool", input_file="prompt.md", output_capture="json"),
        step("Own", provider="tool", input_file="prompt.md", output_capture="json",
             provider_params={"model": "large ${one}", "unused": True}, failure="Right"),
        step("Right", provider="tool", input_file="prompt.md", output_capture="json",
             provider_params={"model": "large one", "unused": True}),
        providers={"tool": tool},
    )  # fmt: skip
    steps = door(workspace).steps

    usual = ["-p", PROMPT, "--model=small", "--heat", "1"]
    assert steps["Usual"]["json"] == {"argv": usual, "stdin": ""}
    assert steps["Own"]["exit_code"] == 2
    assert steps["Right"]["json"]["argv"] == ["-p", PROMPT, "--model=large one", "--heat", "1"]


def test_09_provider_stdin_mode(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """In stdin mode the program reads the prompt from its input, and no argument contains the prompt."""
    workspace.write("echo.py", ECHO)
    workspace.write("prompt.md", PROMPT)
    workspace.flow(
        step("Ask", provider="tool", input_file="prompt.md", output_capture="json"),
        providers={"tool": echoing("exec", input_mode="stdin", defaults={"model": "unused"})},
    )
    asked = door(workspace).steps["Ask"]

    assert asked["json"] == {"argv": ["exec"], "stdin": PROMPT}


def test_10_provider_command_exclusivity(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A step with both a provider and a command is refused."""
    workspace.flow(step("Both", "touch", "never", provider="tool"), providers={"tool": {"command": ["true"]}})
    told = door(workspace, code=2).output

    assert "steps[0]" in told
    assert "provider and command" in told
    assert not (workspace.path / "never").exists()


def test_20_timeout(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A program over its time limit is terminated, then killed; its step has exit code 124 and the earlier output."""
    workspace.write("prompt.md", "")
    workspace.flow(
        shell("Stubborn", STUBBORN, timeout_sec=3, failure="Asked"),
        step("Asked", provider="slow", input_file="prompt.md", timeout_sec=0.3),
        providers={"slow": {"command": ["sleep", "60"]}},
    )
    steps = door(workspace, code=1).steps

    assert (steps["Stubborn"]["status"], steps["Stubborn"]["exit_code"]) == ("failed", 124)
    assert steps["Stubborn"]["output"] == "begun\n"
    assert "3 seconds" in steps["Stubborn"]["error"]["message"]
    assert (workspace.path / "termed").exists()
    assert _gone(workspace.read("pid").strip())
    assert (steps["Asked"]["exit_code"], steps["Asked"]["error"]["exit_code"]) == (124, 124)


@pytest.mark.slow
def test_21_step_retries(workspace: workspaces.Workspace) -> None:
    """Providers are retried after 1 and 124, as step or command line configure; commands only as the step does."""
    workspace.write("count.py", COUNT)

    def ask(name: str, wanted: int, code: int, **fields: object) -> dict[str, object]:
        params = {"name": name, "wanted": wanted, "code": code}
        return step(name, provider="tool", provider_params=params, always=f"After{name}", **fields)

    def after(name: str) -> dict[str, object]:
        return step(f"After{name}", "true")

    own = {"max": 2, "delay_ms": 100}
    workspace.flow(
        ask("Again", 2, 1, retries=own), after("Again"),
        ask("Slow", 1, 124, retries=own, timeout_sec=4), after("Slow"),
        ask("Invalid", 1, 2, retries=own), after("Invalid"),
        ask("Unasked", 1, 1), after("Unasked"),
        ask("Never", 1, 1, retries={"max": 0}), after("Never"),
        step("Raw", "python3", "count.py", "Raw", "1", "1", always="AfterRaw"), after("Raw"),
        step("RawAgain", "python3", "count.py", "RawAgain", "1", "3", retries={"max": 1}),
        providers={"tool": {"command": ["python3", "count.py", "${name}", "${wanted}", "${code}"]}},
    )  # fmt: skip
    flags = ("--max-retries", "1", "--retry-delay", "10")
    steps = orchestrate("run", workspaces.FLOW, *flags, workspace=workspace).steps
    tries = {path.stem: len(path.read_text().splitlines()) for path in workspace.path.glob("*.tries")}
    codes = {name: steps[name]["exit_code"] for name in tries}
    again = [float(line) for line in workspace.read("Again.tries").splitlines()]

    assert tries == {"Again": 3, "Slow": 2, "Invalid": 1, "Unasked": 2, "Never": 1, "Raw": 1, "RawAgain": 2}
    assert codes == {"Again": 0, "Slow": 0, "Invalid": 2, "Unasked": 0, "Never": 1, "Raw": 1, "RawAgain": 0}
    assert all(later - earlier >= 0.1 for earlier, later in itertools.pairwise(again))


def test_40_deprecated_override(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """`command_override` is refused, and the message names the field to use instead."""
    workspace.flow(step("Old", provider="tool", command_override=["true"]), providers={"tool": {"command": ["true"]}})
    told = door(workspace, code=2).output

    assert "command_override" in told
    assert "`command`" in told


def test_44_provider_params_substitution(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Variables in parameters are substituted, also inside of lists and objects, and other values stay unchanged."""
    workspace.write("echo.py", ECHO)
    params = {"model": "m-${context.size}", "deep": {"list": ["${context.size}", 2, None, True]}}
    workspace.flow(
        step("Ask", provider="tool", provider_params=params, output_capture="json"),
        providers={"tool": echoing("${model}", "${deep}", "${deep.list.0}")},
        context={"size": "large"},
    )
    asked = door(workspace).steps["Ask"]

    assert asked["json"]["argv"] == ["m-large", '{"list":["large",2,null,true]}', "large"]


def test_48_provider_unresolved_placeholders(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A placeholder without a value fails the step with exit code 2 and is named; the program is not called."""
    workspace.write("prompt.md", "hello")
    workspace.flow(
        step("Ask", provider="tool", input_file="prompt.md", retries={"max": 3}),
        providers={"tool": {"command": ["touch", "called", "${PROMPT}", "${model}"]}},
    )
    finished = door(workspace, code=1)

    assert (finished.steps["Ask"]["status"], finished.steps["Ask"]["exit_code"]) == ("failed", 2)
    assert finished.context("Ask")["missing_placeholders"] == ["model"]
    assert not (workspace.path / "called").exists()


def test_49_provider_stdin_misuse(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A provider that reads its prompt from its input cannot name it in its arguments as well."""
    workspace.flow(
        step("Ask", provider="tool"),
        providers={"tool": {"command": ["tool", "${PROMPT}"], "input_mode": "stdin"}},
    )
    refused = door(workspace, code=2)

    assert "providers.tool.command[1]" in refused.output
    assert "invalid_prompt_placeholder" in refused.output


def test_50_provider_argv_without_prompt(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A template that does not name the prompt is called without it."""
    workspace.write("echo.py", ECHO)
    workspace.write("prompt.md", PROMPT)
    workspace.flow(
        step("Ask", provider="tool", input_file="prompt.md", output_capture="json"),
        providers={"tool": echoing("--read", "it yourself")},
    )
    asked = door(workspace).steps["Ask"]

    assert asked["json"] == {"argv": ["--read", "it yourself"], "stdin": ""}


def test_a_prompt_that_is_too_long_for_an_argument(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A prompt too long for an argument fails the step with exit code 2, and the message names the solution."""
    workspace.write("prompt.md", "x" * 3_000_000)
    workspace.flow(
        step("Ask", provider="tool", input_file="prompt.md"),
        providers={"tool": {"command": ["touch", "called", "${PROMPT}"]}},
    )
    asked = door(workspace, code=1).steps["Ask"]

    assert asked["exit_code"] == 2
    assert "input_mode: stdin" in asked["error"]["message"]
    assert not (workspace.path / "called").exists()


def test_51_provider_params_namespaces(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Parameters can refer to the run, context, loop and step results, those of the iteration first."""
    workspace.write("echo.py", ECHO)
    of_run = "${run.id} ${run.root} ${run.timestamp_utc}"
    names = f"{of_run} ${{context.who}} ${{loop.index}}/${{loop.total}} ${{item}} ${{steps.Say.output}}"
    workspace.flow(
        shell("Say", "printf outer"),
        loop(
            "Each",
            shell("Say", 'printf "inner-%s" "$0"', "${item}"),
            step("Ask", provider="tool", provider_params={"all": names}, output_capture="json"),
            items=["a", "b"],
        ),
        step("After", provider="tool", provider_params={"all": "${steps.Say.output}"}, output_capture="json"),
        providers={"tool": echoing("${all}")},
        context={"who": "nobody"},
    )
    finished = door(workspace, who="somebody")
    asked = [iteration["Ask"]["json"]["argv"][0].split(" ") for iteration in finished.steps["Each"]]

    assert [words[3:] for words in asked] == [
        ["somebody", "0/2", "a", "inner-a"],
        ["somebody", "1/2", "b", "inner-b"],
    ]
    assert {words[0] for words in asked} == {finished.run_id}
    assert {words[2] for words in asked} == {finished.run_id.partition("-")[0]}
    root = workspace.path / asked[0][1]
    assert json.loads((root / "state.json").read_text())["run_id"] == finished.run_id
    assert finished.steps["After"]["json"]["argv"] == ["outer"]


def _gone(pid: str) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
