"""Random workflows: steps of every form, nested loops, and jumps from any step to any other."""

from __future__ import annotations

import hashlib
import json
import random
import re
from typing import Any

from app.domain import operations

TEXTS = (
    "${item}", "${loop.index}", "${context.c}", "${steps.S0.output}", "${steps.S1.exit_code}", "${steps.S2.lines}",
    "${steps.S0.json.a}", "${run.id}", "${nope}", "plain", "$${x}",
)  # fmt: skip
"""Texts with variables, some of which are undefined, depending on their place and time."""
OUTPUTS = ("a\nb\n", "", '{"a":[1,2]}', '["f1","g"]', "x")
CODES = (0, 0, 0, 1, 2, 3, 124)


class Chance:
    """A random workflow, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(seed)

    def workflow(self) -> dict[str, Any]:
        """Return a workflow, which need not be valid."""
        template = {"command": ["chance", "${PROMPT}", "${m}"], "defaults": {"m": "d"} if self._is(0.8) else {}}
        document = {
            "version": "1.3",
            "strict_flow": self._is(0.5),
            "context": {"c": "0"},
            "providers": {"p": template},
            "steps": self._steps(0, []),
        }
        text = json.dumps(document)
        names = re.findall(r'"name": "(\w+)"', text)
        # A variable of a step that exists nowhere makes a workflow invalid, and most would have one.
        known: dict[str, Any] = json.loads(
            re.sub(r"(?<=\$\{steps\.)\w+", lambda found: found[0] if found[0] in names else names[0], text)
        )
        return known

    def options(self) -> dict[str, Any]:
        """Return random options of the command line."""
        return {"on_error": "continue"} if self._is(0.2) else {"max_retries": 2} if self._is(0.2) else {}

    def program(self, command: operations.Command) -> tuple[int, str]:
        """Run a program whose exit code and output depend on its arguments alone."""
        told = f"{self._seed} {json.dumps(command.argv)}".encode()
        number = int.from_bytes(hashlib.sha256(told).digest()[:4], "big")
        return CODES[number % len(CODES)], OUTPUTS[number // 7 % len(OUTPUTS)]

    def _steps(self, depth: int, outer: list[str]) -> list[dict[str, Any]]:
        count = self._random.randint(1, 4 - depth)
        names = [f"S{index}" if self._is(0.8) else f"T{depth}{index}" for index in range(count)]
        return [self._step(name, depth, [*names, *outer]) for name in names]

    def _step(self, name: str, depth: int, reachable: list[str]) -> dict[str, Any]:
        step: dict[str, Any] = {"name": name, **self._form(depth, reachable)}
        if "for_each" not in step and self._is(0.3):
            step["retries"] = {"max": self._random.randint(0, 2)}
        if self._is(0.25):
            equals = {"equals": {"left": self._text(), "right": "0"}}
            step["when"] = self._random.choice([{"exists": "f*"}, {"not_exists": "f*"}, equals])
        if self._is(0.2):
            step["depends_on"] = {"required": [self._random.choice(["f*", "missing", "${item}"])]}
        if self._is(0.5):
            events = self._random.sample(["success", "failure", "always"], self._random.randint(1, 2))
            step["on"] = {event: {"goto": self._random.choice([*reachable, "_end"])} for event in events}
        return step

    def _form(self, depth: int, reachable: list[str]) -> dict[str, Any]:
        form = self._random.random()
        if form < 0.15:
            params = {"provider_params": {"m": self._text()}} if self._is(0.5) else {}
            return {"provider": "p", "input_file": self._random.choice(["f1", "f2", "missing", "${item}"]), **params}
        if form < 0.25:
            return {"wait_for": {"glob": self._random.choice(["f*", "missing", "${item}"]), "timeout_sec": 1}}
        if form < 0.55 and depth < 2:
            return {"for_each": self._loop(depth, reachable)}
        return {"command": ["chance", self._text()], "output_capture": self._random.choice(["text", "lines", "json"])}

    def _loop(self, depth: int, reachable: list[str]) -> dict[str, Any]:
        loop: dict[str, Any] = {"steps": self._steps(depth + 1, reachable)}
        if self._is(0.5):
            loop["items"] = self._random.choice([[], ["f1"], ["f1", "f2", "g"], [1, None, {"a": 1}]])
        else:
            loop["items_from"] = self._random.choice(["steps.S0.lines", "steps.S1.json.a", "steps.S2.json"])
        if self._is(0.5):
            to = self._random.choice(["done", "done/${loop.index}", "done/${nope}"])
            loop["on_item_complete"] = {"success": {"move_to": to}, "failure": {"move_to": "failed"}}
        return loop

    def _text(self) -> str:
        return self._random.choice(TEXTS)

    def _is(self, often: float) -> bool:
        return self._random.random() < often
