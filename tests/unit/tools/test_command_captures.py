"""Captured outputs of commands: the values in the record, the logs, and the rules that an output must meet."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.domain import operations, records, states
from app.processes import supervisor
from app.tools import captures
from app.tools.commands import CommandPerformer
from app.tools.workspace import Workspaces
from tests.unit.calls import Harness
from tests.unit.processes import modes

SECRET = "sk-very-secret-4711"
ENVIRON = {**os.environ, "TOKEN": SECRET, "CONTROL_ROOM_API_TOKEN": "ours", "PWD": "/"}


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    project = tmp_path / "project"
    project.mkdir()
    return Harness(working_dir=project)


@pytest.fixture
async def performer(tmp_path: Path, harness: Harness) -> AsyncIterator[CommandPerformer]:
    running = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), ENVIRON)
    yield CommandPerformer(running, Workspaces([harness.working_dir]), ENVIRON)
    await running.close()


def shell(script: str, mode: Any = "text", /, **given: Any) -> operations.Command:
    """Return a command whose output is captured, logged as `Step`."""
    rules = {name: given.pop(name) for name in ("allow_parse_error", "schema_file", "require") if name in given}
    capture = operations.Capture(mode=mode, **rules)
    return operations.Command(argv=("/bin/sh", "-c", script), capture=capture, **({"log": "Step"} | given))


def failure(result: records.Result) -> records.StepError:
    """Return the error of a failed try."""
    assert result.status is states.StepState.FAILED
    assert result.error is not None
    return result.error


class TestModes:
    """Capture modes."""

    @pytest.mark.parametrize(
        ("script", "mode", "captured"),
        [
            ("printf 'a\\nb\\n'", "text", {"output": "a\nb\n", "truncated": False}),
            ("printf 'a\\r\\nb'", "lines", {"output_capture": "lines", "lines": ["a", "b"], "truncated": False}),
            ("printf '{\"a\": [1]}'", "json", {"output_capture": "json", "json": {"a": [1]}, "truncated": False}),
        ],
    )
    async def test_captured_replaces_stdout(
        self, harness: Harness, performer: CommandPerformer, script: str, mode: str, captured: dict[str, Any]
    ) -> None:
        """`captured` replaces `stdout`, and a record that has the whole output needs no log."""
        result = await performer.perform(harness.call(shell(script, mode)))

        assert (result.status, result.output["captured"]) == (states.StepState.DONE, captured)
        assert not {"stdout", "stdout_tail", "stderr_tail"} & set(result.output)
        assert harness.logs == {}

    @pytest.mark.parametrize(
        ("script", "mode", "size"),
        [
            (f"head -c {captures.TEXT_BYTES + 1} /dev/zero | tr '\\0' x", "text", captures.TEXT_BYTES + 1),
            ("seq 10001", "lines", 48_900),
        ],
    )
    async def test_output_beyond_the_record_is_logged(
        self, harness: Harness, performer: CommandPerformer, script: str, mode: str, size: int
    ) -> None:
        """The record has the beginning of a large output and is marked as truncated; the log has all of it."""
        result = await performer.perform(harness.call(shell(script, mode)))

        assert result.output["captured"]["truncated"] is result.output["stdout_truncated"] is True
        assert len(result.output["captured"].get("output", "")) <= captures.TEXT_BYTES
        assert len(result.output["captured"].get("lines", ())) <= captures.MOST_LINES
        assert {name: len(text) for name, text in harness.logs.items()} == {"Step.stdout": size}
        assert result.output["stdout_bytes"] == size

    @pytest.mark.parametrize("allowed", [False, True])
    @pytest.mark.parametrize(
        ("script", "reason"), [("echo '{'", "invalid"), (f"head -c {captures.JSON_BYTES} /dev/zero; echo", "overflow")]
    )
    async def test_invalid_json_fails_the_try_unless_allowed(
        self, harness: Harness, performer: CommandPerformer, script: str, reason: str, allowed: bool
    ) -> None:
        """Invalid JSON fails the try with exit code 2, or is kept as text where that is allowed; both are logged."""
        result = await performer.perform(harness.call(shell(script, "json", allow_parse_error=allowed)))

        assert result.output["captured"]["debug"] == {"json_parse_error": {"reason": reason}}
        assert ("output" in result.output["captured"]) is allowed
        assert result.output["exit_code"] == 0
        assert set(harness.logs) == {"Step.stdout"}
        if allowed:
            assert result.status is states.StepState.DONE
        else:
            assert failure(result).code == "output_invalid"
            assert failure(result).detail == {"context": {"json_parse_error": {"reason": reason}}, "exit_code": 2}

    async def test_a_program_that_failed_keeps_its_own_error(
        self, harness: Harness, performer: CommandPerformer
    ) -> None:
        """The output of a failed program is captured, and the record has the last lines of both outputs."""
        script = "seq 20; echo sorry >&2; exit 7"
        lines = await performer.perform(harness.call(shell(script, "lines")))
        no_json = await performer.perform(harness.call(shell(script, "json", require=({"pointer": "/a"},))))

        assert [failure(result).code for result in (lines, no_json)] == ["exit_code", "exit_code"]
        assert lines.output["captured"]["lines"] == [str(number) for number in range(1, 21)]
        assert lines.output["stdout_tail"] == [str(number) for number in range(11, 21)]
        assert lines.output["stderr_tail"] == ["sorry"]
        assert harness.logs["Step.stderr"] == "sorry\n"

    async def test_output_before_a_time_out_is_captured(self, harness: Harness, performer: CommandPerformer) -> None:
        """A program that times out fails with `timeout`, and its output up to then is captured."""
        result = await performer.perform(
            harness.call(shell("echo begun; sleep 60", "lines", timeout_seconds=modes.BEGUN_SECONDS))
        )

        assert (failure(result).code, failure(result).detail) == ("timeout", {"timeout_seconds": modes.BEGUN_SECONDS})
        assert result.output["captured"]["lines"] == result.output["stdout_tail"] == ["begun"]

    async def test_the_user_file_gets_every_byte(self, harness: Harness, performer: CommandPerformer) -> None:
        """The user's file gets all of standard output, even if the capture is cut."""
        result = await performer.perform(harness.call(shell("seq 10001", "lines", output_file="out/all.txt")))

        assert (harness.working_dir / "out/all.txt").read_text().count("\n") == 10_001
        assert len(result.output["captured"]["lines"]) == captures.MOST_LINES

    async def test_an_output_beyond_the_limit_is_cut_at_a_line(
        self, harness: Harness, performer: CommandPerformer
    ) -> None:
        """A capture of nine megabytes in long lines keeps only whole lines, and the log reports the missing bytes."""
        script = 'awk \'BEGIN {line = sprintf("%4096s", "x"); for (n = 0; n < 2304; n++) print line}\''
        result = await performer.perform(harness.call(shell(script, "lines")))
        lines = result.output["captured"]["lines"]

        assert result.output["captured"]["truncated"] is True
        assert {len(line) for line in lines} == {4096}
        assert len(lines) == 8 * 1024 * 1024 // 4097
        assert harness.logs["Step.stdout"].endswith("bytes are not kept]\n")


