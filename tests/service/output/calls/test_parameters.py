"""Values written as bare text between tags, one tag for each argument."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.formats import ParametersBody
from service.output.calls.parameters import read_parameters
from service.output.calls.source import NotACallError, Stop
from tests.service.output.calls.reading import Call, read

BODY = ParametersBody(
    call_open="<function=",
    name_end=">",
    call_close="</function>",
    key_open="<parameter=",
    key_end=">",
    value_close="</parameter>",
    trims_newline=True,
)
XML = ParametersBody(
    call_open='<invoke name="',
    name_end='">',
    call_close="</invoke>",
    key_open='<parameter name="',
    key_end='"',
    attributes="string",
    value_close="</parameter>",
    escaped=True,
    cdata=True,
)
TOOLS: dict[str, Any] = {
    "f": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "n": {"type": "integer"},
            "flags": {"type": "array"},
            "maybe": {"type": ["string", "null"]},
            "any": {},
        },
    },
    "ping": {"type": "object", "properties": {}},
}
CLOSE = "</tool_call>"


def calls(text: str, body: ParametersBody = BODY, **options: Any) -> list[Call]:
    def begin(source: Any, sink: Any) -> Any:
        return read_parameters(source, sink, body, CLOSE, TOOLS)

    told, _ = read(begin, text + CLOSE, stop_tags=("<tool_call>", CLOSE), **options)
    return told.calls


def call(**values: str) -> str:
    inside = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in values.items())
    return f"<function=f>\n{inside}</function>"


def arguments(text: str, body: ParametersBody = BODY) -> Any:
    [only] = calls(text, body)
    assert only.whole
    return json.loads(only.arguments)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "5", "5"),
        ("text", ' "quoted"\n\n', ' "quoted"\n\n'),
        ("text", "a < b </parameter> c", "a < b </parameter> c"),
        ("text", "<parameter>x</parameter>", "<parameter>x</parameter>"),
        ("n", "5", 5),
        ("n", "five", "five"),
        ("flags", '["a", 1]', ["a", 1]),
        ("flags", "['a', True]", ["a", True]),
        ("maybe", "null", None),
        ("maybe", "nullable", "nullable"),
        ("unknown", "5", "5"),
    ],
)
def test_the_schema_determines_the_type_of_a_bare_value(key: str, text: str, value: Any) -> None:
    assert arguments(call(**{key: text})) == {key: value}


def test_a_value_about_the_formats_tags_is_text_unless_the_tag_is_certain() -> None:
    text = call(text="write <tool_call> here", n="2")
    assert arguments(text) == {"text": "write <tool_call> here", "n": 2}
    [only] = calls(text, kind=Stop.CERTAIN)
    assert json.loads(only.arguments) == {"text": "write "}


def test_a_value_whose_closing_tag_is_missing_ends_at_the_next_argument() -> None:
    text = "<function=f><parameter=text>Oslo\n<parameter=n>2</parameter></function>"
    assert arguments(text) == {"text": "Oslo", "n": 2}


def test_calls_follow_each_other_and_one_may_have_no_arguments() -> None:
    found = calls(f"{call(n='1')}\n<function=ping></function>\n{call(n='2')}")
    assert [(one.name, json.loads(one.arguments)) for one in found] == [
        ("f", {"n": 1}),
        ("ping", {}),
        ("f", {"n": 2}),
    ]


def test_text_in_place_of_an_argument_makes_the_call_incomplete() -> None:
    [only] = calls("<function=f>oops</function>")
    assert (only.arguments, only.whole) == ("{oops", False)


def test_attributes_determine_whether_a_value_is_text() -> None:
    def xml(key: str, said: str, text: str) -> str:
        parameter = f'<parameter name="{key}" string="{said}">{text}</parameter>'
        return f'<invoke name="f">{parameter}</invoke>'

    assert arguments(xml("x", "true", "5"), XML) == {"x": "5"}
    assert arguments(xml("x", "false", "5"), XML) == {"x": 5}
    assert arguments(xml("x", "false", '"5"'), XML) == {"x": "5"}
    for key in ("text", "maybe", "any"):
        assert arguments(xml(key, "false", '"a \\"b\\" \\u00e9"'), XML) == {key: 'a "b" é'}
        assert arguments(xml(key, "false", "Oslo"), XML) == {key: "Oslo"}
    assert arguments(xml("maybe", "false", "null"), XML) == {"maybe": None}
    assert arguments(xml("maybe", "true", "null"), XML) == {"maybe": "null"}
    assert arguments(xml("n", "false", '"5"'), XML) == {"n": '"5"'}
    assert arguments(xml("a&quot;&amp;b", "true", "y"), XML) == {'a"&b': "y"}
    cdata = xml("text", "true", "<![CDATA[</parameter>]]><![CDATA[ &amp;]]>")
    assert arguments(cdata, XML) == {"text": "</parameter> &amp;"}


def test_a_tag_that_closes_itself_is_a_call_without_arguments() -> None:
    assert calls('<invoke name="ping"/>', XML) == [Call("ping", None, "{}", True)]


def test_a_key_without_a_value_makes_no_whole_call() -> None:
    glm = ParametersBody(
        key_open="<k>", key_end="</k>", value_open="<v>", value_close="</v>", untyped_json=True
    )
    [whole] = calls("f\n<k>n</k>\n<v>1</v>\n<k>x</k><v>[2]</v>", glm)
    assert (whole.name, json.loads(whole.arguments), whole.whole) == ("f", {"n": 1, "x": [2]}, True)
    [lacking] = calls("f<k>n</k><k>x</k><v>2</v>", glm)
    assert (json.loads(lacking.arguments), lacking.whole) == ({"x": 2}, False)


def test_text_that_opens_no_call_is_not_a_call() -> None:
    with pytest.raises(NotACallError):
        calls("f(text='a')")
