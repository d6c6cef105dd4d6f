"""Loading, leaving, overload, engine death and shutdown, with real processes."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.service.running import RunningService, until

CHAT = "/v1/chat/completions"
LONG: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 480,
    "ignore_eos": True,
}


def begin(service: RunningService, ask: dict[str, Any]) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("POST", CHAT, json.dumps(ask).encode())
    return connection


def leave(connection: http.client.HTTPConnection) -> None:
    """As a client that was killed: the connection is gone at once."""
    assert connection.sock is not None
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def running(service: RunningService) -> float:
    return service.engine_counts()["running"]


def outcomes(service: RunningService) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in service.get("/metrics")[1].decode().splitlines():
        if line.startswith("quire_requests_total{") and 'route="chat_completions"' in line:
            outcome = line.split('outcome="')[1].split('"')[0]
            found[outcome] = found.get(outcome, 0) + float(line.rsplit(" ", 1)[1])
    return found


@pytest.fixture
def own(tiny_model: Path, tmp_path: Path) -> Iterator[RunningService]:
    """A service of this test's own, to be ended or broken."""
    with RunningService(
        tiny_model, tmp_path, worker_args=("--max-waiting-requests", "3")
    ) as running_service:
        yield running_service


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
def test_a_client_that_leaves_frees_its_blocks(service: RunningService, stream: bool) -> None:
    service.wait_idle()
    before = outcomes(service).get("client_gone", 0)
    clients = [begin(service, {**LONG, "stream": stream, "n": 4}) for _ in range(4)]
    until(lambda: running(service) > 0, 10, "sequences to run")
    for client in clients:
        leave(client)
    service.wait_idle(seconds=2)
    until(lambda: outcomes(service).get("client_gone", 0) == before + 4, 2, "four to be counted")


def test_a_client_that_leaves_while_queued_frees_its_place(
    tiny_model: Path, tmp_path: Path
) -> None:
    arguments = ("--max-num-seqs", "1")
    with RunningService(tiny_model, tmp_path, engine_args=arguments) as service:
        first = begin(service, {**LONG, "stream": True})
        until(lambda: running(service) == 1, 10, "the first to run")
        queued = [begin(service, {**LONG, "stream": stream}) for stream in (True, False)]
        until(lambda: service.engine_counts()["waiting"] == 2, 10, "two to wait")
        for client in queued:
            leave(client)
        until(lambda: service.engine_counts()["waiting"] == 0, 2, "the queue to empty")
        leave(first)
        service.wait_idle(2)


def log_lines(service: RunningService, outcome: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in service.worker.output().splitlines() if line[:1] == "{"]
    return [line for line in lines if line.get("outcome") == outcome]


def in_progress(service: RunningService) -> float:
    lines = service.get("/metrics")[1].decode().splitlines()
    name = "quire_requests_in_progress{"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def test_the_cost_of_broken_streams_is_logged(own: RunningService) -> None:
    """Their usage is not sent on any stream."""
    sdk = openai.OpenAI(base_url=f"{own.url}/v1", api_key="unused", max_retries=0)

    def read_some() -> tuple[openai.Stream[Any], int]:
        stream = sdk.chat.completions.create(model="tiny", stream=True, **_for_sdk(LONG))
        tokens = sum(bool(next(stream).choices) for _ in range(6)) - 1  # one has the role
        return stream, tokens

    stream, seen = read_some()
    assert in_progress(own) == 1
    stream.close()
    own.wait_idle()
    (left,) = until(lambda: log_lines(own, "client_gone"), 5, "the line of the one that left")
    stream, seen_of_failed = read_some()
    own.engine.end(signal.SIGKILL)
    with pytest.raises(openai.APIError):
        list(stream)
    (failed,) = until(lambda: log_lines(own, "error:engine"), 5, "the line of the failed one")
    for line, least in ((left, seen), (failed, seen_of_failed)):
        assert line["prompt_tokens"] > 0
        assert least <= line["output_tokens"] < LONG["max_tokens"]
        assert line["cached_tokens"] <= line["prompt_tokens"]
    assert in_progress(own) == 0


def test_the_socket_answers_loading_until_the_engine_is_there(
    tiny_model: Path, tmp_path: Path
) -> None:
    service = RunningService(tiny_model, tmp_path)
    try:
        service.start_worker()

        def health() -> tuple[int, Any] | None:
            with suppress(OSError):
                status, body = service.get("/health")
                return status, json.loads(body)
            return None

        status, body = until(health, 20, "the worker to listen")
        assert (status, body["status"]) == (503, "loading")
        assert service.get("/health/ready")[0] == 503
        assert service.get("/health/live")[0] == 200
        assert service.get("/v1/models")[0] == 200
        status, reply = service.post(CHAT, LONG)
        assert (status, reply["error"]["code"]) == (503, "model_loading")
        service.start_engine()
        service.wait_ready()
        assert service.post(CHAT, {**LONG, "max_tokens": 2})[0] == 200
    finally:
        service.__exit__()


