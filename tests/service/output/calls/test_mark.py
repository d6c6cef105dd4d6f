"""Marks inside text are read to their end, if that comes soon."""

from __future__ import annotations

import pytest

from service.output.calls.mark import read_mark
from service.output.calls.source import NotACallError
from tests.service.output.calls.reading import read


def test_a_mark_is_read_through_its_end_and_no_further() -> None:
    told, rest = read(lambda source, _: read_mark(source, ">"), " 0:[1,2]> and on")
    assert (told.calls, rest) == ([], " and on")


def test_a_mark_cut_off_waits_for_its_end() -> None:
    assert read(lambda source, _: read_mark(source, ">"), " 0:[1")[1] is None


@pytest.mark.parametrize("text", ["x" * 1000 + ">", " 0: <tool_call>"])
def test_a_mark_must_end_soon_and_contain_no_other_tag(text: str) -> None:
    with pytest.raises(NotACallError):
        read(lambda source, _: read_mark(source, ">"), text, stop_tags=("<tool_call>",))
