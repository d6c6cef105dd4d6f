"""Where a request's time went, as its log line says, with real processes."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from observability.phases import PHASES
from tests.service.running import RunningService, until

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
# What rounding to microseconds can add up to, in milliseconds.
ROUNDING = 0.01


def line_of(service: RunningService, request_id: str) -> dict[str, Any]:
    def found() -> list[dict[str, Any]]:
        lines = (line for line in service.worker.output().splitlines() if request_id in line)
        return [json.loads(line) for line in lines if '"event":"request"' in line]

    (line,) = until(found, 10, f"the line of {request_id}")
    return line


def ask(
    service: RunningService, body: Any, path: str = CHAT, method: str = "POST"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer, and the log line."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    _, headers, reply = service.exchange(method, path, data)
    return json.loads(reply), line_of(service, headers["x-request-id"])


def phases(line: dict[str, Any]) -> dict[str, float]:
    return {
        phase.name: line[phase.log_field] for phase in PHASES if line[phase.log_field] is not None
    }


def counted(service: RunningService, name: str, **labels: str) -> float:
    wanted = {f'{label}="{value}"' for label, value in labels.items()}
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in service.get("/metrics")[1].decode().splitlines()
        if line.startswith(name + "{") and wanted <= set(re.findall(r'\w+="[^"]*"', line))
    )


def test_a_body_that_comes_slowly_is_time_of_receiving_and_of_nothing_else(
    service: RunningService,
) -> None:
    body = json.dumps({**ASK, "max_tokens": 1}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
    before = counted(service, "quire_requests_received_total", route="chat_completions")
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as client:
        client.sendall(head.encode())
        until(
            lambda: (
                counted(service, "quire_requests_received_total", route="chat_completions") > before
            ),
            10,
            "the request to be counted as soon as its headers are there",
        )
        begun = time.monotonic()
        for byte in body[:-1]:
            client.sendall(bytes([byte]))
            service.get("/health")  # which takes as long as it takes
        last = time.monotonic()
        client.sendall(body[-1:])
        reply = client.recv(65536).decode()
    line = line_of(service, reply.split("x-request-id: ")[1].split("\r\n")[0])
    assert line["status"] == 200
    assert line["receive_ms"] >= (last - begun) * 1e3
    spent = phases(line)
    assert sum(spent.values()) + line["other_ms"] == pytest.approx(line["total_ms"], abs=ROUNDING)
    # Each other phase began after the last byte was sent.
    others = line["total_ms"] - line["receive_ms"]
    assert all(spent[phase] <= others + ROUNDING for phase in spent if phase != "receive")


def test_an_answer_has_gone_through_every_phase_but_flush(service: RunningService) -> None:
    before = counted(service, "quire_phase_seconds_count", model="tiny", phase="queue")
    _, line = ask(service, {**ASK, "max_tokens": 5, "ignore_eos": True})
    assert list(phases(line)) == [
        *("receive", "render", "tokenize", "admit", "queue", "prefill", "decode")
    ]
    assert counted(service, "quire_phase_seconds_count", model="tiny", phase="queue") == before + 1


def test_a_prompt_that_is_too_long_tells_its_tokenizing_and_its_tokens(
    service: RunningService,
) -> None:
    content = "word " * 800
    answer, line = ask(service, {**ASK, "messages": [{"role": "user", "content": content}]})
    found = re.search(r"resulted in (\d+) tokens", answer["error"]["message"])
    assert found is not None
    assert line["prompt_tokens"] == int(found[1])
    expected = {
        "status": 400,
        "outcome": "refused:invalid",
        "error": "ContextTooLongError",
        "error_code": "context_length_exceeded",
        "error_field": "messages",
        "model": "tiny",
        "waiting": 0,
    }
    assert {name: line[name] for name in expected} == expected
    assert set(phases(line)) == {"receive", "render", "tokenize", "admit"}
    assert line["tokenize_ms"] > 0


def test_a_prompt_far_too_long_tells_what_was_tokenized_before_it_was_certain(
    service: RunningService,
) -> None:
    content = "word " * 10_000
    answer, line = ask(service, {**ASK, "messages": [{"role": "user", "content": content}]})
    assert "more than" in answer["error"]["message"]
    assert line["prompt_tokens"] > 512
    assert line["tokenize_ms"] > 0
    assert line["error_code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        (
            {"messages": [{"role": "user", "content": [{"type": "canary"}]}]},
            "messages[0].content[0].type",
        ),
        ({"chat_template_kwargs": {"canary": 1}}, "chat_template_kwargs.*"),
    ],
)
def test_a_refused_request_names_model_and_field_but_no_value(
    service: RunningService, change: dict[str, Any], field: str
) -> None:
    labels = {"model": "tiny", "route": "chat_completions", "outcome": "refused:invalid"}
    before = counted(service, "quire_requests_total", **labels)
    _, line = ask(service, {**ASK, **change})
    assert line["status"] == 400
    assert (line["model"], line["error_field"]) == ("tiny", field)
    assert counted(service, "quire_requests_total", **labels) == before + 1
    assert "canary" not in json.dumps(line)


@pytest.mark.parametrize(
    ("method", "path", "status", "outcome", "told"),
    [
        ("POST", "/v1/v1/chat/completions", 404, "refused:not_found", "POST /v1/chat/completions"),
        ("GET", "/chat/completions", 405, "refused:invalid", "use POST"),
    ],
)
def test_what_no_route_takes_is_counted_and_logged(
    service: RunningService, method: str, path: str, status: int, outcome: str, told: str
) -> None:
    def count(name: str, **labels: str) -> float:
        return counted(service, name, route="none", **labels)

    received = count("quire_requests_received_total")
    ended = count("quire_requests_total", model="other", outcome=outcome)
    answer, line = ask(service, b"{}", path + "?canary=1", method)
    assert told in answer["error"]["message"]
    expected = {
        "route": "none",
        "method": method,
        "path": path,
        "status": status,
        "outcome": outcome,
        "model": None,
    }
    assert {name: line[name] for name in expected} == expected
    assert "canary" not in json.dumps(line)
    assert count("quire_requests_received_total") == received + 1
    assert count("quire_requests_total", model="other", outcome=outcome) == ended + 1
    assert count("quire_requests_in_progress") == 0


def test_a_flood_of_wrong_paths_does_not_flood_the_log(service: RunningService) -> None:
    def lines(event: str) -> list[dict[str, Any]]:
        output = service.worker.output().splitlines()
        found = [json.loads(line) for line in output if "/flood" in line or "did not log" in line]
        return [line for line in found if line["event"] == event]

    before = counted(service, "quire_requests_received_total", route="none")
    sent = 400
    for _ in range(sent):
        assert service.get("/flood")[0] == 404
    assert counted(service, "quire_requests_received_total", route="none") == before + sent

    def told() -> Callable[[], Any] | list[dict[str, Any]]:
        service.get("/flood")
        return lines("did not log some requests that no route takes")

    (left_out,) = until(told, 10, "a line about those that were left out")[:1]
    assert 0 < left_out["count"] < sent
    assert len(lines("request")) < sent


def test_a_client_that_does_not_read_is_time_of_flushing(service: RunningService) -> None:
    """Long answers fill the buffers between the server and it."""
    body = json.dumps(
        {**ASK, "max_tokens": 450, "ignore_eos": True, "stream": True, "n": 16, "logprobs": True}
        | {"top_logprobs": 20}
    ).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect(("127.0.0.1", service.port))
        client.sendall(head.encode() + body)
        begin = client.recv(1024)
        while b"\r\n\r\n" not in begin:
            begin += client.recv(1024)
        service.wait_idle(60)  # all has been generated, but not been read
        done = time.monotonic()
        for _ in range(20):
            service.get("/health")
        waited = time.monotonic() - done
        rest = b""
        while b"[DONE]" not in rest:
            rest = rest[-64:] + client.recv(65536)
    line = line_of(service, begin.decode().split("x-request-id: ")[1].split("\r\n")[0])
    assert line["flush_ms"] >= waited * 1e3
    spent = phases(line)
    assert spent["flush"] <= line["total_ms"]
    assert sum(spent.values()) - spent["flush"] < line["total_ms"]
