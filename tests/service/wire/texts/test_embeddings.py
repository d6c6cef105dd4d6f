"""Requests for vectors and scores as they arrive, and their answers as they leave."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequestError
from service.wire.texts.embeddings import (
    MAX_INPUTS,
    decode_embeddings,
    encode_embedding,
    list_pieces,
)

float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def embeddings(value: Any, **fields: Any) -> Any:
    return decode_embeddings(json.dumps({"input": value, **fields}).encode())


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("a", ["input"]),
        ([1, 2], ["input"]),
        (["a"], ["input[0]"]),
        (["a", "b"], ["input[0]", "input[1]"]),
        ([[1], [2, 3]], ["input[0]", "input[1]"]),
    ],
)
def test_each_input_has_the_name_that_the_request_gives_it(value: Any, names: list[str]) -> None:
    request = embeddings(value)
    assert request.names == names
    assert len(request.inputs) == len(names)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [[1], []]}, "input"),
        ({"input": [[1], ["a"]]}, "input[1][0]"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    ],
)
def test_an_unsound_request_names_the_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_embeddings(json.dumps(body).encode())
    assert caught.value.param == param


@given(st.lists(float32, min_size=1, max_size=40))
def test_numbers_and_base64_are_the_same_vector(values: list[float]) -> None:
    vector = struct.pack(f"<{len(values)}f", *values)
    shown = json.loads(encode_embedding(3, vector, as_base64=False))
    packed = json.loads(encode_embedding(3, vector, as_base64=True))
    assert shown == {"object": "embedding", "index": 3, "embedding": values}
    assert base64.b64decode(packed["embedding"]) == vector


def test_the_list_holds_the_embeddings_and_what_they_cost() -> None:
    vector = struct.pack("<f", 0.5)
    pieces = list_pieces([vector], as_base64=False, id="embd-1", model="m", prompt_tokens=7)
    assert json.loads(b"".join(pieces)) == {
        "id": "embd-1",  # Mistral's client requires one
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
        "model": "m",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
