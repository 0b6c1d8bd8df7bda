"""Gates of the program as users run it: with and without a terminal, beside and through a service, and after kills."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import smoke
from tests.acceptance import asking_program, processes, programs

PROGRAM = asking_program.MODULE
SHIP: list[dict[str, Any]] = [
    {"check": "look", "path": "Story/SCN-gate.md"},
    {"gate": "ship", "prompt": "Ship it?"},
    {"check": "after", "path": "Story/SCN-gate.md"},
]


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Return a project whose recipe `ship` opens a gate."""
    made = programs.make_project(tmp_path / "project")
    made.write("recipes/asking/ship.json", {"recipe_id": "ship", "steps": SHIP})
    return made


def control_room(*arguments: str, project: programs.Project, code: int = 0) -> programs.Ended:
    """Run a command as a process."""
    return programs.program(*arguments, project=project, code=code, module=PROGRAM)


def parsed_output(*arguments: str, project: programs.Project, code: int = 0) -> Any:
    """Run a command with `--json` and return its parsed output."""
    return json.loads(control_room(*arguments, "--json", project=project, code=code).stdout)


class Terminal:
    """A command at a terminal that a test reads and writes."""

    def __init__(self, project: programs.Project, *arguments: str) -> None:
        self._screen, inner = pty.openpty()
        self.seen = ""
        self._news = threading.Condition()
        environ = programs.environment(project, TERM="dumb")
        self.process = processes.start(PROGRAM, *arguments, environ=environ, folder=project.path, terminal=inner)
        os.close(inner)
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def until(self, text: str) -> None:
        """Wait until a text appears after the previously awaited one."""
        with self._news:
            assert self._news.wait_for(lambda: text in self.seen, 60), self.seen
            self.seen = self.seen.split(text, 1)[1]

    def write(self, text: str) -> None:
        """Type a text."""
        os.write(self._screen, text.encode())

    def ended(self) -> int:
        """Wait for the command's end and return its exit code."""
        return self.process.wait(60)

    def close(self) -> None:
        """Close the terminal."""
        if self.process.poll() is None:
            self.process.kill()
        with self.process:
            self.process.wait()
        # Joined first, or the thread would read the next file with this number, such as the output of the next command.
        self._looking.join(60)
        assert not self._looking.is_alive()
        os.close(self._screen)

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            while shown := os.read(self._screen, 4096):
                with self._news:
                    self.seen += shown.decode("utf-8", "replace")
                    self._news.notify_all()


@contextlib.contextmanager
def at_a_terminal(project: programs.Project, *arguments: str) -> Iterator[Terminal]:
    """Run a command at a terminal for the length of the block."""
    terminal = Terminal(project, *arguments)
    try:
        yield terminal
    finally:
        terminal.close()


def test_without_a_terminal_a_run_names_the_answer_command(project: programs.Project) -> None:
    """Without a terminal the command leaves the run waiting, ends with 1, and names a command for each answer.

    A shell takes each of them as it is printed: none decides anything but what it says.
    """
    left = control_room("run", "ship", project=project, code=1)
    (answer, denial) = re.findall(r"(?:answer|or) with: control-room (.*)", left.stderr)
    (gate,) = parsed_output("gates", project=project)

    assert "Ship it?" in left.stderr
    assert [answer, denial] == [f"gates answer {gate['gate_id']} {option}" for option in gate["options"]]
    assert gate["gate_id"] in control_room("gates", project=project).stdout
    assert parsed_output("gates", "--recipe", "other", project=project) == []
    detail = parsed_output("gates", "show", gate["gate_id"], project=project)
    assert detail == {**detail, **gate}

    done = control_room(*answer.split(), "--message", "well done", project=project)

    assert "ship decided" in done.stdout
    assert "done" in done.stdout
    assert parsed_output("runs", "show", gate["run_id"], project=project)["status"] == "done"
    shown = parsed_output("gates", "show", gate["gate_id"], project=project)
    assert (shown["decision"], shown["message"]) == ("approve", "well done")
    control_room(*answer.split(), project=project, code=1)
    control_room("gates", "answer", "nobody.000000000000", "approve", project=project, code=4)
    assert control_room("gates", project=project).stdout == "nothing waits for an answer\n"


