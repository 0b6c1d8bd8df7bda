"""Concealment: what a child of the same user can read of the environment and memory of its parent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.processes import concealment, process_tree
from tests.architecture import sources

NOBODY = 65534

PARENT = """
import json, os, subprocess, sys
concealment = {"__name__": "concealment"}
exec(sys.argv[1], concealment)
if json.loads(sys.argv[3]):
    concealment["conceal"](os.environ, {"A_TOKEN", "ABSENT", "KÉY"})
told = subprocess.run([sys.executable, "-I", "-S", "-c", sys.argv[2]], capture_output=True, text=True, check=True)
print(json.dumps({"kept": os.environ["A_TOKEN"] + os.environ["KÉY"], **json.loads(told.stdout)}))
"""
CHILD = """
import json, os
parent = f"/proc/{os.getppid()}"
def seen(name):
    try:
        with open(f"{parent}/{name}", "rb") as file:
            return file.read()
    except PermissionError:
        return None
def can_look():
    try:
        os.close(os.open(f"{parent}/mem", os.O_RDONLY))
        return True
    except PermissionError:
        return False
environ = seen("environ")
print(json.dumps({
    "looks": can_look(),
    "finds": environ is not None and b"sesame" in environ,
    "reads": environ is not None and b"PLAIN=plain" in environ,
    "inherits": os.environ.get("A_TOKEN"),
}))
"""


def run(conceals: bool, user: int | None) -> dict[str, object]:
    """Run a parent that conceals its secrets or not, and return what its child sees of them."""
    as_user = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    # Packages installed for this user only are not available to another.
    python = sys.executable if user is None else shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    if python is None:
        pytest.skip("this machine has no Python for all users")
    source = Path(concealment.__file__).read_text(encoding="utf-8")
    words = [python, "-I", "-S", "-c", PARENT, source, CHILD, json.dumps(conceals)]
    environ = {"PATH": os.environ["PATH"], "A_TOKEN": "sesame-one", "KÉY": "sesame-twö", "PLAIN": "plain"}
    ended = subprocess.run([*as_user, *words], env=environ, cwd="/", capture_output=True, text=True, check=False)
    if user is not None and ended.returncode != 0:
        pytest.skip(f"this machine does not let another user run the interpreter: {ended.stderr[-200:]}")
    assert ended.returncode == 0, ended.stderr
    told: dict[str, object] = json.loads(ended.stdout)
    return told


@pytest.mark.skipif(not process_tree.LINUX, reason="/proc is a matter of Linux")
@pytest.mark.parametrize("user", [None, NOBODY], ids=["this user", "nobody"])
def test_a_child_does_not_read_its_parents_secrets(user: int | None) -> None:
    """The parent keeps its variables and hands them on, but conceals them; only root can read its memory."""
    if user is not None and os.geteuid() != 0:
        pytest.skip("only root can run as another user")
    is_root = user is None and os.geteuid() == 0
    before, after = run(False, user), run(True, user)
    usual = {"kept": "sesame-onesesame-twö", "inherits": "sesame-one"}

    assert before == {**usual, "looks": True, "finds": True, "reads": True}
    assert after == {**usual, "looks": is_root, "finds": False, "reads": is_root}


CONCEALING = """
import os, pathlib, sys
from app import settings
from app.bootstrap import roster
roster.conceal(settings.load({}, project=pathlib.Path(sys.argv[1])))
print(os.environ["PLAIN_LOOKING"], b"sesame" in pathlib.Path("/proc/self/environ").read_bytes())
"""


@pytest.mark.skipif(not process_tree.LINUX or os.geteuid() != 0, reason="only root still sees its own environment")
@pytest.mark.parametrize(("agents", "seen"), [(None, True), ("{", False)])
def test_every_variable_is_hidden_while_the_names_of_secrets_are_unknown(
    tmp_path: Path, agents: str | None, seen: bool
) -> None:
    """A file of agents that cannot be read now may name any variable as a secret later."""
    (tmp_path / ".control-room").mkdir()
    if agents is not None:
        (tmp_path / ".control-room" / "agents.json").write_text(agents)
    ended = subprocess.run(
        [sys.executable, "-c", CONCEALING, tmp_path],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(sources.ROOT), "PLAIN_LOOKING": "sesame"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stdout.split() == ["sesame", str(seen)]
