"""What a request does not say, its checkpoint says, and else the API."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from engine.messages import SamplingParams
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.checkpoint.defaults import SamplingDefaults
from service.errors import InvalidRequestError
from service.preparation.sampling import (
    MOST_BEAM_TOKENS,
    SamplingFields,
    beam_limit,
    check_prompt_logprobs,
    default_max_tokens,
    output_room,
    sampling_params,
    stop_rules,
)
from service.wire.chat.request import decode_chat

USER = {"role": "user", "content": "Hi"}


def params(checkpoint: Checkpoint, **fields: Any) -> SamplingParams:
    request = decode_chat(json.dumps({"messages": [USER], **fields}).encode(), max_choices=16)
    return sampling_params(request, checkpoint, vocab_size=512, max_tokens=9, logprobs=None)


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


def test_the_checkpoints_own_defaults_hold_until_the_request_says_otherwise(
    checkpoint: Checkpoint,
) -> None:
    assert (params(checkpoint).temperature, params(checkpoint).top_p) == (0.7, 0.9)
    asked = params(checkpoint, temperature=0, top_p=1, top_k=-1)
    assert (asked.temperature, asked.top_p, asked.top_k) == (0.0, 1.0, 0)


def test_a_checkpoint_that_says_nothing_leaves_openais_defaults(checkpoint: Checkpoint) -> None:
    silent = dataclasses.replace(checkpoint, defaults=SamplingDefaults())
    assert params(silent) == SamplingParams(max_tokens=9)


def test_a_checkpoint_that_does_not_sample_is_greedy_unless_asked(checkpoint: Checkpoint) -> None:
    greedy = dataclasses.replace(checkpoint, defaults=SamplingDefaults(do_sample=False))
    assert params(greedy).temperature == 0
    assert params(greedy, temperature=0.5).temperature == 0.5


def test_an_empty_nucleus_is_the_most_likely_token(checkpoint: Checkpoint) -> None:
    asked = params(checkpoint, top_p=0)
    assert (asked.top_p, asked.top_k) == (1.0, 1)


def test_bad_words_are_banned_at_a_texts_start_and_after_a_space(checkpoint: Checkpoint) -> None:
    encode = checkpoint.tokenizer.encode
    banned = params(checkpoint, bad_words=["fox"]).bad_words_token_ids
    assert tuple(encode("fox", add_special_tokens=False)) in banned
    assert tuple(encode(" fox", add_special_tokens=False)) in banned


@pytest.mark.parametrize(
    ("defaults", "fallback", "expected"),
    [
        (SamplingDefaults(), None, 100),
        (SamplingDefaults(), 16, 16),
        (SamplingDefaults(max_new_tokens=30), 16, 30),
        (SamplingDefaults(max_new_tokens=3000), None, 100),
    ],
)
def test_without_a_limit_the_checkpoints_holds_then_the_apis_then_the_context(
    defaults: SamplingDefaults, fallback: int | None, expected: int
) -> None:
    assert default_max_tokens(defaults, 100, fallback) == expected


def test_one_stop_string_is_a_list_of_one() -> None:
    body = json.dumps({"messages": [USER], "stop": "x", "min_tokens": 2}).encode()
    rules = stop_rules(decode_chat(body, max_choices=1))
    assert (rules.strings, rules.min_tokens) == (("x",), 2)


def asked(**fields: Any) -> SamplingFields:
    return decode_chat(json.dumps({"messages": [USER], **fields}).encode(), max_choices=16)


def test_a_million_allowed_tokens_are_the_vocabulary_at_most(checkpoint: Checkpoint) -> None:
    mask = params(checkpoint, allowed_token_ids=list(range(200)) * 5_000).allowed_tokens
    assert mask == b"\xff" * 25


@pytest.mark.parametrize(
    "words", [["a word " * 60], [f"{number} one two three four five" for number in range(128)]]
)
def test_bad_words_are_bounded_each_and_together(checkpoint: Checkpoint, words: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="tokens") as refused:
        params(checkpoint, bad_words=words)
    assert refused.value.param == "bad_words"


def test_more_logprobs_than_an_answer_can_hold_are_refused_where_they_are_asked_for() -> None:
    one = asked(logprobs=True, top_logprobs=20)
    room = {"choices": 1, "logprobs": 20}
    assert output_room(one, 131_072, wanted=131_072, **room) == 131_072
    assert output_room(one, 10**6, wanted=None, **room) == 372_827  # no limit was named
    assert output_room(one, 10**6, wanted=10**6, choices=1, logprobs=None) == 10**6
    with pytest.raises(InvalidRequestError, match="at most 23301 tokens"):
        output_room(one, 131_072, wanted=32_000, choices=16, logprobs=20)
    check_prompt_logprobs(one, 100_000, 20)
    check_prompt_logprobs(one, 10**9, None)
    with pytest.raises(InvalidRequestError, match="shorten the prompts"):
        check_prompt_logprobs(one, 16 * 100_000, 20)


def test_a_beam_search_is_bounded_in_the_tokens_of_all_its_beams() -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "n": 8}
    beams = decode_chat(json.dumps({**body, "use_beam_search": True}).encode(), max_choices=16)
    prompt = MOST_BEAM_TOKENS // 8 - 100
    assert beam_limit(beams, prompt, 100, is_set=True) == 100
    assert beam_limit(beams, prompt, 100_000, is_set=False) == 100
    with pytest.raises(InvalidRequestError, match=f"8 beams of {prompt} prompt tokens") as refused:
        beam_limit(beams, prompt, 101, is_set=True)
    assert refused.value.param == "use_beam_search"
    with pytest.raises(InvalidRequestError, match="shorten the prompt"):
        beam_limit(beams, MOST_BEAM_TOKENS // 8, 100, is_set=False)
    sampled = decode_chat(json.dumps(body).encode(), max_choices=16)
    assert beam_limit(sampled, MOST_BEAM_TOKENS, 10**6, is_set=True) == 10**6
