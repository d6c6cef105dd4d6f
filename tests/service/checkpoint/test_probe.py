"""What a chat template writes is looked at before the first request, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.checkpoint.call_style import CallStyle, CallStyles
from service.checkpoint.checkpoint import load_checkpoint
from service.checkpoint.probe import ProbedTemplate, probe_stranger, probe_template
from service.checkpoint.template import ChatTemplate, TemplateError
from service.formats import detect_format
from tests.service.tiny_checkpoint import write_tiny_checkpoint

LOOP = """
{%- for message in messages -%}
{%- if message.reasoning %}{{ open }}{{ message.reasoning }}{{ close }}{% endif -%}
{%- for call in message.tool_calls or [] -%}{{ write(call.function) }}{%- endfor -%}
{%- endfor -%}
"""
DSML = """
{%- set mark = '｜DSML｜' -%}{%- set open, close = '<think>', '</think>' -%}
{%- macro write(function) -%}
{{ '<' + mark + 'function_calls>' }}{{ '<' + mark + 'invoke name="' + function.name + '">' }}
{%- for key, value in function.arguments.items() -%}
{{ '<' + mark + 'parameter name="' + key + '" string="true">' + value }}
{%- endfor -%}
{%- endmacro -%}
"""
SUFFIX = """
{%- set tail = ':open' -%}
{%- set open, close = '<think{}>'.format(tail), '</think{}>'.format(tail) -%}
{%- macro write(function) -%}
{{ '<tool_calls{}><tool_call{}>'.format(tail, tail) + function.name + '<tool_sep{}>'.format(tail) }}
{%- endmacro -%}
"""
TEXT_ARGUMENTS = """
{%- set open, close = '', '' -%}
{%- macro write(function) -%}{{ '>' * 3 + 'all\\n' + function.arguments.lower() }}{%- endmacro -%}
"""


@pytest.mark.parametrize(
    ("source", "name"),
    [
        pytest.param(DSML + LOOP, "think+deepseek_v32", id="a tag put together"),
        pytest.param(SUFFIX + LOOP, "hy_v3+hy_v3", id="a suffix of every tag"),
        pytest.param(TEXT_ARGUMENTS + LOOP, "functionary_v32", id="arguments as text"),
        pytest.param(
            "{{ raise_exception('no tools') if tools }}<tool_call>", "hermes", id="refuses it all"
        ),
    ],
)
def test_a_family_is_known_by_what_its_template_writes(source: str, name: str) -> None:
    template = ChatTemplate(source)
    assert detect_format(f"{source}\n{probe_template(template).written}").name == name


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{{ 9 ** 9999999999 }}",
        "{{ 'x' * 10 ** 10 }}",
        "{{ 'x' | center(10 ** 10) }}",
        "{% macro again() %}{{ again() }}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ 'x' * 1000000 }}",
    ],
    ids=[
        "a loop that does not end",
        "a constant that takes for ever",
        "a constant that fills the memory",
        "a filter that fills the memory",
        "recursion that does not end",
        "far too much text",
    ],
)
def test_an_unbounded_template_is_judged_by_its_source(source: str) -> None:
    compares = "{% if reasoning_effort == 'deep' %}{% endif %}"
    found = ProbedTemplate(efforts=frozenset({"deep"}))
    assert probe_stranger(compares + source, {}) == found


def test_an_unknown_template_is_judged_the_same_in_the_probe_process() -> None:
    source = DSML + LOOP + "{{ bos_token }}"
    special = {"bos_token": "<s>"}
    assert probe_stranger(source, special) == probe_template(ChatTemplate(source, special))
    with_tools = probe_stranger("-", special, tool_use=source)
    assert with_tools == probe_template(ChatTemplate(source, special))
    with pytest.raises(TemplateError, match="does not parse"):
        probe_stranger("{% for %}", special)


def test_the_words_of_effort_are_found_before_the_first_request(tmp_path: Path) -> None:
    source = "{% if reasoning_effort == 'deep' %}{% endif %}"
    assert probe_template(ChatTemplate(source)).efforts == {"deep"}
    assert probe_stranger("-", {}, tool_use=source).efforts == {"deep"}
    directory = write_tiny_checkpoint(tmp_path / "tiny")
    (directory / "chat_template.jinja").write_text(source)
    probed = ProbedTemplate(efforts=frozenset({"as probed"}))
    for found, efforts in ((None, {"deep"}), (probed, {"as probed"})):
        template = load_checkpoint(directory, probed=found).template
        assert template is not None
        assert template.efforts == efforts


def test_an_unknown_template_is_not_even_compiled_in_the_process_that_loads_it(
    tmp_path: Path,
) -> None:
    directory = write_tiny_checkpoint(tmp_path / "tiny")
    (directory / "chat_template.jinja").write_text("{{ 'x' | center(10 ** 10) }}<tool_call>")
    checkpoint = load_checkpoint(directory)
    assert checkpoint.output_format.name == "hermes"
    assert checkpoint.template is not None
    assert "_compiled" not in vars(checkpoint.template)


def _calls(written: str, *, when: str = "true") -> str:
    """Return a template that writes calls so."""
    return (
        "{% for m in messages %}{% if " + when + " %}{% for tool in m['tool_calls'] or [] %}"
        "{{ " + written + " }}{% endfor %}{% endif %}{{ m['content'] or '' }}{% endfor %}"
    )


ARGUMENTS = "tool['function']['arguments']"
TEXT = CallStyle(text_arguments=True)
NULL = CallStyle(null_content=True)
NULL_TEXT = CallStyle(text_arguments=True, null_content=True)
IS_NULL = "m['content'] is none"


@pytest.mark.parametrize(
    ("source", "style"),
    [
        (_calls(f"'<call>' + {ARGUMENTS}"), TEXT),
        (_calls(ARGUMENTS), TEXT),
        (_calls(f"{ARGUMENTS} | tojson"), CallStyle()),
        (_calls("tool | tojson"), CallStyle()),
        (_calls(f"{ARGUMENTS}.items() | list"), CallStyle()),
        (_calls(f"{ARGUMENTS} if {ARGUMENTS} is string else {ARGUMENTS} | tojson"), CallStyle()),
        (_calls("m.tool_calls"), CallStyle()),
        (_calls("tool.function.name"), CallStyle()),
        (_calls(f"'' + {ARGUMENTS}", when="thinking"), TEXT),
        (_calls(f"{ARGUMENTS} | tojson", when=IS_NULL), NULL),
        (_calls(f"'' + {ARGUMENTS}", when=IS_NULL), NULL_TEXT),
        (_calls(ARGUMENTS, when=IS_NULL), NULL_TEXT),
        (_calls(f"(m.content or '') + {ARGUMENTS} | tojson"), CallStyle()),
        (_calls(f"m.content + {ARGUMENTS}"), TEXT),
        ("{{ raise_exception('nothing') }}", CallStyle()),
    ],
    ids=[
        "joins text",
        "prints what it gets",
        "writes JSON",
        "writes the whole call as JSON",
        "reads an object",
        "reads both",
        "prints the whole call",
        "shows the name only",
        "shows calls only with a variable",
        "shows calls if content is null",
        "joins text if content is null",
        "prints what it gets if content is null",
        "takes null and empty text",
        "joins content and text",
        "refuses it all",
    ],
)
def test_calls_are_passed_as_the_template_reads_them(source: str, style: CallStyle) -> None:
    assert probe_template(ChatTemplate(source)).styles == CallStyles(style, style)
    assert probe_stranger(source, {}).styles == CallStyles(style, style)


def test_a_template_for_tools_has_a_style_of_its_own() -> None:
    template = ChatTemplate(_calls(f"'' + {ARGUMENTS}"), tool_use=_calls(f"{ARGUMENTS} | tojson"))
    assert probe_template(template).styles == CallStyles(CallStyle(), TEXT)
