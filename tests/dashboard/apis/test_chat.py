"""A chat answer is what its chunks add up to, and knows what it cost."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dashboard.answer import Answer, BrokenStreamError, Token
from dashboard.apis import chat
from dashboard.apis.ask import Ask, Message, Tool


def answer(*chunks: dict[str, Any]) -> Answer:
    built = Answer(sent=10.0)
    for chunk in chunks:
        chat.read(built, json.dumps(chunk))
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
        chat.read(Answer(sent=0.0), '{"choices": "none"}')


def test_an_error_in_the_stream_is_told_in_the_servers_words() -> None:
    built = answer(delta(content="Hel"))
    with pytest.raises(BrokenStreamError, match="out of memory"):
        chat.read(built, '{"error": {"message": "out of memory"}}')
    assert built.text == "Hel"


def test_tokens_come_with_the_likeliest_in_their_place() -> None:
    token = {"token": "a", "logprob": -0.5, "top_logprobs": [{"token": "b", "logprob": -0.1}]}
    built = answer({"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [token]}}]})
    assert built.tokens == [Token("a", -0.5, (("b", -0.1),))]


def test_everything_that_was_set_is_sent() -> None:
    tool = Tool("look", "Looks.", {"type": "object"})
    ask = Ask(
        "m",
        (Message("user", "Hi"),),
        system="Be brief.",
        temperature=0.0,
        stop=("END",),
        tools=(tool,),
        schema={"type": "object"},
        logprobs=True,
        thinking=False,
    )
    body = chat.body(ask)
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["temperature"], body["stop"]) == (0.0, ["END"])
    assert body["tools"][0]["function"]["description"] == "Looks."
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (body["logprobs"], body["top_logprobs"]) == (True, 5)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_system_prompt_of_spaces_is_none() -> None:
    assert len(chat.body(Ask("m", (Message("user", "Hi"),), system="  "))["messages"]) == 1
