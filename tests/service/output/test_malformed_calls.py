"""A missing, doubled or nested delimiter in one call of an answer harms that call alone.

Every shipped format is covered by its own description: its delimiters and those in its example are
dropped, doubled or nested. ``QUIRE_FUZZ_EXAMPLES`` sets a larger number of examples.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.formats import JsonBody, ParametersBody, ShippedFormat, shipped_formats
from tests.service.formats.test_shipped import opening, output_format
from tests.service.output.parsing import cut, parse, summary

EXAMPLES = int(os.environ.get("QUIRE_FUZZ_EXAMPLES", "6"))
CALLS: dict[str, Any] = {
    "get_weather": {"city": "Oslo", "days": 3},
    "ping": {},
    "set_alarm": {"time": "07:30", "repeat": True, "tags": ["work", "early"]},
}
SHIPPED = [
    shipped
    for shipped in shipped_formats("tool_calls")
    if shipped.examples and [name for name, _ in shipped.examples[0].calls] == list(CALLS)
]
FORMATS = pytest.mark.parametrize("shipped", SHIPPED, ids=lambda shipped: shipped.names[0])


QUOTES = ('"', "'")
MARKS = ("{", "}", "(", ")", ":", ",", *QUOTES)


class Damage(NamedTuple):
    """Return ``text`` with one delimiter dropped or doubled. ``shared``: it surrounds all calls,
    not one of them."""

    text: str
    what: str
    shared: bool


def calls_in(pieces: list[str], shipped: ShippedFormat) -> list[tuple[str, Any]]:
    """Every call: its name and its arguments, None where it is not complete."""
    found: list[tuple[str, Any]] = []
    text = ""
    for kind, *values in summary(parse(pieces, output_format(shipped), opening=opening(shipped))):
        match kind:
            case "call":
                found.append((values[1], None))
            case "arguments":
                text = values[0]
            case "end":
                found[-1] = (found[-1][0], json.loads(text))
    return found


def delimiters(shipped: ShippedFormat) -> list[str]:
    tags = {tag for tag in output_format(shipped).tags if tag in shipped.examples[0].text}
    return sorted(tags | set(MARKS))


def shared(shipped: ShippedFormat) -> str:
    """Return all delimiters that surround all calls together."""
    calls = shipped.calls
    if calls is None:
        return ""
    around = (*calls.around, *calls.section)
    return "".join((*around, *calls.opens, calls.close) if calls.several else around)


def damages(shipped: ShippedFormat) -> list[Damage]:
    """Every way to drop or double a delimiter, a name or a value of the first two calls."""
    text = shipped.examples[0].text
    around = shared(shipped)
    begin, end = text.index("get_weather"), third(shipped)
    opens = shipped.calls is None or bool(shipped.calls.opens)
    made = []
    for what in (*delimiters(shipped), "get_weather", "city", "Oslo", "ping"):
        for match in re.finditer(re.escape(what), text[:end]):
            start, stop = match.span()
            outside = start < begin and (what in around or what in MARKS)
            # Without its name the first call of a format without tags is not one.
            outside = outside or (not opens and what == "get_weather")
            harmed = (text[:start] + text[stop:], text[:stop] + text[start:])
            made += [Damage(each, what, outside) for each in harmed]
    return made


def third(shipped: ShippedFormat) -> int:
    """Return where the third call begins: after everything that belongs to the second one."""
    text, calls = shipped.examples[0].text, shipped.calls
    first, second, name = (text.index(name) for name in CALLS)
    if calls is not None and not calls.several and text.count(calls.open or "\0") > 2:
        return text.rindex(calls.open, second, name)
    lead = first
    while lead and text[lead - 1 : first] in text[second:name]:
        lead -= 1
    start = text.rindex(text[lead:first], second, name)
    listed = calls is not None and isinstance(calls.body, JsonBody)
    return min(start, text.rindex("{", second, name)) if listed else start


def check(damage: Damage, shipped: ShippedFormat) -> None:
    calls = calls_in([damage.text], shipped)
    if not damage.shared:
        assert calls[-1:] == [("set_alarm", CALLS["set_alarm"])], damage.text
    form = output_format(shipped)
    opens = [tag for tag in form.tags if tag in openings(shipped)]
    for name, arguments in calls:
        if arguments is None or arguments == CALLS.get(name):
            continue
        # Nothing of it was made up, and nothing of another call is in it.
        for key, value in arguments.items():
            assert key in damage.text
            assert str(value) in damage.text or value in CALLS.get(name, {}).values()
            assert not any(tag in str(value) for tag in opens), damage.text
            assert not any(other in str(value) for other in CALLS), damage.text


def openings(shipped: ShippedFormat) -> tuple[str, ...]:
    """What begins a call, or an argument."""
    calls = shipped.calls
    if calls is None:
        return ()
    body = calls.body
    if isinstance(body, ParametersBody):
        return (*calls.opens, body.call_open, body.key_open)
    return calls.opens


@FORMATS
def test_a_delimiter_missing_or_doubled_harms_no_other_call(shipped: ShippedFormat) -> None:
    for damage in damages(shipped):
        check(damage, shipped)


@FORMATS
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_however_calls_are_harmed_any_cut_reads_the_same(
    shipped: ShippedFormat, data: st.DataObject
) -> None:
    text = shipped.examples[0].text
    for _ in range(data.draw(st.integers(1, 3))):
        what = data.draw(st.sampled_from([*delimiters(shipped), "get_weather", "Oslo", text]))
        places = [match.start() for match in re.finditer(re.escape(what), text)]
        if not places:
            continue
        start = data.draw(st.sampled_from(places))
        stop = start + len(what)
        inside = data.draw(st.sampled_from(["", what, what + what, text[: start + 1], "\n", "x"]))
        text = text[:start] + inside + text[stop:]
    options: dict[str, Any] = {
        "opening": opening(shipped),
        "truncated": data.draw(st.booleans()),
    }
    pieces = cut(text, data.draw(st.lists(st.integers(0, 10_000), max_size=8)))
    form = output_format(shipped)
    whole = summary(parse([text], form, **options))
    assert summary(parse(pieces, form, **options)) == whole
    assert summary(parse(list(text), form, **options)) == whole


@pytest.mark.parametrize(
    ("name", "begun", "piece", "count"),
    [
        ("apertus", "get_weather", "<|tools_prefix|>", 8_000),
        ("cohere_command3", "get_weather", "<co:", 40_000),
        ("deepseek_v32", "Oslo", '<｜DSML｜invoke name="{', 10_000),
    ],
)
def test_tags_that_begin_again_and_again_cost_linear_time(
    name: str, begun: str, piece: str, count: int
) -> None:
    """Behind each one as much was looked at as there was: these would take long."""
    [shipped] = [one for one in SHIPPED if name in one.names]
    before, _, _ = shipped.examples[0].text.partition(begun)
    begin = time.thread_time()
    parse([f"{before}{begun[:2]}", *[piece] * count], output_format(shipped))
    assert time.thread_time() - begin < 7


@FORMATS
@pytest.mark.parametrize("number", ["1e999", "-1E+400", "9" * 400])
def test_a_call_with_a_number_beyond_any_float_is_never_complete(
    shipped: ShippedFormat, number: str
) -> None:
    """Where values are bare text, it is passed on as text."""
    text = shipped.examples[0].text
    place = text.index("3", text.index("days"))
    calls = calls_in([text[:place] + number + text[place + 1 :]], shipped)
    assert [name for name, _ in calls] == list(CALLS)
    assert calls[0][1] in (None, {"city": "Oslo", "days": number})
    assert calls[1:] == list(CALLS.items())[1:]


@FORMATS
@pytest.mark.parametrize("number", ["100", "-1000", "5001", "1.005"])
def test_every_digit_of_a_number_is_kept(shipped: ShippedFormat, number: str) -> None:
    text = shipped.examples[0].text
    place = text.index("3", text.index("days"))
    calls = calls_in([text[:place] + number + text[place + 1 :]], shipped)
    assert json.dumps(calls[0][1]["days"]) in (str(json.loads(number)), f'"{number}"')
