"""Tests of providers: how a template, parameters and a prompt become a command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialects.orchestrate import providers, variables
from tests.unit.dialects.orchestrate.workflow_harness import scope

AT = scope(
    context={"model": "large", "x": "${item}"},
    loops=(variables.Loop(alias="item", item="i", index=4, total=5),),
    steps=({"A": {"output": "out"}},),
)


def _provider(*command, input_mode="argv", **defaults):
    return {"command": list(command), "input_mode": input_mode, "defaults": defaults}


def _argv(*command, given=None, prompt="p", **more):
    made = providers.invocation(_provider(*command, **more), given or {}, prompt, AT)
    assert isinstance(made, providers.Invocation), made
    return made.argv


@pytest.mark.parametrize(
    ("command", "given_params", "defaults", "argv"),
    [
        (("m", "-p", "${PROMPT}"), {}, {}, ("m", "-p", "the prompt")),
        (("m", "<${PROMPT}>"), {}, {}, ("m", "<the prompt>")),
        (("m", "${model}"), {}, {"model": "small"}, ("m", "small")),
        (("m", "${model}"), {"model": "big"}, {"model": "small"}, ("m", "big")),
        (("m", "${model}"), {"model": "${context.model}"}, {"model": "small"}, ("m", "large")),
        (("m", "${model}"), {}, {"model": "${context.model}"}, ("m", "large")),
        (("m", "${a}${b}"), {"a": "${loop.index}", "b": "${steps.A.output}"}, {}, ("m", "4out")),
        (("m", "${a}"), {"a": ["${run.id}", 1]}, {}, ("m", '["20260102T030405Z-abc123",1]')),
        (("m", "${a.b.0}"), {"a": {"b": ["${item}"]}}, {}, ("m", "i")),
        (("m", "${n}", "${t}", "${z}"), {"n": 0.5, "t": True, "z": None}, {}, ("m", "0.5", "true", "null")),
        (("m", "${item}"), {}, {}, ("m", "i")),
        (("m", "${item}"), {"item": "param"}, {}, ("m", "param")),
        (("m", "${context.model}"), {"context": {"model": "no"}}, {}, ("m", "large")),
        (("m", "${a.b}"), {"a.b": 1}, {}, ("m", "1")),
        (("m", "$$ $${PROMPT}"), {}, {}, ("m", "$ ${PROMPT}")),
        (("m",), {}, {}, ("m",)),
    ],
)
def test_arguments(command, given_params, defaults, argv):
    """A step's parameters override defaults; both may contain variables, and the template namespaces too."""
    assert _argv(*command, given=given_params, prompt="the prompt", **defaults) == argv


@given(st.text(max_size=40))
def test_a_prompt_is_one_argument_as_it_is(prompt):
    """The content of a prompt or a parameter is not read as a variable."""
    assert _argv("m", "${PROMPT}", "${a}", given={"a": prompt.replace("$", "$$")}, prompt=prompt) == (
        "m",
        prompt,
        prompt,
    )
    assert _argv("m", "${a}", given={"a": "${context.x}"}) == ("m", "${item}")


def test_a_prompt_by_standard_input():
    """In the mode `stdin` the prompt is the program's input, and not an argument."""
    made = providers.invocation(_provider("cat", input_mode="stdin"), {"model": "x"}, "the prompt", AT)

    assert made == providers.Invocation(argv=("cat",), stdin="the prompt", ignored=("model",), prompt_in_argv=False)


def test_parameters_that_the_template_does_not_name():
    """Parameters that the template does not name are reported, but are not a fault."""
    made = providers.invocation(_provider("m", "${a.b}", "${PROMPT}"), {"a": {"b": 1}, "c": 2}, "p", AT)

    assert isinstance(made, providers.Invocation)
    assert (made.ignored, made.prompt_in_argv, made.stdin) == (("c",), True, None)


@pytest.mark.parametrize(
    ("provider", "given_params", "context"),
    [
        (_provider("m", "${model}", "${model} ${x}"), {}, {"missing_placeholders": ["model", "x"]}),
        (
            _provider("m", "${PROMPT}", input_mode="stdin"),
            {},
            {"invalid_prompt_placeholder": ["PROMPT"]},
        ),
        (
            _provider("m", "${context.no}", "${model}"),
            {"model": "${context.nor}"},
            {"missing_placeholders": ["context.no"], "undefined_vars": ["${context.no}", "${context.nor}"]},
        ),
        (
            _provider("m"),
            {"unused": "${steps.B.output}"},
            {
                "undefined_vars": ["${steps.B.output}"],
                "invalid_reference": [{"reference": "steps.B.output", "reason": "there is no step B here"}],
            },
        ),
        (_provider("m", "${a}"), {"a": "${b}", "b": "1"}, {"undefined_vars": ["${b}"]}),
        (_provider("m", "${a}"), {"a": "${PROMPT}"}, {"undefined_vars": ["${PROMPT}"]}),
    ],
)
def test_calls_that_cannot_be_made(provider, given_params, context):
    """Undefined names are reported: placeholders of the template bare, variables as they are written."""
    refused = providers.invocation(provider, given_params, "p", AT)

    assert isinstance(refused, providers.Refused)
    assert refused.context == context
    assert refused.message
