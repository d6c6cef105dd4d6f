"""From bytes to structs: what is wrong is named by its path, and what is unknown is reported."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from service.errors import InvalidRequestError
from service.wire.chat.request import decode_chat
from service.wire.decode import Ignored, convert, decode, likely_meant, named_model

USER = {"role": "user", "content": "Hi"}


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    size: int


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    inners: list[Inner] = []
    by_name: dict[str, Inner] = {}


DECODER = msgspec.json.Decoder(Outer)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": 1}, "name"),
        ({"name": "a", "inners": [{"size": 1}, {"size": "x"}]}, "inners[1].size"),
        ({"name": "a", "inners": [{}]}, "inners[0].size"),
        ({"name": "a", "by_name": {"k": {"size": []}}}, "by_name"),
    ],
)
def test_an_error_names_the_path_of_the_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'{param}'".replace("[", r"\[")) as caught:
        decode(DECODER, json.dumps(body).encode())
    assert caught.value.param == param


def test_an_unknown_name_is_refused_with_those_that_a_field_may_have() -> None:
    body = {"messages": [USER], "service_tier": "gold"}
    with pytest.raises(InvalidRequestError, match=r"'gold'; it must be one of 'auto', .*'scale'"):
        decode_chat(json.dumps(body).encode(), max_choices=1)
    with pytest.raises(InvalidRequestError, match="one of 'left', 'right'"):
        decode_chat(
            json.dumps({"messages": [USER], "truncation_side": "up"}).encode(), max_choices=1
        )


CALL = b'{"type": "function", "function": {"name": "f", "parameters": {"a": [[%s]]}}}'
RANGES = [
    (b'"temperature": 1e400', "temperature"),
    (b'"tools": [%s]' % (CALL % b"1e400"), "tools[0].function.parameters"),
    (b'"tools": [%s]' % (CALL % (b"9" * 5000)), "tools[0].function.parameters"),
    (b'"unknown": 1, "temperature": 1e400', None),
    (b'"unknown": [1e400]', None),
]


@pytest.mark.parametrize(("field", "param"), RANGES, ids=range(len(RANGES)))
def test_a_number_out_of_range_is_named_by_its_field_or_not_at_all(
    field: bytes, param: str | None
) -> None:
    body = b'{"messages": [{"role": "user", "content": "Hi"}], %s}' % field
    with pytest.raises(InvalidRequestError, match=r"out of range") as caught:
        decode_chat(body, max_choices=1)
    assert caught.value.param == param
    assert "[...]" not in caught.value.message


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"name": "\xff"}', b"[" * 100_000])
def test_invalid_json_is_an_error_of_the_whole_body(body: bytes) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode(DECODER, body)
    assert caught.value.param is None


def test_the_path_of_a_part_starts_at_the_root() -> None:
    assert convert({"size": 3}, Inner, "inners[7]") == Inner(3)
    for value, param in (({"size": "x"}, "inners[7].size"), ({}, "inners[7].size")):
        with pytest.raises(InvalidRequestError) as caught:
            convert(value, Inner, "inners[7]")
        assert caught.value.param == param


def test_only_a_name_that_resembles_a_field_is_taken_for_a_misspelling() -> None:
    assert likely_meant("by_nam", Outer) == "by_name"
    assert likely_meant("colour", Outer) is None
    assert likely_meant("by_name" * 100, Outer) is None


def test_a_field_that_is_set_is_not_what_another_name_meant() -> None:
    for chat, hint in (
        ({"max_tokens": 5, "max_new_tokens": 6, "temprature": 1, "temperature": 1}, ""),
        ({"temprature": 1, "temperature": None}, "temprature: perhaps temperature"),
    ):
        ignored = Ignored()
        body = json.dumps({"messages": [USER], **chat}).encode()
        decode_chat(body, max_choices=4, ignored=ignored)
        assert ignored.names
        assert ignored.hint() == hint
    assert likely_meant("by_nam", Outer, {"by_name"}) is None


def test_a_report_says_what_was_probably_meant() -> None:
    ignored = Ignored()
    body = {"messages": [USER], "temprature": 1, "maxtokens": 5, "mirostat": 2, "n" * 500: 1}
    decode_chat(json.dumps(body).encode(), max_choices=4, ignored=ignored)
    assert ignored.hint() == "temprature: perhaps temperature, maxtokens: perhaps max_tokens"


def test_names_are_bounded_and_the_requests_own_come_first() -> None:
    long = {"messages": [{**USER, "x" * 5000: 1}] * 500, **{f"f{i}": 1 for i in range(5)}}
    ignored = Ignored()
    decode_chat(json.dumps(long).encode(), max_choices=4, ignored=ignored)
    shown = ignored.summary().split(", ")
    assert len(ignored.names) <= 64
    assert len(ignored.summary()) < 4096
    assert shown[:5] == [f"f{i}" for i in range(5)]
    assert shown[5].startswith("messages[0].xxx")
    escaped = Ignored(names=[f"{i}{'漢' * 64}" for i in range(64)])
    assert 1024 < len(escaped.summary()) <= 2048
    assert escaped.summary().split(", ")[-1].count("%") == 3 * 63
    many = Ignored()
    many.add("messages[0].a", "b", "messages[1].a", "b", "line\nbreak: ü")
    assert many.summary() == "b, line%0Abreak%3A %C3%BC, messages[0].a, messages[1].a"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"messages": [{"role": "user", "model": "no"}], "model": "m", "max_tokens": -1}', "m"),
        (b'{"model": 3}', None),
        (b'{"prompt": "model"}', None),
        (b'{"model": "m"', None),
        (b"[]", None),
        (b'{"model": "\xff"}', None),
        (b'{"model": "m", "prompt": "' + b"x" * 300_000 + b'"}', None),
    ],
)
def test_a_model_is_found_in_a_body_that_was_not_decoded(body: bytes, named: str | None) -> None:
    assert named_model(body) == named
