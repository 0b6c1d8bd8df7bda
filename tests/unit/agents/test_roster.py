"""The roster: layers of agents.json and their flaws."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app import resources
from app.agents import backends, entries, roster, roster_rules
from app.agents.configuration import BackendConfig, Recording, Roster

ROOT = Path(__file__).resolve().parents[3]
PLANNER = {"id": "planner-001", "archetype": "planner", "tier": "t3", "backend": "local", "role": "You plan."}
BUNDLED = {
    "agents": [PLANNER, {"id": "writer-001", "archetype": "writer", "tier": "t5", "backend": "local"}],
    "backends": {"local": {"type": "local"}},
}


def load(tmp_path: Path, *layers: Any) -> Roster:
    """Load layers, each given as a document or as the text of a file."""
    paths = []
    for number, layer in enumerate(layers):
        paths.append(tmp_path / str(number) / "agents.json")
        paths[-1].parent.mkdir(exist_ok=True)
        paths[-1].write_text(layer if isinstance(layer, str) else json.dumps(layer))
    return roster.load(paths)


def flaws(tmp_path: Path, document: Any) -> list[tuple[str, str]]:
    """Return place and code of each flaw of a project's file over the bundled one."""
    found = load(tmp_path, BUNDLED, document)
    assert len(found.agents) == 2
    return [(flaw.path, flaw.code) for broken in found.broken for flaw in broken.flaws]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "aider {prompt}"], "script"),
        (["env", "A=1", "/bin/bash", "-lc", ["aider --model {model}"]], "script"),
        (["sh", "-c", 'aider "$1"', "sh", "{prompt}"], None),
        (["aider", "-c", "{prompt}"], None),
    ],
)
def test_a_placeholder_in_a_shell_script_is_refused(tmp_path: Path, command: list[Any], code: str | None) -> None:
    """A template with a placeholder in the script of a shell is refused; the safe form is allowed."""
    found = flaws(tmp_path, {"backends": {"mine": {"type": "template", "command": command}}})

    assert found == ([("$.backends.mine.command", code)] if code else [])


def test_the_bundled_file_is_whole() -> None:
    """The bundled file has no flaw, an agent for each archetype, and the local backend."""
    found = roster.load([resources.bundled("recipes", "agents.json")])

    assert found.broken == ()
    assert {agent.archetype for agent in found.agents} >= {
        "planner", "writer", "editor", "continuity", "critic", "librarian", "chief",
    }  # fmt: skip
    assert found.backends["local"].type == "local"


def test_a_later_layer_gives_only_what_differs(tmp_path: Path) -> None:
    """An entry with a known id changes only the fields that it names."""
    found = load(tmp_path, BUNDLED, {"agents": [{"id": "planner-001", "tier": "t1", "model": "haiku"}]})
    planner = next(agent for agent in found.agents if agent.id == "planner-001")

    assert (planner.tier, planner.model, planner.role, planner.backend) == ("t1", "haiku", "You plan.", "local")
    assert found.broken == ()


def test_agents_of_the_project_come_first(tmp_path: Path) -> None:
    """The first agent of an archetype is used, so a project's own is chosen before the bundled one."""
    mine = {"id": "mine", "archetype": "planner", "tier": "t5", "backend": "local", "modes": ["pipeline"]}
    found = load(tmp_path, BUNDLED, {"agents": [mine]})

    assert [agent.id for agent in found.agents] == ["mine", "planner-001", "writer-001"]
    assert found.agents[0].modes == ("pipeline",)


def test_the_projects_default_backend_counts_where_nothing_names_one(tmp_path: Path) -> None:
    """An agent without a backend uses the project's default, else the local model; a named backend wins."""
    silent = [{"id": "critic-001", "archetype": "critic", "tier": "t3"}]
    bundled = {"agents": [*silent, PLANNER], "backends": {"local": {"type": "local"}, "codex": {"type": "codex"}}}
    usual = load(tmp_path, bundled)
    chosen = load(tmp_path, bundled, {"default_backend": "codex"})

    assert [agent.backend for agent in usual.agents] == ["local", "local"]
    assert [agent.backend for agent in chosen.agents] == ["codex", "local"]
    assert (usual.default_backend, chosen.default_backend) == (None, "codex")


