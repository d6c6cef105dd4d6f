"""Clients that are slow, silent, or many: what their connections may cost, and for how long."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.running import RunningService, until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HALF_A_BODY = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
)


@pytest.fixture(scope="module")
def hasty(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with short timeouts."""
    with RunningService(
        tiny_model,
        tmp_path_factory.mktemp("hasty"),
        worker_args=(
            *("--receive-timeout", "1", "--idle-timeout", "2", "--slow-reader-timeout", "1"),
            *("--max-body-bytes", str(1 << 20)),
        ),
    ) as service:
        yield service


def connect(service: RunningService) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", service.port))
    client.settimeout(30)
    return client


def read_to_end(client: socket.socket) -> bytes:
    """Everything until the server closes. Raises TimeoutError when it does not."""
    received = b""
    try:
        while piece := client.recv(1 << 16):
            received += piece
    except ConnectionError:
        pass
    return received


def outcome_count(service: RunningService, route: str, outcome: str) -> float:
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in service.get("/metrics")[1].decode().splitlines()
        if line.startswith("quire_requests_total{")
        and f'route="{route}"' in line
        and f'outcome="{outcome}"' in line
    )


@pytest.mark.parametrize(
    "said",
    [b"", PREFACE, PREFACE[:10], b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: "],
    ids=["nothing", "an h2 preface", "half a preface", "half a head"],
)
def test_a_connection_that_asks_nothing_is_closed(hasty: RunningService, said: bytes) -> None:
    with connect(hasty) as client:
        client.sendall(said)
        read_to_end(client)


def test_a_connection_is_kept_between_requests_but_not_for_ever(hasty: RunningService) -> None:
    ask = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(hasty) as client:
        for _ in range(2):
            client.sendall(ask)
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert read_to_end(client) == b""


def test_a_body_that_stops_half_way_is_refused_and_the_connection_closed(
    hasty: RunningService,
) -> None:
    with connect(hasty) as client:
        client.sendall(HALF_A_BODY)
        answer = read_to_end(client)
    assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert b"request_timeout" in answer
    until(lambda: outcome_count(hasty, "chat_completions", "client_slow"), 10, "the outcome")


def test_a_body_that_drips_is_refused_too(hasty: RunningService) -> None:
    """Each byte comes in time, all of them never would."""
    with connect(hasty) as client:
        client.sendall(HALF_A_BODY.replace(b": 100", b": 100000"))
        client.settimeout(0.2)
        answer = b""
        while not answer:
            client.sendall(b" ")
            try:
                answer = client.recv(1 << 16)
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408 "), answer


def test_a_whole_answer_that_is_not_read_is_in_progress_and_then_cut(
    hasty: RunningService,
) -> None:
    body = json.dumps({"prompt": "a b " * 200_000, "return_token_strs": True}).encode()
    head = (
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    before = outcome_count(hasty, "tokenize", "client_slow")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", hasty.port))
        client.settimeout(30)
        client.sendall(head.encode() + body)
        until(lambda: outcome_count(hasty, "tokenize", "client_slow") == before + 1, 60, "the cut")
        assert not read_to_end(client).endswith(b"}")


def test_a_great_whole_answer_arrives_whole(hasty: RunningService) -> None:
    prompt = "a b " * 200_000
    status, _, reply = hasty.exchange(
        "POST",
        "/tokenize",
        json.dumps({"prompt": prompt, "return_token_strs": True}).encode(),
    )
    assert status == 200
    assert "".join(json.loads(reply)["token_strs"]) == prompt


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda text: zlib.compress(text, wbits=-15)),
    ],
    ids=["gzip", "deflate", "raw deflate"],
)
def test_compressed_bodies_are_read_and_bombs_are_not(
    hasty: RunningService, encoding: str, pack: object
) -> None:
    assert callable(pack)
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}

    def post(body: bytes) -> tuple[int, bytes]:
        status, _, reply = hasty.exchange("POST", "/tokenize", body, headers)
        return status, reply

    assert post(pack(b'{"prompt": "a b"}'))[0] == 200
    status, reply = post(pack(b'{"prompt": "a b"}')[:-3])
    assert status == 400
    assert encoding.encode() in reply
    status, reply = post(b"{}")
    assert status == 400
    assert encoding.encode() in reply
    before = peak_memory(hasty)
    assert post(pack(b" " * (256 << 20)))[0] == 413
    assert peak_memory(hasty) - before < 32 << 20


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
async def test_who_sends_everything_before_reading_sees_why_it_was_refused(
    hasty: RunningService, chunked: bool
) -> None:
    """As asynchronous clients do. The connection stays usable."""
    piece = b"x" * 65536

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(24 << 20 >> 16):
            yield piece

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{hasty.port}") as client:
        body: Any = pieces() if chunked else piece * (24 << 20 >> 16)
        headers = {"Content-Type": "application/json"}
        refused = await client.post("/v1/chat/completions", content=body, headers=headers)
        assert refused.status_code == 413
        before = refused.extensions["network_stream"].get_extra_info("client_addr")
        models = await client.get("/v1/models")
        assert models.status_code == 200
        assert models.extensions["network_stream"].get_extra_info("client_addr") == before


