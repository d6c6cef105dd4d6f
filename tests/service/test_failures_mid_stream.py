"""Whatever fails after the first byte, each API's stream ends with that API's own error event."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from litestar.testing import TestClient

from engine.messages import FinishReason
from service.app import create_app
from service.generation import choice as choice_module
from service.output.detokenizer import Detokenizer
from service.output.parser import OutputParser
from service.settings import ServiceSettings
from service.telemetry.observer import NoTelemetry
from tests.service.running import RunningService, until

MESSAGES = [{"role": "user", "content": "Tell me all of it"}]


class Api(NamedTuple):
    """``error`` is in the last event of a failed stream, and in no other; ``success`` in the last
    of one that succeeded."""

    path: str
    body: dict[str, Any]
    error: str
    success: str


APIS = {
    "chat": Api(
        "/v1/chat/completions",
        {"messages": MESSAGES, "max_tokens": 400, "ignore_eos": True},
        '"error":',
        "[DONE]",
    ),
    "completions": Api(
        "/v1/completions",
        {"prompt": "All of it", "max_tokens": 400, "ignore_eos": True},
        '"error":',
        "[DONE]",
    ),
    "messages": Api(
        "/v1/messages",
        {"model": "tiny", "messages": MESSAGES, "max_tokens": 400, "temperature": 0},
        "event: error\n",
        "event: message_stop\n",
    ),
    "responses": Api(
        "/v1/responses",
        {"input": "All of it", "max_output_tokens": 400, "ignore_eos": True},
        "event: response.failed\n",
        "event: response.completed\n",
    ),
}
EACH_API = pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())


def check_failed(stream: str, api: Api) -> None:
    events = stream.split("\n\n")
    assert events[-1] == ""
    assert api.error in events[-2], events[-2]
    assert not any(api.error in event for event in events[:-2])
    assert api.success not in stream
    assert '"finish_reason":"' not in stream
    assert "response.incomplete" not in stream


class OpenStream:
    def __init__(self, service: RunningService, api: Api, **headers: str) -> None:
        self.api = api
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        body = json.dumps({**api.body, "stream": True})
        self._connection.request("POST", api.path, body, headers)
        self._reply = self._connection.getresponse()
        assert self._reply.status == 200
        self._text = self._reply.read1(200).decode()
        assert self._text

    def rest(self) -> str:
        text = self._text + self._reply.read().decode()
        self._connection.close()
        return text


@pytest.fixture
def own(tiny_model: Path, tmp_path: Path) -> Iterator[RunningService]:
    """A service whose engine may be killed, slow enough that streams last."""
    model = f"simulated:step=20ms,output=3000,tokenizer={tiny_model}"
    with RunningService(tiny_model, tmp_path, engine_args=("--model", model)) as running:
        yield running


def test_a_killed_engine_ends_every_apis_streams_as_failed(own: RunningService) -> None:
    streams = [OpenStream(own, api) for api in APIS.values()]
    resumable = OpenStream(own, APIS["chat"], **{"x-quire-resumable": "true"})
    own.engine.end(signal.SIGKILL)
    for stream in [*streams, resumable]:
        check_failed(stream.rest(), stream.api)
    own.start_engine()
    until(lambda: own.get("/health/ready")[0] == 200, 60, "the new engine to be ready")
    assert own.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200


# --- bugs in the app itself, with the real engine -------------------------------------------------


@pytest.fixture
def client(service: RunningService) -> Iterator[TestClient[Any]]:
    app = create_app(
        ServiceSettings(served_model_name=("tiny",), store_url="none"),
        model_dir=service.model,
        socket_path=service.engine_socket,
        telemetry=NoTelemetry(),
    )
    with TestClient(
        app, raise_server_exceptions=False, base_url="http://quire.localhost"
    ) as opened:
        until(lambda: opened.get("/health/ready").status_code == 200, 20, "the app to be ready")
        yield opened


class _ParserFault:
    """``feed_token`` that raises at the n-th token."""

    def __init__(self, after: int) -> None:
        self._left = after
        self._real = OutputParser.feed_token

    def __call__(self, parser: OutputParser, text: str, tokens: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("a fault of ours")
        self._real(parser, text, tokens)


@EACH_API
@pytest.mark.parametrize("after", [0, 1, 20])
def test_a_parser_that_raises_ends_its_stream_and_no_other(
    client: TestClient[Any], monkeypatch: pytest.MonkeyPatch, api: Api, after: int
) -> None:
    fault = _ParserFault(after)
    with monkeypatch.context() as patched:
        patched.setattr(OutputParser, "feed_token", lambda *args: fault(*args))
        stream = client.post(api.path, json={**api.body, "stream": True}).text
    check_failed(stream, api)
    assert "a fault of ours" not in stream
    whole = client.post(api.path, json={**api.body, "stream": True}).text
    assert api.error not in whole


@EACH_API
def test_a_detokenizer_that_raises_fails_a_whole_answer_with_the_apis_own_error(
    client: TestClient[Any], monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    def broken(*_: object, **__: object) -> Detokenizer:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr("service.generation.generator.new_detokenizer", broken)
        reply = client.post(api.path, json=api.body)
    assert reply.status_code == 500
    assert "error" in reply.json()
    assert "a fault of ours" not in reply.text


@EACH_API
def test_an_engine_that_fails_one_sequence_ends_that_stream_only(
    client: TestClient[Any], monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    """The engine's own word that a sequence failed, put in the place of its end."""
    real = choice_module.Choice._advance_to_the_end

    def failing(choice: choice_module.Choice) -> None:
        record = choice.sequence.finished
        if record is not None:
            choice.sequence.finished = msgspec.structs.replace(
                record, reason=FinishReason.ERROR, error="a step failed"
            )
        real(choice)

    with monkeypatch.context() as patched:
        patched.setattr(choice_module.Choice, "_advance_to_the_end", failing)
        stream = client.post(api.path, json={**api.body, "stream": True}).text
    check_failed(stream, api)