class TestSecrets:
    """Secrets in captured outputs."""

    @pytest.mark.parametrize("mode", ["text", "lines", "json"])
    async def test_a_secret_is_hidden_in_every_mode(
        self, harness: Harness, performer: CommandPerformer, mode: str
    ) -> None:
        """No record, message or log contains a secret, whether the output can be parsed or not."""
        script = 'printf \'{"token": "%s"}\' $TOKEN; echo $TOKEN >&2; exit $CODE'
        for code, require in (("0", ()), ("3", ()), ("0", ({"pointer": "/token", "equals": "x"},))):
            env = {"CODE": code}
            operation = shell(script, mode, secrets=("TOKEN",), env=env, require=require)
            result = await performer.perform(harness.call(operation))

            assert SECRET not in str(result) + str(harness.logs)
            assert "***" in str(result.output["captured"])

    async def test_the_cut_leaves_no_half_of_one(self, harness: Harness, performer: CommandPerformer) -> None:
        """A secret that crosses the end of the kept text is masked before the text is cut."""
        script = f"head -c {captures.TEXT_BYTES - 5} /dev/zero | tr '\\0' .; echo $TOKEN"
        result = await performer.perform(harness.call(shell(script, secrets=("TOKEN",))))

        assert set(result.output["captured"]["output"]) == {".", "*", "\n"}


