"""The streaming client against servers that are slow, odd or broken. Against Quire itself it is
tested in test_with_quire.py."""

from __future__ import annotations

import gc
import json
import threading
import types
from collections.abc import Callable

import pytest

from dashboard.answer import Answer, Ending
from dashboard.apis.ask import Ask, Message
from dashboard.apis.table import APIS
from dashboard.client import Generation, Request
from tests.dashboard.foreign_server import Exchange, ForeignServer
from tests.e2e.quire_server import until

CHAT = "/v1/chat/completions"
HI = (Message("user", "Hi"),)
REQUEST = Request(APIS[0], Ask("m", HI, temperature=0.5, top_p=0.9, max_tokens=8))


def event(**chunk: object) -> str:
    return f"data: {json.dumps(chunk)}\n\n"


def text(content: str, finish: str | None = None) -> str:
    return event(choices=[{"delta": {"content": content}, "finish_reason": finish}])


def streams(*events: str) -> Callable[[Exchange], None]:
    def reply(exchange: Exchange) -> None:
        exchange.start(200, "text/event-stream")
        for item in events:
            exchange.send(item)

    return reply


def finished(generation: Generation) -> Answer:
    until(lambda: not generation.running, 20, "the answer to end")
    return generation.answer()


def test_it_streams_to_the_end(foreign: ForeignServer) -> None:
    usage = {"prompt_tokens": 4, "completion_tokens": 2}
    foreign.replies[CHAT] = streams(
        text("Hel"), text("lo", "stop"), event(choices=[], usage=usage), "data: [DONE]\n\n"
    )
    answer = finished(Generation(foreign.url, REQUEST))
    assert (answer.text, answer.finish_reason) == ("Hello", "stop")
    assert answer.ending is Ending.COMPLETE
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


def test_it_asks_for_what_was_chosen_and_shows_the_key(foreign: ForeignServer) -> None:
    seen: list[tuple[str | None, object]] = []

    def reply(exchange: Exchange) -> None:
        seen.append((exchange.headers.get("Authorization"), json.loads(exchange.body)))
        streams(text("x", "stop"), "data: [DONE]\n\n")(exchange)

    foreign.replies[CHAT] = reply
    ask = Ask("m", HI, temperature=0.5, top_p=0.9, max_tokens=8, seed=7, thinking=False)
    request = Request(APIS[0], ask)
    finished(Generation(foreign.url, request, api_key="secret"))
    assert seen == [
        (
            "Bearer secret",
            {
                "model": "m",
                "messages": [{"role": "user", "content": "Hi"}],
                "temperature": 0.5,
                "top_p": 0.9,
                "max_tokens": 8,
                "seed": 7,
                "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
                "timings": True,
                "chat_template_kwargs": {"enable_thinking": False},
            },
        )
    ]


def test_it_knows_what_finds_the_request_in_log_and_traces(foreign: ForeignServer) -> None:
    def reply(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.send_header("x-request-id", "req_1")
        exchange.send_header("x-trace-id", "ab12")
        exchange.send_header("Connection", "close")
        exchange.end_headers()
        exchange.send(text("x", "stop"))

    foreign.replies[CHAT] = reply
    answer = finished(Generation(foreign.url, REQUEST))
    assert (answer.request_id, answer.trace_id) == ("req_1", "ab12")


def test_the_key_is_gone_when_the_answer_has_ended(foreign: ForeignServer) -> None:
    foreign.replies[CHAT] = streams(text("x", "stop"), "data: [DONE]\n\n")
    key = "-".join(("sk", "held", "nowhere"))
    generation = Generation(foreign.url, REQUEST, api_key=key)
    finished(generation)
    until(lambda: key not in held(generation), 20, "the key to be let go")


def held(thing: object) -> set[str]:
    """All strings that are reachable from ``thing`` by attributes of our classes."""
    found: set[str] = set()
    todo, seen = [thing], set()
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type | types.ModuleType | types.FunctionType):
            continue
        seen.add(id(each))
        if isinstance(each, str):
            found.add(each)
        todo += gc.get_referents(each)
    return found


