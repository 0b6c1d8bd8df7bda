"""Tests of agents: how a step finds its agent, and how it changes the agent's settings."""

from __future__ import annotations

import pytest

from app.dialects.amplifier import agents
from app.domain import library


def _agent(id, archetype="reviewer", **more):
    return library.Agent(id=id, archetype=archetype, tier="t3", backend="local", **more)


CREW = (_agent("zen-architect"), _agent("reviewer-001"), _agent("foundation:explorer", "scout"), _agent("explorer"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("zen-architect", "zen-architect"),
        ("foundation:zen-architect", "zen-architect"),
        ("foundation:explorer", "foundation:explorer"),
        ("explorer", "explorer"),
        ("reviewer", "zen-architect"),
        ("bundle:scout", "foundation:explorer"),
        ("nobody", None),
    ],
)
def test_a_step_finds_its_agent_by_id_or_role(name, meant):
    """A step finds an agent by its id, by the id without its namespace, or by its role."""
    found = agents.find(name, CREW)

    assert (found.id if found else None) == meant


def test_deep_merge():
    """Given fields override inherited ones; objects are merged, modules by name, and other lists replaced."""
    below = {
        "role": "r",
        "limits": {"a": 1, "b": {"x": 1}},
        "providers": [{"module": "one", "config": {"model": "m", "temperature": 0.1}}, {"module": "two"}],
        "tags": ["x"],
    }
    above = {
        "limits": {"b": {"y": 2}},
        "providers": [{"module": "one", "config": {"temperature": 0.8}}, {"module": "three"}],
        "tags": ["y"],
    }

    assert agents.merged(below, above) == {
        "role": "r",
        "limits": {"a": 1, "b": {"x": 1, "y": 2}},
        "providers": [
            {"module": "one", "config": {"model": "m", "temperature": 0.8}},
            {"module": "two"},
            {"module": "three"},
        ],
        "tags": ["y"],
    }


FROZEN = _agent("a", model="sonnet", role="You review.").to_json()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({}, [("local", "sonnet", "You review.", None)]),
        ({"model": "opus"}, [("local", "opus", "You review.", None)]),
        ({"provider": "codex"}, [("codex", None, "You review.", None)]),
        ({"provider": "codex", "model": "o"}, [("codex", "o", "You review.", None)]),
        ({"provider": "codex", "agent_config": {"model": "o"}}, [("codex", "o", "You review.", None)]),
        ({"provider": "codex", "model": "n", "agent_config": {"model": "o"}}, [("codex", "n", "You review.", None)]),
        ({"max_tokens": 50}, [("local", "sonnet", "You review.", 50)]),
        ({"agent_config": {"role": "Other."}}, [("local", "sonnet", "Other.", None)]),
        ({"agent_config": {"session": {"instruction": "More."}}}, [("local", "sonnet", "You review.\n\nMore.", None)]),
        (
            {"agent_config": {"providers": [{"module": "p", "config": {"model": "claude-opus-4", "max_tokens": 9}}]}},
            [("local", "claude-opus-4", "You review.", 9)],
        ),
        (
            {"provider_preferences": [{"provider": "codex", "model": "o"}, {"provider": "gemini"}]},
            [("codex", "o", "You review.", None), ("gemini", None, "You review.", None)],
        ),
    ],
)
def test_voices(step, expected):
    """A step uses the agent's backend, model, instruction and length unless it sets its own."""
    voices = agents.voices(FROZEN, step)

    assert [(voice.backend, voice.model, voice.system, voice.max_tokens) for voice in voices] == expected
    assert {voice.agent_id for voice in voices} == {"a"}


def test_a_setting_without_a_supporting_agent_is_reported():
    """A setting of a step that no agent understands is reported."""
    config = {"role": "r", "tools": [], "providers": [{"module": "p", "config": {"temperature": 0.8, "model": "m"}}, 3]}

    assert agents.unused(config) == ["tools", "providers.temperature"]
