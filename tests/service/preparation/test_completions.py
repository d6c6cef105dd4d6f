"""Prompts as text or as token ids: what the engine gets, and what is echoed of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pocket import MODEL_DIR
from service.errors import ContextTooLongError, InvalidRequestError
from service.proto.quire.v1 import quire_pb2 as pb
from tests.service.preparation.prepared import engine, prepared, tokenizer

TEXT = "one two three four five six"


def ids_of(text: str) -> list[int]:
    return tokenizer().encode(text, add_special_tokens=True)


def test_texts_are_encoded_and_token_ids_are_taken_as_they_are() -> None:
    assert prepared("completion", {"prompt": ["Hi", TEXT]}).generation.prompts == [
        ids_of("Hi"),
        ids_of(TEXT),
    ]
    assert prepared("completion", {"prompt": [[7, 8], [9]]}).generation.prompts == [[7, 8], [9]]


def test_without_a_limit_it_is_the_model_s_own_or_what_is_left() -> None:
    own = json.loads((MODEL_DIR / "generation_config.json").read_text())["max_new_tokens"]
    assert prepared("completion", {"prompt": "Hi"}).generation.params.max_tokens == own
    tight = engine(max_model_len=len(ids_of(TEXT)) + 3)
    for asked in ({}, {"max_tokens": 100}):
        made = prepared("completion", {"prompt": TEXT, **asked}, loaded=tight)
        assert made.generation.params.max_tokens == 3


def test_a_long_prompt_takes_no_room_from_the_others() -> None:
    tight = engine(max_model_len=len(ids_of(TEXT)) + 3)
    body = {"prompt": ["Hi", TEXT], "max_tokens": 5}
    assert prepared("completion", body, loaded=tight).generation.params.max_tokens == 5
    made = prepared("completion", {**body, "max_tokens": 100}, loaded=tight)
    assert made.generation.params.max_tokens == tight.max_model_len - len(ids_of("Hi"))
    prepared("completion", {**body, "min_tokens": 3}, loaded=tight)
    with pytest.raises(InvalidRequestError, match="at most 3 output tokens") as refused:
        prepared("completion", {**body, "min_tokens": 4}, loaded=tight)
    assert refused.value.param == "min_tokens"


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_text_that_is_cut_is_echoed_as_it_was_cut(side: str) -> None:
    body = {"prompt": TEXT, "echo": True, "truncate_prompt_tokens": 3, "truncation_side": side}
    made = prepared("completion", body)
    whole = ids_of(TEXT)
    kept = whole[-3:] if side == "left" else whole[:3]
    assert made.generation.prompts == [kept]
    assert made.texts == [tokenizer().decode(kept)]
    uncut = prepared("completion", {**body, "truncate_prompt_tokens": len(whole)})
    assert uncut.texts == [TEXT]


def test_the_best_of_several_are_told_by_their_logprobs() -> None:
    plain = prepared("completion", {"prompt": "Hi", "n": 2}).generation
    assert (plain.n, plain.params.logprobs) == (2, None)
    ranked = prepared("completion", {"prompt": "Hi", "n": 2, "best_of": 5}).generation
    assert (ranked.n, ranked.params.logprobs) == (5, 0)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"prompt": ""}, InvalidRequestError),
        ({"prompt": ["Hi", []]}, InvalidRequestError),
        ({"prompt": [1500]}, InvalidRequestError),  # the engine's vocabulary ends before it
        ({"prompt": [5] * 4096}, ContextTooLongError),
        ({"prompt": "word " * 9000}, ContextTooLongError),
    ],
)
def test_a_prompt_that_cannot_be_continued_is_refused(
    fields: dict[str, Any], error: type[InvalidRequestError]
) -> None:
    with pytest.raises(error) as refused:
        prepared("completion", fields)
    assert (refused.value.param or "").startswith("prompt")


def test_grpcs_generate_comes_to_the_same() -> None:
    message = pb.GenerateRequest(text=TEXT, max_tokens=5).SerializeToString()
    by_http = prepared("completion", {"prompt": TEXT, "max_tokens": 5})
    assert prepared("grpc_completion", message).generation == by_http.generation


def test_only_prompts_that_are_echoed_have_a_text() -> None:
    for echo, texts in ((False, ["", ""]), (True, ["Hi", TEXT])):
        assert prepared("completion", {"prompt": ["Hi", TEXT], "echo": echo}).texts == texts


def test_what_the_request_says_of_its_output_reaches_the_generation() -> None:
    body = {
        "prompt": "Hi",
        "seed": 3,
        "stop": ["END"],
        "skip_special_tokens": False,
        "priority": 5,
        "cache_salt": "mine",
    }
    generation = prepared("completion", body).generation
    assert (generation.seed, generation.stop.strings) == (3, ("END",))
    assert not generation.skip_special_tokens
    assert (generation.priority, generation.cache_salt) == (5, "mine")
    assert generation.length_penalty is None
    searched = prepared("completion", {"prompt": "Hi", "n": 2, "use_beam_search": True}).generation
    assert searched.length_penalty is not None


def test_a_form_of_a_completion_is_of_plain_text() -> None:
    asked = prepared("completion", {"prompt": "Hi", "guided_choice": ["a", "b"]}).asked
    assert asked is not None
    assert asked.plain