def test_bundled_agents_are_judged_by_the_backend_that_they_have(tmp_path: Path) -> None:
    """On the local model a bundled agent needs no evidence and may be cut off; on another backend it may not."""
    bundled = resources.bundled("recipes", "agents.json")
    file = tmp_path / "agents.json"

    def critic(document: Any) -> tuple[str, str | None]:
        file.write_text(json.dumps(document))
        found = next(agent for agent in roster.load([bundled, file]).agents if agent.id == "critic-001")
        return found.evidence, found.on_cut_off

    assert critic({}) == ("none", "keep")
    assert critic({"default_backend": "codex"}) == ("any", "fail")
    assert critic({"agents": [{"id": "critic-001", "backend": "codex"}]}) == ("any", "fail")
    assert critic({"agents": [{"id": "critic-001", "evidence": "any", "on_cut_off": "fail"}]}) == ("any", "fail")


def test_a_backend_of_another_type_keeps_nothing(tmp_path: Path) -> None:
    """A later layer that changes the type of a backend removes the fields of the earlier layer."""
    below = {"backends": {"b": {"type": "scripted", "file": "a.json", "models": {"opus": "big"}}}}
    found = load(tmp_path, below, {"backends": {"b": {"type": "local"}}})

    assert found.backends == {"b": BackendConfig(name="b", type="local")}
    assert found.broken == ()


def test_files_are_meant_from_the_folder_of_their_layer(tmp_path: Path) -> None:
    """A relative file name is resolved from the folder of the layer that names it."""
    document = {
        "backends": {
            "script": {"type": "scripted", "file": "replies.json", "models": {"opus": "big"}},
            "taped": {"type": "scripted", "record": {"backend": "local", "file": "../tape.jsonl"}},
        }
    }
    found = load(tmp_path, BUNDLED, document)

    assert found.backends["script"] == BackendConfig(
        name="script", type="scripted", file=tmp_path / "1" / "replies.json", models={"opus": "big"}
    )
    assert found.backends["taped"].record == Recording(backend="local", file=tmp_path / "1" / "../tape.jsonl")


