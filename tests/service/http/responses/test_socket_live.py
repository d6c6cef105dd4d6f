"""Responses over WebSocket, with the SDK's own connection and by hand."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import websockets.exceptions
from websockets.sync.client import ClientConnection, connect

from tests.service.running import RunningService, until

ASK: dict[str, Any] = {
    "type": "response.create",
    "input": "Hi",
    "max_output_tokens": 8,
    "store": False,
}


def sdk(service: RunningService, key: str = "unused") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key=key, max_retries=0)


def opened(service: RunningService, path: str = "/v1/responses", **kwargs: Any) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{service.port}{path}", **kwargs)


def answer(connection: ClientConnection, ask: object) -> list[dict[str, Any]]:
    """All events of one response."""
    connection.send(ask if isinstance(ask, str) else json.dumps(ask))
    events: list[dict[str, Any]] = []
    while True:
        events.append(json.loads(connection.recv(timeout=30)))
        if events[-1]["type"] in ("error", *ENDS):
            return events


ENDS = ("response.completed", "response.incomplete", "response.failed")


def posted(service: RunningService, ask: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of the same request by HTTP."""
    body = {key: value for key, value in ask.items() if key != "type"}
    _, _, reply = service.exchange(
        "POST", "/v1/responses", json.dumps({**body, "stream": True}).encode()
    )
    return [json.loads(event.partition("data: ")[2]) for event in reply.decode().split("\n\n")[:-1]]


def without_ids(events: list[dict[str, Any]]) -> list[tuple[str, object]]:
    return [(event["type"], event.get("delta")) for event in events]


def test_the_sdk_s_connection_gets_what_http_gives(service: RunningService) -> None:
    with sdk(service).responses.connect() as connection:
        connection.response.create(model="tiny", input="Hi", max_output_tokens=8, temperature=0)
        kinds = []
        for event in connection:
            kinds.append((event.type, getattr(event, "delta", None)))
            if event.type in ENDS:
                break
    ask = {**ASK, "model": "tiny", "temperature": 0, "store": True}
    assert kinds == without_ids(posted(service, ask))


def test_each_path_and_lane(service: RunningService) -> None:
    with opened(service, "/responses") as connection:
        for lane in ("a", "b"):
            events = answer(connection, {**ASK, "stream_id": lane})
            assert {event["stream_id"] for event in events} == {lane}
            assert events[-1]["type"] in ENDS


