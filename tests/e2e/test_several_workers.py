"""Four API workers on one port: what one of them takes with it when it is killed, and what not."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.e2e.quire_server import QuireServer, until, workers_of
from tests.e2e.test_worker_death import EngineWatcher, Stream, request_lines

pytestmark = pytest.mark.one_process

WORKERS = 4
STREAMS = 32
CLIENTS = 2
GENERATED = "quire_generated_tokens_total"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[QuireServer]:
    arguments = (f"--api-workers={WORKERS}", f"--max-num-seqs={STREAMS + CLIENTS}")
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"when": "Think", "reply": "<think>\nYes.\n</think>\n\nSeen."}))
    model = f"simulated:step=4ms,script={script},context=1000000"
    with QuireServer(model, *arguments, "--num-kv-blocks=200000", "--log-format=json") as running:
        yield running


class Clients:
    """Some that send one short request after another until ``stop``."""

    def __init__(self, server: QuireServer) -> None:
        self._server = server
        self._stop = threading.Event()
        self.done: list[Stream] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            stream = Stream(self._server, stream=True, max_tokens=100, ignore_eos=True)
            stream.join(60)
            self.done.append(stream)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


@pytest.mark.proves("counters", "workers")
@pytest.mark.proves("worker-death", "workers")
def test_a_killed_worker_takes_its_own_requests_and_every_request_counts_once(
    server: QuireServer,
) -> None:
    long = []
    for _ in range(STREAMS):  # one after the other, so that every worker gets some
        long.append(Stream(server, stream=True, max_tokens=3000, ignore_eos=True))
        assert long[-1].has_token.wait(60)
    clients = Clients(server)
    for index in (0, 2):  # the first to lead, and another one
        before = workers_of(server)
        assert len(before) == WORKERS
        finished = len(clients.done)
        os.kill(before[index], signal.SIGKILL)
        until(lambda before=before: stands_again(server, before), 180, "the next worker")  # type: ignore[misc]
        until(
            lambda finished=finished: len(clients.done) >= finished + CLIENTS,  # type: ignore[misc]
            120,
            "requests to go on",
        )
    clients.stop()
    for stream in long:
        stream.join(60)

    known = [stream for stream in (*long, *clients.done) if stream.request_id]
    expected = {
        stream.request_id: "length" if stream.is_whole else "error:worker" for stream in known
    }
    assert {stream.is_whole for stream in long} == {True, False}
    until(lambda: expected.keys() <= ended(server).keys(), 60, "all log lines")
    assert {name: ended(server)[name] for name in expected} == expected
    assert len(request_lines(server)) == len(ended(server))  # each once

    watcher = EngineWatcher(server)
    totals = watcher.totals()
    watcher.close()
    until(lambda: server.total(GENERATED) == totals.tokens_generated, 30, "the engine's total")
    outcomes = Counter(ended(server).values())
    for _ in range(2 * WORKERS):  # whichever worker answers
        for outcome, count in outcomes.items():
            assert server.total("quire_requests_total", outcome=outcome) == count
        received = server.total("quire_requests_received_total", route="chat_completions")
        assert received == len(ended(server)) == outcomes.total()
        assert server.total("quire_requests_in_progress") == 0
        assert server.total(GENERATED) == totals.tokens_generated
    shown = server.metrics()
    workers = [name for name in shown if name.startswith("process_start_time_seconds")]
    assert len(workers) == WORKERS


def stands_again(server: QuireServer, before: dict[int, int]) -> bool:
    now = workers_of(server)
    if len(now) < WORKERS or now == before:
        return False
    said = server.output()  # not parsed: there are many lines, and it is asked often
    return said.count("worker accepts") == said.count('"child":"worker-') - said.count('"died"') * 2


def ended(server: QuireServer) -> dict[str, str]:
    """How requests ended, by id."""
    return {line["request_id"]: line["outcome"] for line in request_lines(server)}


@pytest.mark.proves("drain", "workers")
def test_all_workers_drain_before_the_engine_stops(server: QuireServer) -> None:
    streams = [Stream(server, stream=True, max_tokens=300, ignore_eos=True) for _ in range(12)]
    assert all(stream.has_token.wait(60) for stream in streams)
    assert server.terminate() == 0
    for stream in streams:
        stream.join(60)
    assert all(stream.is_whole for stream in streams)
    assert sum(line["event"] == "drained" for line in server.log_lines()) == WORKERS


@pytest.mark.proves("signatures", "workers")
def test_what_one_worker_signs_another_accepts(server: QuireServer) -> None:
    model = json.loads(server.get("/v1/models")[1])["data"][0]["id"]
    body = {
        "model": model,
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": "Think"}],
    }
    status, answer = server.post("/v1/messages", body)
    assert status == 200
    content = answer["content"]
    signed = [block for block in content if block["type"] == "thinking"]
    assert signed, content
    messages = [
        *({"role": "user", "content": "Think"}, {"role": "assistant", "content": content}),
        {"role": "user", "content": "And now?"},
    ]
    answered = {answer["id"][:6]}  # the digits after "msg_" are of the worker

    def accepted(_: int) -> None:
        status, reply = server.post("/v1/messages", {**body, "messages": messages})
        assert status == 200, reply
        answered.add(reply["id"][:6])

    def another_accepts() -> bool:
        list(clients.map(accepted, range(3 * WORKERS)))
        return len(answered) > 1

    with ThreadPoolExecutor(WORKERS) as clients:  # at once: one alone could get the same worker
        until(another_accepts, 60, "an answer of another worker")


def test_the_bound_of_websockets_is_that_of_all_workers() -> None:
    """However they cluster in one worker: the kernel does not distribute connections evenly."""
    with ExitStack() as stack:
        arguments = (f"--api-workers={WORKERS}", "--max-websockets=8", "--no-admin")
        server = stack.enter_context(QuireServer("simulated:output=2", *arguments))
        url = f"ws://127.0.0.1:{server.port}/v1/responses"
        for _ in range(8):
            stack.enter_context(connect(url))
        for _ in range(WORKERS):
            with pytest.raises(InvalidStatus) as caught:
                connect(url)
            assert caught.value.response.status_code == 426
        worker_pids = workers_of(server)
        for pid in worker_pids.values():
            os.kill(pid, signal.SIGKILL)
        until(lambda: stands_again(server, worker_pids), 30, "all workers")
        for _ in range(8):
            stack.enter_context(connect(url))
