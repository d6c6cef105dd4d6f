"""Marks are put on text, and text stays text."""

from __future__ import annotations

import html
import math
import re

from dashboard.answer import Token
from dashboard.play.marked import MOST_TOKENS, differing, tinted


def shown(marked: str) -> str:
    return html.unescape(re.sub("<.*?>", "", marked))


def test_tokens_are_tinted_by_doubt_and_tell_the_likeliest() -> None:
    sure = Token("<b>", 0.0, (("<b>", 0.0), ('"x"', math.log(0.25))))
    unsure = Token("no", math.log(0.1), (("yes", math.log(0.9)),))
    drawn = tinted([sure, unsure])
    assert shown(drawn) == "<b>no"
    assert "--doubt:0%" in drawn
    assert "--doubt:63%" in drawn
    assert "25.00 %  &#x27;&quot;x&quot;&#x27;" in drawn
    assert "10.00 %  &#x27;no&#x27; (chosen)" in drawn


def test_tokens_beyond_the_limit_are_counted() -> None:
    assert "3 more tokens are not shown" in tinted([Token("a", -1.0)] * (MOST_TOKENS + 3))


def test_only_the_words_that_differ_are_marked() -> None:
    marked = differing("The <red> fox\nruns", "The <blue> fox\nruns")
    assert marked is not None
    assert [shown(one) for one in marked] == ["The <red> fox\nruns", "The <blue> fox\nruns"]
    assert [re.findall("<mark>(.*?)</mark>", one) for one in marked] == [["red"], ["blue"]]


def test_what_is_too_long_is_not_compared() -> None:
    assert differing("a " * 3_000, "b " * 3_000) is None
