"""An API worker is killed under load, again and again: nothing it served or counted is lost."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.messages import (
    FRAME_HEADER,
    EngineCounters,
    Heartbeat,
    Ready,
    StepOutputs,
    decode_from_engine,
)
from tests.e2e.prometheus_server import exact_increase, prometheus_scraping, query
from tests.e2e.quire_server import QuireServer, command_of, descendants, engine_sockets, until
from tests.observability.otlp_receiver import Receiver, attributes_of, http_receiver

pytestmark = pytest.mark.one_process

STREAMS = 32
KILLS = 3
SHORT = 5  # requests that end before each kill
ENDLESS = {"max_tokens": 500_000, "ignore_eos": True, "stream": True}


def process_of(server: QuireServer, module: bytes) -> int | None:
    assert server.process is not None
    found = [pid for pid in descendants(server.process.pid) if module in command_of(pid)]
    return found[0] if len(found) == 1 else None


class Stream(threading.Thread):
    """A client of one answer, which reads it to its end or until it breaks off."""

    def __init__(self, server: QuireServer, **fields: Any) -> None:
        super().__init__(daemon=True)
        self._port = server.port
        body = {"messages": [{"role": "user", "content": "Hello!"}], **fields}
        self._body = json.dumps(body).encode()
        self.request_id = ""
        self.has_token = threading.Event()
        self.is_whole = False
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        with (
            contextlib.closing(connection),
            contextlib.suppress(http.client.HTTPException, OSError),
        ):
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/chat/completions", self._body, headers)
            reply = connection.getresponse()
            self.request_id = reply.headers["x-request-id"]
            for line in reply:
                if line.startswith(b"data: {") and not self.has_token.is_set():
                    choices = json.loads(line[6:])["choices"]
                    if choices and choices[0]["delta"].get("content"):
                        self.has_token.set()
                self.is_whole = self.is_whole or line.startswith(b"data: [DONE]")


class EngineWatcher:
    """A second connection to the engine on the socket ``path``, by default the first: it receives
    the engine's totals."""

    def __init__(self, server: QuireServer, path: str | None = None) -> None:
        path = path or engine_sockets(server)[0]
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(path)
        self._file = self._socket.makefile("rb")
        self.identity = 0

    def totals(self) -> EngineCounters:
        """The engine's, idle, as of now."""
        while True:
            (size,) = FRAME_HEADER.unpack(self._file.read(FRAME_HEADER.size))
            message = decode_from_engine(self._file.read(size))
            if isinstance(message, Ready):
                self.identity = message.identity
            if isinstance(message, Heartbeat | StepOutputs) and not message.stats.running:
                return message.stats

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with http_receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        yield found


@pytest.fixture
def killed(receiver: Receiver) -> Iterator[QuireServer]:
    model = "simulated:step=4ms,context=1000000"
    arguments = ("--num-kv-blocks", "200000", "--max-num-seqs", str(STREAMS))
    with QuireServer(model, *arguments, "--log-format=json") as running:
        yield running


def kill_worker(server: QuireServer) -> None:
    worker = process_of(server, b"service.worker")
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    until(lambda: process_of(server, b"service.worker") not in (None, worker), 60, "a new worker")
    server.wait_ready()


def request_lines(server: QuireServer) -> list[dict[str, Any]]:
    return [line for line in server.log_lines() if line.get("event") == "request"]


@pytest.mark.proves("counters", "process")
@pytest.mark.debian
def test_a_worker_killed_under_load_loses_no_request_and_no_token(
    killed: QuireServer, receiver: Receiver, tmp_path: Path
) -> None:
    generated = "quire_generated_tokens_total"
    cut: list[Stream] = []
    whole: list[Stream] = []
    with prometheus_scraping(killed.port, tmp_path, seconds=2) as prometheus:
        for _ in range(KILLS):
            short = [Stream(killed, stream=True, max_tokens=3) for _ in range(SHORT)]
            for stream in short:
                stream.join(60)
            whole += short
            streams = [Stream(killed, **ENDLESS) for _ in range(STREAMS)]
            assert all(stream.has_token.wait(60) for stream in streams)
            # What has ended has left the worker.
            ids = {stream.request_id for stream in whole}
            until(lambda ids=ids: ids <= told(killed), 60, "log lines")  # type: ignore[misc]
            until(lambda ids=ids: ids <= traced(receiver), 60, "spans")  # type: ignore[misc]
            kill_worker(killed)
            for stream in streams:
                stream.join(60)
            cut += streams
        assert all(stream.is_whole for stream in whole)
        assert not any(stream.is_whole for stream in cut)

        watcher = EngineWatcher(killed)
        totals = watcher.totals()
        watcher.close()
        assert totals.tokens_generated > KILLS * STREAMS
        until(
            lambda: query(prometheus, f"sum({generated})") == totals.tokens_generated,
            30,
            f"prometheus to have {totals.tokens_generated} tokens",
        )
        assert exact_increase(prometheus, generated) == totals.tokens_generated
        outcomes = {"length": len(whole), "error:worker": len(cut)}
        for outcome, count in outcomes.items():
            found = exact_increase(prometheus, f'quire_requests_total{{outcome="{outcome}"}}')
            assert found == count, outcome
        assert exact_increase(prometheus, "quire_requests_total") == len(whole) + len(cut)
        assert query(prometheus, "sum(quire_requests_in_progress)") == 0

    lines = request_lines(killed)
    expected = {stream.request_id: "length" for stream in whole}
    expected |= {stream.request_id: "error:worker" for stream in cut}
    assert len(lines) == len(expected)
    assert {line["request_id"]: line["outcome"] for line in lines} == expected
    assert all(line["ttft_ms"] > 0 and line["model"] for line in lines)
    until(lambda: expected.keys() <= traced(receiver), 60, "all spans")
    spans = [attributes_of(span) for span in receiver.spans]
    assert {
        span["quire.request_id"]: span["quire.outcome"]
        for span in spans
        if "quire.request_id" in span
    } == expected


def told(server: QuireServer) -> set[str]:
    return {line["request_id"] for line in request_lines(server)}


def traced(receiver: Receiver) -> set[str]:
    found = [attributes_of(span).get("quire.request_id") for span in list(receiver.spans)]
    return {request_id for request_id in found if request_id}


def test_counters_are_right_when_worker_and_engine_die_together(killed: QuireServer) -> None:
    first = EngineWatcher(killed)
    stream = Stream(killed, stream=True, max_tokens=50)
    stream.join(60)
    before = first.totals()
    first.close()
    assert before.tokens_generated >= 50
    name = "quire_generated_tokens_total"
    until(lambda: killed.total(name) == before.tokens_generated, 30, "the counter")
    for module in (b"engine", b"service.worker"):
        pid = process_of(killed, module)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    until(lambda: first_of_both(killed), 60, "both")
    killed.wait_ready()
    Stream(killed, stream=True, max_tokens=20).join(60)
    second = EngineWatcher(killed)
    after = second.totals()
    second.close()
    assert second.identity != first.identity
    assert after.tokens_generated >= 20
    expected = before.tokens_generated + after.tokens_generated
    until(lambda: killed.total(name) == expected, 30, f"{expected} tokens")


def first_of_both(server: QuireServer) -> bool:
    return None not in (process_of(server, b"engine"), process_of(server, b"service.worker"))
