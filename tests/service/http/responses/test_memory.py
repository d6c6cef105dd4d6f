"""What connections remember has a bound together."""

from __future__ import annotations

from service.http.responses.memory import Memories
from service.preparation.jobs import History


def history(size: int) -> History:
    return History(context=b"x" * size, input=b"", body=b"")


def test_only_its_own_connection_finds_a_response() -> None:
    memories = Memories()
    memories.keep("one", "resp_1", history(1))
    assert memories.find("one", "resp_1") == history(1)
    assert memories.find("one", "resp_2") is None
    assert memories.find("one", None) is None
    assert memories.find("other", "resp_1") is None
    memories.forget("one")
    assert memories.find("one", "resp_1") is None


def test_a_connection_s_next_response_takes_the_place_of_its_last() -> None:
    memories = Memories(10)
    for number in range(5):
        memories.keep("one", f"resp_{number}", history(10))
    assert memories.find("one", "resp_3") is None
    assert memories.find("one", "resp_4") == history(10)


def test_the_oldest_gives_way_where_all_together_are_too_much() -> None:
    memories = Memories(10)
    for name in ("one", "two", "three"):
        memories.keep(name, "resp", history(5))
    assert memories.find("one", "resp") is None
    assert memories.find("two", "resp") == memories.find("three", "resp") == history(5)
    memories.keep("four", "resp", history(11))
    assert memories.find("four", "resp") is None