def test_a_missing_layer_is_empty(tmp_path: Path) -> None:
    """A project without a file of its own has the bundled agents."""
    (tmp_path / "agents.json").write_text(json.dumps(BUNDLED))
    found = roster.load([tmp_path / "agents.json", tmp_path / "none" / "agents.json"])

    assert len(found.agents) == 2
    assert found.broken == ()


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("{", [("$", "syntax")]),
        ("[]", [("$", "type")]),
        ('{"agents": [], "agents": []}', [("$.agents", "repeated_name")]),
        ({"agent": []}, [("$.agent", "unknown")]),
        ({"agents": {}}, [("$.agents", "type")]),
        ({"agents": [{}]}, [("$.agents[0]", "missing")]),
        ({"agents": [{"id": "new"}]}, [("$.agents[0]", "missing")] * 2),
        ({"agents": [{"id": "planner-001", "tier": "t2"}]}, [("$.agents[0].tier", "choice")]),
        ({"agents": [{"id": "planner-001", "evidence": "yes"}]}, [("$.agents[0].evidence", "choice")]),
        ({"agents": [{"id": "planner-001", "modes": ["all"]}]}, [("$.agents[0].modes[0]", "choice")]),
        ({"agents": [{"id": "no spaces"}]}, [("$.agents[0].id", "pattern")]),
        ({"agents": [{"id": "planner-001"}] * 2}, [("$.agents[1].id", "duplicate")]),
        ({"agents": [{"id": "planner-001", "backend": "locla"}]}, [("$.agents[0].backend", "unknown_backend")]),
        ({"agents": [{"id": "planner-001", "bakend": "local"}]}, [("$.agents[0].bakend", "unknown")]),
        ({"backends": {"x": {}}}, [("$.backends.x", "missing")]),
        ({"backends": {"x": {"type": "scriptde"}}}, [("$.backends.x.type", "unknown_backend_type")]),
        ({"backends": {"x": {"type": "local", "file": "f"}}}, [("$.backends.x.file", "unknown")]),
        ({"backends": {"x": {"type": "local", "base_url": "http://h/"}}}, [("$.backends.x.base_url", "unknown")]),
        ({"backends": {"x": {"type": "scripted"}}}, [("$.backends.x", "one_of")]),
        (
            {"backends": {"x": {"type": "scripted", "file": "f", "record": {"backend": "local", "file": "g"}}}},
            [("$.backends.x", "one_of")],
        ),
        (
            {"backends": {"x": {"type": "scripted", "record": {"backend": "x", "file": "f"}}}},
            [("$.backends.x.record.backend", "unknown_backend")],
        ),
        ({"backends": {"x": {"type": "local", "models": {"tiny": "m"}}}}, [("$.backends.x.models.tiny", "unknown")]),
        ({"backends": {"x": {"api_key": "sk-1"}}}, [("$.backends.x.api_key", "secret")]),
        ({"backends": {"x": {"api_key_env": "sk-1"}}}, [("$.backends.x.api_key_env", "pattern")]),
        ({"backends": {"x": {"base_url": "ftp://h"}}}, [("$.backends.x.base_url", "pattern")]),
    ],
)
def test_every_flaw_of_a_file_is_reported_with_its_place(
    tmp_path: Path, document: Any, expected: list[tuple[str, str]]
) -> None:
    """A broken project file is left out with the place of each flaw, and the bundled agents are loaded."""
    assert flaws(tmp_path, document) == expected


def test_all_flaws_of_a_file_are_reported_together(tmp_path: Path) -> None:
    """All flaws of a file are reported together."""
    document = {"agents": [{"id": "a b", "tier": 1}, {"modes": "x"}], "backends": {"y": {"base_url": 5}}}

    assert flaws(tmp_path, document) == [
        ("$.agents[0].id", "pattern"),
        ("$.agents[0].tier", "choice"),
        ("$.agents[1]", "missing"),
        ("$.agents[1].modes", "type"),
        ("$.backends.y.base_url", "type"),
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"backends": {"x": {"api_key": "sk-secret-value"}}},
        {"backends": {"x": {"api_key_env": "sk-secret-value"}}},
        {"backends": {"x": {"base_url": "https://me:sk-secret-value@host/"}}},
        {"backends": {"x": {"token": "sk-secret-value"}}},
    ],
)
def test_a_key_written_into_the_file_is_refused_and_not_repeated(tmp_path: Path, document: Any) -> None:
    """A key in the file is refused, and the flaw does not repeat its value."""
    (broken,) = load(tmp_path, BUNDLED, document).broken

    assert "sk-secret-value" not in "".join(f"{flaw.path} {flaw.message}" for flaw in broken.flaws)


def test_a_misspelt_name_gets_the_nearest_known_one(tmp_path: Path) -> None:
    """A misspelt name is answered with the nearest known one."""
    (broken,) = load(tmp_path, BUNDLED, {"backends": {"x": {"type": "scriptde"}}}).broken

    assert "scripted" in broken.flaws[0].message


def test_a_layer_over_a_broken_one_is_read(tmp_path: Path) -> None:
    """Each file is checked by itself: a broken layer does not affect the next one."""
    found = load(tmp_path, BUNDLED, "{", {"agents": [{"id": "planner-001", "tier": "t1"}]})

    assert [broken.path for broken in found.broken] == [tmp_path / "1" / "agents.json"]
    assert found.agents[0].tier == "t1"


