"""What a Responses stream says when the engine or the store fails under it."""

from __future__ import annotations

import http.client
import json
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.service.running import RunningService, until
from tests.service.running_postgres import Postgres

RESPONSES = "/v1/responses"
LONG: dict[str, Any] = {"input": "Hi", "max_output_tokens": 400, "ignore_eos": True}

ADMIN_KEY = "operate-key-1"

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture
def own(tiny_model: Path, tmp_path: Path) -> Iterator[RunningService]:
    """A separate service for this test to break, with its store."""
    with RunningService(
        tiny_model, tmp_path, worker_args=("--store-url", f"sqlite:///{tmp_path}/store.sqlite3")
    ) as service:
        yield service


@pytest.fixture
def slow(tiny_model: Path, tmp_path: Path) -> Iterator[RunningService]:
    """Like ``own``, but a response takes so long that it can be left, or cancelled, before its
    end."""
    store = ("--store-url", f"sqlite:///{tmp_path}/store.sqlite3")
    with RunningService(
        tiny_model,
        tmp_path,
        engine_args=("--model", f"simulated:step=50ms,tokenizer={tiny_model}"),
        worker_args=(*store, "--admin-key", f"operate:ann={ADMIN_KEY}"),
    ) as service:
        yield service


class Streamed:
    """A response's stream, read event by event."""

    def __init__(self, service: RunningService, **more: Any) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        self._admin_port = service.admin_port
        body = json.dumps({**LONG, "stream": True, **more}).encode()
        self._connection.request("POST", RESPONSES, body)
        self._reply = self._connection.getresponse()
        assert self._reply.status == 200
        self.events: list[dict[str, Any]] = []

    def read(self, count: int) -> None:
        while len(self.events) < count:
            line = self._reply.readline()
            assert line
            if line.startswith(b"data: "):
                self.events.append(json.loads(line.removeprefix(b"data: ")))

    def cancel(self) -> None:
        """As an operator."""
        admin = http.client.HTTPConnection("127.0.0.1", self._admin_port, timeout=60)
        path = f"/admin/v1/requests/{self._reply.headers['x-request-id']}/cancel"
        admin.request("POST", path, headers={"authorization": f"Bearer {ADMIN_KEY}"})
        assert admin.getresponse().status == 200
        admin.close()

    def leave(self) -> None:
        self._reply.close()
        self._connection.close()

    def end(self) -> dict[str, Any]:
        """The last event, of a stream that is sound to its end."""
        for line in self._reply.read().split(b"\n"):
            if line.startswith(b"data: "):
                self.events.append(json.loads(line.removeprefix(b"data: ")))
        assert [event["sequence_number"] for event in self.events] == [*range(len(self.events))]
        for event in self.events:
            _EVENT.validate_python(event)
        done = [event for event in self.events if event["type"] == "response.output_item.done"]
        assert [event["item"] for event in done] == self.events[-1]["response"]["output"]
        return self.events[-1]


def outcome(service: RunningService, name: str) -> float:
    lines = service.get("/metrics")[1].decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("quire_requests_total{")
        and 'route="responses"' in line
        and f'outcome="{name}"' in line
    )


def figure(service: RunningService, series: str) -> float:
    lines = service.get("/metrics")[1].decode().splitlines()
    [found] = [line for line in lines if line.startswith(f"{series} ")]
    return float(found.rsplit(" ", 1)[1])


def unavailable(service: RunningService) -> set[str]:
    """For what the server cannot use its store."""
    uses = ("read", "write", "keys", "records", "limits")
    return {use for use in uses if figure(service, f'quire_store_unavailable{{use="{use}"}}')}


class BrokenStore:
    """Takes the table away from under the server, and gives it back."""

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "store.sqlite3", timeout=20)

    def __enter__(self) -> None:
        self._execute("ALTER TABLE quire_responses RENAME TO elsewhere")

    def __exit__(self, *_: object) -> None:
        self._execute("ALTER TABLE elsewhere RENAME TO quire_responses")
        self._database.close()

    def _execute(self, statement: str) -> None:
        self._database.execute(statement)
        self._database.commit()


def test_a_dead_engine_ends_a_stream_as_failed_and_so_it_is_stored(own: RunningService) -> None:
    plain, kept = Streamed(own), Streamed(own, store=True)
    status, background = own.post(RESPONSES, {**LONG, "background": True})
    assert (status, background["status"]) == (200, "in_progress")
    for stream in (plain, kept):
        stream.read(6)
    own.engine.end(signal.SIGKILL)
    for stream in (plain, kept):
        last = stream.end()
        assert last["type"] == "response.failed"
        response = last["response"]
        assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
        assert response["output"][-1]["status"] == "incomplete"
        stored = until(lambda: own.get(f"{RESPONSES}/{response['id']}"), 5, "an answer")  # noqa: B023
        assert (stored[0], json.loads(stored[1])) == (200, response)
    status, body = own.get(f"{RESPONSES}/{background['id']}")
    assert (status, json.loads(body)["status"]) == (200, "failed")
    replayed = own.get(f"{RESPONSES}/{background['id']}?stream=true")[1]
    assert b"event: response.failed" in replayed  # its readers come to an end
    assert outcome(own, "error:engine") == 3


def test_a_response_that_an_operator_cancels_is_stored_as_it_was_streamed(
    slow: RunningService,
) -> None:
    stream = Streamed(slow)
    stream.read(8)
    stream.cancel()
    response = stream.end()["response"]
    assert (response["store"], response["status"]) == (True, "cancelled")
    status, body = slow.get(f"{RESPONSES}/{response['id']}")
    assert (status, json.loads(body)) == (200, response)


