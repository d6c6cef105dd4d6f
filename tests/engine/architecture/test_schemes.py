"""Rules in their order, and numbers of a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields
from engine.architecture.schemes import (
    Awq,
    Experts4,
    QuantizedFormat,
    every,
    in_groups,
    is_codes,
    two_sizes,
)


def test_the_first_rule_that_matches_counts() -> None:
    found = QuantizedFormat(
        "mixed",
        (
            (lambda module: module == "a", None),
            (lambda module: module.startswith("a"), Awq(32)),
            (every, Experts4()),
        ),
    )
    assert found.scheme_of("a") is None
    assert found.scheme_of("ab") == Awq(32)
    assert found.scheme_of("b") == Experts4()
    assert found.scheme_of("b", "ac") == Awq(32)
    assert QuantizedFormat("none", ()).scheme_of("a") is None


def test_a_format_of_floats_has_no_scheme() -> None:
    assert QuantizedFormat("none", ()).is_floats
    assert QuantizedFormat("dense", ((every, None),)).is_floats
    assert not QuantizedFormat("mixed", ((every, None), (every, Awq(32)))).is_floats


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("a.b.qweight", "I32", True),
        ("weight_packed", "I32", True),
        ("a.weight", "F8_E4M3", True),
        ("a.weight", "BF16", False),
        ("a.gate_up_proj_blocks", "U8", True),
        ("a.gate_up_proj_blocks", "F32", False),
        ("a.weight_scale", "F8_E4M3", False),
    ],
)
def test_codes_are_known_by_name_and_type(name: str, dtype: str, expected: bool) -> None:
    assert is_codes(name, dtype) is expected


def test_what_shares_a_scale_is_said_in_words() -> None:
    assert in_groups(128) == "groups of 128"
    assert in_groups(None) == "a scale for each output"


@pytest.mark.parametrize("wrong", [3, [1], [1, 2, 3], [0, 1], [1, True], ["1", 2], [1, 1 << 30]])
def test_two_sizes_are_two_sizes(wrong: Any) -> None:
    assert two_sizes(ConfigFields("here", {"block": [128, 64]}), "block") == (128, 64)
    assert two_sizes(ConfigFields("here", {}), "block") is None
    with pytest.raises(ConfigError, match="here: block must be two sizes"):
        two_sizes(ConfigFields("here", {"block": wrong}), "block")
