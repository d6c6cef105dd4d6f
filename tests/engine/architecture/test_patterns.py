"""Patterns match as Python's do, or are refused if they could take long."""

from __future__ import annotations

import re
import time

import pytest

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields
from engine.architecture.patterns import name_pattern

FIELDS = ConfigFields("config.json", {})
NAME = "model.layers.11.mlp.experts.7.gate_proj"


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        (r".*lm_head", False),
        (r".*mlp.*", True),
        (r"model\.layers\.\d+\.mlp\.experts\.\d+\.(gate|up)_proj$", True),
        (r"(?!.*mlp)", False),
        (r"mlp", False),  # from the beginning
        (r"model\.layers\.(?:0|1|11)\.(self_attn|mlp)\.(?:.*?)(q|k|v|o|gate|up|down)_proj", True),
    ],
)
def test_a_pattern_matches_the_beginning_of_a_name(text: str, matches: bool) -> None:
    assert name_pattern(FIELDS, text)(NAME) is matches
    assert (re.match(text, NAME) is not None) is matches


@pytest.mark.parametrize(
    "text",
    [
        *("(a+)+$", "(a|aa)*b", r"(.)\1", "(?P<x>a)(?P=x)", "a" * 300, ".*" * 5 + "x"),
        *("(a{1,9}){1,9}", "(", "[", "a{99999999999999999999}", "(" * 150),
        *("(aa|a)" * 40 + "b", "a?" * 60 + "b", r"\(?" * 60 + "b", "(?x)(a*)#\n*b"),
    ],
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^config\.json: .*pattern"):
        name_pattern(FIELDS, text)


def test_the_slowest_that_is_accepted_takes_no_seconds() -> None:
    began = time.process_time()
    assert not name_pattern(FIELDS, ".*" * 4 + "#")(NAME * 2)
    assert time.process_time() - began < 2


def test_a_name_too_long_to_match_is_an_error() -> None:
    matches = name_pattern(FIELDS, ".*" * 4 + "#")
    with pytest.raises(ConfigError, match="names of over 256 characters"):
        matches("a" * 257)