def test_an_unstored_response_continues_on_the_connection_that_created_it(
    service: RunningService,
) -> None:
    with opened(service) as connection, opened(service) as other:
        first = answer(connection, ASK)[-1]["response"]
        second = {**ASK, "input": "And?", "previous_response_id": first["id"], "temperature": 0}
        stranger = answer(other, second)[-1]
        assert stranger["status"] == 400
        assert stranger["error"]["code"] == "previous_response_not_found"
        followed = answer(connection, second)[-1]["response"]
        assert followed["previous_response_id"] == first["id"]
        items = [
            {"role": "user", "content": "Hi"},
            *first["output"],
            {"role": "user", "content": "And?"},
        ]
        whole = answer(other, {**ASK, "input": items, "temperature": 0})[-1]["response"]
        assert followed["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
        assert service.get(f"/v1/responses/{first['id']}")[0] == 404


def test_a_warm_up_generates_nothing_and_is_continued(service: RunningService) -> None:
    with opened(service) as connection:
        warmed = answer(connection, {**ASK, "generate": False})
        assert [event["type"] for event in warmed] == ["response.created", "response.completed"]
        assert warmed[-1]["response"]["output"] == []
        follow = {**ASK, "input": [], "previous_response_id": warmed[-1]["response"]["id"]}
        one = answer(connection, follow)[-1]["response"]["usage"]["input_tokens"]
        assert one == answer(connection, ASK)[-1]["response"]["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("{", 400),
        ("[]", 400),
        ('{"type": "response.steer"}', 400),
        ('{"type": "response.create"}', 400),
        ('{"type": "response.create", "input": "x", "temperature": -1}', 400),
        ('{"type": "response.create", "input": "x", "model": "none"}', 404),
        ('{"type": "response.create", "input": "x", "stream_id": 1}', 400),
        ('{"type": "response.create", "input": "x", "model": "none", "generate": false}', 404),
    ],
)
def test_an_error_is_an_event_and_the_connection_stays_open(
    service: RunningService, message: str, status: int
) -> None:
    with opened(service) as connection:
        [event] = answer(connection, message)
        assert (event["type"], event["status"]) == ("error", status)
        assert event["error"]["message"]
        assert answer(connection, ASK)[-1]["type"] in ENDS


def test_other_paths_have_no_websocket(service: RunningService) -> None:
    with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
        opened(service, "/v1/realtime")
    assert caught.value.response.status_code == 404
    request_id = caught.value.response.headers["x-request-id"]
    line = until(lambda: _line_with(service, request_id), 5, "its line in the log")
    assert (line["route"], line["path"], line["status"]) == ("none", "/v1/realtime", 404)


@pytest.mark.parametrize("path", ["/v1/responses", "/responses"])
def test_a_get_without_an_upgrade_is_sent_to_http(service: RunningService, path: str) -> None:
    """A proxy may remove the header. Clients know by this status that they must use POST."""
    status, headers, reply = service.exchange("GET", path)
    assert status == 426
    assert headers["upgrade"] == "websocket"
    assert "a proxy may have removed it" in json.loads(reply)["error"]["message"]


def _line_with(service: RunningService, request_id: str) -> dict[str, Any]:
    lines = service.worker.output().splitlines()
    return next((json.loads(line) for line in lines if request_id in line), {})


def test_a_page_of_another_origin_may_not_connect(service: RunningService) -> None:
    with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
        opened(service, origin="http://evil.example")
    assert caught.value.response.status_code == 403


@pytest.fixture
def guarded(tiny_model: Path, tmp_path: Path) -> Iterator[RunningService]:
    with RunningService(
        tiny_model,
        tmp_path,
        worker_args=(
            *("--api-key", "key,other", "--max-websockets", "1", "--max-body-bytes", "4096"),
            *("--drain-timeout", "600"),
        ),
    ) as service:
        yield service


def test_keys_limits_leaving_and_the_drain_hold_as_for_http(guarded: RunningService) -> None:
    with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
        opened(guarded)
    assert caught.value.response.status_code == 401
    key = {"additional_headers": {"Authorization": "Bearer key"}}
    with opened(guarded, **key) as connection:
        assert answer(connection, ASK)[-1]["type"] in ENDS
        with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
            opened(guarded, **key)
        assert caught.value.response.status_code == 426
        opened(guarded, additional_headers={"Authorization": "Bearer other"}).close()
        assert answer(connection, "x" * 4097)[-1]["status"] == 413
        with pytest.raises(websockets.exceptions.ConnectionClosed):
            connection.recv(timeout=30)
        assert connection.close_code == 1009
    until(lambda: reopened(guarded, key), 20, "room for another connection")
    with opened(guarded, **key) as connection:
        connection.send(json.dumps({**ASK, "max_output_tokens": 480, "ignore_eos": True}))
        connection.recv(timeout=30)
        connection.socket.close()  # as if killed
        guarded.wait_idle()
    until(lambda: '"outcome":"client_gone"' in guarded.worker.output(), 20, "the line in the log")
    until(lambda: reopened(guarded, key), 20, "room for another connection")
    with opened(guarded, **key) as connection:
        assert answer(connection, ASK)[-1]["type"] in ENDS
        guarded.worker.popen.send_signal(signal.SIGTERM)
        with pytest.raises(websockets.exceptions.ConnectionClosed):
            connection.recv(timeout=30)
        assert connection.close_code == 1001
        assert guarded.worker.popen.wait(20) == 0


def reopened(service: RunningService, key: dict[str, Any]) -> bool:
    try:
        opened(service, **key).close()
    except websockets.exceptions.InvalidStatus:
        return False
    return True


COMPACTED = ("response.output_item.added", "response.output_item.done")


def test_a_trigger_compacts_the_conversation_into_one_item(service: RunningService) -> None:
    """As Codex requests it, here and over HTTP; a later request sees the summary."""
    ask = {**ASK, "input": [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]}
    with opened(service) as connection:
        events = answer(connection, ask)
    kinds = [event["type"] for event in events]
    assert kinds[2:] == [*COMPACTED, "response.completed"]
    assert kinds == [event["type"] for event in posted(service, ask)]
    [item] = events[-1]["response"]["output"]
    assert item["type"] == "compaction"

    def tokens(items: list[dict[str, Any]]) -> int:
        _, reply = service.post("/v1/responses/input_tokens", {"input": items})
        return int(reply["input_tokens"])

    more = {"role": "user", "content": "Go on."}
    assert tokens([item, more]) > tokens([more])
    forged = {**item, "encrypted_content": "from elsewhere"}
    status, headers, _ = service.exchange(
        "POST", "/v1/responses", json.dumps({"input": [forged, more], "store": False}).encode()
    )
    assert (status, headers["x-quire-ignored"]) == (200, "input[0].compaction")
