"""What cannot be sent is found wherever it is in the value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dashboard.apis.ask import Call, arguments_of
from dashboard.apis.sendable import MOST_LEVELS, unsendable


def nested(levels: int) -> Any:
    return json.loads('{"a":' * levels + "1" + "}" * levels)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (r'["\ud83d"]', r"\ud83d is half of a surrogate pair"),
        (r'{"a": [{"\udc00": 1}]}', r"\udc00 is half of a surrogate pair"),
        ("[[NaN]]", "NaN"),
        ('{"a": -Infinity}', "infinite"),
    ],
)
def test_what_is_wrong_is_found_at_any_level(written: str, words: str) -> None:
    assert words in unsendable(json.loads(written))


def test_what_is_right_is_not_refused() -> None:
    assert unsendable(json.loads(r'{"a": ["\ud83d\ude80", "\u0000", 1.5, null, true, {}]}')) == ""


def test_levels_are_counted() -> None:
    assert unsendable(nested(MOST_LEVELS)) == ""
    assert "nested more than 100 levels" in unsendable(nested(MOST_LEVELS + 1))


@pytest.mark.parametrize(
    "written",
    [r'{"a": "\ud83d"}', '{"a": NaN}', '{"a":' * 400 + "1" + "}" * 400, "[" * 60_000],
    ids=["surrogate", "nan", "deep", "deeper"],
)
def test_arguments_that_cannot_be_sent_stay_text(written: str) -> None:
    assert arguments_of(Call("c", "f", written)) == {"arguments": written}
