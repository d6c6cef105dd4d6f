"""Each fault of the table happens on a running server, at the word of an operator: only what it
hits may fail, and it recovers."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.quire_server import QuireServer, engine_of, free_port, until
from tests.e2e.test_worker_death import process_of, request_lines
from tests.observability.otlp_receiver import Receiver, http_receiver
from tests.service.test_failures_mid_stream import EACH_API, Api, check_failed

pytestmark = pytest.mark.one_process

OPERATE = "operate-key-of-test"
# Requests with this max_tokens are those that aimed faults hit.
AIMED = 77
STORE_SECONDS = 2
EXPORT_SECONDS = 3
STEP_SECONDS = 1
FAULTS = (
    *(f"engine_kill:times=0:max_tokens={AIMED}", f"engine_stall:times=0:max_tokens={AIMED}"),
    f"slow_step:times=0:seconds={STEP_SECONDS}",
    *(f"step_oom:times=0:max_tokens={AIMED}", f"nan_logits:times=0:max_tokens={AIMED}:output=3"),
    *("worker_kill:times=0", "worker_stall:times=0", "parser_error:times=0"),
    f"store_down:times=0:seconds={STORE_SECONDS}",
    f"store_full:times=0:seconds={STORE_SECONDS}",
    f"exporter_hang:times=0:seconds={EXPORT_SECONDS}",
)
STORY = {"messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0}
CHAT = "/v1/chat/completions"


@dataclass
class Drill:
    """A server, and an operator who may inject faults."""

    server: QuireServer
    admin_port: int
    key: str = OPERATE
    story: str = field(default="", init=False)  # its text when nothing is wrong

    def admin(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.admin_port}/admin/v1{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {self.key}", "content-type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def inject(self, name: str) -> None:
        status, state = self.admin("POST", f"/faults/{name}", {})
        assert status == 202, state

    def injected(self, name: str) -> int:
        states = self.admin("GET", "/faults")[1]["faults"]
        return next(state["injected"] for state in states if state["name"] == name)

    def tell(self, **fields: Any) -> str:
        """A streamed story, to its end. Raises IncompleteRead if the connection ends before."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        body = {**STORY, "max_tokens": 200, "stream": True, **fields}
        connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        events = [line[6:] for line in reply if line.startswith(b"data: ")]
        connection.close()
        errors = [event for event in events if event.startswith(b'{"error"')]
        assert not errors, errors
        if not events or events[-1].strip() != b"[DONE]":
            raise http.client.IncompleteRead(b"".join(events))  # which iterating hides
        choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    def ask(self, api: Api, **fields: Any) -> tuple[int, str]:
        status, reply = self.server.request(
            "POST", api.path, json.dumps({**api.body, "model": "pocket", **fields}).encode()
        )
        return status, reply.decode()

    def others_are_not_affected(self, told: concurrent.futures.Future[str]) -> None:
        assert told.result(120) == self.story


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with http_receiver() as found:
        yield found