def test_a_denied_run_stays_denied(project: programs.Project) -> None:
    """A denial fails the run with exit code 1, `runs resume` is refused, and an unknown decision is a usage error."""
    left = parsed_output("run", "ship", project=project, code=1)
    (gate,) = parsed_output("gates", "--run", left["run_id"], project=project)
    unknown = control_room("gates", "answer", gate["gate_id"], "perhaps", project=project, code=2)
    decided = parsed_output("gates", "answer", gate["gate_id"], "deny", project=project, code=1)
    refused = control_room("runs", "resume", left["run_id"], project=project, code=1)

    assert left["status"] == "waiting"
    assert "approve, deny" in unknown.stderr
    assert (decided["gate_id"], decided["denied"]) == (gate["gate_id"], True)
    assert "[gate_denied]" in refused.stderr


def test_a_run_that_waits_can_be_resumed(project: programs.Project) -> None:
    """`runs resume` takes up a run that was left at its gate, and the same gate stays open."""
    left = parsed_output("run", "ship", project=project, code=1)
    (before,) = parsed_output("gates", project=project)
    control_room("runs", "resume", left["run_id"], project=project, code=1)

    assert parsed_output("gates", project=project) == [before]


@pytest.mark.slow
def test_without_a_person_a_default_is_waited_for(project: programs.Project) -> None:
    """If every open gate has a default, a command without a terminal reports that, waits for it, and ends the run."""
    gate = {"gate": "ship", "default": "approve", "expires_seconds": 4}
    project.write("recipes/asking/timed.json", {"recipe_id": "timed", "steps": [gate, *SHIP[2:]]})
    done = control_room("run", "timed", project=project)

    assert "no terminal to ask at; 'approve' is decided at" in done.stderr


def test_the_person_at_the_terminal_is_asked(project: programs.Project) -> None:
    """A line without an option is asked again; one with an option is the answer, and its rest is the message.

    Nothing is printed that a dumb terminal would not obey.
    """
    with at_a_terminal(project, "run", "ship") as terminal:
        terminal.until("Ship it?")
        terminal.until("[approve / deny]")
        terminal.write("perhaps\n")
        terminal.until("say one of approve, deny")
        terminal.until("[approve / deny]")
        terminal.write("y well done\n")

        assert terminal.ended() == 0

    assert "done" in terminal.seen
    assert "\x1b" not in terminal.seen
    (run,) = parsed_output("runs", "list", project=project)
    answer = parsed_output("runs", "steps", run["run_id"], project=project)[1]["output"]
    assert (answer["decision"], answer["message"]) == ("approve", "well done")


def test_a_line_typed_ahead_answers_no_later_question(project: programs.Project) -> None:
    """A line that was typed before a question was shown does not answer it: its person had not seen it."""
    asks = [{"gate": "ship", "prompt": "Ship it?"}, {"gate": "tell", "prompt": "Tell everybody?"}]
    project.write("recipes/asking/twice.json", {"recipe_id": "twice", "steps": asks})
    with at_a_terminal(project, "run", "twice") as terminal:
        terminal.until("[approve / deny]")
        terminal.write("y\ny\n")
        terminal.until("Tell everybody?")
        terminal.until("[approve / deny]")
        terminal.write("deny not yet\n")

        assert terminal.ended() == 1

    (run,) = parsed_output("runs", "list", project=project)
    answers = [step["output"] for step in parsed_output("runs", "steps", run["run_id"], project=project)]
    assert [answer["decision"] for answer in answers] == ["approve", "deny"]


