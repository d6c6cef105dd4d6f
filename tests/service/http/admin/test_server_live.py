"""The admin API of a real worker and an engine whose forward pass is a timer: cancelling a request
over every API, the feed, load runs, and what of a request's content it shows (nothing)."""

from __future__ import annotations

import http.client
import io
import json
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import grpc
import msgspec
import openai
import pytest
from websockets.sync.client import connect

from observability.admin_api import (
    BUNDLE_FILES,
    EventKind,
    Frame,
    KeptRequest,
    RequestPage,
    UsageRows,
)
from service.proto.quire.v1 import quire_pb2 as pb
from service.proto.quire.v1.quire_pb2_grpc import QuireStub
from tests.service.grpc.clients import GrpcService
from tests.service.running import until

KEY = "operate-key-1"
CANARY = "CANARY-heliotrope"
LONG = {"max_tokens": 480, "extra_body": {"ignore_eos": True}}
PROMPT = f"Please say {CANARY}."


class AdminService(GrpcService):
    """A service with an admin API."""

    def __init__(self, model: Path, folder: Path) -> None:
        arguments = ("--admin-key", f"operate:ann={KEY}")
        # Steps that take longer than a message on its way, so that they can be counted.
        pace = ("--model", f"simulated:step=20ms,tokenizer={model}")
        super().__init__(model, folder, *arguments, engine_args=pace)

    def admin(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=60)
        try:
            headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
            sent = None if body is None else json.dumps(body)
            connection.request(method, f"/admin/v1{path}", sent, headers)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def live(self) -> list[KeptRequest]:
        _, body = self.admin("GET", "/requests?state=live")
        return list(msgspec.json.decode(body, type=RequestPage).requests)

    def cancel_the_only_one(self, least: float = 2, phase: str = "") -> KeptRequest:
        """Cancel the live request once it has output, or has been so many seconds in ``phase``;
        return its record."""

        def begun() -> KeptRequest | None:
            for one in self.live():
                if (one.phases.get(phase, 0.0) if phase else one.output_tokens) >= least:
                    return one
            return None

        request_id = until(begun, 30, "a live request").request_id
        status, body = self.admin("POST", f"/requests/{request_id}/cancel")
        assert (status, json.loads(body)["outcome"]) == (200, "cancelled")

        def ended() -> KeptRequest | None:
            record = msgspec.json.decode(
                self.admin("GET", f"/requests/{request_id}")[1], type=KeptRequest
            )
            return None if record.live else record

        return until(ended, 15, "the request's end")

    def sampled(self) -> float:
        """Tokens that the engine has sampled so far."""
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith("quire_generated_tokens_total"):
                return float(line.rsplit(" ", 1)[1])
        return 0.0


@pytest.fixture(scope="module")
def service(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminService]:
    with AdminService(tiny_model, tmp_path_factory.mktemp("admin")) as running:
        yield running


@pytest.fixture
def cancelled(service: AdminService) -> Callable[[Callable[[], Any]], KeptRequest]:
    """Runs a client in a thread, cancels its request, and checks what became of it."""

    def run(client: Callable[[], Any]) -> KeptRequest:
        service.wait_idle()
        before = service.sampled()
        thread = threading.Thread(target=client)
        thread.start()
        try:
            record = service.cancel_the_only_one()
        finally:
            thread.join(60)
        assert not thread.is_alive()
        assert record.outcome == "cancelled"
        assert [event.kind for event in record.events].count(EventKind.CANCELLED) == 1
        service.wait_idle()
        # One token a step: what the engine sampled after the cancelling is how many steps it took.
        assert service.sampled() - before - record.output_tokens <= 2
        return record

    return run


Cancelled = Callable[[Callable[[], Any]], KeptRequest]


def openai_client(service: AdminService) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused")  # retries as it would


def test_openai_s_client_sees_a_cancelled_stream_fail(
    service: AdminService, cancelled: Cancelled
) -> None:
    seen: list[Exception] = []

    def client() -> None:
        messages: Any = [{"role": "user", "content": PROMPT}]
        try:
            for _ in openai_client(service).chat.completions.create(
                model="tiny", messages=messages, stream=True, **LONG
            ):
                pass
        except openai.APIError as error:
            seen.append(error)

    cancelled(client)
    [error] = seen
    assert "cancelled by an operator" in str(error)


