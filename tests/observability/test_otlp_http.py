"""Answers of a collector over HTTP."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from observability.otlp_http import HttpExporter

pytestmark = pytest.mark.integration

ENDLESS = b"transfer-encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n", 0.0
DRIPPING = b"content-length: 300\r\n\r\n", b"x", 0.05
# Of an endless answer, more than the sockets' buffers hold. The connection breaks after it.
ENOUGH = 64 * 1024 * 1024
EMPTY = b"content-length: 0\r\n\r\n", b"", 0.0


class Answering:
    """What a collector sent in its answers, of which the last may not end."""

    def __init__(self) -> None:
        self.requests = 0
        self.sent = 0


@contextmanager
def collector(
    status: int, answer: tuple[bytes, bytes, float], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Answering]:
    head, chunk, pause = answer
    answering, ended = Answering(), threading.Event()

    def serve() -> None:
        while not ended.is_set():
            connection, _ = listener.accept()
            with connection:
                received = b""
                while not received.endswith(b"\r\n\r\nspans"):
                    if not (piece := connection.recv(65536)):
                        break
                    received += piece
                if not received:
                    continue
                answering.requests += 1
                connection.sendall(b"HTTP/1.1 %d Said\r\n%s" % (status, head))
                try:
                    while chunk and answering.sent < ENOUGH and not ended.wait(pause):
                        connection.sendall(chunk)
                        answering.sent += len(chunk)
                except OSError:
                    continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = "http://{}:{}".format(*listener.getsockname())
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        server = threading.Thread(target=serve, daemon=True)
        server.start()
        try:
            yield answering
        finally:
            ended.set()
            with socket.create_connection(listener.getsockname()):
                pass
            server.join()


def exporter(timeout_seconds: float = 5.0) -> HttpExporter:
    return HttpExporter(lambda spans: b"spans", timeout_seconds)


@pytest.mark.parametrize(
    ("status", "taken", "may_repeat"),
    [
        (200, True, False),
        (202, True, False),
        (302, False, False),
        (400, False, False),
        (401, False, False),
        (413, False, False),
        (429, False, True),
        (500, False, False),
        (502, False, True),
        (503, False, True),
        (504, False, True),
    ],
)
def test_only_answers_that_otlp_allows_to_repeat_are_repeated_and_not_by_the_exporter(
    status: int, taken: bool, may_repeat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector(status, EMPTY, monkeypatch) as answering:
        exporting = exporter()
        result = exporting.export([])
        exporting.shutdown()
        assert answering.requests == 1
    assert (result is SpanExportResult.SUCCESS) == taken
    assert exporting.repeat_after == (0.0 if may_repeat else None)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("17", 17.0), ("0", 0.0), ("-5", 0.0), ("soon", 0.0), ("9" * 5000, 0.0)],
)
def test_the_collectors_retry_after_is_read(
    header: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert repeat_after(header, monkeypatch) == seconds


def test_the_collectors_retry_after_may_be_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    assert 3000 <= repeat_after(formatdate(now + 3600, usegmt=True), monkeypatch) <= 3600
    assert repeat_after(formatdate(now - 3600, usegmt=True), monkeypatch) == 0.0


def repeat_after(header: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long the exporter is to wait after an answer with this header."""
    head = f"retry-after: {header}\r\ncontent-length: 0\r\n\r\n".encode()
    with collector(503, (head, b"", 0.0), monkeypatch):
        exporting = exporter()
        assert exporting.export([]) is SpanExportResult.FAILURE
        exporting.shutdown()
    assert exporting.repeat_after is not None
    return exporting.repeat_after


def test_a_connection_that_fails_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", "http://{}:{}".format(*listener.getsockname())
        )
        silent = exporter(0.2)
        assert silent.export([]) is SpanExportResult.FAILURE
        assert silent.repeat_after == 0.0
    gone = exporter()
    assert gone.export([]) is SpanExportResult.FAILURE
    assert gone.repeat_after == 0.0


@pytest.mark.parametrize("status", [200, 302, 400, 503])
def test_of_an_endless_answer_little_is_read(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector(status, ENDLESS, monkeypatch) as answering:
        exporting = exporter()
        result = exporting.export([])
        exporting.shutdown()
    assert (result is SpanExportResult.SUCCESS) == (status == 200)
    assert answering.sent < ENOUGH // 4


def test_an_answer_that_drips_ends_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector(200, DRIPPING, monkeypatch):
        exporting = exporter(0.5)
        begin = time.monotonic()
        assert exporting.export([]) is SpanExportResult.SUCCESS
        assert time.monotonic() - begin < 10  # all of it takes 15 s
        exporting.shutdown()


def test_a_credential_providers_session_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK looks the name up, which it does not do for a session that it is given."""
    monkeypatch.setenv("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "no-such")
    with pytest.raises(RuntimeError, match="no-such"):
        exporter()