@pytest.mark.slow
def test_ctrl_d_leaves_the_run_waiting_for_its_answer(project: programs.Project) -> None:
    """Ctrl-D leaves the run waiting with exit code 1, Ctrl-C interrupts it with 130, and a later answer still works."""
    with at_a_terminal(project, "run", "ship") as terminal:
        terminal.until("[approve / deny]")
        terminal.write("\x04")

        assert terminal.ended() == 1

    (gate,) = parsed_output("gates", project=project)
    with at_a_terminal(project, "runs", "resume", gate["run_id"]) as terminal:
        terminal.until("[approve / deny]")
        terminal.process.send_signal(signal.SIGINT)

        assert terminal.ended() == 130

    assert parsed_output("gates", project=project) == [gate]
    with at_a_terminal(project, "runs", "resume", gate["run_id"]) as terminal:
        terminal.until("[approve / deny]")
        terminal.write("deny\n")

        assert terminal.ended() == 1


@pytest.mark.slow
def test_a_question_goes_away_with_its_time(project: programs.Project) -> None:
    """While the person at the terminal has not answered, the gate takes its default, and the run continues."""
    gate = {"gate": "ship", "default": "approve", "expires_seconds": 4}
    project.write("recipes/asking/timed.json", {"recipe_id": "timed", "steps": [gate, *SHIP[2:]]})
    with at_a_terminal(project, "run", "timed") as terminal:
        terminal.until("[approve / deny]")

        assert terminal.ended() == 0


def test_gates_of_a_service_are_answered_through_it(project: programs.Project) -> None:
    """With `--server` the list, the answer and the refusals come from the service, with this program's exit codes."""
    with programs.service(project, module=PROGRAM) as service:
        run_id = service.start_run(recipe_id="ship", args={}, labels={"book": "one"})
        service.wait(run_id, "waiting")
        server = ("--server", service.url)
        (gate,) = parsed_output("gates", "--label", "book=one", *server, project=programs.Project(project.path))
        beside = parsed_output("gates", project=project)
        change = control_room("gates", "answer", gate["gate_id"], "approve", project=project, code=5)
        decided = parsed_output("gates", "answer", gate["gate_id"], "approve", *server, project=project)
        late = control_room("gates", "answer", gate["gate_id"], "deny", *server, project=project, code=1)
        control_room("gates", "answer", gate["gate_id"], "perhaps", *server, project=project, code=1)
        control_room("gates", "show", "nobody.000000000000", *server, project=project, code=4)

        assert beside == [gate]
        assert service.url in change.stderr
        assert decided["status"] == "decided"
        assert "[gate_decided]" in late.stderr
        assert service.wait(run_id)["status"] == "done"


def answered(service: programs.Service, gate_id: str) -> httpx.Response | None:
    """Answer a gate under a key; None if the service dies meanwhile."""
    with service.http() as http:
        try:
            body = {"decision": "approve", "message": "well done"}
            return http.post(f"/api/gates/{gate_id}", json=body, headers={"Idempotency-Key": "k"})
        except httpx.HTTPError:
            return None


def test_a_kill_while_a_gate_waits_changes_nothing(project: programs.Project) -> None:
    """A run that is killed while it waits shows the same gate after the restart, and continues exactly there."""
    with programs.service(project, module=PROGRAM) as service:
        run_id = service.start_run(recipe_id="ship", args={})
        service.wait(run_id, "waiting")
        with service.http() as http:
            before = http.get("/api/gates").json()
        service.signal(signal.SIGKILL)
        service.ended()
    with programs.service(project, module=PROGRAM) as service:
        with service.http() as http:
            after = http.get("/api/gates").json()
        answer = answered(service, before[0]["gate_id"])

        assert after == before
        assert answer is not None
        assert answer.status_code == 200
        assert service.wait(run_id)["status"] == "done"

    lines = parsed_output("runs", "steps", run_id, project=project)
    assert [(line["key"], line["attempt"]) for line in lines] == [("look", 1), ("ship", 1), ("after", 1)]


