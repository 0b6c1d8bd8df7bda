"""Tests of the prompt registry: three layers, merged by type and variant; a broken one does not affect the rest."""

from __future__ import annotations

import json
import os

import pytest

from app.services import prompts


class Layers:
    """Three prompt folders in a temporary place."""

    def __init__(self, root):
        self.folders = prompts.layers(root / "recipes", root / "home", root / "project" / ".control-room")

    def write(self, layer, registry=None, **files):
        """Write a layer's registry and template files; layers are 0 to 2."""
        folder = self.folders[layer]
        (folder / "templates").mkdir(parents=True, exist_ok=True)
        if registry is not None:
            text = registry if isinstance(registry, str) else json.dumps({"pipeline_templates": registry})
            (folder / "prompts.json").write_text(text, encoding="utf-8")
        for name, text in files.items():
            content = text if isinstance(text, bytes) else text.encode()
            (folder / "templates" / f"{name}.md").write_bytes(content)

    def load(self):
        """Return the registry."""
        return prompts.load(self.folders)

    def flaws(self):
        """Return place and code of each flaw."""
        return [(flaw.flaw.path, flaw.flaw.code) for flaw in self.load().flaws]


@pytest.fixture
def layers(tmp_path):
    """Return layers with one template in the lowest."""
    made = Layers(tmp_path)
    made.write(0, {"plan": _entry(t3="low"), "only": _entry(t1="low")}, low="low text")
    return made


def _entry(label="Label", **variants):
    return {"label": label, "variants": {tier: f"templates/{name}.md" for tier, name in variants.items()}}


def _variants(registry, prompt_type="plan"):
    return dict(registry.templates[prompt_type].variants)


def test_missing_layers_are_empty(tmp_path):
    """Folders that do not exist are empty layers."""
    registry = Layers(tmp_path).load()

    assert (registry.templates, registry.flaws) == ({}, ())


def test_a_template_has_its_type_label_and_text(layers):
    """A template has its type, label and text."""
    template = layers.load().templates["plan"]

    assert (template.prompt_type, template.label, dict(template.variants)) == ("plan", "Label", {"t3": "low text"})


def test_higher_layers_win_by_variant(layers):
    """The project's variants win over the user's, and the user's over the bundled ones; other variants remain."""
    layers.write(1, {"plan": _entry("User", t3="mid", t5="mid")}, mid="mid text")
    layers.write(2, {"plan": {"variants": {"t5": "templates/top.md"}}, "new": _entry(t3="top")}, top="top text")
    registry = layers.load()

    assert _variants(registry) == {"t3": "mid text", "t5": "top text"}
    assert registry.templates["plan"].label == "User"
    assert _variants(registry, "new") == {"t3": "top text"}
    assert _variants(registry, "only") == {"t1": "low text"}
    assert registry.flaws == ()


def test_a_file_alone_replaces_a_lower_one(layers):
    """A project's template file replaces the bundled one with the same name, without a registry of its own."""
    layers.write(2, low="project text")

    assert _variants(layers.load()) == {"t3": "project text"}


def test_windows_line_ends_and_marks_of_byte_order(layers):
    """Windows line ends and a byte order mark do not change a template."""
    layers.write(2, low=b"\xef\xbb\xbfone\r\ntwo")

    assert _variants(layers.load()) == {"t3": "one\ntwo"}