def test_openai_s_client_gets_an_error_for_a_whole_answer_and_does_not_retry(
    service: AdminService, cancelled: Cancelled
) -> None:
    seen: list[openai.APIStatusError] = []

    def client() -> None:
        try:
            openai_client(service).completions.create(model="tiny", prompt=PROMPT, **LONG)
        except openai.APIStatusError as error:
            seen.append(error)

    record = cancelled(client)
    [error] = seen
    assert (error.status_code, error.code) == (499, "cancelled")
    assert error.request_id == record.request_id


@pytest.mark.parametrize("stream", [True, False])
def test_anthropic_s_client_sees_the_error(
    service: AdminService, cancelled: Cancelled, stream: bool
) -> None:
    seen: list[Exception] = []

    def client() -> None:
        sdk = anthropic.Anthropic(base_url=service.url, api_key="unused")
        messages: Any = [{"role": "user", "content": PROMPT}]
        try:
            answer: Any = sdk.messages.create(
                model="tiny", messages=messages, stream=stream, **LONG
            )
            if stream:
                list(answer)
        except anthropic.APIError as error:
            seen.append(error)

    cancelled(client)
    [error] = seen
    assert "cancelled by an operator" in str(error)


def test_a_background_response_ends_as_cancelled(
    service: AdminService, cancelled: Cancelled
) -> None:
    client = openai_client(service)
    made: list[str] = []

    def begin() -> None:
        response = client.responses.create(
            model="tiny",
            input=PROMPT,
            background=True,
            max_output_tokens=480,
            extra_body={"ignore_eos": True},
        )
        made.append(response.id)

    cancelled(begin)
    assert client.responses.retrieve(made[0]).status == "cancelled"


def test_a_response_over_websocket_ends_and_the_connection_goes_on(
    service: AdminService, cancelled: Cancelled
) -> None:
    events: list[dict[str, Any]] = []
    with connect(f"ws://127.0.0.1:{service.port}/v1/responses") as connection:

        def client() -> None:
            ask = {"type": "response.create", "input": PROMPT, "max_output_tokens": 480}
            connection.send(json.dumps({**ask, "ignore_eos": True, "store": False}))
            while not events or events[-1]["type"] not in ("response.failed", "error"):
                events.append(json.loads(connection.recv(timeout=30)))

        cancelled(client)
        assert events[-1]["response"]["status"] == "cancelled"
        connection.send(
            json.dumps({"type": "response.create", "input": "Hi", "max_output_tokens": 4})
        )
        assert json.loads(connection.recv(timeout=30))["type"] == "response.created"


def test_a_grpc_call_ends_with_the_status_cancelled(
    service: AdminService, cancelled: Cancelled
) -> None:
    seen: list[grpc.RpcError] = []
    request = pb.ChatRequest(
        messages=[pb.Message(role="user", content=PROMPT)],
        max_tokens=480,
        sampling=pb.Sampling(ignore_eos=True),
    )

    def client() -> None:
        try:
            for _ in service.stub.Chat(request):
                pass
        except grpc.RpcError as error:
            seen.append(error)

    cancelled(client)
    [error] = seen
    assert error.code() is grpc.StatusCode.CANCELLED
    assert "operator" in error.details()


VERBOSE = {"max_tokens": 480, "ignore_eos": True, "n": 16, "logprobs": True, "top_logprobs": 20}


def test_cancelling_does_not_wait_for_a_client_that_reads_nothing(service: AdminService) -> None:
    service.wait_idle()
    ask = {"messages": [{"role": "user", "content": PROMPT}], "stream": True, **VERBOSE}
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", service.port))
        body = json.dumps(ask)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        )
        client.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n{body}".encode())
        record = service.cancel_the_only_one(1.0, "flush")
    assert record.outcome == "cancelled"
    service.wait_idle()