def test_a_refusal_is_told_in_the_servers_words(foreign: ForeignServer) -> None:
    body = json.dumps({"error": {"message": "No such model.", "type": "invalid_request_error"}})
    foreign.replies[CHAT] = lambda exchange: exchange.answer(404, body)
    answer = finished(Generation(foreign.url, REQUEST))
    assert answer.ending is Ending.FAILED
    assert answer.error == "The server refused (404): No such model."


def test_a_key_that_cannot_be_sent_is_said(closed_url: str) -> None:
    answer = finished(Generation(closed_url, REQUEST, "schlüssel"))
    assert answer.ending is Ending.FAILED
    assert answer.error == "The API key contains characters other than printable ASCII."


def test_a_request_that_cannot_be_written_is_said(closed_url: str) -> None:
    ask = Ask("m", HI, schema={"maximum": float("nan")})
    answer = finished(Generation(closed_url, Request(APIS[0], ask)))
    assert answer.ending is Ending.FAILED
    assert answer.error.startswith("The dashboard could not complete the request: ValueError: ")


def test_nothing_there_is_told(closed_url: str) -> None:
    answer = finished(Generation(closed_url, REQUEST))
    assert answer.ending is Ending.FAILED
    assert answer.error == f"Could not connect to {closed_url}."


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((text("Hel"),), "closed the connection before the answer was complete"),
        ((text("Hel"), "data: {nonsense\n\n"), "invalid chunk"),
        (
            (text("Hel"), event(error={"message": "out of memory"})),
            "reported an error: out of memory",
        ),
    ],
)
def test_a_stream_that_breaks_keeps_what_came(
    foreign: ForeignServer, events: tuple[str, ...], words: str
) -> None:
    foreign.replies[CHAT] = streams(*events)
    answer = finished(Generation(foreign.url, REQUEST))
    assert answer.ending is Ending.FAILED
    assert words in answer.error
    assert answer.text == "Hel"


class Silence:
    """Sends ``events`` and then nothing, and notes when the client has closed its end."""

    def __init__(self, *events: str) -> None:
        self.events = events
        self.asked = threading.Event()
        self.gone = threading.Event()

    def __call__(self, exchange: Exchange) -> None:
        if self.events:
            streams(*self.events)(exchange)
        self.asked.set()
        exchange.connection.settimeout(20)
        if exchange.connection.recv(1) == b"":
            self.gone.set()


@pytest.mark.parametrize("events", [(), (text("Hel"),)], ids=["before the reply", "in the reply"])
def test_cancelling_closes_the_connection_even_while_the_server_is_silent(
    foreign: ForeignServer, events: tuple[str, ...]
) -> None:
    silence = Silence(*events)
    foreign.replies[CHAT] = silence
    generation = Generation(foreign.url, REQUEST)
    assert silence.asked.wait(20)
    until(lambda: generation.answer().chunks == len(events), 20, "what was sent to arrive")
    generation.cancel()
    assert silence.gone.wait(20)
    answer = generation.answer()
    assert answer.ending is Ending.STOPPED
    assert answer.text == "Hel" * len(events)


def test_an_answer_that_nobody_looks_at_is_given_up(foreign: ForeignServer) -> None:
    silence = Silence(text("Hel"))
    foreign.replies[CHAT] = silence
    generation = Generation(foreign.url, REQUEST, patience=0.2)
    assert silence.gone.wait(20)
    assert not generation.running


def test_looking_keeps_an_answer_alive(foreign: ForeignServer) -> None:
    silence = Silence(text("Hel"))
    foreign.replies[CHAT] = silence
    generation = Generation(foreign.url, REQUEST, patience=2.0)
    for _ in range(25):
        generation.answer()
        assert not silence.gone.wait(0.1)
    generation.cancel()


def test_cancelling_after_the_end_changes_nothing(foreign: ForeignServer) -> None:
    foreign.replies[CHAT] = streams(text("x", "stop"), "data: [DONE]\n\n")
    generation = Generation(foreign.url, REQUEST)
    finished(generation)
    generation.cancel()
    assert generation.answer().ending is Ending.COMPLETE
