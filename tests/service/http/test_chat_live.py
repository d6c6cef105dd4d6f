"""Chat over HTTP against the real worker and the real engine."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from service.checkpoint.checkpoint import load_checkpoint
from tests.service.running import RunningService
from tests.service.tiny_model import tag_ids

ASK: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Hello, how are you?"}],
    "max_tokens": 40,
    "seed": 7,
    # Random weights write tags at random; here all output must be content.
    "logit_bias": {str(token): -100 for token in tag_ids()},
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.fixture
def sdk(service: RunningService) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0)


def text_of(chunks: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(
        choice["delta"].get("content", "")
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["index"] == index
    )


def test_the_openai_sdk_chats(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(**ASK)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_the_openai_sdk_streams_the_same_text(sdk: openai.OpenAI) -> None:
    whole = sdk.chat.completions.create(**ASK)
    chunks = list(
        sdk.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_answers_are_of_openais_own_types(service: RunningService) -> None:
    ask = {**ASK, "n": 2, "logprobs": True, "top_logprobs": 2, "max_tokens": 5}
    _, answer = service.post("/v1/chat/completions", ask)
    ChatCompletion.model_validate(answer, strict=True)
    for chunk in service.stream("/v1/chat/completions", {**ask, "stream": True}):
        ChatCompletionChunk.model_validate(chunk, strict=True)


def test_the_sdk_lists_and_retrieves_models(sdk: openai.OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == ["tiny"]
    assert sdk.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.models.retrieve("large")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n": 3},
        {"temperature": 0},
        {"stop": ["e", "zz"]},
        {"stop": "\ufffd", "include_stop_str_in_output": True},
        {"logprobs": True, "top_logprobs": 3, "return_token_ids": True},
        {"skip_special_tokens": False, "ignore_eos": True},
        {"chat_template_kwargs": {"enable_thinking": True}, "tools": [WEATHER]},
        {"tools": [WEATHER], "include_reasoning": False},
    ],
    ids=str,
)
def test_a_stream_folds_to_the_whole_answer(
    service: RunningService, options: dict[str, Any]
) -> None:
    ask = {**ASK, **options}
    status, whole = service.post("/v1/chat/completions", ask)
    assert status == 200, whole
    usage = {"include_usage": True}
    chunks = service.stream(
        "/v1/chat/completions", {**ask, "stream": True, "stream_options": usage}
    )
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    for choice in whole["choices"]:
        index, message = choice["index"], choice["message"]
        parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert text_of(chunks, index) == (message["content"] or "")
        reasoning = "".join(part["delta"].get("reasoning", "") for part in parts)
        assert reasoning == message.get("reasoning", "")
        assert parts[-1]["finish_reason"] == choice["finish_reason"]
        assert parts[-1]["stop_reason"] == choice["stop_reason"]
        assert [part["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
        if choice["logprobs"]:
            streamed = [e for part in parts for e in (part["logprobs"] or {}).get("content", [])]
            assert streamed == choice["logprobs"]["content"]
        if "token_ids" in choice:
            assert [t for part in parts for t in part.get("token_ids", [])] == choice["token_ids"]


def test_logprobs_cover_the_text_and_token_ids_cover_every_token(service: RunningService) -> None:
    ask = {**ASK, "logprobs": True, "top_logprobs": 2, "return_token_ids": True, "max_tokens": 20}
    _, answer = service.post("/v1/chat/completions", ask)
    choice = answer["choices"][0]
    spelled = bytes(b for entry in choice["logprobs"]["content"] for b in entry["bytes"])
    assert spelled.decode("utf-8", "replace") == choice["message"]["content"]
    assert len(choice["token_ids"]) == answer["usage"]["completion_tokens"]
    for entry in choice["logprobs"]["content"]:
        assert len(entry["top_logprobs"]) == 2
        assert entry["logprob"] <= entry["top_logprobs"][0]["logprob"] + 1e-6


def test_text_is_what_the_tokenizer_makes_of_the_token_ids(service: RunningService) -> None:
    _, answer = service.post("/v1/chat/completions", {**ASK, "return_token_ids": True, "seed": 3})
    choice = answer["choices"][0]
    tokenizer = load_checkpoint(service.model).tokenizer
    assert (
        tokenizer.decode(choice["token_ids"], skip_special_tokens=True)
        == (choice["message"]["content"])
    )


def test_choices_differ_and_the_first_is_that_of_n_1(service: RunningService) -> None:
    _, one = service.post("/v1/chat/completions", ASK)
    _, three = service.post("/v1/chat/completions", {**ASK, "n": 3})
    texts = [choice["message"]["content"] for choice in three["choices"]]
    assert texts[0] == one["choices"][0]["message"]["content"]
    assert len(set(texts)) == 3
    assert three["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]


def test_a_seed_repeats_an_answer_and_its_absence_does_not(service: RunningService) -> None:
    def say(**options: Any) -> str:
        _, answer = service.post("/v1/chat/completions", {**ASK, **options})
        return str(answer["choices"][0]["message"]["content"])

    assert say() == say()
    assert len({say(seed=None) for _ in range(4)}) == 4


def test_a_stop_string_ends_the_answer_before_itself(service: RunningService) -> None:
    _, free = service.post("/v1/chat/completions", {**ASK, "return_token_ids": True})
    text = free["choices"][0]["message"]["content"]
    stop = text[10:12]
    where = text.index(stop)
    _, stopped = service.post("/v1/chat/completions", {**ASK, "stop": [stop]})
    choice = stopped["choices"][0]
    assert choice["message"]["content"] == text[:where]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert stopped["usage"]["completion_tokens"] < free["usage"]["completion_tokens"]
    service.wait_idle()


def test_stop_tokens_end_the_answer_and_are_named(service: RunningService) -> None:
    _, free = service.post("/v1/chat/completions", {**ASK, "return_token_ids": True})
    token = free["choices"][0]["token_ids"][5]
    first = free["choices"][0]["token_ids"].index(token)
    _, stopped = service.post(
        "/v1/chat/completions", {**ASK, "stop_token_ids": [token], "return_token_ids": True}
    )
    choice = stopped["choices"][0]
    assert choice["token_ids"] == free["choices"][0]["token_ids"][: first + 1]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", token)


def test_min_tokens_and_ignore_eos_and_bans_reach_the_engine(service: RunningService) -> None:
    end = load_checkpoint(service.model).tokenizer.token_id("<|im_end|>")
    force = {"logit_bias": {str(end): 100}}
    _, at_once = service.post("/v1/chat/completions", {**ASK, **force})
    assert at_once["usage"]["completion_tokens"] == 1
    assert at_once["choices"][0] | {"index": 0} == at_once["choices"][0]
    assert at_once["choices"][0]["message"]["content"] == ""
    assert at_once["choices"][0]["stop_reason"] is None
    _, later = service.post("/v1/chat/completions", {**ASK, **force, "min_tokens": 9})
    assert later["usage"]["completion_tokens"] == 10
    _, never = service.post("/v1/chat/completions", {**ASK, **force, "ignore_eos": True})
    assert never["usage"]["completion_tokens"] == 40
    allowed = {"allowed_token_ids": [100, 101], "return_token_ids": True}
    _, few = service.post("/v1/chat/completions", {**ASK, **allowed})
    assert set(few["choices"][0]["token_ids"]) <= {100, 101}


def test_a_repeated_prompt_is_cached_and_said_so(service: RunningService) -> None:
    ask = {**ASK, "messages": [{"role": "user", "content": "The same long question again. " * 6}]}
    service.post("/v1/chat/completions", ask)
    _, again = service.post("/v1/chat/completions", ask)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    salted = {**ask, "cache_salt": "someone else"}
    _, apart = service.post("/v1/chat/completions", salted)
    assert apart["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_max_tokens_beyond_the_context_is_cut_to_what_fits(service: RunningService) -> None:
    ask = {**ASK, "max_tokens": 100_000, "ignore_eos": True}
    _, answer = service.post("/v1/chat/completions", ask)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 512


def test_usage_comes_with_every_chunk_when_asked(service: RunningService) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = service.stream(
        "/v1/chat/completions", {**ASK, "stream": True, "stream_options": options}
    )
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == counts[-2] == 40


def test_prompt_logprobs_name_every_prompt_token_but_the_first(service: RunningService) -> None:
    ask = {**ASK, "prompt_logprobs": 2, "return_token_ids": True, "max_tokens": 1}
    _, answer = service.post("/v1/chat/completions", {**ask, "cache_salt": "prompt logprobs"})
    prompt, entries = answer["prompt_token_ids"], answer["prompt_logprobs"]
    assert len(prompt) == len(entries) == answer["usage"]["prompt_tokens"]
    assert entries[0] is None
    assert all(str(token) in entry for token, entry in zip(prompt[1:], entries[1:], strict=True))


def test_every_response_names_its_request_and_trace(service: RunningService) -> None:
    _, headers, _ = service.exchange("POST", "/v1/chat/completions", json.dumps(ASK).encode())
    assert headers["x-request-id"].startswith("req_")
    assert len(headers["x-trace-id"]) == 32
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    _, headers, _ = service.exchange(
        "POST",
        "/v1/chat/completions",
        json.dumps({**ASK, "stream": True}).encode(),
        {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"},
    )
    assert headers["x-trace-id"] == trace
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["x-accel-buffering"] == "no"


def test_many_streams_at_once_each_say_what_they_say_alone(service: RunningService) -> None:
    asks = [{**ASK, "seed": seed, "max_tokens": 30} for seed in range(24)]
    alone = [service.post("/v1/chat/completions", ask)[1] for ask in asks]
    with ThreadPoolExecutor(24) as pool:
        streams = list(
            pool.map(
                lambda ask: service.stream("/v1/chat/completions", {**ask, "stream": True}), asks
            )
        )
    for chunks, answer in zip(streams, alone, strict=True):
        assert text_of(chunks) == answer["choices"][0]["message"]["content"]
    service.wait_idle()
