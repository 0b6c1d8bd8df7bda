"""The embedded engine: executes many runs in one asyncio process over one run store; `engine` executes each.

These are the places of a run inside the process. They exist only in memory: after a crash, recovery begins again at
*queued* or *unread*. `domain/states.py` has the states on disk, which clients see. A stop (`ActiveRuns.close`) ends
every place.

Runs in `ActiveRuns.active_runs`, each an `ActiveRun`:

- *admitted*: a command or a delivery is about to load it; it is not in the queue.
  In: `ActiveRuns.admit`, which every place below passes through first.
  Out: loading, by `ActiveRuns.load_now`.
- *unread*: in `ActiveRuns.unread`: recovery found it waiting, or with a cancelled parent, and has not loaded it yet.
  In: `recovery._set_aside`.
  Out: resting or queued, by `Resting.put_back`; loading, ahead of both, by `ActiveRuns.load_now`.
- *queued*: its request waits in `WorkerCapacity`.
  In: `ActiveRuns.queue`, for a run that is new, unpaused, resumed or found unfinished; `Resting.put_back`; and
  `RunCommands._proceed`, at its former place, after a command that loaded it from here and lets it wait.
  Out: loading, by `ActiveRuns.advance` once it is granted capacity, or without capacity by `ActiveRuns.load_now`.
- *loading*: `ActiveRun.loading`: its folder is being opened.
  In: `ActiveRuns._load`, in the run's own task or in that of a command.
  Out: loaded, by `Loader.load`. If the folder cannot be opened, `ActiveRuns._leave_unloaded` removes it, and lets it
  reload if the fault is temporary; an evicted run then stays evicted, because its steps are open. Parked, after an
  internal error, by `Loader._park`.
- *loaded*: it has a `log` and a `runner`; its task executes `Runner.run`. Capacity is separate: the runner releases it
  while all open steps only wait, and `CapacityHold.enter` queues for it again before a step that needs it.
  In: `Loader.load`.
  Out: leaving when the runner returns (ended, paused, released), by `ActiveRuns._run_to_rest` and `Loader.unload`;
  parked, in the same way; reloading, if a file cannot be read or written now (`ActiveRuns._run`); loading, if a person
  cancelled or unpaused it too late for this runner (`ActiveRun.sent_on`); evicted or resting, by `IdleEvictor`.
- *evicted*: `ActiveRun.evicted` is an `EvictedRun`: the folder is closed, the tasks of open steps continue.
  In: `ActiveRuns._evict`; `ActiveRuns._finish_eviction` closes the folder.
  Out: loading, by `ActiveRuns.wake` when a step finishes, or by `ActiveRuns.load_now` for a command.
- *resting*: `ActiveRun.evicted` is a `RestingRun`: it only awaits inputs without a deadline, and has no task.
  In: `Resting.rest` from evicted; `Resting._rest_unread` from unread.
  Out: loading, by `ActiveRuns.wake` when an input is delivered, or by `ActiveRuns.load_now` for a command.

A run that leaves does so by `ActiveRuns._leave`. Runs that are not in `ActiveRuns.active_runs`:

- *parked*: its last view is in `ActiveRuns.parked`: a fault stopped it, without a line in its journal.
  In: `ActiveRuns._run_to_rest`, `Loader._park`.
  Out: `ActiveRuns.admit`, for an unpause, a cancel, or a reload once the fault is over.
- *reloading*: a task of `Reloads` waits until its folder can be opened.
  In: `ActiveRuns._leave_unloaded`, `ActiveRuns._run_to_rest`, `ActiveRuns._run`, `recovery._wait_for`.
  Out: queued, by `ActiveRuns.queue`; dropped, if it has ended or another process owns it.
- *inactive*: ended, paused or foreign: it exists only in its folder and its index row.
  In: `ActiveRuns._leave`; recovery leaves paused runs there.
  Out: `ActiveRuns.admit` for a command about a paused run; `ActiveRuns.queue` for an unpause or a resume.
"""