def test_what_a_client_had_seen_when_it_left_can_be_referred_to(slow: RunningService) -> None:
    left, unstored = Streamed(slow), Streamed(slow, store=False)
    for stream in (left, unstored):
        stream.read(8)
        stream.leave()
    until(lambda: outcome(slow, "client_gone") == 2, 20, "both to be counted")
    assert slow.get(f"{RESPONSES}/{unstored.events[0]['response']['id']}")[0] == 404
    assert left.events[0]["response"]["store"] is True
    response_id = left.events[0]["response"]["id"]
    status, body = slow.get(f"{RESPONSES}/{response_id}")
    response = json.loads(body)
    assert (status, response["status"]) == (200, "incomplete")
    assert response["incomplete_details"] == {"reason": None}
    (item,) = response["output"]
    assert item["status"] == "incomplete"
    seen = "".join(event.get("delta", "") for event in left.events)
    assert item["content"][0]["text"].startswith(seen)
    next_turn = [{"type": "item_reference", "id": item["id"]}, {"role": "user", "content": "More"}]
    for fields in ({"input": next_turn}, {"previous_response_id": response_id}):
        assert slow.post(RESPONSES, {**LONG, "max_output_tokens": 1, **fields})[0] == 200


def test_a_response_that_could_not_be_stored_is_not_reported_as_a_success(
    own: RunningService, tmp_path: Path
) -> None:
    asked, unasked = Streamed(own, store=True), Streamed(own)
    for stream in (asked, unasked):
        stream.read(4)
    with BrokenStore(tmp_path):
        last = asked.end()
        assert last["type"] == "response.failed"
        assert "stored" in last["response"]["error"]["message"]
        last = unasked.end()
        assert last["type"] == "response.incomplete"
        assert last["response"]["store"] is False
        status, reply = own.post(RESPONSES, {**LONG, "store": True})
        assert (status, reply["error"]["code"]) == (503, "store_unavailable")
        status, reply = own.post(RESPONSES, {**LONG, "previous_response_id": "resp_x"})
        assert (status, reply["error"]["code"]) == (503, "store_unavailable")
        status, reply = own.post(RESPONSES, LONG)
        assert (status, reply["store"]) == (200, False)
        assert unavailable(own) >= {"read", "write"}
    until(lambda: own.post(RESPONSES, {**LONG, "store": True})[0] == 200, 20, "the store's return")
    assert outcome(own, "error:store") == 1
    assert outcome(own, "refused:store") >= 2
    assert figure(own, "quire_responses_not_stored_total") == 3
    until(lambda: not unavailable(own), 20, "the gauge")


def test_another_process_finds_what_this_one_stored(
    tiny_model: Path, own: RunningService, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    assert_shared(own, tiny_model, tmp_path, url)


def assert_shared(own: RunningService, model: Path, folder: Path, url: str) -> None:
    status, first = own.post(RESPONSES, {**LONG, "max_output_tokens": 8})
    assert (status, first["store"]) == (200, True)
    path = f"{RESPONSES}/{first['id']}"
    (folder / "other").mkdir()
    with RunningService(model, folder / "other", worker_args=("--store-url", url)) as other:
        status, found = other.get(path)
        assert (status, json.loads(found)) == (200, first)
        follow = {"max_output_tokens": 8, "previous_response_id": first["id"], "input": "And?"}
        assert other.post(RESPONSES, follow)[0] == 200
        assert other.exchange("DELETE", path)[0] == 200
        assert own.get(path)[0] == 404


@pytest.mark.debian
def test_postgresql_is_shared_by_replicas_and_may_go_and_come_back(
    tiny_model: Path, tmp_path: Path, postgres: Postgres
) -> None:
    with RunningService(tiny_model, tmp_path, worker_args=("--store-url", postgres.url)) as service:
        assert_shared(service, tiny_model, tmp_path, postgres.url)
        stream = Streamed(service, store=True)
        stream.read(4)
        postgres.stop()
        try:
            assert stream.end()["type"] == "response.failed"
            status, reply = service.post(RESPONSES, LONG)
            assert (status, reply["store"]) == (200, False)
            assert figure(service, "quire_responses_not_stored_total") == 2
            lost = {"read", "write", "records"}
            until(lambda: unavailable(service) == lost, 20, "the gauge")
        finally:
            postgres.start()
        asked = {**LONG, "store": True}
        until(lambda: service.post(RESPONSES, asked)[0] == 200, 20, "the store's return")
        until(lambda: not unavailable(service), 20, "the gauge")


def test_without_a_store_what_needs_one_is_refused_for_good(
    tiny_model: Path, tmp_path: Path
) -> None:
    reference = {"type": "item_reference", "id": f"msg_{'0' * 32}_0"}
    with RunningService(tiny_model, tmp_path, worker_args=("--store-url", "none")) as service:
        for fields, status, param in (
            ({"store": True}, 400, "store"),
            ({"store": True, "stream": True}, 400, "store"),
            ({"background": True}, 400, "background"),
            ({"previous_response_id": "resp_x"}, 400, "previous_response_id"),
            ({"input": [reference]}, 404, "input[0].id"),
        ):
            body = json.dumps({**LONG, **fields}).encode()
            given, headers, reply = service.exchange("POST", RESPONSES, body)
            error = json.loads(reply)["error"]
            assert (given, error["param"]) == (status, param)
            assert headers["x-should-retry"] == "false"
            assert "stores no responses (--store-url none)" in error["message"]
        status, reply = service.post(RESPONSES, {"input": "Hi", "max_output_tokens": 1})
        assert (status, reply["store"]) == (200, False)
