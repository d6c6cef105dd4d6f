"""What a request leaves is freed at once. A cycle of references would hold it until the garbage
collector finds it, which pauses all streams for tens of milliseconds once there is enough; a cycle
through the HTTP server's objects, which the collector does not see, would hold it for ever."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from websockets.sync.client import connect

from tests.service.garbage_worker import VARIABLE
from tests.service.running import RunningService, until

REQUESTS = 40
ADMIN_KEY = "operate-it"
MESSAGES = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
STREAM = {"stream": True}
JSON = {"response_format": {"type": "json_object"}}
PROMPT = {"prompt": "Hello", "max_tokens": 4}
INPUT = {"input": "Hello", "max_output_tokens": 16}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", MESSAGES),
    "chat, streamed": ("/v1/chat/completions", MESSAGES | STREAM),
    "chat with tools, streamed": ("/v1/chat/completions", MESSAGES | STREAM | {"tools": [TOOL]}),
    "chat, JSON": ("/v1/chat/completions", MESSAGES | JSON),
    "chat, logprobs": ("/v1/chat/completions", MESSAGES | {"logprobs": True, "top_logprobs": 2}),
    "chat, two choices": ("/v1/chat/completions", MESSAGES | {"n": 2}),
    "chat, refused": ("/v1/chat/completions", {"messages": []}),
    "completions": ("/v1/completions", PROMPT),
    "completions, streamed": ("/v1/completions", PROMPT | STREAM),
    "completions, unknown field": ("/v1/completions", PROMPT | {"best": 2}),
    "completions, three prompts": ("/v1/completions", PROMPT | {"prompt": ["Hello"] * 3}),
    "messages": ("/v1/messages", MESSAGES),
    "messages, streamed": ("/v1/messages", MESSAGES | STREAM),
    "tokens of messages": ("/v1/messages/count_tokens", MESSAGES),
    "responses": ("/v1/responses", INPUT),
    "responses, streamed": ("/v1/responses", INPUT | STREAM),
    "responses, logprobs": ("/v1/responses", INPUT | {"top_logprobs": 2}),
    "tokenize": ("/tokenize", {"prompt": "Hello"}),
    "embeddings, refused": ("/v1/embeddings", {"input": "Hello"}),
    "no such path": ("/v1/nothing", {}),
}


class Looked(NamedTuple):
    """Numbers of objects by type."""

    collected: dict[str, int]
    alive: dict[str, int]


class WatchedService(RunningService):
    worker_module = "tests.service.garbage_worker"

    def looked_at(self) -> Looked:
        """Collect garbage; return how many objects were collected and how many are left."""
        file = self.folder / "garbage.json"
        file.unlink(missing_ok=True)
        self.worker.popen.send_signal(signal.SIGUSR2)
        until(file.exists, 30, "the worker collects garbage")
        return Looked(**json.loads(file.read_text()))


@pytest.fixture(scope="module")
def watched(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedService]:
    folder = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder / "garbage.json"))
        patch.setenv("QUIRE_ADMIN_KEY", ADMIN_KEY)
        service = WatchedService(tiny_model, folder, worker_args=("--store-url", "none"))
        with service:
            yield service


SPELLINGS = "service.wire.logprobs._Spelling"  # a bounded cache of tokens' texts
TUPLES = "builtins.tuple"  # Litestar's bounded cache of paths, where these have ids


def left(before: Looked, after: Looked, *, kept: str = SPELLINGS) -> dict[str, int]:
    """Return what is left of requests. Other work of the server leaves something now and then, but
    not as often. ``kept``: the type that a cache keeps."""
    grown = {
        name: count - before.alive.get(name, 0)
        for name, count in after.alive.items()
        if name != kept
    }
    counts = [*after.collected.items(), *grown.items()]
    return {name: count for name, count in counts if count >= REQUESTS}


@pytest.mark.parametrize("case", CASES)
def test_an_answered_request_leaves_nothing_to_collect(watched: WatchedService, case: str) -> None:
    path, body = CASES[case]
    with httpx.Client(base_url=watched.url, timeout=30) as client:
        client.post(path, json={"model": "tiny", **body})  # what the first one brings is kept
        before = watched.looked_at()
        for _ in range(REQUESTS):
            client.post(path, json={"model": "tiny", **body})
        _ended(watched)
        assert left(before, watched.looked_at()) == {}  # with the connection still open


def test_a_client_that_leaves_its_stream_leaves_nothing_to_collect(watched: WatchedService) -> None:
    endless = {"model": "tiny", **MESSAGES, "max_tokens": 400, "ignore_eos": True, "stream": True}

    def leave() -> None:
        with httpx.stream("POST", f"{watched.url}/v1/chat/completions", json=endless) as answer:
            next(answer.iter_raw())

    leave()
    _ended(watched)
    before = watched.looked_at()
    for _ in range(REQUESTS):
        leave()
    _ended(watched)
    assert left(before, watched.looked_at()) == {}


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_fails_late_leaves_nothing_to_collect(
    watched: WatchedService, stream: bool
) -> None:
    endless = {"max_tokens": 400, "ignore_eos": True, "n": 4, "stream": stream}
    body = {"model": "tiny", **MESSAGES, **endless}
    with (
        httpx.Client(base_url=watched.url, timeout=30) as client,
        httpx.Client(
            base_url=f"http://127.0.0.1:{watched.admin_port}/admin/v1/requests",
            headers={"authorization": f"Bearer {ADMIN_KEY}"},
        ) as operator,
        ThreadPoolExecutor(1) as pool,
    ):

        def cancelled() -> bool:
            answer = pool.submit(client.post, "/v1/chat/completions", json=body)

            def running() -> str | None:
                live = operator.get("", params={"state": "live"}).json()["requests"]
                return next((one["request_id"] for one in live if one["phase"] == "decode"), None)

            request_id = until(running, 30, "a request is decoded")
            is_in_time = operator.post(f"/{request_id}/cancel").status_code == 200
            assert (b"cancelled" in answer.result().content) == is_in_time
            return is_in_time

        until(cancelled, 30, "a request is cancelled before it ends")
        _ended(watched)
        before = watched.looked_at()
        for _ in range(REQUESTS):
            until(cancelled, 30, "a request is cancelled before it ends")
        _ended(watched)
    assert left(before, watched.looked_at(), kept=TUPLES) == {}


def test_a_response_on_a_websocket_leaves_nothing_to_collect(watched: WatchedService) -> None:
    asked = json.dumps({"type": "response.create", "model": "tiny", "store": False, **INPUT})
    with connect(f"ws://127.0.0.1:{watched.port}/v1/responses") as connection:

        def answered() -> None:
            connection.send(asked)
            last = ""
            while last not in ("response.completed", "response.incomplete"):
                last = json.loads(connection.recv(timeout=30))["type"]

        answered()
        before = watched.looked_at()
        for _ in range(REQUESTS):
            answered()
        _ended(watched)
        assert left(before, watched.looked_at()) == {}


def _ended(service: WatchedService) -> None:
    """Return when no request is open."""

    def idle() -> bool:
        lines = service.get("/metrics")[1].decode().splitlines()
        open_ones = [line for line in lines if line.startswith("quire_requests_in_progress{")]
        return not any(float(line.rsplit(" ", 1)[1]) for line in open_ones)

    until(idle, 30, "all requests end")
