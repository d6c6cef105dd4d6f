"""A cut JSON object keeps the members that were whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire.partial_json import read_cut_object

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("{", {}),
        ('{"a": 1', {}),  # 1 may be the start of 12
        ('{"a": 1,', {"a": 1}),
        ('{"a": [1, 2', {"a": [1]}),
        ('{"a": {"b": "x", "c', {"a": {"b": "x"}}),
        ('{"a": "br{ack]et", "b": "\\"', {"a": "br{ack]et"}),
        ("[1, 2]", {}),
        ("nonsense", {}),
    ],
)
def test_members_that_are_whole_are_kept(text: str, value: Any) -> None:
    assert read_cut_object(text) == value


@given(value=st.dictionaries(st.text(max_size=4), _values, max_size=4), data=st.data())
def test_whatever_is_kept_was_said(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    assert read_cut_object(text) == value
    cut = read_cut_object(text[: data.draw(st.integers(0, len(text)))])
    assert set(cut) <= set(value)
    assert list(cut) == list(value)[: len(cut)]
    for key in list(cut)[:-1]:
        assert cut[key] == value[key]
