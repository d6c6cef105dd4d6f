"""Clients of every API leave at any moment: the engine works for none of them two steps later, and
each request is recorded and its usage counted once."""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from websockets.sync.client import connect

from service.proto.quire.v1 import quire_pb2 as pb
from service.proto.quire.v1.quire_pb2_grpc import QuireStub
from tests.e2e.quire_server import QuireServer, free_port, until

pytestmark = pytest.mark.one_process

STEP = 0.03
LATEST = 6 * STEP
# Tokens of an answer: far more than there are steps until everyone has left.
LONG = 400
KEY = "sk-one"
# A step that ends while the client leaves is not one after it.
MOST_STEPS = 2 + 1
TEXT = [{"role": "user", "content": "Tell me a story about a lighthouse."}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TEXT, "max_tokens": LONG, "ignore_eos": True},
    "/v1/completions": {"prompt": "Once", "max_tokens": LONG, "ignore_eos": True},
    "/v1/messages": {"model": "m", "messages": TEXT, "max_tokens": LONG},
    "/v1/responses": {"input": "Once", "max_output_tokens": LONG},
    "/v1/responses/compact": {"input": "Once", "max_output_tokens": LONG},
}
STREAMED = tuple(path for path in BODIES if path != "/v1/responses/compact")
QUICK = ("/v1/messages/count_tokens", "/v1/models", "/v1/responses/resp_none")