def test_who_never_finishes_a_refused_body_is_disconnected(hasty: RunningService) -> None:
    """Also who is cut while the server waits for more."""
    pid = hasty.worker.popen.pid

    def sockets() -> int:
        found = 0
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found += str(each.readlink()).startswith("socket:")
        return found

    before = sockets()
    head = f"POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: {60 << 20}\r\n\r\n".encode()
    with ExitStack() as stack:
        opened = []
        for _ in range(40):
            address = ("127.0.0.1", hasty.port)
            connection = stack.enter_context(socket.create_connection(address, 30))
            connection.sendall(head)
            opened.append(connection)
        for connection in opened:
            pieces = b"".join(iter(lambda c=connection: c.recv(4096), b""))  # type: ignore[misc]
            assert pieces.startswith(b"HTTP/1.1 404")
        until(lambda: sockets() <= before, 20, "the worker closes them")


def peak_memory(service: RunningService) -> int:
    status = Path(f"/proc/{service.worker.popen.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def test_headers_that_expand_in_http2_cost_what_is_allowed(hasty: RunningService) -> None:
    """Thousands of references of a byte each to one long entry of the header table (RFC 7541)."""
    value = b"v" * 3900
    entry = b"\x40\x01x\x7f" + _integer(len(value) - 127) + value
    opening = b"\x83\x86\x84\x01\x09localhost"  # POST http / and the authority
    before = peak_memory(hasty)
    with connect(hasty) as client:
        client.sendall(PREFACE + h2_frame(4, 0, 0, b""))
        with suppress(ConnectionError):
            for number in range(30):
                block = opening + (entry if number == 0 else b"") + b"\xbe" * 4000
                client.sendall(h2_frame(1, 4, 2 * number + 1, block))
        read_to_end(client)
        assert peak_memory(hasty) - before < 64 << 20


def _integer(rest: int) -> bytes:
    """HPACK's form of an integer, after its prefix."""
    octets = b""
    while rest >= 128:
        octets += bytes([rest % 128 + 128])
        rest //= 128
    return octets + bytes([rest])


def test_a_drain_does_not_wait_for_half_a_body(tiny_model: Path, tmp_path: Path) -> None:
    with (
        RunningService(tiny_model, tmp_path, worker_args=("--drain-timeout", "600")) as service,
        connect(service) as client,
    ):
        client.sendall(HALF_A_BODY)
        # The same connection shows nothing until it is refused; another one sees it in progress.
        until(lambda: _in_progress(service) >= 1, 20, "the half request")
        service.worker.popen.send_signal(signal.SIGTERM)
        assert b"shutting_down" in read_to_end(client)
        assert service.worker.popen.wait(20) == 0
        assert "connections were cut" not in service.worker.output()


def _in_progress(service: RunningService) -> float:
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in service.get("/metrics")[1].decode().splitlines()
        if line.startswith("quire_requests_in_progress{")
    )
