"""A cut JSON object keeps the members that were whole."""

from __future__ import annotations

import json
from typing import Any

import jiter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire.messages.partial_json import SoundJson, read_cut_object
from tests.service.output.parsing import cut

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
        ('{"a": "x"', {"a": "x"}),
        ('{"a": ["x", "y"', {"a": ["x", "y"]}),
        ('{"a": {"b"', {"a": {}}),
        ("[1, 2]", {}),
        ("nonsense", {}),
    ],
)
def test_members_that_are_whole_are_kept(text: str, value: Any) -> None:
    assert read_cut_object(text) == value


@given(value=st.dictionaries(st.text(max_size=4), _values, max_size=4), data=st.data())
def test_a_cut_object_keeps_only_what_was_written(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value)
    assert read_cut_object(text) == value
    cut = read_cut_object(text[: data.draw(st.integers(0, len(text)))])
    assert set(cut) <= set(value)
    assert list(cut) == list(value)[: len(cut)]
    for key in list(cut)[:-1]:
        assert cut[key] == value[key]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "12.5E+400", "9" * 400])
@pytest.mark.parametrize("end", ["}", ", ", " }", "]"])
def test_a_number_beyond_any_float_is_a_mistake(number: str, end: str) -> None:
    sound = SoundJson()
    text = f'{{"a": 1, "b": {"[" if end == "]" else ""}{number}{end}'
    "".join(map(sound.push, text))
    assert sound.broken
    assert number[:3] not in sound.text
    assert read_cut_object(sound.text)["a"] == 1


@given(
    value=st.dictionaries(st.text(max_size=4), _values, max_size=4),
    spoil=st.sampled_from(["", "x", "}", '"', ",", "\\", "\\d", "\\ud83d", ":", "1e", "[", "tru"]),
    place=st.integers(0, 1000),
    size=st.integers(0, 1000),
    places=st.lists(st.integers(0, 1000), max_size=5),
)
def test_valid_json_is_read_as_by_anthropics_sdk(
    value: dict[str, Any], spoil: str, place: int, size: int, places: list[int]
) -> None:
    """Its parser of cut JSON raises for invalid JSON."""
    text = json.dumps(value, ensure_ascii=False)
    at = 1 + place % len(text)
    text = (text[:at] + spoil + text[at:])[: 1 + size % (len(text) + 4)]
    sound, alone = SoundJson(), SoundJson()
    pieces = "".join(map(sound.push, cut(text, places)))
    assert (pieces, sound.broken) == (alone.push(text), alone.broken)
    assert text.startswith(sound.text)
    assert sound.text == pieces
    kept = read_cut_object(pieces)
    assert jiter.from_json(pieces.encode(), partial_mode=True) == kept
    assert kept or not sound.has_member
    if sound.whole:
        assert json.loads(pieces) == kept
