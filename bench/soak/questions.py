"""What the soak asks, one row for each: every API, streamed and whole, with all that changes the
path of a request. All are greedy or seeded, so that each has one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.soak.answers import (
    Read,
    embeddings,
    streamed_choices,
    streamed_message,
    streamed_response,
    whole_choices,
    whole_message,
    whole_response,
)

# Names of the model, by which the server counts separately: those whose every answer is checked,
# those that leave, those that aimed faults hit.
SOAKED, LEFT, AIMED = MODELS = ("soaked", "left", "aimed")
# The max_tokens of the latter.
AIMED_TOKENS = 77


@dataclass(frozen=True)
class Question:
    """``route``: the name under which the server counts it. ``whole``, ``streamed``: how to read
    its answers; None: it has none of the kind."""

    name: str
    route: str
    path: str
    body: dict[str, Any]
    whole: Read
    streamed: Read | None = None
    limit: str = "max_tokens"  # the field with the most tokens of an answer

    def asked(self, *, stream: bool, **more: Any) -> dict[str, Any]:
        body = {"model": SOAKED, **self.body, **more}
        if self.streamed is None:
            return body
        if stream and self.streamed is streamed_choices:
            body["stream_options"] = {"include_usage": True}
        return {**body, "stream": stream}


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


_PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
}
_WEATHER = "What's the weather in Paris and in London?"
_TOOL = {"name": "get_weather", "description": "Get the current weather in a city."}
_FUNCTION = {"type": "function", "function": {**_TOOL, "parameters": _PARAMETERS}}
_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
_SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "schema": _PERSON}}
_GREEDY = {"temperature": 0}


def _chat(name: str, text: str, **more: Any) -> Question:
    body = {"messages": _user(text), "max_tokens": 60, **_GREEDY, **more}
    path = "/v1/chat/completions"
    return Question(name, "chat_completions", path, body, whole_choices, streamed_choices)


def _message(name: str, text: str, **more: Any) -> Question:
    body = {"messages": _user(text), "max_tokens": 60, **_GREEDY, **more}
    return Question(name, "messages", "/v1/messages", body, whole_message, streamed_message)


def _response(name: str, said: str, **more: Any) -> Question:
    body = {"input": said, "max_output_tokens": 60, **_GREEDY, **more}
    return Question(
        *(name, "responses", "/v1/responses", body, whole_response, streamed_response),
        limit="max_output_tokens",
    )


QUESTIONS = (
    _chat("chat", "Tell me a story."),
    _chat("chat, Chinese", "你好"),
    _chat("chat, seeded, n", "Tell me a story.", temperature=1.0, seed=7, n=3),
    _chat("chat, stop", "Count from 1 to 10.", stop=["7", "never"]),
    _chat("chat, logprobs", "Who are you?", logprobs=True, top_logprobs=3),
    _chat("chat, tools", _WEATHER, tools=[_FUNCTION]),
    _chat("chat, schema", "Invent a person.", response_format=_SCHEMA),
    _chat("chat, long prompt", "word " * 300 + "What is 12 + 7?"),
    Question(
        *("completion, seeded, n", "completions", "/v1/completions"),
        {"prompt": "Once upon a time", "max_tokens": 60, "seed": 3, "temperature": 0.8, "n": 2},
        *(whole_choices, streamed_choices),
    ),
    _message("message", "Tell me a story."),
    _message("message, tools", _WEATHER, tools=[{**_TOOL, "input_schema": _PARAMETERS}]),
    _message("message, stop", "Count from 1 to 10.", stop_sequences=["8"]),
    _response("response", "Tell me a story.", store=False),
    _response("response, stored", "Who are you?"),
    _response(
        "response, schema",
        "Invent a person.",
        text={"format": {"type": "json_schema", "name": "person", "schema": _PERSON}},
    ),
    Question(
        *("embeddings", "embeddings", "/v1/embeddings", {"input": ["a cat", "a kitten"]}),
        embeddings,
    ),
)
