from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.architecture.errors import ConfigError
from engine.gguf.container import GgufHeader
from engine.gguf.keys import GgufKeys

KEYS = GgufKeys(
    GgufHeader(
        Path("tiny.gguf"),
        3,
        {
            "count": 7,
            "share": 0.5,
            "nan": float("nan"),
            "is": True,
            "text": "words",
            "texts": ["a", "b"],
            "nans": np.array([1.0, np.nan], np.float32),
            "flags": np.array([True, False]),
            "numbers": np.array([1.5, 2.5], np.float32),
        },
        {},
    )
)


def each(key: str, count: int) -> list[float]:
    return KEYS.number_per_layer(key, count, low=0, high=2)


def test_each_layer_has_a_number_of_its_own_or_the_same() -> None:
    assert KEYS.number_per_layer("numbers", 2, low=0, high=3) == [1.5, 2.5]
    assert each("share", 3) == [0.5] * 3


def test_values_of_the_right_type_are_returned_and_absent_ones_take_the_default() -> None:
    assert KEYS.integer("count", low=0, high=10) == 7
    assert KEYS.number("share", low=0, high=1) == 0.5
    assert KEYS.number("count", low=0, high=10) == 7.0
    assert KEYS.flag("is", False) is True
    assert KEYS.text("text") == "words"
    assert KEYS.texts("texts") == ["a", "b"]
    assert KEYS.numbers("numbers") == [1.5, 2.5]
    assert KEYS.integer("none", 3, low=0, high=10) == 3
    assert KEYS.texts("none") == []
    assert KEYS.numbers("none") == []
    assert KEYS.has("count")
    assert not KEYS.has("none")


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda: KEYS.integer("none", low=0, high=1), "tiny.gguf has no none"),
        (lambda: KEYS.integer("count", low=0, high=6), "count must be an integer from 0 to 6"),
        (lambda: KEYS.integer("is", low=0, high=6), "is must be an integer .* not True"),
        (lambda: KEYS.integer("text", low=0, high=6), "not 'words'"),
        (lambda: KEYS.number("nan", low=0, high=6), "nan must be a number from 0 to 6, not nan"),
        (lambda: KEYS.flag("count", False), "count must be true or false, not 7"),
        (lambda: KEYS.text("texts"), "texts must be a string, not an array of 2"),
        (lambda: KEYS.texts("numbers"), "numbers must be an array of strings, not an array of 2"),
        (lambda: each("numbers", 3), "numbers must be a number from 0 to 2, or an array of 3 of"),
        (lambda: each("numbers", 2), "numbers must be a number from 0 to 2, or an array of 2 of"),
        (lambda: each("nans", 2), "nans must be a number from 0 to 2, or an array of 2 of"),
        (lambda: each("flags", 2), "flags must be a number from 0 to 2, or an array of 2 of"),
        (lambda: each("count", 2), "count must be a number from 0 to 2, not 7"),
        (lambda: each("none", 2), "tiny.gguf has no none"),
        (lambda: KEYS.numbers("texts"), "texts must be an array of numbers, not an array of 2"),
    ],
)
def test_any_other_value_is_refused_by_its_key(read: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read()