@pytest.mark.parametrize(
    "point",
    smoke.only(
        "step.after_append:2",
        ["step.performed:2", "step.before_append:2", "storage.append.before_write:2", "step.after_append:2"],
    ),
)
def test_a_kill_while_an_answer_is_written(project: programs.Project, point: str) -> None:
    """After a kill anywhere during the write of an answer, the same answer can be sent again, and counts once."""
    with programs.service(project, module=PROGRAM, CONTROL_ROOM_CRASH_AT=point) as service:
        run_id = service.start_run(recipe_id="ship", args={})
        service.wait(run_id, "waiting")
        with service.http() as http:
            (gate,) = http.get("/api/gates").json()
        first = answered(service, gate["gate_id"])
        died = service.ended()
    with programs.service(project, module=PROGRAM) as service:
        again = answered(service, gate["gate_id"])

        assert (first, died) == (None, -signal.SIGKILL)
        assert again is not None
        assert (again.status_code, again.json()["decision"]) == (200, "approve")
        assert service.wait(run_id)["status"] == "done"

    lines = parsed_output("runs", "steps", run_id, project=project)
    assert [line["key"] for line in lines] == ["look", "ship", "after"]


@pytest.mark.parametrize(
    "point",
    smoke.only("pool.after_vote:1", ["pool.before_vote:1", "storage.decide.before_write:4", "pool.after_vote:1"]),
)
def test_a_kill_while_a_vote_is_written(project: programs.Project, point: str) -> None:
    """After a kill during the write of a vote, the same key can vote again and counts once; the other key decides."""
    people = (("ada", "admin"), ("bob", "approver"))
    secrets = [parsed_output("keys", "add", name, "--role", role, project=project)["secret"] for name, role in people]
    ada, bob = ({"Authorization": f"Bearer {secret}"} for secret in secrets)

    def voted(service: programs.Service, header: dict[str, str]) -> httpx.Response | None:
        with contextlib.suppress(httpx.HTTPError), service.http() as http:
            return http.post(f"/api/gates/{gate_id}", json={"decision": "approve"}, headers=header)
        return None

    def waiting(service: programs.Service) -> dict[str, Any]:
        until = time.monotonic() + 60
        with service.http() as http:
            while not (found := http.get("/api/gates", headers=ada).json()):
                assert time.monotonic() < until
        return dict(found[0])

    with programs.service(project, module=PROGRAM, CONTROL_ROOM_CRASH_AT=point) as service:
        body = {"recipe_id": "ship", "approvals": {"count": 2}}
        with service.http() as http:
            run_id = http.post("/api/runs", json=body, headers=ada).json()["run_id"]
        gate_id = waiting(service)["gate_id"]
        first = voted(service, ada)
        died = service.ended()
    with programs.service(project, module=PROGRAM) as service:
        waiting(service)
        again = voted(service, ada)
        last = voted(service, bob)

    assert (first, died) == (None, -signal.SIGKILL)
    assert again is not None
    assert last is not None
    assert again.json()["status"] == "open"
    assert [vote["author"]["name"] for vote in again.json()["approvals"]["given"]] == ["ada"]
    assert last.json()["status"] == "decided"
    control = (project.data / "runs" / run_id / "control.jsonl").read_text().splitlines()
    assert [line["author"]["name"] for line in map(json.loads, control) if line["kind"] == "voted"] == ["ada"]


def test_a_default_is_taken_after_a_kill(project: programs.Project) -> None:
    """A gate that expires while no service runs takes its default at the next start."""
    gate = {"gate": "ship", "default": "deny", "expires_seconds": 5}
    project.write("recipes/asking/timed.json", {"recipe_id": "timed", "steps": [gate]})
    with programs.service(project, module=PROGRAM) as service:
        run_id = service.start_run(recipe_id="timed", args={})
        service.wait(run_id, "waiting")
        service.signal(signal.SIGKILL)
        service.ended()
    with programs.service(project, module=PROGRAM) as service:
        run = service.wait(run_id)

        assert (run["status"], run["error"]["code"]) == ("failed", "denied")
