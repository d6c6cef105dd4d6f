"""Whatever a client sends, it gets an OpenAI-shaped error, and other clients are not affected."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.running import RunningService

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = {"role": "user", "content": "Hi"}
OK: dict[str, Any] = {"model": "tiny", "messages": [USER], "max_tokens": 4}
OK_TEXT: dict[str, Any] = {"model": "tiny", "prompt": "Hi", "max_tokens": 4}


def chat(**fields: Any) -> tuple[str, Any]:
    return CHAT, {**OK, **fields}


def text(**fields: Any) -> tuple[str, Any]:
    return TEXT, {**OK_TEXT, **fields}


# (what is wrong, request, status, param or code that the error must name)
CASES: list[tuple[str, tuple[str, Any], int, str | None]] = [
    ("a string for a bool", chat(stream="1"), 400, "stream"),
    ("a number for a bool", chat(logprobs=1), 400, "logprobs"),
    ("a string for a number", chat(max_tokens="5"), 400, "max_tokens"),
    ("a float for a count", chat(max_tokens=1.5), 400, "max_tokens"),
    ("no tokens wanted", chat(max_tokens=0), 400, "max_tokens"),
    ("a negative count", chat(max_completion_tokens=-1), 400, "max_completion_tokens"),
    ("a million choices", chat(n=10**6), 400, "n"),
    ("a billion choices", chat(n=10**9), 400, "n"),
    ("no choices", chat(n=0), 400, "n"),
    ("a billion top logprobs", chat(logprobs=True, top_logprobs=10**9), 400, "top_logprobs"),
    ("top logprobs without logprobs", chat(top_logprobs=3), 400, "top_logprobs"),
    ("too hot", chat(temperature=1e9), 400, "temperature"),
    ("below zero", chat(temperature=-0.1), 400, "temperature"),
    ("a number beyond numbers", chat(seed=2**70), 400, "seed"),
    ("top_p above one", chat(top_p=1.5), 400, "top_p"),
    ("too many stop strings", chat(stop=["x"] * 1000), 400, "stop"),
    ("a huge stop string", chat(stop="x" * 100_000), 400, "stop"),
    ("an empty stop string", chat(stop=[""]), 400, "stop[0]"),
    ("bias for no token", chat(logit_bias={"999999": 1}), 400, "logit_bias"),
    ("bias for a word", chat(logit_bias={"hello": 1}), 400, "logit_bias"),
    ("bias out of bounds", chat(logit_bias={"5": 1000}), 400, "logit_bias"),
    ("stop token out of range", chat(stop_token_ids=[10**6]), 400, "stop_token_ids"),
    ("allowed token out of range", chat(allowed_token_ids=[999_999]), 400, "allowed_token_ids"),
    ("no token allowed", chat(allowed_token_ids=[]), 400, "allowed_token_ids"),
    ("more tokens than the limit", chat(min_tokens=50), 400, "min_tokens"),
    ("an unknown format", chat(response_format={"type": "xml"}), 400, "response_format.type"),
    ("a choice without tools", chat(tool_choice="required"), 400, "tool_choice"),
    ("audio", chat(modalities=["text", "audio"]), 400, "modalities"),
    ("old functions", chat(functions=[]), 400, "functions"),
    ("usage of no stream", chat(stream_options={"include_usage": True}), 400, "stream_options"),
    (
        "an unknown template variable",
        chat(chat_template_kwargs={"x": 1}),
        400,
        "chat_template_kwargs.x",
    ),
    (
        "a reserved template variable",
        chat(chat_template_kwargs={"messages": []}),
        400,
        "chat_template_kwargs.messages",
    ),
    ("no messages", chat(messages=[]), 400, "messages"),
    ("messages of the wrong kind", chat(messages="Hi"), 400, "messages"),
    ("a message without role", chat(messages=[{"content": "x"}]), 400, "messages[0].role"),
    ("an unknown role", chat(messages=[{**USER, "role": "king"}]), 400, "messages[0].role"),
    (
        "content that is a number",
        chat(messages=[{**USER, "content": 5}]),
        400,
        "messages[0].content",
    ),
    (
        "a picture",
        chat(
            messages=[
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
            ]
        ),
        400,
        "messages[0].content[0].type",
    ),
    ("no content", chat(messages=[{"role": "user"}]), 400, "messages[0].content"),
    (
        "a tool's answer to nothing",
        chat(messages=[{"role": "tool", "content": "x"}]),
        400,
        "messages[0].tool_call_id",
    ),
    (
        "a template that raises",
        chat(messages=[{**USER, "content": "please raise"}]),
        400,
        "messages",
    ),
    (
        "a prompt too long",
        chat(messages=[{**USER, "content": "long " * 2000}]),
        400,
        "context_length_exceeded",
    ),
    ("an unknown model", chat(model="gpt-42"), 404, "model_not_found"),
    ("a model that is a number", chat(model=5), 400, "model"),
    ("no object", (CHAT, [1, 2]), 400, None),
    ("a string", (CHAT, "hello"), 400, None),
    ("nothing at all", (CHAT, None), 400, None),
    ("no prompt", (TEXT, {"model": "tiny"}), 400, "prompt"),
    ("an empty prompt", text(prompt=""), 400, "prompt"),
    ("an empty list of prompts", text(prompt=[]), 400, "prompt"),
    ("a mixed list of prompts", text(prompt=["a", 5]), 400, "prompt"),
    ("a token out of range", text(prompt=[1, 999_999]), 400, "prompt"),
    ("a token below zero", text(prompt=[-1]), 400, "prompt[0]"),
    ("a token beyond integers", text(prompt=[2**40]), 400, "prompt[0]"),
    ("a thousand prompts", text(prompt=["a"] * 1000), 400, "prompt"),
    ("prompts times n", text(prompt=["a"] * 100, n=16), 400, "prompt"),
    ("a suffix", text(suffix="end"), 400, "suffix"),
    ("best of fewer", text(best_of=2, n=3), 400, "best_of"),
    ("nothing without echo", text(max_tokens=0), 400, "max_tokens"),
    ("a billion logprobs", text(logprobs=10**9), 400, "logprobs"),
    ("streamed prompt logprobs", text(prompt_logprobs=1, stream=True), 400, "prompt_logprobs"),
    ("tokens too long", text(prompt=[5] * 600), 400, "context_length_exceeded"),
    ("neither prompt nor messages", ("/tokenize", {"model": "tiny"}), 400, "prompt"),
    ("a token that is none", ("/detokenize", {"tokens": [10**6]}), 400, "tokens"),
    ("a path that is none", ("/v1/images", {}), 404, "not_found"),
]

RAW: list[tuple[str, bytes]] = [
    ("not JSON", b"{nope"),
    ("an empty body", b""),
    ("bytes that are no text", b'{"model": "\xff\xfe"}'),
    (
        "half a surrogate",
        b'{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}]}',
    ),
    ("a number that is none", b'{"model": "tiny", "temperature": NaN}'),
    ("two objects", b"{}{}"),
    ("nesting without end", b'{"messages": ' + b"[" * 100_000),
    (
        "nesting in a tool",
        b'{"tools": [{"type": "function", "function": {"name": "f", "parameters":'
        + b'{"a":' * 50_000
        + b"1"
        + b"}" * 50_000
        + b"}}]}",
    ),
]


def assert_is_openai_shaped(body: Any) -> None:
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert error["type"] in ("invalid_request_error", "rate_limit_error", "server_error")


class Onlooker:
    """A client whose stream continues for as long as the bad requests come."""

    def __init__(self, service: RunningService) -> None:
        self._service = service
        self._stop = threading.Event()
        self.complete = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        ask = {**OK, "max_tokens": 200, "ignore_eos": True, "stream": True}
        try:
            while not self._stop.is_set():
                chunks = self._service.stream(CHAT, ask)
                assert chunks[-1]["choices"][0]["finish_reason"] == "length"
                self.complete += 1
        except BaseException as error:
            self.failure = error

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)


@pytest.fixture(scope="module")
def onlooker(service: RunningService) -> Iterator[Onlooker]:
    watching = Onlooker(service)
    yield watching
    watching.end()
    assert watching.failure is None
    assert watching.complete > 0


@pytest.mark.usefixtures("onlooker")
@pytest.mark.parametrize(
    ("request_", "status", "named"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_bad_request_is_refused_by_name(
    service: RunningService, request_: tuple[str, Any], status: int, named: str | None
) -> None:
    path, body = request_
    got, reply = service.post(path, body)
    assert got == status, reply
    assert_is_openai_shaped(reply)
    assert named in (None, reply["error"]["param"], reply["error"]["code"]), reply


@pytest.mark.usefixtures("onlooker")
@pytest.mark.parametrize("body", [raw for _, raw in RAW], ids=[name for name, _ in RAW])
def test_a_malformed_body_is_refused(service: RunningService, body: bytes) -> None:
    status, _, reply = service.exchange("POST", CHAT, body)
    assert status == 400, reply
    assert_is_openai_shaped(json.loads(reply))


@pytest.mark.usefixtures("onlooker")
def test_a_wrong_method_is_refused_with_the_right_ones(service: RunningService) -> None:
    status, headers, reply = service.exchange("GET", CHAT)
    assert status == 405
    assert "POST" in headers["allow"]
    assert_is_openai_shaped(json.loads(reply))


@pytest.mark.usefixtures("onlooker")
@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_fifty_megabytes_are_refused_without_being_kept(
    service: RunningService, chunked: bool
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    piece = b"x" * 65536
    count = 50 * 1024 * 1024 // len(piece)
    headers = {} if chunked else {"Content-Length": str(count * len(piece))}
    try:
        # The server need not read what it has refused.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(
                "POST", CHAT, (piece for _ in range(count)), headers, encode_chunked=chunked
            )
        reply = connection.getresponse()
        assert reply.status == 413
        assert_is_openai_shaped(json.loads(reply.read()))
    finally:
        connection.close()


@pytest.mark.usefixtures("onlooker")
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("[" * 100_000, json.dumps("[" * 100_000)),
        ("not JSON", '"not JSON"'),
        (r'{"a": "\ud800"}', '{"a": "\ufffd"}'),  # half a character, which cannot be encoded
    ],
    ids=["deep", "text", "surrogate"],
)
def test_arguments_that_are_not_a_json_object_are_shown_as_far_as_they_can_be_read(
    service: RunningService, arguments: str, shown: str
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    status, reply = service.post("/tokenize", {"messages": [USER, said]})
    assert status == 200, reply
    _, text = service.post("/detokenize", {"tokens": reply["tokens"]})
    assert shown in text["prompt"]


def test_after_all_that_the_engine_is_idle_and_answers(
    service: RunningService, onlooker: Onlooker
) -> None:
    onlooker.end()
    service.wait_idle()
    status, answer = service.post(CHAT, OK)
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "length"