class Companion(threading.Thread):
    """A client that stays, and gets one token in each step. ``steps``: those that it has seen."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.steps = 0
        self.stopping = False
        self.failure: Exception | None = None
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def run(self) -> None:
        body = {"prompt": "x", "max_tokens": 120_000, "ignore_eos": True, "stream": True}
        try:
            headers = {"x-api-key": KEY}
            self._connection.request("POST", "/v1/completions", json.dumps(body), headers)
            for line in self._connection.getresponse():
                self.steps += line.startswith(b"data:")
                if self.stopping:
                    return
            raise EOFError("the companion's stream has ended")
        except Exception as error:
            self.failure = error
        finally:
            self._connection.close()


class Leaving:
    """A server, its clients, and the moments at which they leave."""

    def __init__(self, server: QuireServer, admin: int, rpc: int, seed: int) -> None:
        self.server = server
        self.admin_url = f"http://127.0.0.1:{admin}/admin/v1"
        self.rpc = rpc
        self.random = random.Random(seed)
        self.health = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def moment(self) -> float:
        """Seconds after which a client leaves; often at once."""
        return self.random.choice((0.0, 0.002, self.random.uniform(0, LATEST)))

    def admin(self, path: str) -> Any:
        with urllib.request.urlopen(self.admin_url + path, timeout=60) as reply:
            return json.loads(reply.read())

    def by_http(self, *, stream: bool) -> None:
        """Leave while sending, waiting or reading; with or without a goodbye."""
        path = self.random.choice(STREAMED if stream else tuple(BODIES))
        body = json.dumps({**BODIES[path], "stream": stream}).encode()
        self._send("POST", path, body)

    def by_quick_http(self) -> None:
        path = self.random.choice(QUICK)
        body = {"model": "m", "messages": TEXT} if path.endswith("count_tokens") else None
        if body is None:
            self._send("GET", path, b"")
        else:
            self._send("POST", path, json.dumps(body).encode())

    def _send(self, method: str, path: str, body: bytes) -> None:
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\n"
        sent = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        if self.random.random() < 0.2:
            sent = sent[: self.random.randrange(len(sent))]
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as connection:
            connection.sendall(sent)
            self._wait(connection)
            if self.random.random() < 0.5:  # as if it was killed
                reset = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)

    def _wait(self, connection: socket.socket) -> None:
        """Read what comes until the moment to leave."""
        end = time.monotonic() + self.moment()
        while (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            with suppress(TimeoutError):
                if not connection.recv(65536):
                    return

    def by_socket(self) -> None:
        url = f"ws://127.0.0.1:{self.server.port}/v1/responses"
        opened = connect(url, additional_headers={"x-api-key": KEY})
        ask = {"type": "response.create", "input": "Once", "max_output_tokens": LONG}
        opened.send(json.dumps(ask))
        end = time.monotonic() + self.moment()
        while (left := end - time.monotonic()) > 0:
            with suppress(TimeoutError):
                opened.recv(timeout=left)
        if self.random.random() < 0.5:
            opened.close()
        else:
            opened.socket.shutdown(socket.SHUT_RDWR)

    def by_rpc(self) -> None:
        with grpc.insecure_channel(
            f"127.0.0.1:{self.rpc}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            stub, metadata = QuireStub(channel), (("x-api-key", KEY),)
            message = pb.Message(role="user", content="Tell me a story.")
            sampling = pb.Sampling(ignore_eos=True)
            call: Any = self.random.choice(
                (
                    lambda: stub.Chat(
                        pb.ChatRequest(messages=[message], max_tokens=LONG, sampling=sampling),
                        metadata=metadata,
                    ),
                    lambda: stub.Generate(
                        pb.GenerateRequest(text="Once", max_tokens=LONG, sampling=sampling),
                        metadata=metadata,
                    ),
                )
            )()
            moment = self.moment()
            if self.random.random() < 0.5:
                call.initial_metadata() if moment > STEP else None
            time.sleep(moment)  # the moment is what is varied, not waited for
            if self.random.random() < 0.5:
                call.cancel()

    def is_left(self) -> bool:
        """Whether the engine has the companion's sequence alone, as of its last step."""
        self.health.request("GET", "/health")
        engine = json.loads(self.health.getresponse().read())["engine"]
        return (engine["running"], engine["waiting"]) == (1, 0)

    def owners(self) -> int:
        """How many requests have blocks; known anew each half second."""
        return len(self.admin("/kv")["owners"])

    def records(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.admin(f"/requests?state=ended&since=2h&limit=500{cursor}")
            found += page["requests"]
            if page.get("cursor") is None:
                return found
            cursor = f"&cursor={page['cursor']}"


@pytest.fixture
def leaving(tmp_path: Path) -> Iterator[Leaving]:
    admin, rpc = free_port(), free_port()
    store = f"sqlite:///{tmp_path / 'store.sqlite3'}"
    with QuireServer(
        *(f"simulated:step={STEP:g}s,output={LONG}", "--served-model-name", "m"),
        *("--api-key", f"one={KEY}", "--grpc-port", str(rpc), "--admin-port", str(admin)),
        *("--store-url", store, "--log-format", "json"),
    ) as server:
        yield Leaving(server, admin, rpc, seed=14)


@pytest.mark.parametrize("times", [240, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_client_may_leave_at_any_moment(leaving: Leaving, times: int) -> None:
    ways: tuple[Callable[[], None], ...] = (
        lambda: leaving.by_http(stream=True),
        lambda: leaving.by_http(stream=False),
        leaving.by_quick_http,
        leaving.by_socket,
        leaving.by_rpc,
    )
    companion = Companion(leaving.server.port)
    companion.start()
    until(lambda: companion.steps > 0, 30, "the companion's first token")
    late = []
    for number in range(times):
        ways[number % len(ways)]()
        before = companion.steps
        until(leaving.is_left, 30, f"an engine without client {number}")
        steps = companion.steps - before
        if steps > MOST_STEPS:
            late.append((number, steps))
        if number % 20 == 0:
            until(lambda: leaving.owners() == 1, 10, f"blocks of the companion alone, {number}")
    companion.stopping = True
    companion.join(30)
    assert companion.failure is None
    until(lambda: leaving.owners() == 0, 10, "no blocks of any request")
    # A machine that gives the worker no time for a step says nothing about the worker.
    assert len(late) <= times // 20, late
    _each_is_counted_once(leaving)


def _each_is_counted_once(leaving: Leaving) -> None:
    until(lambda: leaving.admin("/overview")["state"] == "ok", 10, "a healthy server")
    until(lambda: not leaving.admin("/requests?state=live")["requests"], 10, "no live request")
    records = leaving.records()
    assert len({one["request_id"] for one in records}) == len(records)
    assert {one["outcome"] for one in records} >= {"client_gone", "stop"}
    assert leaving.server.total("quire_requests_total") == len(records)
    for kind, count in (
        ("output", sum(one.get("output_tokens", 0) for one in records)),
        ("cached", sum(one.get("cached_tokens", 0) for one in records)),
    ):
        assert leaving.server.total("quire_key_tokens_total", kind=kind) == count, kind

    def stored() -> bool:
        rows = leaving.admin("/usage?by=key&from=2h&bucket=hour")["rows"]
        return (
            sum(row["requests"] for row in rows),
            sum(row["output_tokens"] for row in rows),
        ) == (len(records), sum(one.get("output_tokens", 0) for one in records))

    until(stored, 30, "the usage in the store")
