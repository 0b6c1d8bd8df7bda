"""The backend of every program: find it, start it, watch it, and judge its output."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path

from app import errors
from app.agents import configuration, counting
from app.agents.configuration import TIERS, BackendConfig, BackendContext
from app.agents.programs import continuations, environment, executables, hearing, private_folders, results, verdicts
from app.agents.programs.continuations import ConversationAddress
from app.agents.programs.program import ParsedOutput, Program, Turn, is_name
from app.domain import agent_sessions, records
from app.engine import agent_ports, aio
from app.processes import commands

DEFAULT_TIMEOUT_SECONDS = 60 * 60.0  # Wall-clock limit of a prompt that sets none.

_LOOK_SECONDS = 0.1


class ProgramBackend:
    """Run a program: one process for each prompt, ended with all processes that it has started."""

    def __init__(self, program: Program, config: BackendConfig, context: BackendContext) -> None:
        self._program = program
        self._config = config
        self._context = context

    def get_name(self) -> str:
        return self._config.name

    def resolve_model(self, tier: str) -> str | None:
        """Return the configured model of a tier, or the program's default for it; None lets the program choose."""
        known = self._config.models.get(tier) or self._program.models.get(tier)
        return known or (None if tier in TIERS else tier)

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        """Send one prompt and wait for the program to end; a cancellation ends it.

        Raises:
            errors.AgentFailed: `agent_missing`, `agent_refused_root`, `tools_cannot_be_turned_off`, `missing_secrets`,
                `unknown_model`, `unknown_agent_session` or `prompt_too_large`, before anything is started.
            commands.NotStarted: it could not be started.
        """
        program = self._program
        # If the program is not installed, every caller gets that error first.
        argv = executables.find(program, self._config, self._context.environ, self._context.home)
        self._refuse(prompt)
        _refuse_value(prompt.model, "model", "unknown_model")
        stored = await self._stored(prompt)
        opened = continuations.opening(program, self._config.name, prompt, stored)
        # Stored before the program starts: after a kill during the turn, the next attempt continues that conversation
        # instead of opening a second one. A foreign conversation is not taken over before the program has answered.
        if not opened.foreign:
            stored = await self._store(prompt, stored, program_session_id=opened.session_id)
        turn = await self._turn(prompt, argv, opened)
        while turn.reply.error and (second := continuations.again(program, opened, prompt, stored, turn.reply.error)):
            opened = second
            if opened.session_id is None or not opened.resumes:
                stored = await self._begin_anew(prompt, opened)
            turn = await self._turn(prompt, argv, opened)
        return await self._store_turn(prompt, opened, turn)

    async def close(self) -> None:
        """Hold no resources: each process belongs to its prompt."""

    def _refuse(self, prompt: agent_ports.AgentPrompt) -> None:
        if not prompt.tools and not self._program.tools_off:
            message = f"The backend {self._config.name} cannot be kept from using tools, and this prompt forbids them."
            raise errors.AgentFailed(message, code="tools_cannot_be_turned_off", detail={"backend": self._config.name})
        environ = {**self._context.environ, **prompt.env}
        if prompt.tools and (refusal := self._program.refuses(self._config, environ)):
            raise errors.AgentFailed(refusal, code="agent_refused_root", detail={"backend": self._config.name})

    # -- the conversation

    async def _store_turn(
        self, prompt: agent_ports.AgentPrompt, opened: ConversationAddress, found: verdicts.TurnResult
    ) -> agent_ports.AgentReply:
        # Read again: the watcher may have stored the program's own name during the turn.
        stored, reply = await self._stored(prompt), found.reply
        before = agent_sessions.NOTHING_SPENT if prompt.agent_session_id is None else counting.before(stored, prompt)
        if reply.error is None or (reply.error.code != "unknown_agent_session" and not opened.foreign):
            await self._store(
                prompt,
                stored,
                foreign=opened.foreign,
                program_session_id=reply.agent_session_id,
                created=reply.error is None,
                spent=(found.sums, before),
            )
        return counting.counted(reply, found.sums, before, counting.left_out(stored, prompt))

    async def _begin_anew(
        self, prompt: agent_ports.AgentPrompt, opened: ConversationAddress
    ) -> agent_sessions.AgentSession | None:
        stored = await self._stored(prompt)
        if stored is None:
            return None
        begun = dataclasses.replace(
            stored.anew(), program_session_id=opened.session_id, system_sha256=continuations.system_sha256(prompt)
        )
        await prompt.retry_until_space(lambda: self._context.sessions.keep(begun))
        return begun

    async def _stored(self, prompt: agent_ports.AgentPrompt) -> agent_sessions.AgentSession | None:
        if prompt.agent_session_id is None:
            return None
        agent_session_id = prompt.agent_session_id
        return await prompt.retry_until_space(lambda: self._context.sessions.find(agent_session_id))

    async def _store(
        self,
        prompt: agent_ports.AgentPrompt,
        stored: agent_sessions.AgentSession | None,
        *,
        program_session_id: str | None,
        foreign: bool = False,
        created: bool = False,
        spent: tuple[records.Usage | None, records.Usage | None] = (None, None),
    ) -> agent_sessions.AgentSession | None:
        """Store new facts about the conversation, and return its record."""
        ours = prompt.agent_session_id
        if ours is None:
            return None
        earlier = stored or agent_sessions.AgentSession(
            agent_session_id=ours,
            backend=self._config.name,
            working_dir=str(prompt.working_dir),
            system_sha256=continuations.system_sha256(prompt),
            counted=None if foreign else agent_sessions.NOTHING_SPENT,
        )
        named = program_session_id or earlier.program_session_id
        # Our own name is the default; it is not stored, so that it survives a move of the record to another program.
        if named == ours and self._program.names_sessions == "we":
            named = None
        known = dataclasses.replace(earlier, program_session_id=named, created=created or earlier.created)
        known = counting.kept(known, prompt, *spent)
        if known != stored:
            await prompt.retry_until_space(lambda: self._context.sessions.keep(known))
        return known

    # -- the process

    async def _turn(
        self, prompt: agent_ports.AgentPrompt, argv: tuple[str, ...], opened: ConversationAddress
    ) -> verdicts.TurnResult:
        with private_folders.made(self._program.wants_folder) as folder:
            called = self._program.invoke(self._turn_of(prompt, opened, folder))
            env = environment.overlay(self._program, self._config, self._context.environ, prompt, called)
            private_folders.fill(folder, called.files)
            outlet = executables.Outlet()
            try:
                request = self._request(prompt, (*argv, *called.arguments), called.stdin, env, outlet)
                ended = await self._run(prompt, opened, request, outlet)
                extra = private_folders.read(folder, self._program.more_output)
                process_result = _result_of(request, ended, outlet, extra)
                session_id = opened.session_id if opened.resumes else None
                verdict = await asyncio.to_thread(verdicts.verdict, self._program, process_result, session_id)
                withheld = self._context.supervisor.withheld_from(request)
                reply = environment.naming_withheld(verdict.reply, withheld, self._config.name)
                # A program may begin another conversation and then fail; the known one is to be continued all the same.
                named = session_id or reply.agent_session_id or opened.session_id
                return dataclasses.replace(verdict, reply=dataclasses.replace(reply, agent_session_id=named))
            finally:
                outlet.close()

    def _turn_of(self, prompt: agent_ports.AgentPrompt, opened: ConversationAddress, folder: Path | None) -> Turn:
        _refuse_value(opened.session_id, "conversation", "unknown_agent_session")
        return Turn(
            prompt=prompt,
            session_id=opened.session_id,
            resumes=opened.resumes,
            instructed_otherwise=opened.instructed_otherwise,
            config=configuration.with_idle(self._config, prompt),
            environ=self._context.environ,
            home=self._context.home,
            folder=folder,
        )

    def _request(
        self,
        prompt: agent_ports.AgentPrompt,
        argv: tuple[str, ...],
        stdin: str | None,
        env: Mapping[str, str | None],
        outlet: executables.Outlet,
    ) -> commands.Request:
        return commands.Request(
            argv=argv,
            run_id=prompt.run_id,
            cwd=executables.entered(Path(prompt.working_dir)),
            env=env,
            secrets=environment.secrets([self._program], self._config, self._context, prompt.model),
            stdin=None if stdin is None else stdin.encode("utf-8", "replace"),
            stdout=outlet.writing,
            timeout_seconds=prompt.timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
            idle_seconds=configuration.with_idle(self._config, prompt).idle_seconds,
            contained=True,
            agent_session_id=prompt.agent_session_id,
            on_output=hearing.Hearing(prompt.hear).feed,
        )

    async def _run(
        self,
        prompt: agent_ports.AgentPrompt,
        opened: ConversationAddress,
        request: commands.Request,
        outlet: executables.Outlet,
    ) -> commands.Ended:
        # A program that names its conversations prints the name in its first lines; a kill must not lose that name.
        watches = self._program.names_sessions == "it" and not opened.resumes and prompt.agent_session_id is not None
        watching = asyncio.ensure_future(self._watch(prompt, outlet) if watches else _nothing())
        try:
            ended = await self._context.supervisor.run(request)
            if watching.done():
                watching.result()
            return ended
        finally:
            await aio.end(watching)

    async def _watch(self, prompt: agent_ports.AgentPrompt, outlet: executables.Outlet) -> None:
        """Store the program's name for the conversation once it is known, so that it survives a failed turn."""
        output = ParsedOutput()
        while output.conversation() is None:
            await self._context.clock.sleep(_LOOK_SECONDS)
            for event in results.events(outlet.news()):
                self._program.parse(event, output)
        await self._store(prompt, await self._stored(prompt), program_session_id=output.conversation())


