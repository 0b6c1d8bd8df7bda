"""Access over a WebSocket: checks the role and the scope of the caller for each message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app import errors
from app.api import scoping
from app.domain import access, plain, runs
from app.engine import conversation_claims
from app.flows import prompt
from app.services import conversations


class WsAccess:
    """Checks each message of one client."""

    def __init__(self, caller: access.Caller, service: conversations.ConversationService) -> None:
        self._caller = caller
        self._service = service
        self._limits = caller.limits

    async def may_begin(
        self, recipe_id: str | None, agent_session_id: str | None, args: Mapping[str, plain.Json] | None = None
    ) -> None:
        """Refuse a recipe, or a prompt if None, that the caller may not begin in a conversation.

        Args:
            args: Arguments of the recipe, which can name the conversation, too.

        Raises:
            errors.Denied: `role_missing`, `out_of_scope`.
            errors.NotFound: the conversation does not exist for the caller.
        """
        scoping.refuse_role(self._caller, access.Role.RUNNER)
        if self._limits is None:
            return
        # Runs of a conversation have no labels.
        if not self._limits.covers(recipe_id or prompt.NAME, {}):
            raise scoping.out_of_scope(self._caller, "this run would not be among")
        named = (args or {}).get(conversation_claims.ARGUMENT) if agent_session_id is None else agent_session_id
        if isinstance(named, str) and (newest := await self._service.newest(named)) is not None:
            await self.may_see(named, [newest])

    async def may_exit(self, agent_session_id: str) -> None:
        """Refuse to end a run that the caller may not end.

        Raises:
            errors.Denied, errors.NotFound: as `may_begin`.
        """
        scoping.refuse_role(self._caller, access.Role.RUNNER)
        await self.may_see(agent_session_id, await self._service.runs_of(agent_session_id))

    async def may_see(self, agent_session_id: str, run_ids: Sequence[str]) -> None:
        """Refuse runs of a conversation that are outside of the caller's scope.

        Raises:
            errors.NotFound: `unknown_agent_session`.
        """
        for run_id in run_ids:
            if self._limits is not None and not await self._service.is_within(run_id, self._limits):
                message = f"no run has used the conversation {agent_session_id:.80}"
                raise errors.NotFound(message, code="unknown_agent_session")

    async def disclosed(self, error: BaseException) -> BaseException:
        """Return a refusal without the ids of runs that the caller may not see."""
        limits = self._limits
        if limits is None or not isinstance(error, errors.ControlRoomError):
            return error
        return await scoping.disclosed(error, lambda _kind, run_id: self._service.is_within(run_id, limits))

    def sees(self, start: runs.RunStart) -> bool:
        """Return whether the caller may see a run that begins."""
        return self._limits is None or self._limits.covers(start.recipe_id, start.labels)

    def menu(self, found: list[dict[str, plain.Json]]) -> list[dict[str, plain.Json]]:
        """Return the recipes that the caller may begin."""
        limits = self._limits
        return found if limits is None else [each for each in found if limits.covers(str(each["recipe_id"]), {})]
