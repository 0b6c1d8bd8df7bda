"""Halts: the runs at which a run that is followed stands still until a person does something, and what to do there."""

from __future__ import annotations

from collections.abc import Sequence

from app import errors
from app.cli import formats, options, terminal, use_cases
from app.cli.client import Client, JsonObject
from app.domain import states, stop_reasons
from app.engine import stores
from app.services import gate_inbox

_RAISED = (
    "control-room runs limits ",
    "control-room budgets set ",
)  # After these, the run must still be continued.


async def halts(client: Client, run_id: str) -> list[JsonObject]:
    """Return the runs, itself or those it waits for, that hold up a run until a person does something; none if
    a step of it moves.
    """
    from app.cli import explaining

    try:
        found = await client.call(explaining.explain_run, run_id)
        return [await client.call(use_cases.show_run, each) for each in found.get("halted_at", ())]
    except (errors.ControlRoomError, errors.StorageFault):
        # It may be known the next time.
        return []


async def open_gates(client: Client, run_id: str) -> list[JsonObject]:
    """Return what a run asks."""
    return await client.call(use_cases.list_gates, gate_inbox.GateQuery(run_id=run_id))


async def expires(client: Client, held: Sequence[JsonObject]) -> bool:
    """Return whether a halt ends without a person, by the defaults of all gates."""
    gates = [gate for detail in held for gate in await open_gates(client, detail["run_id"])]
    return all(detail["status"] != "paused" for detail in held) and all(gate["expires_at"] for gate in gates)


def print_gates(found: Sequence[JsonObject], *, names_run: bool = False) -> None:
    """Print open gates, and the commands that answer them."""
    for gate in found:
        where = f"run {gate['run_id']}, " if names_run else ""
        terminal.warn(f"{where}{gate['key']}: {formats.cell(gate['prompt'])}")
        terminal.warn(f"  read it whole with: control-room gates show {gate['gate_id']}{options.again()}")
        first, *others = formats.answer_commands([gate])
        terminal.warn(f"  answer with: {first}", *(f"  or with: {each}" for each in others))


def pause(detail: JsonObject) -> tuple[str, str | None]:
    """Return why a run is paused, and the command that sends it on; None if no single command does."""
    run_id, reason, error = detail["run_id"], detail.get("reason") or "", detail.get("error")
    why = formats.error(error) if error else reason or "a person unpauses it"
    return f"run {run_id} is paused: {why}", stop_reasons.act(run_id, reason, error)


async def paused_of_session(client: Client, session_id: str, most: int) -> list[JsonObject]:
    """Return the newest paused runs of a work session."""
    query = stores.RunQuery(status=states.RunState.PAUSED, session_id=session_id, limit=most)
    found = await client.call(use_cases.list_runs, query)
    return [await client.call(use_cases.show_run, row["run_id"]) for row in found]


def print_continuing(detail: JsonObject, client: Client, order: str | None = None) -> None:
    """Print the command that sends a paused run on, if a single one does, and what follows after a raised limit.

    Args:
        order: The order after a raised limit, if it is not the one that unpauses the run; a service continues it.
    """
    command = pause(detail)[1]
    if command is None:
        return
    terminal.warn(f"  continue with: {options.led(command)}")
    if client.executes and command.startswith(_RAISED):
        order = order or f"control-room runs unpause {detail['run_id']}"
        terminal.warn(f"  and then: {order}{options.again()}")


async def print_halts(client: Client, held: Sequence[JsonObject], order: str | None = None) -> None:
    """Print what a person has to do at each of the runs that hold up another one, or a plan.

    Args:
        order: As for `print_continuing`.
    """
    for detail in held:
        if detail["status"] == "paused":
            terminal.warn(pause(detail)[0])
            print_continuing(detail, client, order)
        print_gates(await open_gates(client, detail["run_id"]), names_run=True)
