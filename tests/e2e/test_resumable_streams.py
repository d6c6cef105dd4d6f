"""Streams that break are read on from where they broke, whatever their API."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.quire_server import QuireServer, until

KEY, OTHER_KEY = "key-one", "key-two"
STORY = [{"role": "user", "content": "Tell me a story."}]
# Long enough to be cut in the middle; an answer's ids and times differ, so only one run is compared
# with itself.
LONG: dict[str, Any] = {"model": "pocket", "stream": True, "ignore_eos": True, "temperature": 0}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {**LONG, "messages": STORY, "max_tokens": 600}),
    "completions": (
        "/v1/completions",
        {**LONG, "prompt": "Once upon a time", "max_tokens": 600},
    ),
    "messages": (
        "/v1/messages",
        {
            "model": "pocket",
            "stream": True,
            "ignore_eos": True,
            "max_tokens": 600,
            "messages": STORY,
        },
    ),
    "responses": (
        "/v1/responses",
        {**LONG, "input": "Tell me a story.", "max_output_tokens": 600, "store": False},
    ),
}
ENDS = {
    "chat": b"data: [DONE]",
    "completions": b"data: [DONE]",
    "messages": b'{"type":"message_stop"}',
    "responses": b'"type":"response.incomplete"',
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    """Two keys; unread streams end soon."""
    folder: Path = tmp_path_factory.mktemp("store")
    with QuireServer(
        *("--api-key", KEY, "--api-key", OTHER_KEY),
        *("--resume-timeout", "1.5", "--resume-stream-bytes", "131072"),
        *("--store-url", f"sqlite:///{folder}/responses.sqlite3"),
    ) as server:
        yield server


class Reader:
    """One connection that reads a stream event by event, and may go at any of them."""

    def __init__(
        self,
        server: QuireServer,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        key: str = KEY,
        **headers: str,
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        sent = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, json.dumps(body) if body else None, sent)
        self._reply = self._connection.getresponse()
        self.status = self._reply.status
        self.stream_id = self._reply.headers.get("x-quire-stream-id", "")

    def event(self) -> bytes:
        """The next one; empty at the end."""
        lines = []
        while (line := self._reply.readline()) not in (b"\n", b""):
            lines.append(line)
        return b"".join(lines)

    def events(self, count: int) -> list[bytes]:
        return [self.event() for _ in range(count)]

    def rest(self) -> list[bytes]:
        return list(iter(self.event, b""))

    def leave(self) -> None:
        self._connection.close()


def begin(server: QuireServer, api: str, **changes: Any) -> Reader:
    path, body = REQUESTS[api]
    reader = Reader(server, "POST", path, {**body, **changes}, x_quire_resumable="true")
    assert reader.status == 200
    return reader


def resume(server: QuireServer, stream_id: str, last: bytes | None, key: str = KEY) -> Reader:
    headers = {} if last is None else {"last_event_id": last.decode()}
    return Reader(server, "GET", f"/v1/streams/{stream_id}", key=key, **headers)


def number_of(event: bytes) -> bytes:
    return event.split(b"\n")[0].removeprefix(b"id: ")


@pytest.mark.parametrize("api", REQUESTS)
def test_a_stream_cut_twice_and_resumed_equals_the_uncut_one(
    guarded: QuireServer, api: str
) -> None:
    reader = begin(guarded, api)
    got = reader.events(5)
    reader.leave()
    second = resume(guarded, reader.stream_id, number_of(got[-1]))
    got += second.events(30)
    second.leave()
    got += resume(guarded, reader.stream_id, number_of(got[-1])).rest()
    assert [number_of(event) for event in got] == [b"%d" % place for place in range(len(got))]
    assert ENDS[api] in got[-1]
    uncut = resume(guarded, reader.stream_id, None).rest()
    assert got == uncut
    assert resume(guarded, reader.stream_id, number_of(got[-1])).rest() == []


@pytest.mark.parametrize("api", REQUESTS)
def test_without_asking_for_it_a_stream_is_as_its_api_has_it(
    guarded: QuireServer, api: str
) -> None:
    path, body = REQUESTS[api]
    changes = {"max_output_tokens": 16} if api == "responses" else {"max_tokens": 16}
    reader = Reader(guarded, "POST", path, {**body, **changes})
    events = reader.rest()
    assert not reader.stream_id
    assert not any(event.startswith(b"id:") for event in events)


def test_another_key_does_not_find_the_stream_or_the_response(guarded: QuireServer) -> None:
    reader = begin(guarded, "responses", store=True)
    assert resume(guarded, reader.stream_id, None, key=OTHER_KEY).status == 404
    assert resume(guarded, "resp_none", None).status == 404
    reader.rest()
    path = f"/v1/responses/{reader.stream_id}"
    assert Reader(guarded, "GET", path).status == 200
    assert Reader(guarded, "GET", path, key=OTHER_KEY).status == 404
    assert Reader(guarded, "DELETE", path, key=OTHER_KEY).status == 404
    assert Reader(guarded, "DELETE", path).status == 200


def test_an_unread_answer_is_stopped_and_its_blocks_are_freed(guarded: QuireServer) -> None:
    before = guarded.total("quire_requests_total", outcome="client_gone")
    reader = begin(guarded, "chat", max_tokens=3900, n=8)
    reader.event()
    until(lambda: guarded.total("quire_sequences_running") == 8, 5, "all its choices to run")
    reader.leave()
    until(
        lambda: guarded.total("quire_requests_total", outcome="client_gone") == before + 1,
        20,
        "the stream to be given up",
    )
    until(lambda: guarded.total("quire_sequences_running") == 0, 5, "the engine to be idle")
    until(lambda: guarded.total("quire_kv_blocks", state="active") == 0, 5, "its blocks")


def test_events_that_are_kept_no_more_are_refused(guarded: QuireServer) -> None:
    reader = begin(guarded, "chat", max_tokens=1500)
    reader.rest()
    late = resume(guarded, reader.stream_id, b"0")
    assert late.status == 400
    assert resume(guarded, reader.stream_id, b"x").status == 400


def test_a_stream_is_forgotten_some_time_after_its_end(guarded: QuireServer) -> None:
    reader = begin(guarded, "chat", max_tokens=5)
    reader.rest()
    assert resume(guarded, reader.stream_id, None).status == 200
    until(lambda: resume(guarded, reader.stream_id, None).status == 404, 20, "it to be forgotten")
