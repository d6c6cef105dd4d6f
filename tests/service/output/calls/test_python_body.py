"""Calls written as Python are what Python itself reads."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats import PythonBody
from service.output.calls.python_body import read_python
from service.output.calls.source import NotACallError
from tests.service.output.calls.reading import Call, read

TOOLS: dict[str, Any] = {
    "f": {"type": "object", "properties": {"a": {}, "b": {}}},
    "g": None,
    "h": {
        "type": "object",
        "properties": {key: {} for key in ("a", "a-b", "a-b c", "1x", "@d", "a=b")},
    },
    "many": {"type": "object", "properties": {f"{n}-th": {} for n in range(200)}},
}


def calls(text: str, *, brackets: bool = True, **options: Any) -> tuple[list[Call], str | None]:
    body = PythonBody(brackets=brackets)
    told, rest = read(lambda s, sink: read_python(s, sink, body, TOOLS), text, **options)
    return told.calls, rest


TEXTS = st.text("ab'\"\\\n {[,=)é", max_size=5)
LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.text("ab'\"\\\n {[,=)é", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text("ab'\"", max_size=2), inner)
    ),
    max_leaves=5,
)


@given(values=st.dictionaries(st.sampled_from(["a", "b", "c"]), LITERALS, max_size=3))
def test_what_python_writes_is_read_as_python_reads_it(values: dict[str, Any]) -> None:
    written = ", ".join(f"{key}={value!r}" for key, value in values.items())
    text = f"[f({written}), g()]"
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.List)
    oracle = [
        {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        for call in tree.elts
        if isinstance(call, ast.Call)
    ]
    found, rest = calls(text + " on")
    assert rest == " on"
    assert [json.loads(call.arguments) for call in found] == oracle
    assert all(call.whole for call in found)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("f(1, 'x')", {"a": 1, "b": "x"}),
        ("f(b=2, 1)", {"b": 2, "a": 1}),
        ("f(1, 2, 3)", {"a": 1, "b": 2, "argument": 3}),
        ("f(a=true, b=[null, 'x'])", {"a": True, "b": [None, "x"]}),
        ("f(a='it's', b=1)", {"a": "it's", "b": 1}),
        ('f(a="""two\nlines""")', {"a": "two\nlines"}),
        (r"f(a='\x41\u00e9\q')", {"a": "Aé\\q"}),
        (r"f(a='\033[31m\101\0\7\1234\8')", {"a": "\033[31mA\0\7S4\\8"}),
        (r"f(a='\u+123 \x 1\ud83d\U00110000')", {"a": r"\u+123 \x 1\ud83d\U00110000"}),
        (r"f(a=r'\d+\n\'', b=R'a\\\\')", {"a": r"\d+\n\'", "b": r"a\\\\"}),
        (r"f(a=[r'\d', 'x', {r'\w': R'r'}], b=r)", {"a": [r"\d", "x", {r"\w": "r"}], "b": "r"}),
        ("f(a='x\\\ny')", {"a": "xy"}),
        ("f(a=b.c)", {"a": "b.c"}),
    ],
)
def test_models_take_liberties(text: str, arguments: Any) -> None:
    [only], _ = calls(f"[{text}]")
    assert (json.loads(only.arguments), only.whole) == (arguments, True)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('a-b=5, a="x"', {"a-b": 5, "a": "x"}),
        ("a='x', a-b=5", {"a": "x", "a-b": 5}),
        (
            "a-b c='x', a-b = 'y', 1x=[1], @d=None",
            {"a-b c": "x", "a-b": "y", "1x": [1], "@d": None},
        ),
        ("a-b='it's, @d=', a=1", {"a-b": "it's, @d=", "a": 1}),
        ("1, a-b=2, other=3", {"a": 1, "a-b": 2, "other": 3}),
        ("a=b=1, a='x', a-b=2", {"a=b": 1, "a": "x", "a-b": 2}),
    ],
)
def test_an_argument_may_have_any_name_that_the_tools_schema_has(text: str, arguments: Any) -> None:
    [only], _ = calls(f"[h({text})]")
    assert (json.loads(only.arguments), only.whole) == (arguments, True)


def test_a_tool_may_have_many_such_names() -> None:
    [only], _ = calls("[many(0-th=1, 100-th='x', 199-th=2)]")
    assert json.loads(only.arguments) == {"0-th": 1, "100-th": "x", "199-th": 2}


def test_a_missing_quote_or_bracket_harms_only_its_own_call() -> None:
    for broken in ("f(a='Oslo), g(b=1)", "f(a=[1), g(b=1)", "f(a=1 g(b=1)"):
        found, _ = calls(f"[{broken}]", stop_tags=("<end>",))
        assert [(call.name, call.whole) for call in found] == [("f", False), ("g", True)], broken
        assert json.loads(found[1].arguments) == {"b": 1}


def test_without_brackets_calls_are_on_lines_up_to_the_formats_tag() -> None:
    found, rest = calls("f(a=1)\ng()\n</calls>", brackets=False, stop_tags=("</calls>",))
    assert [(call.name, call.arguments) for call in found] == [("f", '{"a": 1}'), ("g", "{}")]
    assert rest == "</calls>"


@pytest.mark.parametrize("text", ["[]", "f(a=1)", "[f]", "[1, 2]", "[ (a=1)]"])
def test_text_that_is_not_a_list_of_calls_is_not_a_call(text: str) -> None:
    with pytest.raises(NotACallError):
        calls(text + " ")
