"""An agent of the Agent Client Protocol that does what its prompts say.

    python acp_program.py [--package] [--name NAME] [--modes A,B] [--no-load | --resume] [--acts] [--models A,B]
        [--lingers]

With `--package` it uses the protocol's own package.

It stores conversations in the folder `$ACP_STORE`, one JSON file each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING or "--package" in sys.argv[1:]:
    import pydantic

    # The package builds three hundred models when it is loaded; this program needs a dozen, and builds each on use.
    _lazily = {"defer_build": True, "use_attribute_docstrings": False}
    vars(pydantic)["ConfigDict"] = lambda **given: given | _lazily

    import acp
    from acp import schema
else:
    import acp_plain as acp
    from acp_plain import schema

STORE = Path(os.environ.get("ACP_STORE", "."))


class Program:
    """The agent."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._client: Any = None
        self._mode = "default"
        self._model = "none"
        self._meta: dict[str, Any] = {}
        self._cancelled = asyncio.Event()

    def on_connect(self, client: Any) -> None:
        """Keep the client."""
        self._client = client

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        """Return the name and the capabilities of this agent."""
        resume = schema.SessionResumeCapabilities() if self._given.resume else None
        return schema.InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=schema.AgentCapabilities(
                load_session=not (self._given.no_load or self._given.resume),
                session_capabilities=schema.SessionCapabilities(resume=resume),
            ),
            agent_info=schema.Implementation(name=self._given.name, version="1"),
        )

    async def new_session(self, cwd: str, **meta: Any) -> schema.NewSessionResponse:
        """Begin a conversation."""
        if (STORE / "refuse-new").exists():
            raise acp.RequestError.auth_required()
        session_id = f"its-{sum(name.startswith('its-') for name in os.listdir(STORE))}"
        self._meta = meta
        _write(session_id, [])
        return schema.NewSessionResponse(session_id=session_id, modes=self._modes(), config_options=self._options())

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        """Load a conversation, and send all of its messages again."""
        for said in self._history(session_id):
            await self._say(session_id, said)
        return schema.LoadSessionResponse(modes=self._modes(), config_options=self._options())

    async def resume_session(self, cwd: str, session_id: str, **_: Any) -> schema.ResumeSessionResponse:
        """Resume a conversation."""
        self._history(session_id)
        return schema.ResumeSessionResponse(modes=self._modes(), config_options=self._options())

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> schema.SetSessionModeResponse:
        """Change the mode."""
        self._mode = mode_id
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        """Change the model."""
        if value not in self._given.models.split(","):
            raise acp.RequestError.invalid_params({"details": f"no model {value}"})
        self._model = str(value)
        return schema.SetSessionConfigOptionResponse(config_options=self._options() or [])

    async def cancel(self, session_id: str, **_: Any) -> None:
        """End the turn."""
        (STORE / "cancelled").touch()
        self._cancelled.set()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> schema.PromptResponse:
        """Carry out the last line of the prompt."""
        text = prompt[0].text
        _write(session_id, [*self._history(session_id), text])
        verb, _, rest = text.rpartition("\n")[2].partition(" ")
        stop_reason: Any = await getattr(self, f"_{verb}")(session_id, rest) or "end_turn"
        usage = schema.Usage(total_tokens=20, input_tokens=11, output_tokens=4, cached_read_tokens=5)
        return schema.PromptResponse(stop_reason=stop_reason, usage=None if verb == "spend" else usage)

    # -- verbs of prompts

    async def _say(self, session_id: str, text: str) -> None:
        await self._client.session_update(session_id, acp.update_agent_message_text(text))

    async def _facts(self, session_id: str, _: str) -> None:
        facts = {
            "history": self._history(session_id),
            "mode": self._mode,
            "model": self._model,
            "meta": self._meta,
            "argv": sys.argv[1:],
            "cwd": os.getcwd(),
            "env": {
                name: value
                for name, value in os.environ.items()
                if name.startswith(("CLAUDE", "CONTROL_ROOM_", "GEMINI_CLI_SYSTEM"))
            },
        }
        await self._say(session_id, json.dumps(facts))

    async def _write(self, session_id: str, name: str) -> None:
        await self._say(session_id, "I write.")
        call = acp.start_tool_call("call-1", f"write {name}", kind="edit", status="pending")
        await self._client.session_update(session_id, call)
        if self._given.acts or self._mode == "yolo" or await self._may(session_id, name):
            await self._client.session_update(session_id, acp.update_tool_call("call-1", status="in_progress"))
            _make(name)
            await self._client.session_update(session_id, acp.update_tool_call("call-1", status="completed"))
            await self._say(session_id, "It is ")
            await self._say(session_id, "written.")
        else:
            await self._client.session_update(session_id, acp.update_tool_call("call-1", status="failed"))
            await self._say(session_id, "I was not allowed to.")

    async def _may(self, session_id: str, name: str) -> bool:
        options = [
            schema.PermissionOption(option_id=f"id-{kind}", name=kind, kind=kind)
            for kind in ("allow_always", "reject_always", "allow_once", "reject_once")
        ]
        call = schema.ToolCallUpdate(tool_call_id="call-1", title=f"write {name}")
        answer = await self._client.request_permission(session_id=session_id, tool_call=call, options=options)
        chosen = getattr(answer.outcome, "option_id", None)
        (STORE / "chosen").write_text(str(chosen))
        return chosen == "id-allow_once"

    async def _hang(self, session_id: str, _: str) -> str:
        _begin_something()
        await self._cancelled.wait()
        return "cancelled"

    async def _stubborn(self, session_id: str, _: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (STORE / "hanging").write_text(str(os.getpid()))
        await asyncio.Event().wait()

    async def _crash(self, session_id: str, how: str) -> None:
        print("it burns", file=sys.stderr, flush=True)
        if how == "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(3)

    async def _garbage(self, session_id: str, _: str) -> None:
        lines = ["starting…", "[1, 2]", '"text"', "{}", '{"id": {}}', '{"id": 0, "error": "bad"}', '{"method": 3}']
        lines += ['{"jsonrpc":"2.0","method":"unheard/of"}', '{"jsonrpc":"2.0","method":"session/update","params":7}']
        os.write(1, ("\n".join(lines) + "\n").encode() + b"\xff\xfe\n")
        await self._say(session_id, "After all that.")

    async def _flood(self, session_id: str, how: str) -> None:
        os.set_blocking(1, True)
        part = b"x\n" * 50_000 if how == "lines" else b"x" * 100_000
        while True:
            await asyncio.to_thread(os.write, 1, part)

    async def _mute(self, session_id: str, _: str) -> None:
        os.close(1)
        await asyncio.Event().wait()

    async def _long(self, session_id: str, size: str) -> None:
        text = "All the kings men. " * (int(size) // 19 + 1)
        for begin in range(0, int(size), 10_000):
            await self._say(session_id, text[begin : min(begin + 10_000, int(size))])

    async def _echo(self, session_id: str, text: str) -> None:
        await self._say(session_id, text)

    async def _blank(self, session_id: str, _: str) -> None:
        """Reply with an empty text."""

    async def _stop(self, session_id: str, reason: str) -> str:
        await self._say(session_id, "Half")
        return reason

    async def _refuse(self, session_id: str, code: str) -> None:
        raise acp.RequestError(int(code), "Internal error", {"details": "status 429 Too Many Requests"})

    async def _lack(self, session_id: str, name: str) -> None:
        raise acp.RequestError(-32603, "Internal error", {"details": f"set the variable {name}"})

    async def _unauthorized(self, session_id: str, _: str) -> None:
        raise acp.RequestError.auth_required()

    async def _cost(self, session_id: str, amount: str) -> None:
        cost = schema.Cost(amount=float(amount), currency="USD")
        update = schema.UsageUpdate(session_update="usage_update", used=1, size=2, cost=cost)
        await self._client.session_update(session_id, update)
        await self._say(session_id, "Paid.")

    async def _owe(self, session_id: str, amount: str) -> None:
        await self._cost(session_id, amount)
        await self._refuse(session_id, "400")

    async def _spend(self, session_id: str, told: str) -> None:
        *requests, last = told.split(", ")
        for request in requests:
            read, _, written = request.partition(" ")
            meta = {"usage": {"inputTokens": int(read), "outputTokens": int(written)}}
            piece = acp.update_agent_message_text("").model_copy(update={"field_meta": meta})
            await self._client.session_update(session_id, piece)
        if last == "fail":
            await self._refuse(session_id, "400")
        await self._say(session_id, last)

    # -- stored conversations

    def _history(self, session_id: str) -> list[str]:
        try:
            kept: list[str] = json.loads((STORE / session_id).read_text())
        except OSError:
            raise acp.RequestError.resource_not_found(session_id) from None
        return kept

    def _modes(self) -> schema.SessionModeState | None:
        if not self._given.modes:
            return None
        modes = [schema.SessionMode(id=mode, name=mode) for mode in self._given.modes.split(",")]
        return schema.SessionModeState(current_mode_id=modes[0].id, available_modes=modes)

    def _options(self) -> list[Any] | None:
        if not self._given.models:
            return None
        models = [schema.SessionConfigSelectOption(value=model, name=model) for model in self._given.models.split(",")]
        return [
            schema.SessionConfigOptionSelect(
                id="model", name="Model", category="model", type="select", current_value=models[0].value, options=models
            )
        ]


def _make(name: str) -> None:
    Path(name).write_text("written")


def _begin_something() -> None:
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    (STORE / "hanging").write_text(f"{os.getpid()} {child.pid}")


def _write(session_id: str, history: list[str]) -> None:
    (STORE / session_id).write_text(json.dumps(history))


async def main() -> None:
    """Run the agent until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="acp-program")
    parser.add_argument("--modes", default="")
    parser.add_argument("--models", default="")
    for flag in ("--no-load", "--resume", "--acts", "--lingers"):
        parser.add_argument(flag, action="store_true")
    given, _ = parser.parse_known_args()
    await acp.run_agent(cast("Any", Program(given)), use_unstable_protocol=True)
    if given.lingers:
        _begin_something()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
