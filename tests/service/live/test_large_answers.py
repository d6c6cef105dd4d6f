"""What large answers take of the worker's memory, all together."""

from __future__ import annotations

import socket
from typing import Any

import httpx

from tests.service.running import RunningService, until

MIB = 1024 * 1024
# Not in the prompt, but in every response object.
ASK: dict[str, Any] = {
    "model": "tiny",
    "input": "Hello",
    "max_output_tokens": 2,
    "tool_choice": "none",
    "tools": [
        {"type": "function", "name": f"f{index}", "description": "d" * 10_000, "parameters": {}}
        for index in range(500)
    ],
}


def test_unread_large_answers_share_one_memory_limit(service: RunningService) -> None:
    url = f"{service.url}/v1/responses"
    stored = httpx.post(url, json=ASK, timeout=60).raise_for_status()
    held = len(stored.content)
    assert held > 4 * MIB
    asked = f"GET /v1/responses/{stored.json()['id']} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    clients: list[socket.socket] = []
    statuses: list[bytes] = []
    try:
        for _ in range(128 * MIB // held + 4):
            client = socket.socket()
            clients.append(client)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", service.port))
            client.settimeout(60)
            client.sendall(asked)
            statuses.append(client.recv(len("HTTP/1.1 200")).split()[1])
        full = statuses.index(b"429")
        assert statuses == [b"200"] * full + [b"429"] * (len(clients) - full)
        assert full * held <= 130 * MIB
        # One that is yet to be generated keeps as much until it has been sent.
        assert httpx.post(url, json=ASK, timeout=60).status_code == 429
        small = {**ASK, "tools": []}
        assert httpx.post(url, json=small, timeout=60).status_code == 200
    finally:
        for client in clients:
            client.close()
    until(lambda: httpx.post(url, json=ASK, timeout=60).status_code == 200, 60, "room again")
