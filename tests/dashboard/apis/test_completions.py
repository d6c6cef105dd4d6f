"""The prompt goes as it is, the text comes back with its tokens."""

from __future__ import annotations

import json

from dashboard.answer import Answer, Token
from dashboard.apis import completions
from dashboard.apis.ask import Ask, Message


def test_the_prompt_is_the_last_message() -> None:
    body = completions.body(Ask("m", (Message("user", "Once"),), stop=("END",), logprobs=True))
    assert (body["prompt"], body["stop"], body["logprobs"]) == ("Once", ["END"], 5)


def test_text_and_tokens_are_read() -> None:
    answer = Answer(sent=0.0)
    logprobs = {
        "tokens": ["a", "b"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"b": -0.5, "c": -0.2}],
    }
    choice = {"text": "ab", "logprobs": logprobs, "finish_reason": "stop"}
    completions.read(answer, json.dumps({"choices": [choice], "usage": {"prompt_tokens": 2}}))
    assert (answer.text, answer.finish_reason) == ("ab", "stop")
    assert answer.tokens == [Token("b", -0.5, (("c", -0.2), ("b", -0.5)))]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 2
