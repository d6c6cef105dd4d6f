"""Completions, tokenize and detokenize over HTTP against the real worker and engine."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types import Completion

from service.checkpoint.checkpoint import load_checkpoint
from tests.service.running import RunningService

PATH = "/v1/completions"
ASK: dict[str, Any] = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 20, "seed": 5}


def test_the_openai_sdk_completes_and_streams_the_same(service: RunningService) -> None:
    sdk = openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0)
    whole = sdk.completions.create(**ASK)
    streamed = "".join(c.choices[0].text for c in sdk.completions.create(**ASK, stream=True))
    assert streamed == whole.choices[0].text
    assert whole.choices[0].finish_reason == "length"


def test_answers_are_of_openais_own_types(service: RunningService) -> None:
    _, answer = service.post(PATH, {**ASK, "logprobs": 2})
    Completion.model_validate(answer, strict=True)


def test_the_path_without_version_answers_the_same(service: RunningService) -> None:
    _, here = service.post(PATH, ASK)
    _, there = service.post("/completions", ASK)
    assert here["choices"] == there["choices"]


def test_a_prompt_may_be_text_or_its_token_ids_alone_or_in_lists(service: RunningService) -> None:
    tokenizer = load_checkpoint(service.model).tokenizer
    other = "The quick brown fox"
    ids = [tokenizer.encode(text, add_special_tokens=True) for text in (ASK["prompt"], other)]
    _, one = service.post(PATH, {**ASK, "prompt": ASK["prompt"]})
    _, one_ids = service.post(PATH, {**ASK, "prompt": ids[0]})
    _, two = service.post(PATH, {**ASK, "prompt": [ASK["prompt"], other]})
    _, two_ids = service.post(PATH, {**ASK, "prompt": ids})
    assert one["choices"] == one_ids["choices"]
    assert two["choices"] == two_ids["choices"]
    assert one["choices"][0]["text"] == two["choices"][0]["text"]
    assert two["usage"]["prompt_tokens"] == len(ids[0]) + len(ids[1])


def test_choices_are_numbered_prompt_by_prompt(service: RunningService) -> None:
    ask = {**ASK, "prompt": ["Hello", "The fox"], "n": 2, "echo": True}
    _, answer = service.post(PATH, ask)
    starts = [choice["text"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert all(text.startswith("Hello") for text in starts[:2])
    assert all(text.startswith("The fox") for text in starts[2:])
    assert starts[0] != starts[1]


@pytest.mark.parametrize("logprobs", [None, 0, 3])
@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_folds_to_the_whole_answer(
    service: RunningService, logprobs: int | None, echo: bool
) -> None:
    ask = {**ASK, "logprobs": logprobs, "echo": echo, "cache_salt": f"{logprobs}{echo}"}
    _, answer = service.post(PATH, ask)
    whole = answer["choices"][0]
    chunks = service.stream(PATH, {**ask, "stream": True})
    parts = [chunk["choices"][0] for chunk in chunks]
    assert "".join(part["text"] for part in parts) == whole["text"]
    assert parts[-1]["finish_reason"] == whole["finish_reason"]
    if logprobs is not None:
        told = [part["logprobs"] for part in parts if part["logprobs"]]
        for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert [entry for part in told for entry in part[field]] == whole["logprobs"][field]


def test_an_echoed_prompt_alone_is_scored_without_any_output(service: RunningService) -> None:
    """What evaluation harnesses ask: the likelihood of a given text."""
    ask = {**ASK, "echo": True, "max_tokens": 0, "logprobs": 1, "cache_salt": "scored"}
    _, answer = service.post(PATH, ask)
    choice = answer["choices"][0]
    assert choice["text"] == ASK["prompt"]
    assert "".join(choice["logprobs"]["tokens"]) == ASK["prompt"]
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert all(value < 0 for value in choice["logprobs"]["token_logprobs"][1:])
    assert answer["usage"]["completion_tokens"] == 0
    offsets = choice["logprobs"]["text_offset"]
    for token, offset in zip(choice["logprobs"]["tokens"], offsets, strict=True):
        assert ASK["prompt"][offset:].startswith(token)


def test_scoring_a_text_agrees_with_generating_it(service: RunningService) -> None:
    """The logprobs sent while a text was generated are those of the same text as a prompt."""
    ask = {**ASK, "temperature": 0, "logprobs": 1, "return_token_ids": True}
    _, generated = service.post(PATH, ask)
    choice = generated["choices"][0]
    tokens = choice["prompt_token_ids"] + choice["token_ids"]
    scoring = {"prompt": tokens, "echo": True, "max_tokens": 0, "logprobs": 1}
    _, scored = service.post(PATH, {**scoring, "cache_salt": "agree"})
    output = scored["choices"][0]["logprobs"]["token_logprobs"][-len(choice["token_ids"]) :]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(output, abs=1e-4)


def test_the_default_limit_is_sixteen_tokens(service: RunningService) -> None:
    ask = {key: value for key, value in ASK.items() if key != "max_tokens"}
    _, answer = service.post(PATH, {**ask, "ignore_eos": True})
    assert answer["usage"]["completion_tokens"] == 16


def test_a_streamed_echo_alone_counts_no_output_in_any_chunk(service: RunningService) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    ask = {**ASK, "echo": True, "max_tokens": 0, "stream": True, "stream_options": options}
    chunks = service.stream(PATH, ask)
    assert "".join(part["text"] for chunk in chunks for part in chunk["choices"]) == ASK["prompt"]
    assert {chunk["usage"]["completion_tokens"] for chunk in chunks} == {0}


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("last_bytes", [1, 2, 3])
def test_a_prompt_that_ends_inside_a_character_is_not_said_again(
    service: RunningService, last_bytes: int, echo: bool
) -> None:
    checkpoint = load_checkpoint(service.model)
    by_bytes = {value: key for key, value in enumerate(checkpoint.vocabulary.token_bytes)}
    tokens = checkpoint.tokenizer.encode("Once upon a time ", add_special_tokens=False)
    tokens += [by_bytes[bytes([byte])] for byte in "🚀".encode()[:last_bytes]]
    ask = {**ASK, "prompt": tokens, "return_token_ids": True, "echo": echo}
    _, answer = service.post(PATH, ask)
    choice = answer["choices"][0]
    said = checkpoint.tokenizer.decode(choice["token_ids"], skip_special_tokens=True)
    shown = checkpoint.tokenizer.decode(tokens) if echo else ""
    assert choice["text"] == shown + said
    chunks = service.stream(PATH, {**ask, "stream": True})
    parts = [chunk["choices"][0] for chunk in chunks]
    assert "".join(part["text"] for part in parts) == choice["text"]
    assert [token for part in parts for token in part.get("token_ids", [])] == choice["token_ids"]