@pytest.fixture(scope="module")
def drill(receiver: Receiver) -> Iterator[Drill]:
    port = free_port()
    asked = [word for fault in FAULTS for word in ("--fault", fault)]
    limits = ("--worker-hang-timeout", "4", "--engine-hang-timeout", "4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        patch.setenv("QUIRE_ADMIN_KEY", f"operate:ann={OPERATE}")
        server = QuireServer(*asked, *limits, "--admin-port", str(port), "--log-format", "json")
        with server:
            made = Drill(server, port)
            made.story = made.tell()
            assert len(made.story) > 100
            yield made


@pytest.fixture
def telling(drill: Drill) -> Iterator[concurrent.futures.Future[str]]:
    """The story of a client that must not notice."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(drill.tell)
    until(lambda: drill.server.get("/health/ready")[0] == 200, 60, "readiness")


@EACH_API
@pytest.mark.parametrize("fault", ["parser_error", "nan_logits", "step_oom"])
def test_one_request_fails_in_its_apis_form(
    drill: Drill, telling: concurrent.futures.Future[str], api: Api, fault: str
) -> None:
    limit = next(name for name in ("max_output_tokens", "max_tokens") if name in api.body)
    for stream in (False, True):
        if fault == "parser_error":  # hits the next request, which must be ours
            drill.others_are_not_affected(telling)
        before = drill.injected(fault)
        drill.inject(fault)
        status, reply = drill.ask(api, stream=stream, **{limit: AIMED})
        assert drill.injected(fault) == before + 1
        if stream and status == 200:
            check_failed(reply, api)
        else:
            assert status == 500, reply
            assert json.loads(reply)["error"]["message"]
        assert "injected" not in reply  # the log's business
    drill.others_are_not_affected(telling)
    assert drill.tell() == drill.story


def test_a_slow_step_delays_and_nothing_else(drill: Drill) -> None:
    before = drill.injected("slow_step")
    drill.inject("slow_step")
    begin = time.monotonic()
    assert drill.tell() == drill.story
    assert time.monotonic() - begin >= STEP_SECONDS
    assert drill.injected("slow_step") == before + 1


@pytest.mark.parametrize("fault", ["engine_kill", "engine_stall"])
def test_a_dead_or_stuck_engine_is_a_pause(
    drill: Drill, telling: concurrent.futures.Future[str], fault: str
) -> None:
    engine = engine_of(drill.server)
    drill.inject(fault)
    aimed = drill.tell(max_tokens=AIMED)
    assert drill.story.startswith(aimed)
    assert len(aimed) > AIMED
    drill.others_are_not_affected(telling)
    assert drill.injected(fault) == 1
    assert engine_of(drill.server) != engine


def cut_lines(server: QuireServer) -> list[dict[str, Any]]:
    return [line for line in request_lines(server) if line["outcome"] == "error:worker"]


@pytest.mark.parametrize("fault", ["worker_kill", "worker_stall"])
def test_a_dead_or_stuck_worker_is_replaced(drill: Drill, fault: str) -> None:
    worker, engine = process_of(drill.server, b"service.worker"), engine_of(drill.server)
    cut = len(cut_lines(drill.server))
    drill.inject(fault)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        drill.tell()
    until(lambda: process_of(drill.server, b"service.worker") not in (None, worker), 60, "a worker")
    drill.server.wait_ready()
    until(lambda: len(cut_lines(drill.server)) == cut + 1, 30, "its log line")
    line = cut_lines(drill.server)[-1]
    assert (line["model"], line["stream"]) == ("pocket", True)
    assert drill.injected(fault) == 1
    assert drill.tell() == drill.story
    assert engine_of(drill.server) == engine


def test_a_lost_store_fails_what_needs_it_for_as_long(
    drill: Drill, telling: concurrent.futures.Future[str]
) -> None:
    responses = "/v1/responses"
    kept = drill.server.post(responses, {"input": "Hello!", "max_output_tokens": 5})[1]["id"]
    until(lambda: drill.server.get(f"{responses}/{kept}")[0] == 200, 30, "the stored response")
    drill.inject("store_down")
    until(lambda: drill.server.get(f"{responses}/{kept}")[0] == 503, 30, "a store that is down")
    status, answer = drill.server.post(CHAT, {**STORY, "max_tokens": 5})
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")
    drill.others_are_not_affected(telling)
    until(lambda: drill.server.get(f"{responses}/{kept}")[0] == 200, 60, "the store's return")


def test_a_full_disk_loses_no_answer_and_what_is_stored_can_be_read(
    drill: Drill, telling: concurrent.futures.Future[str]
) -> None:
    responses = "/v1/responses"
    ask = {"input": "Hello!", "max_output_tokens": 5}
    kept = drill.server.post(responses, ask)[1]["id"]
    until(lambda: drill.server.get(f"{responses}/{kept}")[0] == 200, 30, "the stored response")
    before = drill.injected("store_full")
    drill.inject("store_full")
    status, answer = drill.server.post(responses, ask)
    assert (status, answer["status"]) == (200, "incomplete")
    until(lambda: drill.injected("store_full") == before + 1, 30, "the full disk")
    drill.others_are_not_affected(telling)

    def is_stored_again() -> bool:
        made = drill.server.post(responses, ask)[1]["id"]
        return drill.server.get(f"{responses}/{made}")[0] == 200

    until(is_stored_again, 60, "the store's return")
    assert drill.server.get(f"{responses}/{kept}")[0] == 200


def test_a_hanging_exporter_delays_no_stream(drill: Drill, receiver: Receiver) -> None:
    before = drill.injected("exporter_hang")
    drill.inject("exporter_hang")
    drill.tell(max_tokens=2)
    until(lambda: drill.injected("exporter_hang") == before + 1, 30, "an export")
    spans = len(receiver.spans)
    for _ in range(3):
        assert drill.tell() == drill.story
    receiver.wait_for(spans + 4, 60)  # nothing of it is lost


def test_only_operators_inject_and_only_what_the_server_was_started_for(drill: Drill) -> None:
    assert drill.admin("POST", "/faults/clock_jump", {})[0] == 404
    assert drill.admin("POST", "/faults/slow_step", {"seconds": 9})[0] == 422
    assert drill.server.request("POST", "/admin/v1/faults/slow_step", b"{}")[0] == 404
    stranger = Drill(drill.server, drill.admin_port, key="another")
    assert stranger.admin("POST", "/faults/slow_step", {})[0] == 401
    drill.inject("slow_step")
    rows = drill.admin("GET", "/audit")[1]["rows"]
    seen = [row for row in rows if row["action"] == "inject" and row["target"] == "slow_step"]
    assert seen[0]["actor"] == "ann"
    told = [line for line in drill.server.log_lines() if "injects a fault" in line["event"]]
    assert {line["fault"] for line in told} >= {"slow_step", "store_full"}


@pytest.mark.parametrize("seconds", [-86_400, 7200])
def test_a_clock_that_jumps_hangs_nothing_and_keys_expire_by_it(seconds: int) -> None:
    port = free_port()
    fault = f"clock_jump:times=0:seconds={seconds}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUIRE_ADMIN_KEY", f"operate:ann={OPERATE}")
        with QuireServer(
            *("simulated:step=20ms,output=100", "--fault", fault, "--stored-keys"),
            *("--served-model-name", "m", "--admin-port", str(port), "--log-format", "json"),
        ) as server:
            drill = Drill(server, port)
            order = {"alias": "team", "expires_in": 3600}
            made = until(lambda: drill.admin("POST", "/keys", order)[1].get("key"), 30, "the store")
            headers = {"authorization": f"Bearer {made}"}
            body = {**STORY, "max_tokens": 100}

            def chat() -> int:
                return int(server.post(CHAT, body, headers)[0])

            until(lambda: chat() == 200, 10, "the key")
            with ThreadPoolExecutor(4) as pool:
                running = [pool.submit(chat) for _ in range(4)]
                until(lambda: server.get("/health")[1].count(b'"running":4'), 30, "four streams")
                drill.inject("clock_jump")
                jumped = pool.submit(chat)
                until(lambda: drill.injected("clock_jump") == 1, 30, "the jump")
                assert [one.result(60) for one in running] == [200] * 4
                assert jumped.result(60) == 200  # it was admitted before
            expected = 200 if seconds < 0 else 401
            until(lambda: chat() == expected, 10, "what the key is by the new time")
            assert server.get("/health/live")[0] == 200