def lacks(program: Program, config: BackendConfig, context: BackendContext) -> str | None:
    """Return the reason why a program cannot work here, without starting it."""
    try:
        executables.find(program, config, context.environ, context.home)
    except errors.AgentFailed as missing:
        return missing.message
    if (refusal := program.refuses(config, context.environ)) is not None:
        return refusal
    if config.api_key_env is not None and not context.environ.get(config.api_key_env):
        return f"The environment lacks {config.api_key_env}, the key of the backend {config.name}."
    return None


async def _nothing() -> None:
    pass


def _refuse_value(value: str | None, kind: str, code: str) -> None:
    if value is not None and not is_name(value):
        message = (
            f"The {kind} {value!r:.80} begins with a hyphen, contains a control character or is too long; name another."
        )
        raise errors.AgentFailed(message, code=code, detail={kind: value[:200]})


def _result_of(
    request: commands.Request, ended: commands.Ended, outlet: executables.Outlet, extra: bytes
) -> verdicts.ProcessResult:
    limits = {"timeout": request.timeout_seconds, "idle": request.idle_seconds, "output": commands.CAP_BYTES}
    return verdicts.ProcessResult(
        stdout=outlet.lines(),
        stderr=ended.stderr.content,
        exit_code=ended.exit_code,
        signal=ended.signal,
        cause=ended.cause,
        limits={cause: limit for cause, limit in limits.items() if limit is not None},
        extra=extra,
    )
