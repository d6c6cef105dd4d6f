"""SIGTERM while answers are streaming: they finish, and new requests get a Retry-After."""

from __future__ import annotations

import json
import signal
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.quire_server import QuireServer, descendants, is_running, until

STREAMS = 8
TOKENS = 400


def stream_chat(server: QuireServer, started: threading.Barrier) -> list[dict[str, Any] | str]:
    """All data lines of a long streamed answer; meets the others after its first token."""
    body = {
        "model": "pocket",
        "stream": True,
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": "Tell me a story."}],
    }
    request = urllib.request.Request(
        f"{server.url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    lines: list[dict[str, Any] | str] = []
    with urllib.request.urlopen(request, timeout=120) as reply:
        for line in reply:
            if line.startswith(b"data: "):
                data = line[6:].strip().decode()
                lines.append(data if data == "[DONE]" else json.loads(data))
                if len(lines) == 2:
                    started.wait(60)
    return lines


@pytest.mark.proves("drain", "process")
def test_sigterm_lets_streams_finish_and_leaves_nothing_running() -> None:
    with QuireServer() as server:
        assert server.process is not None
        family = descendants(server.process.pid)
        assert len(family) >= 2  # a worker and an engine
        started = threading.Barrier(STREAMS + 1)
        with ThreadPoolExecutor(STREAMS) as pool:
            streams = [pool.submit(stream_chat, server, started) for _ in range(STREAMS)]
            started.wait(60)
            server.process.send_signal(signal.SIGTERM)

            def refused() -> dict[str, str] | None:
                request = urllib.request.Request(
                    f"{server.url}/v1/completions",
                    data=b'{"model":"pocket","prompt":"x","max_tokens":1}',
                    headers={"Content-Type": "application/json"},
                )
                try:
                    with urllib.request.urlopen(request, timeout=30):
                        return None
                except urllib.error.HTTPError as error:
                    headers = {name.lower(): value for name, value in error.headers.items()}
                    return {"status": str(error.code), **headers, "body": error.read().decode()}

            refusal = until(refused, 5, "a newcomer to be refused while draining")
            assert refusal["status"] == "503"
            assert int(refusal["retry-after"]) > 0
            assert json.loads(refusal["body"])["error"]["message"]
            assert server.get("/health/ready")[0] == 503

            for stream in streams:
                lines = stream.result(timeout=120)
                assert lines[-1] == "[DONE]"
                assert isinstance(lines[-2], dict)
                assert lines[-2]["choices"][0]["finish_reason"] == "length"

        assert server.wait_exit() == 0
        until(lambda: not any(map(is_running, family)), 10, "every child to be gone")


def test_killing_the_supervisor_leaves_no_orphan() -> None:
    server = QuireServer().start()
    try:
        server.wait_ready()
        assert server.process is not None
        family = descendants(server.process.pid)
        server.process.kill()
        until(lambda: not any(map(is_running, family)), 20, "orphans to end by themselves")
    finally:
        assert server.process is not None
        server.process.kill()
        server.process.wait()
        if server.process.stdout:
            server.process.stdout.close()