def test_a_file_that_cannot_be_looked_at_is_not_absent(tmp_path: Path) -> None:
    """A file that the system refuses to open is reported as broken, not as missing."""
    file = tmp_path / "agents.json"
    file.symlink_to(file)
    (broken,) = roster.load([file, tmp_path / "none.json"]).broken

    assert (broken.path, broken.errno) == (file, "ELOOP")


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    """Half a surrogate pair in the file is a flaw at its place."""
    (broken,) = load(tmp_path, BUNDLED, '{"agents": [{"id": "planner-\\ud800"}]}').broken

    assert [(flaw.path, flaw.code) for flaw in broken.flaws] == [("$.agents[0].id", "lone_surrogate")]


def test_names_of_secrets_are_known(tmp_path: Path) -> None:
    """A roster returns the names of the variables that contain keys."""
    found = Roster(backends={"a": BackendConfig(name="a", type="openai", api_key_env="SOME_KEY")})

    assert found.secret_variables == {"SOME_KEY"}
    assert load(tmp_path, BUNDLED).secret_variables == frozenset()


def test_the_schema_is_a_schema() -> None:
    """The schema is valid, and the bundled file fits it."""
    Draft202012Validator.check_schema(roster_rules.SCHEMA)
    bundled = json.loads(resources.bundled("recipes", "agents.json").read_text())

    assert list(Draft202012Validator(roster_rules.SCHEMA).iter_errors(bundled)) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["id", "type", "agents", "backends", "local", "record", "file", "x"]), inner)
    ),
    max_leaves=20,
)


@given(document=JSON)
def test_no_document_breaks_the_loader(tmp_path_factory: pytest.TempPathFactory, document: Any) -> None:
    """Any document is either loaded or reported with flaws, and the bundled agents are there in both cases."""
    found = load(tmp_path_factory.mktemp("any"), BUNDLED, document)

    assert {agent.id for agent in found.agents} >= {"planner-001", "writer-001"}
    assert all(flaw.path.startswith("$") for broken in found.broken for flaw in broken.flaws)


def test_the_published_schema_is_the_one_in_use() -> None:
    """The published schema equals the one that files are checked against."""
    published = json.loads(resources.bundled("recipes", "schema", "agents.json").read_text())

    assert published == roster_rules.SCHEMA


@pytest.mark.parametrize(
    ("part", "schema"),
    [
        ("agent", roster_rules.SCHEMA["properties"]["agents"]["items"]),
        ("backend", roster_rules.SCHEMA["properties"]["backends"]["additionalProperties"]),
        ("entry", entries.ENTRY_SCHEMA),
    ],
)
def test_every_field_is_documented(part: str, schema: dict[str, Any]) -> None:
    """The tables of docs/reference/agents.md list every field of the schema, with its title if it has one."""
    text = (ROOT / "docs" / "reference" / "agents.md").read_text()
    table = text.split(f"<!-- {part} -->")[1].split(f"<!-- /{part} -->")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))

    assert set(rows) == set(schema["properties"])
    assert all(rows[name] == rule["title"] for name, rule in schema["properties"].items() if "title" in rule)


def test_the_usual_idle_seconds_hold_where_a_backend_sets_none(tmp_path: Path) -> None:
    """Backends without an idle limit get the one from the settings, services too; their own limit wins."""
    own = tmp_path / "agents.json"
    document = {
        "backends": {
            "patient": {"type": "claude-code", "idle_seconds": 900},
            "usual": {"type": "acp", "command": ["agent"]},
            "service": {"type": "openai"},
        }
    }
    own.write_text(json.dumps(document), encoding="utf-8")
    found = backends.with_idle_seconds(roster.load([own]).backends, 60)

    assert {name: config.idle_seconds for name, config in found.items()} == {
        "patient": 900,
        "usual": 60,
        "service": 60,
    }
