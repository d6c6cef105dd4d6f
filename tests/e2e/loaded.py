"""A server under a load that reaches every series that a healthy server has."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.e2e.quire_server import QuireServer

CHAT = "/v1/chat/completions"
KEY = {"Authorization": "Bearer sk-a"}
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 48, **more}


def send_answered(server: QuireServer) -> None:
    """Requests with a stream, a shared prefix, a grammar, and of another API."""
    long = "word " * 60
    for body in (
        chat(f"{long} one", stream=True),
        chat(f"{long} two"),
        chat("x", response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}}),
    ):
        server.request("POST", CHAT, _json(body), KEY)
    server.request("POST", "/v1/messages", _json(chat("Hello!", model="m")), KEY)
    leave_early(server)


def send_refused(server: QuireServer) -> None:
    server.request("POST", CHAT, _json(chat("x", temperature="hot")), KEY)
    server.request("POST", CHAT, _json(chat("x")))  # without a key
    server.request("POST", "/chat/completions", _json(chat("x")), KEY)  # no such path


def leave_early(server: QuireServer) -> None:
    body = _json(chat("Tell me a story.", stream=True, max_tokens=400))
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: {KEY['Authorization']}"
        f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with suppress(OSError), socket.create_connection(("127.0.0.1", server.port), 10) as client:
        client.sendall(head.encode() + body)
        client.recv(1)


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


@contextmanager
def loaded(server: QuireServer, streams: int) -> Iterator[None]:
    """Keep ``streams`` requests running, and send others now and then, until the end."""
    stop = threading.Event()

    def tell() -> None:
        text = f"{threading.get_ident()}: tell me a story. "
        server.request("POST", CHAT, _json(chat(text * 5, max_tokens=200)), KEY)

    def keep(send: Callable[[], None], pause: float) -> None:
        while not stop.wait(pause):
            with suppress(OSError):
                send()

    jobs: list[tuple[Callable[[], None], float]] = [(tell, 0.05)] * streams
    jobs += [(lambda: send_answered(server), 0.0), (lambda: send_refused(server), 0.2)]
    threads = [threading.Thread(target=keep, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
