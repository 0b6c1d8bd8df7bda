"""The process of the local model: `python -m app.agents.local_model PARENT_PID MODEL_FILE CONTEXT_TOKENS`.

It writes `{"ready": true}` when the model is loaded, then answers each line of standard input with one line. It ends
when its parent or its standard input ends, even in the middle of an answer.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from app.processes import process_tree

THREADS = 2  # Threads that compute. Fixed, not the number of cores: another number rounds sums differently.

_TOO_LONG = "exceed_context_size_error"
_PENALTY = {"repeat_penalty": 1.1, "repeat_last_n": 256}
# Without this penalty, a long text ends in a loop. In JSON, it would suppress the names that recur.
_PENALTY_OF_LOOPS = {
    "dry_multiplier": 0.8,
    "dry_base": 1.75,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": 1024,
    # By default a newline, a colon, a quotation mark or an asterisk ends a phrase; then loops in lists go undetected.
    "dry_sequence_breakers": ["\u0000"],
}


def main() -> None:
    """Load the model, and answer until standard input ends."""
    parent_pid, model_file, context_tokens = sys.argv[1:]
    # Before anything is loaded; otherwise, a parent that ends now would leave this process behind.
    process_tree.die_with_parent(int(parent_pid))
    sys.tracebacklimit = 0  # errors are shown to users
    mouth = _mouth()
    questions: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    model = _load(model_file, int(context_tokens))
    _say(mouth, {"ready": True})
    while True:
        _say(mouth, _answer(model, questions.get(), lambda piece: _say(mouth, {"piece": piece})))


def _mouth() -> IO[str]:
    """Return the pipe to the parent, and redirect what the library prints to standard error."""
    mouth = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return mouth


def _listen(questions: queue.SimpleQueue[dict[str, Any]]) -> None:
    with open(0, "rb", closefd=False) as ear:
        for line in ear:
            questions.put(json.loads(line))
    os._exit(0)


def _load(model_file: str, context_tokens: int) -> Any:
    # Threads that wait for one another must sleep: if they spin, other busy processes take all their time.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model_file
    params.n_ctx = context_tokens
    params.n_parallel = 1
    params.n_batch = 512
    # With a cache, the same prompt would be computed in other batches the second time, and the reply could differ.
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.warmup = False
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = 1
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = THREADS
    # The library insists on a listener. It gets a socket whose path is removed before a client can use it.
    place = Path(tempfile.mkdtemp(prefix="control-room-"))
    params.hostnames = [str(place / "unused.sock")]
    try:
        return xllamacpp.Server(params)
    finally:
        shutil.rmtree(place)


def _answer(model: Any, question: Mapping[str, Any], hear: Callable[[str], None]) -> dict[str, Any]:
    request = {
        "messages": question["messages"],
        "max_tokens": question["max_tokens"],
        # Always the most likely token, so that a prompt gets the same reply again.
        "temperature": 0,
        "seed": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        **_PENALTY,
        **({"json_schema": question["schema"]} if question["schema"] is not None else _PENALTY_OF_LOOPS),
    }
    answer = _Generation(question["most_prompt_tokens"], hear)
    try:
        model.handle_chat_completions(request, answer.feed)
    except (RuntimeError, ValueError) as error:
        return {"refused": str(error)}
    return answer.reply


class _Generation:
    def __init__(self, most_prompt_tokens: int, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._most_prompt_tokens = most_prompt_tokens
        self.reply: dict[str, Any] = {"text": "", "cut": False, "input_tokens": 0, "output_tokens": 0}

    def feed(self, chunk: Mapping[str, Any]) -> bool:
        """Add a chunk to the reply; return True to stop the generation."""
        if "error" in chunk:
            self.reply = _refusal(chunk["error"])
            return True
        # The length of the prompt arrives before the model has read it.
        prompt_tokens = chunk.get("prompt_progress", {}).get("total", 0)
        if prompt_tokens > self._most_prompt_tokens:
            self.reply = {"too_long": True, "input_tokens": prompt_tokens}
            return True
        for choice in chunk["choices"]:
            if piece := choice["delta"].get("content"):
                self.reply["text"] += piece
                self._hear(piece)
            self.reply["cut"] = choice["finish_reason"] == "length"
        if usage := chunk.get("usage"):
            self.reply |= {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]}
        return False


def _refusal(error: Mapping[str, Any]) -> dict[str, Any]:
    if error.get("type") == _TOO_LONG:
        return {"too_long": True, "input_tokens": error["n_prompt_tokens"]}
    return {"refused": error["message"]}


def _say(mouth: IO[str], words: Mapping[str, Any]) -> None:
    mouth.write(json.dumps(words) + "\n")
    mouth.flush()


if __name__ == "__main__":
    main()
