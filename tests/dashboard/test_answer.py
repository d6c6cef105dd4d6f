"""An answer is what its chunks add up to, and knows what it cost."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dashboard.answer import Answer, decode_chunk


def answer(*chunks: dict[str, Any]) -> Answer:
    built = Answer(sent=10.0)
    for chunk in chunks:
        built.apply(decode_chunk(json.dumps(chunk)))
    return built


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def test_text_and_reasoning_are_kept_apart() -> None:
    built = answer(
        delta(role="assistant", content=""),
        delta(reasoning="Hm. "),
        delta(content="Yes"),
        delta(content="!"),
        delta(finish="stop"),
    )
    assert (built.reasoning, built.text, built.finish_reason) == ("Hm. ", "Yes!", "stop")


def test_the_other_name_for_reasoning_is_understood() -> None:
    assert answer(delta(reasoning_content="Hm.")).reasoning == "Hm."


def test_chunks_that_bring_nothing_are_not_counted() -> None:
    assert answer(delta(role="assistant"), delta(reasoning="Hm."), delta(content="x")).chunks == 2


def test_times_and_rates_are_the_servers_own() -> None:
    told = {"queue_ms": 1.25, "time_to_first_token_ms": 6.123, "output_tokens_per_second": 1119.4}
    timings = answer(delta(content="a"), {"choices": [], "timings": told}).timings
    assert timings is not None
    known = {name: value for name, value in msgspec.structs.asdict(timings).items() if value}
    assert known == told


def test_without_the_servers_word_no_speed_is_known() -> None:
    assert answer(delta(content="a"), delta(content="b")).timings is None


def test_the_count_so_far_gives_way_to_the_final_one() -> None:
    def counted(tokens: int) -> dict[str, Any]:
        return {**delta(content="a"), "usage": {"completion_tokens": tokens}}

    built = answer(counted(1), counted(2))
    assert built.usage is not None
    assert built.usage.completion_tokens == 2


def test_the_size_counts_all_that_is_kept() -> None:
    call = {"index": 0, "function": {"name": "ab", "arguments": "{}"}}
    assert answer(delta(reasoning="Hm"), delta(content="Yes"), delta(tool_calls=[call])).size == 9


@pytest.mark.parametrize(
    ("details", "cached"), [({}, None), ({"prompt_tokens_details": {"cached_tokens": 16}}, 16)]
)
def test_cached_tokens_are_told_when_the_server_tells(
    details: dict[str, Any], cached: int | None
) -> None:
    usage = answer({"usage": {"prompt_tokens": 20, **details}}).usage
    assert usage is not None
    assert usage.cached_tokens == cached


def test_tool_calls_are_put_together_from_their_pieces() -> None:
    def call(index: int, **function: str) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, "function": function}])

    built = answer(
        call(0, name="weather"),
        call(0, arguments='{"city":'),
        call(1, name="time", arguments="{}"),
        call(0, arguments='"Bern"}'),
    )
    calls = [(call.name, call.arguments) for call in built.tool_calls]
    assert calls == [("weather", '{"city":"Bern"}'), ("time", "{}")]


def test_only_the_first_choice_is_shown() -> None:
    two = {"choices": [{"delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}
    assert answer(two).text == "a"


def test_a_chunk_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_chunk('{"choices": "none"}')
