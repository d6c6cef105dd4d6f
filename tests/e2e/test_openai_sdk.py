"""The official OpenAI SDK against the product as a user starts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import openai
import pytest
import torch
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.e2e.quire_server import ROOT, QuireServer

POCKET = ROOT / "pocket" / "weights"
USAGE: Any = {"include_usage": True}
HELLO = [{"role": "user", "content": "Hello!"}]


def test_lists_and_retrieves_the_embedded_model(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["pocket"]
    assert client.models.retrieve("pocket").id == "pocket"


def test_an_unknown_model_raises_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=HELLO)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_a_chat_answers_and_stops_by_itself(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="pocket", messages=HELLO, temperature=0)
    assert reply.choices[0].message.content
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_a_streamed_chat_equals_the_whole_answer(client: openai.OpenAI) -> None:
    ask = {"model": "pocket", "temperature": 0, "messages": HELLO}
    whole = client.chat.completions.create(**ask)  # type: ignore[call-overload]
    with client.chat.completions.stream(**ask, stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason
    assert final.usage is not None
    assert final.usage.completion_tokens == whole.usage.completion_tokens


def test_logprobs_carry_the_bytes_of_the_text(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="pocket", messages=HELLO, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    spoken = b"".join(bytes(token.bytes or []) for token in logprobs.content)
    assert spoken.decode().startswith(reply.choices[0].message.content or "?")
    for token in logprobs.content:
        assert token.logprob <= 0
        assert token.top_logprobs[0].token == token.token  # greedy: the likeliest was taken


def test_completions_take_text_lists_and_token_ids(client: openai.OpenAI) -> None:
    prompt = "Once upon a time"
    status_free = client.completions.create(
        model="pocket", prompt=[prompt, prompt], max_tokens=8, temperature=0, echo=True
    )
    assert len(status_free.choices) == 2
    assert all(choice.text.startswith(prompt) for choice in status_free.choices)
    assert status_free.choices[0].text == status_free.choices[1].text


@pytest.fixture(scope="module")
def oracle() -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(POCKET, dtype=torch.float32)
    return model.eval()


@pytest.mark.parametrize("stream", [False, True])
def test_every_token_that_usage_counts_is_scored_as_transformers_does(
    client: openai.OpenAI, oracle: PreTrainedModel, stream: bool
) -> None:
    """lm-eval requests this and reads all but the last entry, which must be the generated token,
    an end-of-sequence token or not."""
    stopped = 0
    for prompt in ("Hello! How can I help you today?", "Hello! How are", "2 + 2 is", "a\n日本 é"):
        ask: dict[str, Any] = {"model": "pocket", "prompt": prompt, "max_tokens": 1, "echo": True}
        ask |= {"logprobs": 1, "temperature": 0, "extra_body": {"return_token_ids": True}}
        if stream:
            told = list(client.completions.create(**ask, stream=True, stream_options=USAGE))
        else:
            told = [client.completions.create(**ask)]
        choices = [choice for part in told for choice in part.choices]
        prompt_ids = next(c.prompt_token_ids for c in choices if hasattr(c, "prompt_token_ids"))
        output = [i for choice in choices for i in getattr(choice, "token_ids", None) or []]
        usage = told[-1].usage
        assert usage is not None
        scored = [choice.logprobs for choice in choices if choice.logprobs]
        values = [value for part in scored for value in part.token_logprobs or []]
        assert len(values) == usage.prompt_tokens + usage.completion_tokens
        ids = torch.tensor([[*prompt_ids, *output]])
        with torch.no_grad():
            expected = oracle(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])
        assert values[0] is None
        assert values[1:] == pytest.approx(expected.flatten().tolist(), abs=1e-3)
        stopped += choices[-1].finish_reason == "stop"
        offsets = [offset for part in scored for offset in part.text_offset or []]
        text = "".join(choice.text for choice in choices)
        assert (offsets[-1] == len(text)) is (choices[-1].finish_reason == "stop")
    assert stopped


def test_a_tool_call_comes_back_as_data(client: openai.OpenAI) -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Current weather in a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
    reply = client.chat.completions.create(
        model="pocket",
        temperature=0,
        tools=[tool],  # type: ignore[list-item]
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
    )
    assert reply.choices[0].finish_reason == "tool_calls"
    calls = reply.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert calls[0].function.name == "get_weather"


def test_a_seed_gives_the_same_answer_twice_and_choices_differ(client: openai.OpenAI) -> None:
    ask = {
        "model": "pocket",
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "seed": 7,
        "temperature": 1.0,
        "n": 4,
        "max_tokens": 60,
    }
    first, second = (client.chat.completions.create(**ask) for _ in range(2))  # type: ignore[call-overload]
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in second.choices]
    assert len(set(texts)) > 1


def test_a_stop_string_ends_the_answer_before_it(
    client: openai.OpenAI, server: QuireServer
) -> None:
    ask = {"model": "pocket", "temperature": 0, "messages": HELLO}
    whole = client.chat.completions.create(**ask).choices[0].message.content  # type: ignore[call-overload]
    middle = whole[len(whole) // 2 : len(whole) // 2 + 3]
    cut = client.chat.completions.create(**ask, stop=[middle]).choices[0]  # type: ignore[call-overload]
    assert cut.message.content == whole[: whole.index(middle)]
    assert cut.finish_reason == "stop"


class Weather(BaseModel):
    """Get the weather of a city."""

    city: Literal["Oslo", "Rome"]


# Every way in which the SDK's documentation and its users put an answer back into a conversation.
APPENDED: dict[str, Callable[[Any], Any]] = {
    "the object": lambda message: message,
    "model_dump": lambda message: message.model_dump(),
    "model_dump without nulls": lambda message: message.model_dump(exclude_none=True),
    "to_dict": lambda message: message.to_dict(),
    "JSON": lambda message: json.loads(message.model_dump_json()),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["parse", "stream"])
def test_a_parsed_call_may_be_sent_back_in_any_way(client: openai.OpenAI, streamed: bool) -> None:
    ask: dict[str, Any] = {
        "model": "pocket",
        "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
        "tools": [openai.pydantic_function_tool(Weather)],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 80,
    }
    if streamed:
        with client.chat.completions.stream(**ask) as stream:
            message = stream.get_final_completion().choices[0].message
    else:
        message = client.chat.completions.parse(**ask).choices[0].message
    [call] = message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Weather)
    result = {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}
    plain = None
    for way in APPENDED.values():
        messages = [*ask["messages"], way(message), result]
        raw = client.chat.completions.with_raw_response.create(
            model="pocket", messages=messages, max_tokens=1
        )
        usage = raw.parse().usage
        assert usage is not None
        plain = plain or usage.prompt_tokens
        assert usage.prompt_tokens == plain  # the additions are in no prompt
        ignored = raw.headers.get("x-quire-ignored", "").split(", ")
        assert "messages[1].tool_calls[0].function.parsed_arguments" in ignored
