"""Perform agent calls: send one prompt to one agent, on any backend."""

# This module, not a backend, judges a reply that was cut off by its length, because a recipe may want to keep it.
# Drivers do not judge it either: four dialects would repeat the rule, and their operations would change. The time-out
# stops while a file of the conversation waits for disk space.

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import PurePath
from typing import TypeVar
from weakref import WeakValueDictionary

from app import errors, printable, settings
from app.agents import reply_forms
from app.agents.backends import Backends
from app.agents.pricing import Pricing
from app.agents.programs import continuations as conversations_of_programs
from app.domain import abstentions, agent_sessions, capabilities, json_text, operations, plain, records, runs, states
from app.engine import agent_ports, conversation_claims, live_output, live_steps, ports
from app.processes import commands

MAX_PROMPT_BYTES = 16 * 1024 * 1024  # Longest prompt, all its parts together.
DEFAULT_TIMEOUT_SECONDS = 24 * 60 * 60.0  # Wall-clock limit of one try if the operation sets none.

T = TypeVar("T")

_folder = functools.lru_cache(maxsize=64)(PurePath)


class AgentPerformer:
    """Ask an agent and store its reply under `logs/`; only a reply with content is a success."""

    def __init__(
        self,
        backends: Backends,
        conversations: conversation_claims.ConversationClaims,
        check_folder: Callable[[runs.RunStart], object] = lambda _: None,
        pricing: Pricing | None = None,
    ) -> None:
        self._backends = backends
        self._conversations = conversations
        self._pricing = pricing
        # Refuses a run if no agent may work in its working folder.
        self._check_folder = check_folder
        self._turns: WeakValueDictionary[str, live_steps.BackendQueue] = WeakValueDictionary()

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of an `operations.AgentCall`.

        Waiting for a backend that answers one prompt at a time counts towards the time-out, and so does waiting for
        another prompt of the same run in the same conversation. If another run uses the conversation, the call fails at
        once. The call waits for disk space for the conversation's record, and this wait does not count.

        Raises:
            errors.AgentFailed: there is no reply; `session_locked` if another run has the conversation.
            ports.Interrupted: the launcher was killed; whether the program has done its work is unknown.
        """
        operation = call.operation
        assert isinstance(operation, operations.AgentCall)
        # A service on the network uses no folder.
        if not capabilities.is_anywhere(operation, self._backends.services):
            self._check_folder(call.run)
        text = await _text(call, operation.prompt)
        output = live_output.LiveOutput(call.live, call.append_log, _log_name(call, "output", "txt"), call.masker)
        untimed = _UntimedRetry(call.retry_until_space)
        prompt = self._prompt(call, operation, text, output.hear, untimed)
        # Written before the agent receives the prompt, so that the prompt can be read after a kill.
        await call.write_log(_log_name(call, "prompt"), _shown(prompt))

        try:
            reply = await self._asked(operation.backend, prompt, call, untimed)
        except commands.LauncherLost as lost:
            raise ports.Interrupted(lost) from lost
        finally:
            # Keep the agent's output so far, however the call ends.
            await output.close()
        await call.write_log(_log_name(call, "reply"), reply.text)
        if self._pricing is not None:
            reply = dataclasses.replace(reply, usage=self._pricing.estimated(reply.usage, operation))
        return await _result(reply, operation, text, call.place.instructions)

    def _prompt(
        self,
        call: ports.Call,
        operation: operations.AgentCall,
        text: str,
        hear: Callable[[str], None],
        untimed: _UntimedRetry,
    ) -> agent_ports.AgentPrompt:
        model = operation.model
        return agent_ports.AgentPrompt(
            text=text,
            system=operation.system,
            model=None if model is None else self._backends.get(operation.backend).resolve_model(model),
            tools=operation.tools,
            working_dir=_folder(call.run.working_dir),
            agent_session_id=_conversation(call, operation),
            session_created=operation.session_created,
            reply_schema=operation.reply_schema,
            max_tokens=operation.max_tokens,
            keeps_cut_off=_keeps_cut_off(operation),
            timeout_seconds=operation.timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
            idle_seconds=operation.idle_seconds,
            run_id=call.run.run_id,
            key=call.key,
            attempt=call.attempt,
            cap_usd=call.cap_usd,
            line_attempt=call.attempt,
            recorded=call.recorded,
            env={settings.RUN_ID: call.run.run_id, settings.DEPTH: str(call.run.depth)},
            retry_until_space=untimed.retry_until_space,
            hear=hear,
            live=call.live,
        )

    async def _asked(
        self, backend: str, prompt: agent_ports.AgentPrompt, call: ports.Call, untimed: _UntimedRetry
    ) -> agent_ports.AgentReply:
        try:
            session_id = prompt.agent_session_id
            if session_id is None:
                return await self._in_time(backend, prompt, None, untimed)
            # The order matters. The conversation is claimed outside of the time limit: waiting for the disk is not
            # the agent's time. The turn of the conversation comes before that of the backend: a step that waits for
            # its conversation must not occupy a place at the backend.
            async with AsyncExitStack() as held:
                # A claim can be entered only once, so each try creates its own.
                claim = functools.partial(self._conversations.claimed, session_id, prompt.run_id)
                await prompt.retry_until_space(lambda: held.enter_async_context(claim()))
                return await self._in_time(backend, prompt, call, untimed)
        except TimeoutError as error:
            raise errors.AgentFailed(
                f"The agent did not answer within {prompt.timeout_seconds:g} seconds.",
                code="agent_timeout",
                detail={"timeout_seconds": prompt.timeout_seconds},
            ) from error
        except errors.Conflict as error:
            raise errors.AgentFailed(error.message, code=error.code, detail=error.detail) from error
        except errors.AgentFailed as error:
            message = _with_way_out(error.message, error.code, prompt)
            raise errors.AgentFailed(message, code=error.code, detail=error.detail) from error

    async def _in_time(
        self, backend: str, prompt: agent_ports.AgentPrompt, call: ports.Call | None, untimed: _UntimedRetry
    ) -> agent_ports.AgentReply:
        """Send a prompt in its turn; if the call is None, in no conversation."""
        async with asyncio.timeout(prompt.timeout_seconds) as untimed.limit:
            if call is None:
                async with self._backends.turn(backend, prompt):
                    return await self._backends.ask(backend, prompt)
            async with self._turn(backend, prompt), self._backends.turn(backend, prompt):
                return await self._in_conversation(backend, prompt, call)

    async def _in_conversation(
        self, backend: str, prompt: agent_ports.AgentPrompt, call: ports.Call
    ) -> agent_ports.AgentReply:
        """Send a prompt; put the recorded exchanges before it if a person had its conversation begun again."""
        session_id, named = prompt.agent_session_id, getattr(call.operation, "agent_session_id", None)
        orders = 0 if session_id is None else call.run.begun_again.get(str(named), 0)
        if session_id is not None and orders:
            fresh = agent_sessions.AgentSession(
                agent_session_id=session_id,
                backend=backend,
                working_dir=str(prompt.working_dir),
                system_sha256=conversations_of_programs.system_sha256(prompt),
            )
            # Each order of a person begins the conversation again once, however many tries the step has.
            order = f"{call.run.run_id} {orders}"
            stored = await prompt.retry_until_space(lambda: self._conversations.begin_again(fresh, order))
            if not stored.created:
                past = [
                    (await _text(call, exchange.prompt), await _reply(call, exchange)) for exchange in call.exchanges
                ]
                text = _fitting(reply_forms.after(past, prompt.text))
                prompt = dataclasses.replace(prompt, text=text, session_created=False)
        reply = await self._backends.ask(backend, prompt)
        # Only a reply shows that the new conversation exists.
        if session_id is not None and orders and reply.error is None:
            await prompt.retry_until_space(lambda: self._conversations.has_begun(session_id))
        if reply.error is not None:
            message = _with_way_out(reply.error.message, reply.error.code, prompt)
            reply = dataclasses.replace(reply, error=dataclasses.replace(reply.error, message=message))
        return reply

    def _turn(self, backend: str, prompt: agent_ports.AgentPrompt) -> AbstractAsyncContextManager[None]:
        session_id = str(prompt.agent_session_id)
        return self._turns.setdefault(session_id, live_steps.BackendQueue(backend)).turn(prompt.live)


class _UntimedRetry:
    """Let a write wait for disk space, and stop the agent's time limit meanwhile."""

    # Thousands of prompts can be under way at a time, each with one of these.
    __slots__ = ("_retry_until_space", "limit")

    def __init__(self, retry_until_space: agent_ports.RetryUntilSpace) -> None:
        self._retry_until_space = retry_until_space
        self.limit: asyncio.Timeout | None = None

    async def retry_until_space(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write, and wait for disk space as long as necessary."""
        limit = self.limit
        due, began = None if limit is None else limit.when(), _now()
        # Nested writes stop the limit once: the outer one does it.
        if limit is None or due is None or limit.expired():
            return await self._retry_until_space(write)
        limit.reschedule(None)
        try:
            return await self._retry_until_space(write)
        finally:
            limit.reschedule(due + _now() - began)


def _conversation(call: ports.Call, operation: operations.AgentCall) -> str | None:
    named = operation.agent_session_id
    return None if named is None else call.run.conversation(named)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _text(call: ports.Call, parts: tuple[plain.Json, ...]) -> str:
    sizes = [len(part.encode()) if isinstance(part, str) else _blob(part).size_bytes for part in parts]
    _refuse_too_large(sum(sizes))
    texts = [part if isinstance(part, str) else await _content(call, _blob(part)) for part in parts]
    return "".join(texts)


async def _reply(call: ports.Call, exchange: agent_ports.Exchange) -> str:
    return str(exchange.reply or "") if exchange.blob is None else await _content(call, exchange.blob)


def _fitting(text: str) -> str:
    _refuse_too_large(len(text.encode()))
    return text


def _refuse_too_large(size_bytes: int) -> None:
    if size_bytes > MAX_PROMPT_BYTES:
        raise errors.AgentFailed(
            f"The prompt has {size_bytes} bytes, more than the limit of {MAX_PROMPT_BYTES}.",
            code="prompt_too_large",
            detail={"size_bytes": size_bytes, "limit_bytes": MAX_PROMPT_BYTES},
        )


def _with_way_out(message: str, code: str, prompt: agent_ports.AgentPrompt) -> str:
    if code not in ("unknown_agent_session", "agent_session_damaged") or prompt.agent_session_id is None:
        return message
    return (
        f"{printable.sentence(message)} To begin the conversation again from the journal, resume the run with"
        f" `conversation: new` (`control-room runs resume {prompt.run_id} --conversation new`)."
    )


async def _content(call: ports.Call, blob: records.BlobRef) -> str:
    content = await call.read_blob(blob)
    return content if isinstance(content, str) else plain.canonical(content).decode()


def _blob(part: plain.Object) -> records.BlobRef:
    return records.BlobRef.from_json(part["blob"])


def _shown(prompt: agent_ports.AgentPrompt) -> str:
    return f"{prompt.system}\n\n---\n\n{prompt.text}" if prompt.system else prompt.text


def _log_name(call: ports.Call, kind: str, ending: str = "md") -> str:
    return f"{call.key}.{call.attempt}.{kind}.{ending}"


async def _result(
    reply: agent_ports.AgentReply, operation: operations.AgentCall, prompt: str, instructions: str | None
) -> records.Result:
    error = reply.error or _nothing_said(reply.text.strip(), operation)
    # The error that helps most comes first: an endless reply is usually cut off as well.
    error = error or await _degenerate(reply, operation, prompt, instructions) or _cut_off(reply, operation)
    return records.Result(
        status=states.StepState.FAILED if error else states.StepState.DONE,
        output=None if error else reply.text,
        error=error,
        usage=reply.usage,
        agent_session_id=reply.agent_session_id,
        finish=reply.finish,
        covers=reply.covers,
    )


async def _degenerate(
    reply: agent_ports.AgentReply, operation: operations.AgentCall, prompt: str, instructions: str | None
) -> records.StepError | None:
    # Only runs that ask agents need it.
    from app.agents import degeneration

    requested = degeneration.Asked(system=operation.system or "", prompt=prompt, instructions=instructions or "")
    # A long reply takes time, and would block the loop.
    found = await asyncio.to_thread(degeneration.find, reply.text, requested, cut_off=reply.finish is not None)
    if found is None:
        return None
    return records.StepError(code="reply_degenerate", message=found.message, detail=found.facts)


def _keeps_cut_off(operation: operations.AgentCall) -> bool:
    # A reply that must fit a schema is useless if it is cut off.
    return operation.on_cut_off == "keep" and operation.reply_schema is None


def _cut_off(reply: agent_ports.AgentReply, operation: operations.AgentCall) -> records.StepError | None:
    if reply.finish is None or _keeps_cut_off(operation):
        return None
    bound = "" if operation.reply_schema is None else ", so it does not fit its schema"
    return records.StepError(
        code=runs.CUT_OFF,
        message=(
            f"The reply hit the length limit and was cut off{bound}. Allow a longer one with `max_output_tokens` of the"
            " step or agent, or keep what there is with `on_cut_off: keep` (in a step of amplifier: `max_tokens`, and"
            " `agent_config.on_cut_off`)."
        ),
        detail={
            "max_tokens": operation.max_tokens,
            "output_tokens": reply.usage.output_tokens if reply.usage else None,
            "size_bytes": len(reply.text.encode("utf-8", "replace")),
        },
    )


def _nothing_said(text: str, operation: operations.AgentCall) -> records.StepError | None:
    if next(json_text.halves(text), None) is not None:
        message = "The agent's reply contains half of a surrogate pair, which is not valid text."
        return records.StepError(code="lone_surrogate", message=message)
    why = abstentions.reason(text)
    if not abstentions.bare(text) and not operation.may_be_blank:
        return records.StepError(code="empty_reply", message="The agent's reply is empty.")
    if why is not None and not operation.may_abstain:
        return records.StepError(code="abstained", message=f"The agent abstained: {why}")
    # In a conversation, a refusal is an answer; callers that repeat a prompt examine the reply themselves.
    if not operation.may_be_blank and operation.agent_session_id is None and reply_forms.is_refusal(text):
        return records.StepError(code="reply_refused", message=f"The agent refused: {plain.preview(text)}")
    return None
