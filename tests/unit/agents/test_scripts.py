"""Scripts and recordings: the entry that answers a prompt, and the state of the file after a crash."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import clock, errors
from app.agents import entries
from app.agents.scripted import RecordingBackend, Script, ScriptedBackend
from app.domain import records
from app.engine import agent_ports
from tests.unit.agents.prompts import prompt


def scripted(path: Path, content: Any, time: clock.Clock | None = None) -> ScriptedBackend:
    """Write a script and return the backend that plays it."""
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return ScriptedBackend("script", Script(path), time or clock.SystemClock())


async def said(backend: agent_ports.AgentBackend, key: str, attempt: int = 1) -> str:
    """Return a backend's text for a step and attempt."""
    return (await backend.prompt(prompt(key=key, attempt=attempt))).text


async def test_an_object_answers_by_key_and_attempt(tmp_path: Path) -> None:
    """A list has one reply per attempt and repeats the last; wildcards apply after exact keys, the longest first."""
    backend = scripted(tmp_path / "s.json", {"*": "else", "brief.*": "micro", "brief": "one", "draft": ["a", "b"]})

    assert await said(backend, "brief") == "one"
    assert await said(backend, "brief", 7) == "one"
    assert [await said(backend, "draft", attempt) for attempt in (1, 2, 3)] == ["a", "b", "b"]
    assert await said(backend, "brief.triage") == "micro"
    assert await said(backend, "Items[3].Implement") == "else"


async def test_a_list_answers_with_the_first_entry_that_fits(tmp_path: Path) -> None:
    """The first entry that fits answers, and fields that an entry does not name fit everything."""
    entries_ = [
        {"key": "brief", "attempt": 2, "text": "second"},
        {"key": "Items[?].*", "text": "item"},
        {"attempt": 1, "text": "first"},
    ]
    backend = scripted(tmp_path / "s.json", entries_)

    assert await said(backend, "brief", 2) == "second"
    assert await said(backend, "Items[3].Implement", 2) == "item"
    assert await said(backend, "anything") == "first"


async def test_choosing_needs_no_memory(tmp_path: Path) -> None:
    """A new backend on the same file gives the same replies in any order of prompts."""
    path = tmp_path / "s.json"
    backend = scripted(path, {"a": ["1", "2"], "b": "3"})
    there = [await said(backend, "a"), await said(backend, "a", 2), await said(backend, "b")]
    again = ScriptedBackend("script", Script(path), clock.SystemClock())
    back = [await said(again, "b"), await said(again, "a", 2), await said(again, "a")]

    assert there == back[::-1]


async def test_a_line_can_be_an_entry(tmp_path: Path) -> None:
    """A `.jsonl` script has one entry per line, and empty lines are ignored."""
    backend = scripted(tmp_path / "s.jsonl", '{"key": "a", "text": "1"}\n\n{"key": "b", "text": "2"}')

    assert [await said(backend, key) for key in "ab"] == ["1", "2"]


async def test_an_entry_can_bring_everything_that_a_reply_has(tmp_path: Path) -> None:
    """An entry may give usage, conversation and error of a reply."""
    backend = scripted(
        tmp_path / "s.json",
        {
            "a": {"text": "x", "usage": {"input_tokens": 3, "cost_usd": 0.5}, "agent_session_id": "s1"},
            "b": {"error": {"code": "overloaded", "message": "Too many prompts."}},
        },
    )
    reply, failed = [await backend.prompt(prompt(key=key)) for key in "ab"]

    usage = records.Usage(input_tokens=3, output_tokens=None, cost_usd=0.5)
    assert (reply.usage, reply.agent_session_id) == (usage, "s1")
    assert failed.error == records.StepError(code="overloaded", message="Too many prompts.")


async def test_a_delay_is_waited_by_the_clock(tmp_path: Path) -> None:
    """A reply with a delay comes when that time has passed on the clock."""
    time = clock.FakeClock()
    backend = scripted(tmp_path / "s.json", {"a": {"text": "late", "delay_seconds": 60}}, time)
    asked = asyncio.ensure_future(backend.prompt(prompt(key="a")))
    while time.next_wake_seconds() is None:  # noqa: ASYNC110 - the clock has no event for a new sleeper
        await asyncio.sleep(0)
    early = asked.done()
    time.advance(60)

    assert not early
    assert (await asked).text == "late"


