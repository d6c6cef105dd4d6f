"""A field must have the required type and bounds; an error names the file and the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields, read_json_file, read_object


def fields(**values: object) -> ConfigFields:
    return ConfigFields("config.json", values)


def test_null_and_absent_take_the_default_and_a_present_zero_does_not() -> None:
    subject = fields(null=None, zero=0, off=False, empty="")
    for name in ("null", "absent"):
        assert not subject.has(name)
        assert subject.integer(name, 7, low=0, high=9) == 7
        assert subject.number(name, 0.5, low=0, high=1) == 0.5
        assert subject.flag(name, True)
        assert subject.text(name, "none") == "none"
        assert subject.strings(name) is None
        assert subject.section(name) is None
        assert subject.token_ids(name) == ()
    assert subject.has("zero")
    assert subject.integer("zero", 7, low=0, high=9) == 0
    assert subject.flag("off", True) is False
    assert subject.text("empty", "none") == ""


def test_whole_numbers_are_read_however_json_writes_them() -> None:
    subject = fields(**json.loads('{"plain": 4096, "point": 4096.0, "exponent": 4.096e3}'))
    found = [subject.integer(name, low=1, high=4096) for name in ("plain", "point", "exponent")]
    assert found == [4096] * 3
    assert all(type(value) is int for value in found)
    assert subject.number("plain", low=0, high=1e4) == 4096.0


@pytest.mark.parametrize(
    ("value", "read", "expected"),
    [
        (True, lambda f: f.integer("x", low=0, high=9), "an integer from 0 to 9"),
        (10, lambda f: f.integer("x", low=0, high=9), "an integer from 0 to 9"),
        (1.5, lambda f: f.integer("x", low=0, high=9), "an integer from 0 to 9"),
        (float("nan"), lambda f: f.integer("x", low=0, high=9), "an integer from 0 to 9"),
        (False, lambda f: f.number("x", low=0, high=1), "a number from 0 to 1"),
        (float("nan"), lambda f: f.number("x", low=0, high=1), "a number from 0 to 1"),
        (10**400, lambda f: f.number("x", low=0, high=1), "a number from 0 to 1"),
        (1, lambda f: f.flag("x", False), "true or false"),
        (3, lambda f: f.text("x"), "a string"),
        (None, lambda f: f.text("x"), "a string, it is missing"),
        (["a", 1], lambda f: f.strings("x"), "a list of strings"),
        ([3, True], lambda f: f.token_ids("x"), "a token id or a list of token ids"),
        (2**31, lambda f: f.token_ids("x"), "a token id or a list of token ids"),
        ([], lambda f: f.section("x"), "an object"),
    ],
)
def test_a_mismatch_names_file_field_and_expectation(
    value: object, read: Callable[[ConfigFields], object], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(fields(x=value))
    assert str(caught.value).startswith(f"config.json: x must be {expected}")


def test_a_long_value_is_not_quoted_whole() -> None:
    with pytest.raises(ConfigError) as caught:
        fields(x="y" * 10_000).integer("x", low=0, high=1)
    assert len(str(caught.value)) < 200


def test_one_token_id_or_several() -> None:
    assert fields(x=7).token_ids("x") == (7,)
    assert fields(x=[7, 0]).token_ids("x") == (7, 0)


def test_an_error_in_a_section_names_the_section() -> None:
    section = fields(rope={"factor": "two"}).section("rope")
    assert section is not None
    with pytest.raises(ConfigError, match=r"^config\.json: rope: factor must be a number"):
        section.number("factor", low=0, high=1)


def test_a_file_that_is_too_large_or_holds_no_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[1]")
    assert read_json_file(path) == [1]
    with pytest.raises(ConfigError, match="must hold a JSON object, not list"):
        read_object(path)
    path.write_bytes(b" " * (4 << 20) + b"{}")
    with pytest.raises(ConfigError, match="is larger than"):
        read_object(path)
