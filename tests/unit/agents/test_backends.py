"""The registry of backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import errors
from app.agents import backends, local
from app.agents.backends import Backends
from app.agents.configuration import BackendConfig, Recording
from app.agents.programs import catalogue
from tests.unit.agents import around, living
from tests.unit.agents.prompts import prompt


def registry(*configs: BackendConfig) -> Backends:
    """Return a registry of backends."""
    return Backends({config.name: config for config in configs}, around.surroundings())


def test_a_backend_is_made_once_and_nothing_is_started() -> None:
    """The same name gives the same backend, and making it starts no process."""
    before = living.children()
    made = registry(BackendConfig(name="mine", type="local"))

    assert made.get("mine") is made.get("mine")
    assert made.get("mine").get_name() == "mine"
    assert living.children() == before


def test_an_unknown_type_names_the_nearest() -> None:
    """An unknown type is a configuration error that names the nearest type."""
    with pytest.raises(errors.ConfigurationError) as failed:
        registry(BackendConfig(name="x", type="scritped")).get("x")

    assert failed.value.code == "unknown_backend_type"
    assert "did you mean scripted?" in failed.value.message


def test_an_unknown_name_names_the_nearest() -> None:
    """A name that is not configured fails the step, and the error lists the configured names."""
    with pytest.raises(errors.AgentFailed) as failed:
        registry(BackendConfig(name="local", type="local")).get("locla")

    assert failed.value.code == "unknown_backend"
    assert failed.value.detail == {"backend": "locla", "backends": ["local"]}


async def test_a_recording_asks_a_backend_of_the_same_registry(tmp_path: Path) -> None:
    """A recording finds the backend that it records by name in the same registry, and passes its replies on."""
    script = tmp_path / "s.json"
    script.write_text('{"*": "Kael arrives."}')
    made = registry(
        BackendConfig(name="script", type="scripted", file=script),
        BackendConfig(name="taped", type="scripted", record=Recording(backend="script", file=tmp_path / "t.jsonl")),
    )
    reply = await made.get("taped").prompt(prompt())
    await made.close()
    await made.close()

    assert reply.text == "Kael arrives."
    assert (tmp_path / "t.jsonl").read_text().count("\n") == 1


def test_a_check_reports_what_a_backend_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check reports which backends cannot work here, without starting a process."""
    monkeypatch.setattr(local, "missing_packages", lambda: ["xllamacpp"])
    (tmp_path / "fine.json").write_text("{}")
    before = living.children()
    told = dict(
        registry(
            BackendConfig(name="local", type="local"),
            BackendConfig(name="lost", type="scripted", file=tmp_path / "none.json"),
            BackendConfig(name="fine", type="scripted", file=tmp_path / "fine.json"),
            BackendConfig(name="odd", type="odd"),
        ).check()
    )

    assert set(told) == {"local", "lost", "odd"}
    assert "control-room[local]" in told["local"]
    assert "none.json" in told["lost"]
    assert living.children() == before


def test_a_service_lacks_a_model_that_nothing_names() -> None:
    """At an address of its own, a service lacks each model that its entry does not name; names of models pass."""
    names: dict[str, dict[str, str]] = {"none": {}, "small": {"haiku": "s"}}
    made = registry(
        *(
            BackendConfig(name=name, type="openai", base_url="http://127.0.0.1:1/v1", models=models)
            for name, models in names.items()
        ),
        BackendConfig(name="program", type="template", command=("ours",)),
    )
    asked = [("none", "sonnet"), ("none", "s"), ("none", None), ("small", "haiku"), ("small", "opus")]
    lacks = [made.lack(name, elsewhere=True, model=model) for name, model in [*asked, ("program", "opus")]]

    assert [lack is None for lack in lacks] == [False, True, True, True, False, True]
    assert lacks[4] == "The backend small names no model for opus; give `models` in agents.json."


def test_every_type_can_be_named_in_a_file() -> None:
    """The backend types include `local`, `scripted`, `template` and every program."""
    assert set(backends.TYPES) >= {"local", "scripted", "template", *catalogue.PROGRAMS}