async def test_a_changed_script_is_read_afresh(tmp_path: Path) -> None:
    """A changed script is read again without a restart."""
    path = tmp_path / "s.json"
    backend = scripted(path, {"a": "old"})
    before = await said(backend, "a")
    path.write_text('{"a": "brand new"}')

    assert (before, await said(backend, "a")) == ("old", "brand new")


async def test_no_entry_is_an_error(tmp_path: Path) -> None:
    """A prompt without an entry fails, and the error names file, key and attempt."""
    backend = scripted(tmp_path / "s.json", {"a": "1"})
    with pytest.raises(errors.AgentFailed) as failed:
        await said(backend, "b", 2)

    assert failed.value.code == "no_scripted_reply"
    assert failed.value.detail == {"file": str(tmp_path / "s.json"), "key": "b", "attempt": 2}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("{", "$"),
        ('"text"', "$"),
        ('{"a": 5}', "$['a']"),
        ('{"a": {"txt": "x"}}', "$['a'].txt"),
        ('{"a": {}}', "$['a']"),
        ('{"a": {"text": "x", "hang": true}}', "$['a']"),
        ('[{"text": "x", "delay_seconds": -1}]', "$[0].delay_seconds"),
        ('[{"text": "x", "attempt": 0}]', "$[0].attempt"),
        ('{"a": "1", "a": "2"}', "$.a"),
        ("[" * 100_000, "$"),
        ("[NaN]", "$[0]"),
        (b"\xff\xfe", "$"),
    ],
)
async def test_a_broken_script_is_an_error_with_its_places(tmp_path: Path, content: str | bytes, place: str) -> None:
    """A broken script is one error with the place of each flaw."""
    path = tmp_path / "s.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(errors.AgentFailed) as failed:
        await ScriptedBackend("script", Script(path), clock.SystemClock()).prompt(prompt())

    assert failed.value.code == "script_invalid"
    assert place in [flaw["path"] for flaw in failed.value.detail["flaws"]]


async def test_a_missing_script_is_an_error(tmp_path: Path) -> None:
    """A missing script is an error."""
    with pytest.raises(errors.AgentFailed) as failed:
        await ScriptedBackend("script", Script(tmp_path / "none.json"), clock.SystemClock()).prompt(prompt())

    assert failed.value.code == "script_invalid"


class Counting:
    """A backend that counts its prompts, as a recording does not."""

    def __init__(self, *texts: str, usage: records.Usage | None = None) -> None:
        self.asked = 0
        self._texts = texts
        self._usage = usage

    def get_name(self) -> str:
        """Return the name of the backend."""
        return "counting"

    def resolve_model(self, tier: str) -> str:
        """Return a model name that shows which backend resolved it."""
        return f"counting-{tier}"

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        """Return the next text, or the number of the prompt."""
        self.asked += 1
        text = self._texts[self.asked - 1] if self.asked <= len(self._texts) else f"reply {self.asked}"
        return agent_ports.AgentReply(text=text, usage=self._usage or records.Usage(output_tokens=self.asked))

    async def close(self) -> None:
        """Close nothing."""


def recording(path: Path, asked: Counting) -> RecordingBackend:
    """Return a backend that records another one."""
    return RecordingBackend("recorded", Script(path, recorded=True), lambda: asked)


async def test_a_recording_repeats_a_run_exactly(tmp_path: Path) -> None:
    """A recording repeats its replies after a restart, and the recorded backend gets each prompt once."""
    path, asked = tmp_path / "new" / "recording.jsonl", Counting()
    keys = ["brief", "draft", "polish"]
    first = [await recording(path, asked).prompt(prompt(key=key)) for key in keys]
    second = [await recording(path, asked).prompt(prompt(key=key, attempt=2)) for key in reversed(keys)]

    assert asked.asked == 3
    assert first == second[::-1]
    assert path.stat().st_mode & 0o777 == 0o600
    assert recording(path, asked).resolve_model("opus") == "counting-opus"


