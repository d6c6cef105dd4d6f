"""Stop strings end an answer wherever the cuts between pieces fall."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.output.stop import StopMatcher


def run(pieces: list[str], stops: tuple[str, ...], *, include: bool = False) -> tuple[str, object]:
    matcher = StopMatcher(stops, include_in_output=include)
    out = ""
    for piece in pieces:
        out += matcher.push(piece)
        if matcher.matched is not None:
            return out, matcher.matched
    return out + matcher.flush(), None


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def reference(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """Character by character, the slow and obvious way."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            stop = max(ended, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(
    text=st.text(alphabet="abc", max_size=30),
    stops=st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3).map(tuple),
    places=st.lists(st.integers(0, 100), max_size=8),
)
@example(text="abcb", stops=("abcc", "bcb"), places=[])  # one begins deep in the other
def test_any_cut_gives_what_the_whole_text_gives(
    text: str, stops: tuple[str, ...], places: list[int]
) -> None:
    assert run(cut(text, places), stops) == reference(text, stops)


def test_a_possible_start_of_a_stop_string_is_held_and_released_if_it_is_not_one() -> None:
    matcher = StopMatcher(("END",))
    assert matcher.push("the E") == "the "
    assert matcher.push("N") == ""
    assert matcher.push("T") == "ENT"
    assert matcher.push("E") == ""
    assert matcher.flush() == "E"


@pytest.mark.parametrize("include", [False, True])
def test_the_stop_string_itself_is_shown_only_when_asked(include: bool) -> None:
    out, matched = run(["one ST", "OP two"], ("STOP",), include=include)
    assert (out, matched) == ("one STOP" if include else "one ", "STOP")


def test_without_stop_strings_nothing_is_ever_held() -> None:
    assert StopMatcher(()).push("anything") == "anything"


def test_stop_strings_that_nearly_match_everywhere_cost_no_more_per_character() -> None:
    """Sixteen such strings took a millisecond for each token."""
    stops = tuple("a" * (1000 + number) + "b" for number in range(16))
    matcher = StopMatcher(stops)
    begin = time.thread_time()
    out = "".join(matcher.push("aaaa") for _ in range(25_000))
    assert time.thread_time() - begin < 2
    assert len(out) + len(matcher.flush()) == 100_000
    assert matcher.matched is None
