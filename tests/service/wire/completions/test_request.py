"""The request for a completion: which prompts it holds, and what of it is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.errors import InvalidRequestError
from service.wire.completions.request import CompletionRequest, decode_completion, split_prompts


def decode(**fields: Any) -> CompletionRequest:
    return decode_completion(json.dumps({"prompt": "a", **fields}).encode(), max_choices=4)


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("", [""]),
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
def test_a_prompt_is_one_or_several_texts_or_lists_of_ids(prompt: Any, prompts: Any) -> None:
    assert decode(prompt=prompt).prompts == prompts


@pytest.mark.parametrize("prompt", [[], ["a", 1], [1, [2]], [[1], []]])
def test_an_empty_or_mixed_list_is_refused_by_the_name_of_its_field(prompt: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        split_prompts(prompt, name="input")
    assert caught.value.param == "input"
    with pytest.raises(InvalidRequestError) as caught:
        decode(prompt=prompt)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"suffix": "b"}, "suffix"),
        ({"n": 5}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 5}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 3, "n": 2, "use_beam_search": True}, "best_of"),
        ({"prompt": ["a", "b"], "n": 2, "use_beam_search": True}, "use_beam_search"),
        ({"prompt": ["a"] * 65, "best_of": 4}, "prompt"),
        ({"prompt": ["a"] * 257}, "prompt"),
        ({"logprobs": -1}, "logprobs"),
    ],
)
def test_an_unsound_request_names_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode(**fields)
    assert caught.value.param == param


def test_values_just_within_their_limits_are_accepted() -> None:
    assert len(decode(prompt=["a"] * 64, best_of=4).prompts) == 64
    assert decode(max_tokens=0, echo=True).only_echo
    assert not decode(n=2, best_of=2, stream=True).ranks
    assert decode(n=2, best_of=3).ranks
    assert decode(suffix="").suffix == ""