@pytest.mark.parametrize(
    ("registry", "code"),
    [
        ("{", "syntax"),
        ("[]", "wrong_type"),
        ('{"pipeline_templates": []}', "wrong_type"),
        ('{"pipeline_templates": {"a": 1}}', "wrong_type"),
        ('{"pipeline_templates": {"a": {"variants": {"t2": "x"}}}}', "unknown_field"),
        ('{"pipeline_templates": {"a": {"variants": {"t3": 5}}}}', "wrong_type"),
        ('{"pipeline_templates": {"a": {"lable": "x"}}}', "unknown_field"),
        ('{"templates": {}}', "unknown_field"),
        ('{"a": 1, "a": 2}', "repeated_name"),
        ('{"pipeline_templates": {"a": {"label": "\\ud800"}}}', "lone_surrogate"),
    ],
)
def test_a_broken_registry_keeps_the_layers_below(layers, registry, code):
    """A broken registry is a flaw that names the file, and the layers below remain."""
    layers.write(2, registry)
    loaded = layers.load()

    assert code in [flaw.flaw.code for flaw in loaded.flaws]
    assert {flaw.file for flaw in loaded.flaws} == {str(layers.folders[2] / "prompts.json")}
    assert _variants(loaded) == {"t3": "low text"}


def test_a_broken_entry_does_not_take_its_neighbours_down(layers):
    """Valid entries of a file with a broken entry count."""
    layers.write(2, {"plan": {"variants": 3}, "new": _entry(t3="top")}, top="top text")
    loaded = layers.load()

    assert _variants(loaded, "new") == {"t3": "top text"}
    assert _variants(loaded) == {"t3": "low text"}
    assert layers.flaws() == [("$.pipeline_templates.plan.variants", "wrong_type")]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"  \n", b"a\x00b", b"x" * 70_000])
def test_a_broken_template_file_gives_way_to_the_one_below(layers, content):
    """A template that is not text, blank or huge is a flaw, and the lower file is used."""
    layers.write(2, low=content)
    loaded = layers.load()

    assert _variants(loaded) == {"t3": "low text"}
    assert {code for _, code in layers.flaws()} <= {"not_text", "empty", "too_large"}
    assert all(str(layers.folders[2]) in flaw.flaw.message for flaw in loaded.flaws)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x.md", "templates/../../x.md", "a\\u0000b"])
def test_template_paths_stay_inside(layers, path):
    """A registry cannot name files outside its folder."""
    layers.write(2, '{"pipeline_templates": {"plan": {"variants": {"t3": "' + path + '"}}}}')

    assert _variants(layers.load()) == {"t3": "low text"}
    assert [code for _, code in layers.flaws()] in (["outside"], ["nul_character"])


def test_links_that_lead_out_are_refused(layers, tmp_path):
    """A symbolic link out of the folder is not followed."""
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    layers.write(2, {"plan": _entry(t3="link")})
    os.symlink(secret, layers.folders[2] / "templates" / "link.md")

    assert _variants(layers.load()) == {"t3": "low text"}
    assert layers.flaws() == [("$.pipeline_templates.plan.variants.t3", "outside")]


def test_a_missing_template_file_is_a_flaw(layers):
    """A missing template file is a flaw, and the variant of the layer below stays."""
    layers.write(2, {"plan": _entry(t3="gone"), "new": _entry(t3="gone")})

    assert layers.flaws() == [
        ("$.pipeline_templates.plan.variants.t3", "file_not_found"),
        ("$.pipeline_templates.new.variants.t3", "file_not_found"),
    ]
    assert "new" not in layers.load().templates
    assert _variants(layers.load()) == {"t3": "low text"}


def test_a_registry_that_is_not_a_file_is_a_flaw(layers):
    """A folder as a registry and a pipe as a template are flaws, and neither blocks."""
    os.mkfifo(layers.folders[0] / "templates" / "pipe.md")
    layers.write(1, {"plan": _entry(t3="pipe")})
    (layers.folders[2] / "prompts.json").mkdir(parents=True)

    assert sorted(code for _, code in layers.flaws()) == ["not_a_file", "not_a_file"]
    assert _variants(layers.load()) == {"t3": "low text"}


def test_a_flaw_as_json(layers):
    """A flaw has its file, place, code, message and line."""
    layers.write(2, "{")
    (flaw,) = layers.load().flaws

    assert set(flaw.to_json()) == {"file", "path", "code", "message", "line"}
