"""What ``quire chat`` prints of what others say."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest

from client.chat_terminal import run
from tests.dashboard.foreign_server import Exchange, ForeignServer


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("http://127.0.0.1:1", api_key="geheim-\N{EURO SIGN}") == 1
    said = capsys.readouterr().err
    assert "the API key contains characters" in said
    assert "\N{EURO SIGN}" not in said
    assert "geheim" not in said


@pytest.fixture
def server() -> Iterator[ForeignServer]:
    """It answers the model ``m``, and refuses others."""

    def reply(exchange: Exchange) -> None:
        if json.loads(exchange.body)["model"] != "m":
            exchange.answer(404, '{"error": {"message": "No such model."}}')
            return
        exchange.start(200, "text/event-stream")
        exchange.send('data: {"choices": [{"delta": {"content": "Hello"}}]}\n\ndata: [DONE]\n\n')

    with ForeignServer() as server:
        server.replies["/v1/chat/completions"] = reply
        yield server


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def typed(monkeypatch: pytest.MonkeyPatch, text: bytes, kind: type[io.TextIOWrapper]) -> None:
    monkeypatch.setattr("sys.stdin", kind(io.BytesIO(text), encoding="utf-8"))


@pytest.mark.parametrize(
    ("model", "kind", "status"),
    [
        ("m", io.TextIOWrapper, 0),
        ("nope", io.TextIOWrapper, 1),
        ("nope", Terminal, 0),
    ],
)
def test_in_a_script_a_request_that_failed_is_a_failure(
    model: str,
    kind: type[io.TextIOWrapper],
    status: int,
    server: ForeignServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed(monkeypatch, b"hi\n", kind)
    assert run(server.url, model=model) == status
    said = capsys.readouterr()
    assert ("Hello" in said.out, "No such model." in said.err) == (model == "m", model != "m")


def test_later_requests_do_not_hide_one_that_failed(
    server: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = iter(("nope", "m"))
    known = server.replies["/v1/chat/completions"]

    def reply(exchange: Exchange) -> None:
        exchange.body = json.dumps({"model": next(replies)}).encode()
        known(exchange)

    server.replies["/v1/chat/completions"] = reply
    typed(monkeypatch, b"one\ntwo\n", io.TextIOWrapper)
    assert run(server.url, model="m") == 1


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_input_that_is_not_text_is_said_in_a_sentence(
    errors: str,
    server: ForeignServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"h\xff\n"), encoding="utf-8", errors=errors)
    monkeypatch.setattr("sys.stdin", stdin)
    assert run(server.url, model="m") == 1
    assert capsys.readouterr().err == "quire: the input is not UTF-8 text\n"
    assert server.requests == []
