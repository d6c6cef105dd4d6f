"""Values of generation_config.json that are used, and those that are not."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from service.checkpoint.defaults import SamplingDefaults, sampling_defaults


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("temperature", "0.7"),
        ("repetition_penalty", 0.0),
        ("top_p", math.inf),
        ("top_k", -2),
        ("top_k", 0.5),
        ("min_p", 2),
        ("max_new_tokens", -1),
        ("do_sample", 1),
    ],
)
def test_a_value_that_no_request_could_have_is_ignored(field: str, value: Any) -> None:
    other = "min_p" if field != "min_p" else "top_p"
    found, ignored = sampling_defaults({other: 0.5, field: value})
    assert found == msgspec.convert({other: 0.5}, SamplingDefaults)
    [one] = ignored
    assert (one.field, one.value) == (field, repr(value))
    assert f"$.{field}" in one.reason


def test_sound_values_are_used_and_whole_floats_are_integers() -> None:
    values: dict[str, Any] = {
        "top_k": 50.0,
        "temperature": 1,
        "max_new_tokens": 2048.0,
        "min_p": None,
        "other": [],
    }
    found, ignored = sampling_defaults(values)
    assert not ignored
    assert found == SamplingDefaults(temperature=1.0, top_k=50, max_new_tokens=2048)
    assert isinstance(found.top_k, int)
    assert isinstance(found.temperature, float)