def test_cancelling_does_not_wait_for_a_grpc_client_that_reads_nothing(
    service: AdminService,
) -> None:
    service.wait_idle()
    narrow = [("grpc.http2.lookahead_bytes", 1 << 16), ("grpc.http2.bdp_probe", 0)]
    with grpc.insecure_channel(service.target, options=narrow) as channel:
        request = pb.ChatRequest(
            messages=[pb.Message(role="user", content=PROMPT)],
            max_tokens=480,
            sampling=pb.Sampling(ignore_eos=True, n=16),
            logprobs=True,
            top_logprobs=20,
        )
        call = QuireStub(channel).Chat(request)
        next(call)
        record = service.cancel_the_only_one(1.0, "flush")
    assert record.outcome == "cancelled"
    service.wait_idle()


def test_the_feed_shows_what_runs_and_its_readers_get_the_same_bytes(
    service: AdminService,
) -> None:
    def lines(reader: http.client.HTTPResponse, count: int) -> list[bytes]:
        found = []
        while len(found) < count:
            line = reader.readline()
            if line.startswith(b"data: "):
                found.append(line)
        return found

    connections = [
        http.client.HTTPConnection("127.0.0.1", service.admin_port, timeout=30) for _ in range(17)
    ]
    try:
        replies = []
        for connection in connections:
            connection.request("GET", "/admin/v1/feed", headers={"authorization": f"Bearer {KEY}"})
            replies.append(connection.getresponse())
        assert [reply.status for reply in replies] == [200] * 16 + [429]
        got = [lines(reply, 3) for reply in replies[:16]]
        last = set.intersection(*(set(one) for one in got))
        assert last, "no message that all have"
        frame = msgspec.json.decode(got[0][-1].removeprefix(b"data: "), type=Frame)
        assert frame.overview is not None
        assert frame.overview.model == "tiny"
    finally:
        for connection in connections:
            connection.close()


def test_a_feed_reader_that_does_not_read_is_cut_off(service: AdminService) -> None:
    with socket.create_connection(("127.0.0.1", service.admin_port)) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(
            b"GET /admin/v1/feed?kv=1 HTTP/1.1\r\nHost: localhost\r\n"
            b"Authorization: Bearer %b\r\n\r\n" % KEY.encode()
        )
        raw.settimeout(30)
        assert raw.recv(12) == b"HTTP/1.1 200"
    assert service.admin("GET", "/overview")[0] == 200


def test_a_load_run_is_served_by_the_engine_as_its_own_tenant(service: AdminService) -> None:
    status, _ = service.admin(
        "POST", "/load", {"profile": "chat", "rate": 20, "seconds": 2, "concurrency": 8}
    )
    assert status == 202

    def done() -> dict[str, Any] | None:
        run: dict[str, Any] = json.loads(service.admin("GET", "/load")[1])["run"]
        return run if run["state"] == "done" else None

    run = until(done, 120, "the load run's end")
    assert sum(run["ended"].values()) == run["sent"] > 0
    page = msgspec.json.decode(
        service.admin("GET", "/requests?since=5m&key=loadtest&limit=1000")[1], type=RequestPage
    )
    assert len(page.requests) == run["sent"]
    assert sum(one.output_tokens for one in page.requests) == run["tokens_out"]
    usage = msgspec.json.decode(service.admin("GET", "/usage?by=key&from=1h")[1], type=UsageRows)
    tokens = sum(one.output_tokens for one in usage.rows if one.group == "loadtest")
    assert tokens == run["tokens_out"]


def test_nothing_that_was_said_is_in_any_answer(service: AdminService) -> None:
    messages: Any = [{"role": "user", "content": PROMPT}]
    answer = openai_client(service).chat.completions.create(
        model="tiny", messages=messages, max_tokens=16, user=CANARY
    )
    said = answer.choices[0].message.content or ""
    _, bundle = service.admin("GET", "/bundle")
    archive = zipfile.ZipFile(io.BytesIO(bundle))
    assert set(archive.namelist()) == set(BUNDLE_FILES)
    answers = [archive.read(name) for name in archive.namelist()]
    for name, content in zip(archive.namelist(), answers, strict=True):
        msgspec.json.decode(content, type=BUNDLE_FILES[name])
    paths = ("/overview", "/series", "/requests", "/requests?since=5m", "/kv", "/kv/prefixes")
    paths += ("/settings", "/audit", "/usage", "/load")
    for path in paths:
        status, body = service.admin("GET", path)
        assert status == 200, (path, body)
        answers.append(body)
    for text in (CANARY, KEY, said[:40]):
        assert not text or not [one for one in answers if text.encode() in one]
