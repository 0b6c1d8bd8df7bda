"""The driver of plain prompts: one prompt in a conversation, and its reply. It has no recipe files."""

# Between recipes a client prompts the agent. The reply may take an hour and costs money. If only the connection had
# the reply, a lost connection or a crash would lose what was paid for, and a second client could write into the same
# conversation.
#
# A prompt over the WebSocket is a run with one agent call, executed by the driver `prompt`. It is durable before it
# begins, claims its conversation like any run, and is counted, listed, cancelled and resumed. `prompt` has no recipe
# files, so no project recipe can replace it. Prompts share their workspace: a person who asks while a recipe works
# wants the answer now.
#
# Price: two more syncs than a bare call, and a folder per prompt.

from __future__ import annotations

from app import errors
from app.domain import graphs, library, limits, operations, plain, records, runs, slots
from app.domain.json_schemas import rule
from app.engine import ports

NAME = "prompt"  # Name of the driver, of its only recipe and of its only step.
SLOT = "reply"  # Slot with the reply.
DEFAULT_BACKEND = "claude-code"  # Backend if none is named.
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

_BACKEND = "backend"  # Argument that names the backend of its runs.

RECIPE = library.Recipe(
    recipe_id=NAME,
    dialect=NAME,
    label="Prompt",
    document={"id": NAME},
    args_schema=_ARGS,
    total_steps=1,
    speaks_through=_BACKEND,
)
"""The recipe of every plain prompt."""

_DRAWING = graphs.Drawing(
    nodes=[graphs.Node(id=NAME, label=RECIPE.label, kind="agent")],
    edges=(),
    locator=graphs.static({NAME: graphs.place(NAME)}),
)


class Prompt:
    """The interface of this driver to the rest of the program."""

    name: str = NAME
    driver_version: int = 1
    speaks_through: str = _BACKEND

    def check(self, recipe: library.Recipe, library: library.Library) -> list[errors.Flaw]:
        """Return an empty list: the recipe refers to no agent and no other recipe."""
        return []

    def freeze(self, recipe: library.Recipe, library: library.Library) -> dict[str, plain.Json]:
        """Return an empty object: the arguments contain everything."""
        return {}

    def uses(self, recipe: library.Recipe, library: library.Library, args: plain.Object) -> list[library.Use]:
        """Return the backend of the prompt."""
        return _uses(args)

    def graph(self, document: plain.Object, frozen: plain.Object) -> graphs.Drawing:
        """Return its only step."""
        return _DRAWING

    def call_limit(self, start: runs.RunStart) -> limits.CallLimit:
        """Return the call of its only step."""
        return limits.CallLimit(most=1)

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Send the prompt, and store the reply."""
        args = ctx.run.args
        ctx.show(slots.Progress(finished_steps=0, total_steps=1))
        ctx.emit("prompt:started", _started(args))
        place = records.Place(step_id=NAME, step_index=0, output_slot=SLOT)
        record = await ctx.perform(NAME, _call(args), place)
        # No step follows: the failure of the only step is that of the run.
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
    model = args.get("model") or library.USUAL_MODEL
    return [library.BackendUse(path="$.args.backend", backends=(named,), continues=continues, model=model)]


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
