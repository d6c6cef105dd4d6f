"""An answer is what its chunks add up to, and knows what it cost."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dashboard.answer import Answer, decode_chunk


def answer(*chunks: tuple[float, dict[str, Any]]) -> Answer:
    built = Answer(sent=10.0)
    for now, chunk in chunks:
        built.apply(decode_chunk(json.dumps(chunk)), now)
    return built


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def test_text_and_reasoning_are_kept_apart() -> None:
    built = answer(
        (11, delta(role="assistant", content="")),
        (12, delta(reasoning="Hm. ")),
        (13, delta(content="Yes")),
        (14, delta(content="!")),
        (14, delta(finish="stop")),
    )
    assert (built.reasoning, built.text, built.finish_reason) == ("Hm. ", "Yes!", "stop")


def test_the_other_name_for_reasoning_is_understood() -> None:
    assert answer((1, delta(reasoning_content="Hm."))).reasoning == "Hm."


def test_the_first_token_is_the_first_that_brings_something() -> None:
    built = answer((11, delta(role="assistant")), (12.5, delta(reasoning="Hm.")))
    assert built.time_to_first_token == 2.5


def test_tokens_per_second_counts_the_gaps_between_tokens() -> None:
    built = answer(
        (11, delta(content="a")),
        (13, delta(content="b")),
        (13, {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}}),
    )
    assert built.tokens_per_second == (5 - 1) / 2


def test_speed_is_unknown_rather_than_guessed() -> None:
    assert answer((11, delta(content="a")), (12, delta(content="b"))).tokens_per_second is None
    one = answer((11, delta(content="a")), (11, {"usage": {"completion_tokens": 1}}))
    assert one.tokens_per_second is None


@pytest.mark.parametrize(
    ("details", "cached"), [({}, None), ({"prompt_tokens_details": {"cached_tokens": 16}}, 16)]
)
def test_cached_tokens_are_told_when_the_server_tells(
    details: dict[str, Any], cached: int | None
) -> None:
    usage = answer((1, {"choices": [], "usage": {"prompt_tokens": 20, **details}})).usage
    assert usage is not None
    assert usage.cached_tokens == cached


def test_tool_calls_are_put_together_from_their_pieces() -> None:
    def call(index: int, **function: str) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, "function": function}])

    built = answer(
        (1, call(0, name="weather")),
        (2, call(0, arguments='{"city":')),
        (3, call(1, name="time", arguments="{}")),
        (4, call(0, arguments='"Bern"}')),
    )
    calls = [(call.name, call.arguments) for call in built.tool_calls]
    assert calls == [("weather", '{"city":"Bern"}'), ("time", "{}")]


def test_only_the_first_choice_is_shown() -> None:
    two = {"choices": [{"delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}
    assert answer((1, two)).text == "a"


def test_a_chunk_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_chunk('{"choices": "none"}')
