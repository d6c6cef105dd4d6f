"""After a lost connection a client gets exactly the rest of its stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import Request

from engine.messages import SamplingParams
from service.checkpoint.checkpoint import load_checkpoint
from service.errors import InvalidRequestError, OverloadedError
from service.generation.generator import Generator
from service.generation.request import GenerationRequest
from service.generation.run import MOST_READERS, RUN_PIECE_BYTES, Run, RunLimits, RunRegistry
from service.http.call import HttpCall
from service.http.event_stream import EventStream
from service.http.replay import first_wanted, follow_run, replayed, wants_resumable
from service.serving.exchange import Exchange
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord
from service.tenants.caller import ANYBODY
from tests.service.wire.chat.test_answer import Desk


def asked(query: str = "", **headers: str) -> HttpCall:
    encoded = [
        (name.replace("_", "-").encode(), value.encode("latin-1"))
        for name, value in headers.items()
    ]
    scope: Any = {"type": "http", "headers": encoded, "query_string": query.encode(), "state": {}}
    return HttpCall(scope)


def exchange(path: str = "/v1/chat/completions") -> Exchange:
    record = RequestRecord("req_1", "streams", "GET", path, time.monotonic(), 0)
    return Exchange(record, NoTelemetry())


async def sent(stream: EventStream) -> bytes:
    """The body, as the HTTP server gets it."""
    pieces: list[bytes] = []

    async def send(message: Any) -> None:
        pieces.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    scope: Any = {"type": "http", "state": {}}
    await stream.to_asgi_response(None, Request(scope))(scope, receive, send)
    return b"".join(pieces)


@pytest.mark.parametrize(
    ("query", "headers", "first"),
    [
        ("", {}, 0),
        ("starting_after=0", {}, 1),
        ("", {"last_event_id": "41"}, 42),
        ("starting_after=3", {"last_event_id": "41"}, 42),
        ("starting_after=41", {"last_event_id": "3"}, 42),
        ("starting_after=", {"last_event_id": "41"}, 42),
        ("starting_after=" + 18 * "9", {}, 10**18),
    ],
)
def test_the_later_of_query_and_header_counts(
    query: str, headers: dict[str, str], first: int
) -> None:
    assert first_wanted(asked(query, **headers)) == first


@pytest.mark.parametrize("text", ["-1", "1.5", "+1", "1e3", "x", "\xb2", 19 * "9"])
def test_an_invalid_event_number_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        first_wanted(asked(last_event_id=text))
    assert refused.value.param == "Last-Event-ID"
    with pytest.raises(InvalidRequestError) as refused:
        first_wanted(asked(f"starting_after={quote(text)}", last_event_id="3"))
    assert refused.value.param == "starting_after"


@pytest.mark.parametrize(
    ("value", "wanted"), [("true", True), (" TRUE", True), ("1", True), ("false", False)]
)
def test_a_stream_is_kept_only_on_request(value: str, wanted: bool) -> None:
    assert wants_resumable(asked(x_quire_resumable=value)) is wanted
    assert not wants_resumable(asked())


@given(st.lists(st.binary(max_size=20).map(lambda data: data.hex().encode())), st.integers(0, 12))
def test_a_stored_stream_resumes_after_any_of_its_events(data: list[bytes], number: int) -> None:
    events = [b"id: %d\ndata: %b\n\n" % each for each in enumerate(data)]
    stream = replayed(exchange(), b"".join(events), number)
    assert asyncio.run(sent(stream)) == b"".join(events[number:])


async def test_a_long_stored_stream_is_sent_in_pieces_and_whole() -> None:
    events = b"id: 0\ndata: 0\n\n" + b"data: %b\n\n" % bytes(3 * RUN_PIECE_BYTES)
    stream = replayed(exchange(), events, 1)
    assert await sent(stream) == events[15:]


@pytest.fixture
def registry() -> RunRegistry:
    return RunRegistry(RunLimits(timeout=60, run_bytes=200, total_bytes=1 << 20))


@pytest.fixture
async def run(registry: RunRegistry, tiny_model: Path) -> Run:
    """One that has ended, and keeps the last of its ten events."""
    request = GenerationRequest("r", [[1, 2, 3]], SamplingParams(max_tokens=9), 0.0)
    generation = await Generator(Desk(), load_checkpoint(tiny_model)).start(request, ANYBODY)

    async def events() -> AsyncGenerator[bytes, None]:
        for number in range(10):
            yield b"data: %b%d\n\n" % (b"x" * 40, number)

    started = registry.start("r", "me", generation, events(), on_end=lambda: None)
    while not started.log.ended:
        await started.log.grown()
    return started


async def test_a_reader_of_dropped_events_gets_an_error(run: Run) -> None:
    first = run.log.first
    assert 0 < first < 10
    with pytest.raises(InvalidRequestError, match=f"before {first} are no longer") as refused:
        follow_run(exchange(), run, first - 1)
    assert refused.value.param == "starting_after"
    with pytest.raises(InvalidRequestError) as refused:
        follow_run(exchange(), run, 0)  # the client named no event
    assert refused.value.param is None
    stream = follow_run(exchange(), run, first)
    assert stream.headers["x-quire-stream-id"] == "r"
    assert await sent(stream) == run.log.since(first)
    assert await sent(follow_run(exchange(), run, 10)) == b""


@pytest.mark.parametrize(
    ("path", "anthropic"), [("/v1/messages", True), ("/v1/completions", False)]
)
async def test_a_reader_that_falls_behind_gets_an_error_in_the_format_of_its_api(
    run: Run, path: str, anthropic: bool
) -> None:
    first = run.log.first
    stream = follow_run(exchange(path), run, first)
    while run.log.first == first:
        run.log.append(b"data: more\n\n")
    told = await sent(stream)
    assert told.startswith(b"event: error\ndata: {")
    assert (b'"request_id":"req_1"' in told) == anthropic


async def test_one_reader_too_many_is_refused(run: Run) -> None:
    readers = [run.follow(run.log.first, bytes) for _ in range(MOST_READERS)]
    for reader in readers:
        await anext(reader)
    with pytest.raises(OverloadedError):
        follow_run(exchange(), run, run.log.first)
    await readers[0].aclose()
    follow_run(exchange(), run, run.log.first)
    for reader in readers[1:]:
        await reader.aclose()
