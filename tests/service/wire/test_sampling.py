"""Sampling fields are bounded, each and together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.errors import InvalidRequestError
from service.wire.chat.request import decode_chat
from service.wire.sampling import MAX_BEAMS, MAX_LOGPROBS, SamplingFields


def decoded(**fields: Any) -> SamplingFields:
    body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    return decode_chat(json.dumps(body).encode(), max_choices=16)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"n": 17}, "n"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": ""}, "stop"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
        ({"bad_words": ["x"] * 129}, "bad_words"),
        ({"stop_token_ids": [1] * 257}, "stop_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"priority": 1001}, "priority"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"use_beam_search": True, "n": MAX_BEAMS + 1}, "n"),
        ({"use_beam_search": True, "presence_penalty": 0.5}, "presence_penalty"),
        ({"use_beam_search": True, "repetition_penalty": 1.1}, "repetition_penalty"),
        ({"use_beam_search": True, "stop": ["x"]}, "stop"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_outside_its_bounds_is_rejected_with_its_field(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        decoded(**fields)
    assert refused.value.param == param


def test_fields_without_effect_are_accepted() -> None:
    request = decoded(user="u", metadata={"a": "b"}, store=False, service_tier="auto")
    assert request.user == "u"


def test_usage_is_sent_only_where_it_is_requested() -> None:
    assert not decoded().include_usage
    wish = {"include_usage": True, "continuous_usage_stats": True}
    request = decoded(stream=True, stream_options=wish)
    assert request.include_usage
    assert request.continuous_usage
    assert request.most_logprobs == MAX_LOGPROBS
