"""The chat client reads any OpenAI-compatible server, and says in words what is wrong with one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from queue import Queue
from typing import Any

import pytest

from client.chat_client import ChatClient, Piece, ServerError, Timings
from tests.dashboard.foreign_server import Exchange, ForeignServer

CHAT = "/v1/chat/completions"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def server() -> Iterator[ForeignServer]:
    with ForeignServer() as server:
        yield server


def event(**fields: Any) -> str:
    return f"data: {json.dumps(fields)}\n\n"


def delta(**fields: Any) -> str:
    return event(choices=[{"index": 0, "delta": fields}])


def streaming(server: ForeignServer, *events: str) -> list[dict[str, Any]]:
    """What the server is sent, as it comes, for an answer of these events."""
    sent: list[dict[str, Any]] = []

    def reply(exchange: Exchange) -> None:
        sent.append({**json.loads(exchange.body), "key": exchange.headers["authorization"]})
        exchange.start(200, "text/event-stream")
        for one in events:
            exchange.send(one)

    server.replies[CHAT] = reply
    return sent


def test_an_answer_comes_in_pieces_thoughts_apart(server: ForeignServer) -> None:
    sent = streaming(
        server,
        ": a comment\n\n",
        delta(role="assistant", content=""),
        delta(reasoning_content="Hm"),
        delta(reasoning="m."),
        delta(content="Grüße"),
        event(choices=[], usage={"completion_tokens": 7}),
        "data: [DONE]\n\n",
        delta(content="never read"),
    )
    client = ChatClient(server.url, "sk-1")
    pieces = list(client.stream(ASKED))
    assert pieces == [Piece("Hm", reasoning=True), Piece("m.", reasoning=True), Piece("Grüße")]
    assert client.timings.tokens == 7
    assert client.timings.first_token is not None
    assert client.timings.first_token <= client.timings.total
    options = {"stream": True, "stream_options": {"include_usage": True}}
    assert sent == [{**ASKED, **options, "key": "Bearer sk-1"}]


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_a_base_url_may_have_its_version_or_not(server: ForeignServer, suffix: str) -> None:
    body = json.dumps({"data": [{"id": "one"}, {"id": "two"}]})
    server.replies["/v1/models"] = lambda exchange: exchange.answer(200, body)
    assert ChatClient(server.url + suffix).models() == ["one", "two"]
    assert ChatClient(server.url.removeprefix("http://") + suffix).models() == ["one", "two"]


@pytest.mark.parametrize("url", ["ftp://host", "http://", "file:///etc/passwd"])
def test_a_url_that_is_not_http_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="not an http"):
        ChatClient(url)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, '{"error": {"message": "No such model."}}', "400: No such model."),
        (502, "<html>", "502 Bad Gateway"),
        (500, '{"error": "text"}', "500: text"),
    ],
)
def test_a_refusal_is_shown_in_the_servers_words_if_it_has_any(
    server: ForeignServer, status: int, body: str, said: str
) -> None:
    server.replies[CHAT] = lambda exchange: exchange.answer(status, body)
    with pytest.raises(ServerError) as refused:
        list(ChatClient(server.url).stream(ASKED))
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((delta(content="a"), event(error={"message": "The engine died."})), "The engine died."),
        ((delta(content="a"), "data: {broken\n\n"), "the stream failed"),
        ((delta(content="a"), event(choices="abc")), "'choices' of an event is not a list"),
        ((delta(content="a"), event(choices=[None])), "a choice of an event is not an object"),
        ((delta(content="a"), event(choices=[{"delta": [1]}])), "'delta' of an event is not an"),
        ((delta(content="a"), delta(content=[{"text": "x"}])), "'content' is not text"),
        ((delta(content="a"), delta(reasoning={"text": "x"})), "'reasoning' is not text"),
        pytest.param(
            (delta(content="a"), f"data: {'[' * 100_000}\n\n"), "nested too deeply", id="deep"
        ),
        pytest.param(
            (delta(content="a"), f"data: {'a' * (17 << 20)}\n\n"), "more than 16 MiB", id="long"
        ),
    ],
)
def test_a_stream_that_fails_keeps_what_came_and_says_so(
    server: ForeignServer, events: tuple[str, ...], said: str
) -> None:
    streaming(server, *events)
    pieces: list[Piece] = []
    with pytest.raises(ServerError, match=said):
        pieces.extend(ChatClient(server.url).stream(ASKED))
    assert pieces == [Piece("a")]


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"error": None, "usage": {"completion_tokens": 7}}, 7),
        ({"usage": {"prompt_tokens": 1}}, 0),
        ({"usage": {"completion_tokens": "9"}}, 0),
        ({"usage": {"completion_tokens": 10**1000}}, 0),
        ({"usage": [1]}, 0),
    ],
    ids=["null", "none", "text", "huge", "list"],
)
def test_what_an_sdk_would_accept_ends_no_stream(
    server: ForeignServer, fields: dict[str, Any], tokens: int
) -> None:
    streaming(
        server,
        event(choices=None),
        event(choices=[{"delta": None}]),
        delta(content=None, reasoning=None),
        event(choices=[{"delta": {"content": "a"}}], **fields),
        "data: [DONE]\n\n",
    )
    client = ChatClient(server.url)
    assert list(client.stream(ASKED)) == [Piece("a")]
    assert client.timings.tokens == tokens


def test_closing_the_stream_closes_the_connection(server: ForeignServer) -> None:
    left: Queue[bytes] = Queue()

    def reply(exchange: Exchange) -> None:
        exchange.start(200, "text/event-stream")
        exchange.send(delta(content="a"))
        left.put(exchange.connection.recv(1))  # waits until the client goes

    server.replies[CHAT] = reply
    stream = ChatClient(server.url).stream(ASKED)
    assert next(stream) == Piece("a")
    assert left.empty()
    stream.close()
    assert left.get(timeout=20) == b""


def test_an_unreachable_or_unsuitable_server_is_reported(server: ForeignServer) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(ServerError, match=f"{url} cannot be reached"):
            ChatClient(url).models()
    for body in (
        *("<html>", "[]", "{}", '{"data": [{"name": "m"}]}', '{"data": [{"id": ["m"]}]}'),
        *('{"data": ["m"]}', '{"data": "m"}', "[" * 100_000, f'"{"a" * (17 << 20)}"'),
    ):
        server.replies["/v1/models"] = lambda exchange, body=body: exchange.answer(200, body)  # type: ignore[misc]
        with pytest.raises(ServerError, match="not an OpenAI-compatible server"):
            ChatClient(server.url).models()


def test_the_first_model_is_used_if_there_is_one(server: ForeignServer) -> None:
    server.replies["/v1/models"] = lambda exchange: exchange.answer(200, '{"data": [{"id": "m"}]}')
    assert ChatClient(server.url).first_model() == "m"
    server.replies["/v1/models"] = lambda exchange: exchange.answer(200, '{"data": []}')
    with pytest.raises(ServerError, match=f"{server.url} lists no models"):
        ChatClient(server.url).first_model()


def test_speed_is_that_of_the_stretch_after_the_first_token() -> None:
    assert Timings(first_token=1.0, total=3.0, tokens=5).tokens_per_second == 2.0
    for unknown in (
        Timings(),
        Timings(first_token=1.0, total=3.0, tokens=1),
        Timings(first_token=3.0, total=3.0, tokens=5),
        Timings(total=3.0, tokens=5),
    ):
        assert unknown.tokens_per_second is None