async def test_a_recording_distinguishes_prompts(tmp_path: Path) -> None:
    """Text, instruction, model, schema, limit and step distinguish the prompts of a recording."""
    backend = recording(tmp_path / "r.jsonl", asked := Counting())
    prompts = [
        prompt(),
        prompt("other"),
        prompt(system="Be brief."),
        prompt(model="large"),
        prompt(reply_schema={"type": "object"}),
        prompt(max_tokens=99),
        prompt(key="draft"),
    ]
    texts = [(await backend.prompt(one)).text for one in [*prompts, *prompts]]

    assert asked.asked == len(prompts)
    assert texts[: len(prompts)] == texts[len(prompts) :]
    assert len(set(texts)) == len(prompts)


async def test_a_recording_is_a_script(tmp_path: Path) -> None:
    """A recording can be played as a script, without the recorded backend."""
    path = tmp_path / "r.jsonl"
    recorded = await recording(path, Counting()).prompt(prompt())
    played = await ScriptedBackend("script", Script(path), clock.SystemClock()).prompt(prompt(attempt=3))

    assert played == recorded


@pytest.mark.parametrize("reported", [{"cost_usd": 0.5}, {"input_tokens": 3}, {"output_tokens": 0}])
async def test_a_recording_keeps_what_was_not_reported(tmp_path: Path, reported: dict[str, Any]) -> None:
    """A reply whose tokens or price were not reported is recorded as it is, and can be read again."""
    usage = records.Usage(**{"input_tokens": None, "output_tokens": None} | reported)
    asked = Counting(usage=usage)
    both = [await recording(tmp_path / "r.jsonl", asked).prompt(prompt()) for _ in range(2)]

    assert [reply.usage for reply in both] == [usage, usage]
    assert asked.asked == 1


async def test_blank_replies_are_not_recorded(tmp_path: Path) -> None:
    """A blank reply is not recorded, and the next attempt asks the backend again."""
    backend = recording(tmp_path / "r.jsonl", Counting("", " \n", "at last"))

    assert [(await backend.prompt(prompt(attempt=n))).text for n in (1, 2, 3, 4)] == ["", " \n", "at last", "at last"]


@given(cut=st.integers(min_value=0, max_value=400))
async def test_a_torn_recording_keeps_its_whole_lines(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """A cut recording keeps its whole lines, and the incomplete one is asked for and written again."""
    path, asked = tmp_path_factory.mktemp("torn") / "r.jsonl", Counting("a\nb", "ü" * 40)
    both = [await recording(path, asked).prompt(prompt(key=key)) for key in ("x", "y")]
    path.write_bytes(path.read_bytes()[:cut])
    left = path.read_bytes().count(b"\n")
    after = recording(path, again := Counting("a\nb", "ü" * 40) if left == 0 else Counting("ü" * 40))
    texts = [(await after.prompt(prompt(key=key))).text for key in ("x", "y")]

    assert texts == [reply.text for reply in both]
    assert again.asked == 2 - left
    assert [entry.key for entry in entries.read(path, recorded=True)] == ["x", "y"]


async def test_a_recording_that_cannot_be_written_fails_the_step(tmp_path: Path) -> None:
    """A reply that cannot be recorded fails the step."""
    (tmp_path / "file").touch()
    with pytest.raises(errors.AgentFailed) as failed:
        await recording(tmp_path / "file" / "r.jsonl", Counting()).prompt(prompt())

    assert failed.value.code == "recording_failed"


def test_a_line_of_a_script_is_named(tmp_path: Path) -> None:
    """A flaw in a `.jsonl` script has the number of its line."""
    path = tmp_path / "s.jsonl"
    path.write_text('{"text": "x"}\n{"txet": "x"}\n')
    with pytest.raises(errors.InputRefused) as invalid:
        entries.read(path)

    assert [(flaw.path, flaw.line) for flaw in invalid.value.flaws] == [("$.txet", 2)]
    assert "text" in invalid.value.flaws[0].message
