"""Control Room: a durable run manager for agent recipes.

The packages, in reading order:

- `domain`: values and states: run, step, operation, record, gate, plan, event.
- `engine`: executes one run. Drivers request operations; the engine records and replays them. It also
  contains the ports: `run_engine` between `services` and `worker`, `stores`, `ports`, `agent_ports`.
- `worker`: executes many runs in one process: pool, active runs, capacity, commands, eviction, recovery.
- `temporal`: the other engine: runs are workflows, and several worker processes perform their steps.
- `storage`: journals, run folders, the index, the disk.
- `dialects`: the four recipe languages, a folder each; `flows`: built-in drivers,
  among them that of session plans.
- `agents`: backends and conversations; `tools`: performers without a model; `processes`: child processes.
- `services`: use cases, independent of the caller.
- `api`, `cli`: two interfaces to `services`; `ui`: pages over `api`; `crash_lab`: the crash laboratory.
- `bootstrap`: the only place where concrete classes meet.

Read these files first; they explain the rest, in at most 2,000 lines:

- `app/domain/states.py`: the states of a run, and every transition.
- `app/domain/operations.py`: what a driver can request.
- `app/engine/driver_context.py`: the part of the engine that a driver can use.
- `app/engine/replay.py`: how a driver is answered from the journal after a restart.
- `app/engine/runner.py`: one run from its journal to its end.
- `app/engine/step_executor.py`: one step from its start to its journal line.
- `app/engine/active_step.py`: the state that a step keeps from phase to phase.
- `app/domain/inputs.py`: values delivered to a run from outside, e.g. the answer to a gate.
- `app/storage/journal/journal.py`: the journal: chained lines, many to one sync.
- `app/worker/recovery.py`: what a start does with unfinished runs.
- `app/engine/probes.py`: named points at which tests await, hold or kill.
- `app/dialects/registry.py`: the recipe languages, one line each.

Then, by question:

- How a cancel reaches a process: `app/worker/run_commands.py` syncs it, `app/engine/runner.py` cuts the steps off,
  `app/processes/launcher_client.py` asks for the end of the command, `app/processes/jobs.py` signals every process.
- What agents may spend: `app/engine/spending.py` is the port, `app/worker/ledger.py` reserves and charges each call,
  `app/agents/pricing.py` computes what it can cost, `app/services/budgets.py` continues runs when a limit is raised.
- How lists find runs: `app/storage/index/index_port.py` is a row, `app/storage/index/index_queue.py` writes rows a
  moment later, `app/storage/runs/reconciliation.py` brings them in line with the folders at a start.
- Where to add a backend: `app/agents/programs/catalogue.py` lists the programs, `app/agents/backends.py` every type.
- How Temporal executes a run: `app/temporal/engine.py` implements the engine port, `app/temporal/workflow.py` owns the
  driver, `app/temporal/steps.py` performs and records its steps.

docs/explanation/architecture.md follows a step through them, and answers where a step becomes durable, how a cancel
reaches a grandchild process, what happens to a gate after a kill, when a paid call is made again, how a session plan
is executed, and what tests each invariant.
"""

__version__ = "0.1.0"