class TestSchemas:
    """Schemas and requirements of captured JSON."""

    async def test_json_that_fits_its_schema_passes(self, harness: Harness, performer: CommandPerformer) -> None:
        """JSON that fits its schema passes; a breach fails the try with exit code 2 and names its place."""
        (harness.working_dir / "schemas").mkdir()
        (harness.working_dir / "schemas/verdict.json").write_text(json.dumps({"required": ["approved"]}))
        results = [
            await performer.perform(harness.call(shell(script, "json", schema_file="schemas/verdict.json")))
            for script in ("echo '{\"approved\": true}'", "echo '{}'")
        ]

        assert results[0].status is states.StepState.DONE
        assert failure(results[1]).code == "output_invalid"
        assert failure(results[1]).detail["exit_code"] == 2
        assert "approved" in failure(results[1]).detail["context"]["json_schema_errors"][0]
        assert results[1].output["captured"]["json"] == {}

    async def test_the_first_failed_requirement_has_its_pointer(
        self, harness: Harness, performer: CommandPerformer
    ) -> None:
        """The context names the pointer of the first requirement that fails."""
        require = ({"pointer": "/a", "type": "number"}, {"pointer": "/b"}, {"pointer": "/c"})
        result = await performer.perform(harness.call(shell("echo '{\"a\": 1}'", "json", require=require)))

        assert failure(result).detail["context"]["json_require_failed"]["pointer"] == "/b"

    @pytest.mark.parametrize(
        "content",
        [
            None,
            b"{",
            b"[]",
            b'{"type": 5}',
            b'{"const": "\\ud800"}',
            b"\xff",
            b'{"patternProperties": {}}',
            b'"' + b"x" * 1024 * 1024 + b'"',
        ],
    )
    async def test_a_schema_that_cannot_be_used_costs_nothing(
        self, harness: Harness, performer: CommandPerformer, content: bytes | None
    ) -> None:
        """A schema that cannot be used fails the step before its program starts."""
        if content is not None:
            (harness.working_dir / "schema.json").write_bytes(content)
        with pytest.raises(errors.StepError) as failed:
            await performer.perform(harness.call(shell("touch started; echo 1", "json", schema_file="schema.json")))

        assert failed.value.code == "output_invalid"
        assert failed.value.detail["exit_code"] == 2
        assert failed.value.detail["context"]["json_schema_errors"][0].startswith("the schema cannot be used: ")
        assert not (harness.working_dir / "started").exists()

    @pytest.mark.parametrize("path", ["../schema.json", "/etc/hosts", "out/schema.json"])
    async def test_a_schema_outside_is_not_read(self, harness: Harness, performer: CommandPerformer, path: str) -> None:
        """A schema outside the workspace, by its path or by a link, is refused."""
        (harness.working_dir / "out").symlink_to("..")
        (harness.working_dir.parent / "schema.json").write_text("{}")
        with pytest.raises(errors.StepError) as failed:
            await performer.perform(harness.call(shell("echo 1", "json", schema_file=path)))

        assert failed.value.code == "path_outside_workspace"

    async def test_a_program_cannot_change_its_schema(self, harness: Harness, performer: CommandPerformer) -> None:
        """An output is checked against the schema as it was when the program started."""
        (harness.working_dir / "schema.json").write_text('{"required": ["approved"]}')
        script = "echo '{}' > schema.json; echo '{}'"
        result = await performer.perform(harness.call(shell(script, "json", schema_file="schema.json")))

        assert failure(result).code == "output_invalid"


class TestLogs:
    """Logs beside the record."""

    async def test_without_a_name_both_outputs_are_logged(self, harness: Harness, performer: CommandPerformer) -> None:
        """Without a name, both outputs are logged under the key and the attempt, even if captured."""
        await performer.perform(harness.call(shell("echo out; echo err >&2", "lines", log=None)))

        assert harness.logs == {"brief.1.stdout.txt": "out\n", "brief.1.stderr.txt": "err\n"}

    async def test_a_name_without_a_capture(self, harness: Harness, performer: CommandPerformer) -> None:
        """Without a capture, standard output is logged only if the record does not have all of it."""
        for script, log in (("echo out", "Short"), ("seq 100", "Long")):
            operation = operations.Command(argv=("/bin/sh", "-c", script), log=log, output_limit_bytes=20)
            await performer.perform(harness.call(operation))

        assert set(harness.logs) == {"Long.stdout"}

    async def test_a_debugged_run_logs_its_notes_and_variables(
        self, harness: Harness, performer: CommandPerformer
    ) -> None:
        """A debugged run logs each note; the `debug` log ends with the names of the command's variables."""
        harness.notes |= {"debug": f"argv: env {SECRET}\n", "prompt.txt": f"Say {SECRET}!"}
        operation = shell("env | cut -d= -f1", "lines", secrets=("TOKEN",), env={"MINE": "x", "PWD": "/tmp"})
        await performer.perform(harness.call(operation))
        quiet = dict(harness.logs)
        harness.options["debug"] = True
        result = await performer.perform(harness.call(operation))
        first, counted, *names = harness.logs["Step.debug"].splitlines()

        assert quiet == {}
        assert harness.logs["Step.prompt.txt"] == "Say ***!"
        assert (first, counted) == ("argv: env ***", f"environment: {result.output['env_count']} variables")
        assert {*names} >= {"MINE", "TOKEN", "PWD", "CONTROL_ROOM_RUN_ID"}
        assert "CONTROL_ROOM_API_TOKEN" not in names
        assert len(names) == result.output["env_count"]
        # The shell adds variables of its own.
        assert {*names} <= {*result.output["captured"]["lines"]} <= {*names, "_", "SHLVL", "OLDPWD", "LC_CTYPE"}

    async def test_a_command_that_is_not_run_is_explained_too(
        self, harness: Harness, performer: CommandPerformer
    ) -> None:
        """A debugged run logs its notes even if the command is refused before it starts."""
        harness.options["debug"] = True
        harness.notes["debug"] = "argv: true"
        with pytest.raises(errors.StepError):
            await performer.perform(harness.call(shell("true", "json", schema_file="none.json")))

        assert harness.logs["Step.debug"].startswith("argv: true\nenvironment: ")