def test_a_dead_engine_fails_its_streams_and_a_new_one_is_taken_up(own: RunningService) -> None:
    sdk = openai.OpenAI(base_url=f"{own.url}/v1", api_key="unused", max_retries=0)
    stream = iter(sdk.chat.completions.create(model="tiny", stream=True, **_for_sdk(LONG)))
    next(stream)
    next(stream)
    own.engine.end(signal.SIGKILL)
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert caught.value.code == "engine_error"
    until(lambda: own.get("/health/live")[0] == 503, 5, "liveness to fail")
    status, reply = own.post(CHAT, LONG)
    assert (status, reply["error"]["code"]) == (503, "engine_unavailable")
    assert outcomes(own)["error:engine"] == 1
    assert outcomes(own)["refused:engine"] == 1
    own.start_engine()
    until(lambda: own.get("/health/ready")[0] == 200, 60, "the new engine to be ready")
    assert own.post(CHAT, {**LONG, "max_tokens": 2})[0] == 200


def _for_sdk(ask: dict[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in ask.items() if key != "ignore_eos"}
    return {**known, "extra_body": {"ignore_eos": True}}


def test_too_many_waiting_are_refused_with_the_pace_of_the_queue(
    tiny_model: Path, tmp_path: Path
) -> None:
    with RunningService(
        tiny_model,
        tmp_path,
        engine_args=("--max-num-seqs", "2"),
        worker_args=("--max-waiting-requests", "3"),
    ) as service:

        def ask(seed: int) -> tuple[int, dict[str, str], Any]:
            body = json.dumps({**LONG, "max_tokens": 60, "seed": seed})
            status, headers, reply = service.exchange("POST", CHAT, body.encode())
            return status, headers, json.loads(reply)

        # Forty at once may all be refused before the first of the queue has ended: until then its
        # pace, and so when to come back, is unknown.
        answers: list[tuple[int, dict[str, str], Any]] = []
        refused: list[tuple[int, dict[str, str], Any]] = []

        def refused_with_a_time() -> bool:
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                answers.extend(pool.map(ask, range(len(answers), len(answers) + 40)))
            refused[:] = [answer for answer in answers if answer[0] == 429]
            return any("retry-after" in headers for _, headers, _ in refused)

        until(refused_with_a_time, 60, "a refusal that says when to come back")
        assert {answer[0] for answer in answers} == {200, 429}
        assert all(reply["error"]["code"] == "overloaded" for _, _, reply in refused)
        assert all(headers["x-quire-reason"] == "refused:overloaded" for _, headers, _ in refused)
        waits = [headers.get("retry-after") for _, headers, _ in refused]
        assert all(1 <= int(wait) <= 120 for wait in waits if wait is not None)
        service.wait_idle()


def test_shutdown_finishes_streams_refuses_new_work_and_exits_with_0(own: RunningService) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        streams = [
            pool.submit(own.stream, CHAT, {**LONG, "stream": True, "seed": seed})
            for seed in range(3)
        ]
        until(lambda: running(own) == 3, 10, "three streams")
        own.worker.popen.send_signal(signal.SIGTERM)
        until(lambda: own.get("/health/ready")[0] == 503, 5, "readiness to fall")
        status, headers, reply = own.exchange("POST", CHAT, json.dumps(LONG).encode())
        assert (status, json.loads(reply)["error"]["code"]) == (503, "shutting_down")
        assert int(headers["retry-after"]) >= 1
        for stream in streams:
            assert stream.result()[-1]["choices"][0]["finish_reason"] == "length"
    assert own.worker.popen.wait(20) == 0
    assert own.engine.popen.poll() is None


def test_a_stream_cut_by_the_end_of_the_drain_says_so(tiny_model: Path, tmp_path: Path) -> None:
    with RunningService(tiny_model, tmp_path, worker_args=("--drain-timeout", "0.05")) as service:
        sdk = openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0)
        many = {**_for_sdk(LONG), "n": 8}
        stream = iter(sdk.chat.completions.create(model="tiny", stream=True, **many))
        next(stream)
        service.worker.popen.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIError) as caught:
            list(stream)
        assert caught.value.code == "shutting_down"
        assert service.worker.popen.wait(20) == 0
        assert '"outcome":"error:shutdown"' in service.worker.output()


def test_a_client_that_does_not_read_is_cut_and_its_blocks_are_freed(
    tiny_model: Path, tmp_path: Path
) -> None:
    with RunningService(
        tiny_model, tmp_path, worker_args=("--slow-reader-timeout", "0.5")
    ) as service:
        ask = {**LONG, "stream": True, "n": 8, "logprobs": True, "top_logprobs": 20}
        body = json.dumps(ask).encode()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", service.port))
            head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            until(lambda: outcomes(service).get("client_slow") == 1, 30, "the cut")
            service.wait_idle()
            client.settimeout(20)
            received = b""
            with suppress(ConnectionError):
                while piece := client.recv(1 << 16):
                    received += piece
        assert b"[DONE]" not in received  # not mistaken for a complete answer
        assert not received.endswith(b"0\r\n\r\n")
