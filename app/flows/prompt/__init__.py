"""The driver of plain prompts: one prompt in a conversation, and its reply. No recipe files are written in it."""

# Between recipes a client prompts the agent. The reply may take an hour and costs money. If only the connection held
# it, a lost connection or a crash would lose what was paid for, and a second client could speak into the same
# conversation.
#
# A prompt over the WebSocket is a run with one agent call, executed by the driver `prompt`. It is durable before it
# begins, holds its conversation like any run, and is counted, listed, cancelled and resumed. `prompt` has no recipe
# files, so no project recipe can replace it. A prompt shares its workspace: a person who asks while a recipe works
# wants the answer now.
#
# Price: two syncs more than a bare call, and a folder per prompt.

from __future__ import annotations

from app import errors
from app.domain import graphs, library, operations, plain, records, runs, slots
from app.domain.json_schemas import rule
from app.engine import ports

NAME = "prompt"  # Name of the driver, of its one recipe and of its one step.
SLOT = "reply"  # Slot that holds the reply.
DEFAULT_BACKEND = "claude-code"  # Backend used where none is named.
TIMEOUT_SECONDS = 60 * 60.0  # Longest wait for a reply (agent-recipes, 13.2).

_TEXT = {"type": "string", "minLength": 1, "pattern": r"\S", "description": "The prompt."}
_ARGS: plain.Object = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text", "agent_session_id", "session_created"],
    "properties": {
        "text": _TEXT,
        "backend": {
            "type": "string",
            "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
            "default": DEFAULT_BACKEND,
            "description": "Backend that is spoken through.",
        },
        "model": {"type": "string", "enum": ["haiku", "sonnet", "opus"], "description": "Model tier."},
        "system_prompt": rule("string", "Appended to the backend's own system prompt.", minLength=1, maxLength=100_000),
        "agent_session_id": {
            "type": "string",
            "pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$",
            "description": "Conversation that is spoken in.",
        },
        "session_created": {"type": "boolean", "description": "Whether it has begun, so that it is resumed."},
    },
}

RECIPE = library.Recipe(
    recipe_id=NAME,
    dialect=NAME,
    label="Prompt",
    document={"id": NAME},
    args_schema=_ARGS,
    total_steps=1,
    speaks_through="backend",
)
"""What every plain prompt executes."""

_DRAWING = graphs.Drawing(
    nodes=[graphs.Node(id=NAME, label=RECIPE.label, kind="agent")],
    edges=(),
    locator=graphs.static({NAME: graphs.place(NAME)}),
)


class Prompt:
    """The driver as the rest of the program sees it."""

    name: str = NAME
    driver_version: int = 1

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return nothing: it refers to nothing."""
        return []

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return nothing: all is in the arguments."""
        return {}

    def uses(self, recipe: library.Recipe, library: library.Library, args: plain.Object) -> list[library.Use]:
        """Return the backend of the prompt."""
        return _uses(args)

    def graph(self, document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
        """Return its one step."""
        return _DRAWING

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Send the prompt, and keep the reply."""
        args = ctx.run.args
        ctx.show(slots.Progress(finished_steps=0, total_steps=1))
        ctx.emit("prompt:started", _started(args))
        place = records.Place(step_id=NAME, step_index=0, output_slot=SLOT)
        record = await ctx.perform(NAME, _call(args), place)
        # There is nothing after the one step: its failure is the run's.
        if record.error is not None:
            error = record.error
            raise errors.RunFailed(
                error.message, code=error.code, reason="backend-error", key=NAME, detail=error.detail, causes=(NAME,)
            )
        ctx.fill(SLOT, slots.artifact(record, args["backend"]))
        ctx.show(slots.Progress(finished_steps=1, total_steps=1))
        return runs.Ending(reason="answered")


def _uses(args: plain.Object) -> list[library.Use]:
    named, continues = args.get("backend", DEFAULT_BACKEND), bool(args.get("session_created"))
    return [library.BackendUse(path="$.args.backend", backends=(named,), continues=continues)]


def _started(args: plain.Object) -> dict[str, plain.Json]:
    return {
        "event": "prompt:started",
        "sessionId": args["agent_session_id"],
        "backend": args["backend"],
        "model": args.get("model"),
        "promptLength": len(args["text"]),
    }


def _call(args: plain.Object) -> operations.AgentCall:
    return operations.AgentCall(
        agent_id=args["backend"],
        backend=args["backend"],
        model=args.get("model"),
        prompt=(args["text"],),
        system=args.get("system_prompt"),
        tools=True,
        agent_session_id=args["agent_session_id"],
        session_created=args["session_created"],
        timeout_seconds=TIMEOUT_SECONDS,
        may_abstain=True,
    )
