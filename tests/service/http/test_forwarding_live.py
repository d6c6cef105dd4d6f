"""What one worker has, every worker serves: by asking the one that its id names."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.running import RunningService, until
from tests.service.running_workers import SLOW, OneWorker, RunningWorkers

pytestmark = pytest.mark.integration

RESPONSES = "/v1/responses"
KEYS = ("sk-first", "sk-second")
LONG: dict[str, Any] = {"input": "Hi", "max_output_tokens": 4000, "ignore_eos": True}
SHORT: dict[str, Any] = {"input": "Hi", "max_output_tokens": 20, "ignore_eos": True, "seed": 1}
# Of one answer, not of what it says.
_OWN = {"date", "x-request-id", "request-id", "x-trace-id", "traceresponse"}
Reply = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorkers]:
    keys = tuple(f"--api-key={key}" for key in KEYS)
    with RunningWorkers(2, tmp_path_factory.mktemp("two"), worker_args=keys) as running:
        yield running


def ask(
    worker: RunningService,
    method: str,
    path: str,
    body: Any = None,
    key: str = KEYS[0],
    **more: str,
) -> Reply:
    headers = {"authorization": f"Bearer {key}", **more}
    sent = None if body is None else json.dumps(body).encode()
    status, names, reply = worker.exchange(method, path, sent, headers)
    return status, {name: value for name, value in names.items() if name not in _OWN}, reply


def made(worker: OneWorker, body: dict[str, Any]) -> dict[str, Any]:
    status, _, reply = ask(worker, "POST", RESPONSES, body)
    assert status == 200, reply
    answer: dict[str, Any] = json.loads(reply)
    return answer


def background(worker: OneWorker, body: dict[str, Any] = LONG) -> str:
    return str(made(worker, {**body, "background": True})["id"])


def status_of(worker: OneWorker, response_id: str) -> str:
    return str(json.loads(ask(worker, "GET", f"{RESPONSES}/{response_id}")[2])["status"])


class Reading:
    """A stream that is read line by line."""

    def __init__(self, worker: OneWorker, method: str, path: str, body: Any = None) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=60)
        headers = {"authorization": f"Bearer {KEYS[0]}", "x-quire-resumable": "true"}
        sent = None if body is None else json.dumps(body).encode()
        self.connection.request(method, path, sent, headers)
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200, self.reply.read()

    def lines(self, count: int) -> list[bytes]:
        return [self.reply.readline() for _ in range(count)]

    def close(self) -> None:
        self.connection.close()


def test_ids_say_which_worker_made_them(workers: RunningWorkers) -> None:
    for number, worker in enumerate(workers):
        assert made(worker, SHORT)["id"].startswith(f"resp_0{number}")
        status, headers, _ = worker.exchange("GET", "/v1/models")
        assert status == 401
        assert headers["x-request-id"].startswith(f"req_0{number}")


def test_the_sockets_are_for_this_user_only(workers: RunningWorkers) -> None:
    for number in range(2):
        mode = (workers.peer_dir / f"api-{number}.sock").stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize("owner", [0, 1])
def test_a_stored_answer_is_the_same_from_every_worker(workers: RunningWorkers, owner: int) -> None:
    here, there = workers[owner], workers[1 - owner]
    response_id = background(here, {**SHORT, "stream": False})
    until(lambda: status_of(here, response_id) == "incomplete", 20, "the end")
    for path in (
        f"{RESPONSES}/{response_id}",
        f"{RESPONSES}/{response_id}?stream=true",
        f"{RESPONSES}/{response_id}?stream=true&starting_after=3",
        f"{RESPONSES}/{response_id}?stream=maybe",
        f"{RESPONSES}/{response_id}/input_items?limit=2&order=asc",
        f"{RESPONSES}/{response_id}/input_items?limit=0",
        f"/responses/{response_id}",
        f"{RESPONSES}/{response_id[:-1]}",
        f"/v1/streams/{response_id}?starting_after=2",
        f"/v1/streams/{response_id}?starting_after=x",
    ):
        assert ask(here, "GET", path) == ask(there, "GET", path), path
        assert ask(here, "HEAD", path) == ask(there, "HEAD", path), path
    cancel = f"{RESPONSES}/{response_id}/cancel"
    assert ask(here, "POST", cancel) == ask(there, "POST", cancel)
    assert ask(there, "DELETE", f"{RESPONSES}/{response_id}")[0] == 200
    assert ask(here, "GET", f"{RESPONSES}/{response_id}")[0] == 404


def test_a_live_response_is_seen_and_cancelled_from_another_worker(
    workers: RunningWorkers,
) -> None:
    response_id = background(workers[0])
    assert status_of(workers[1], response_id) == "in_progress"
    until(lambda: workers[0].engine_counts()["running"] == 1, 10, "a running sequence")
    status, _, reply = ask(workers[1], "POST", f"{RESPONSES}/{response_id}/cancel")
    assert status == 200, reply
    assert json.loads(reply)["status"] == "cancelled"
    # Two steps of the engine, and the time to look.
    until(lambda: not any(workers[0].engine_counts().values()), 2, "its blocks are free")
    assert status_of(workers[0], response_id) == "cancelled"


def test_deleting_from_another_worker_stops_it(workers: RunningWorkers) -> None:
    response_id = background(workers[1])
    until(lambda: workers[1].engine_counts()["running"] == 1, 10, "a running sequence")
    assert ask(workers[0], "DELETE", f"{RESPONSES}/{response_id}")[0] == 200
    until(lambda: not any(workers[1].engine_counts().values()), 2, "its blocks are free")
    for worker in workers:
        assert ask(worker, "GET", f"{RESPONSES}/{response_id}")[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "limit"),
    [
        (RESPONSES, {"input": "Hi"}, "max_output_tokens"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, "max_tokens"),
        ("/v1/completions", {"prompt": "Hi"}, "max_tokens"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}]}, "max_tokens"),
    ],
)
def test_a_stream_is_resumed_from_another_worker(
    workers: RunningWorkers, path: str, body: dict[str, Any], limit: str
) -> None:
    body = {"model": "tiny", **body, limit: 60, "ignore_eos": True, "stream": True}
    first = Reading(workers[0], "POST", path, body)
    stream_id = first.reply.headers["x-quire-stream-id"]
    before = b"".join(first.lines(12))
    number = int(before.rpartition(b"id: ")[2].split(b"\n")[0])
    first.close()
    rest = Reading(workers[1], "GET", f"/v1/streams/{stream_id}?starting_after={number}")
    read = rest.reply.read()
    assert read.startswith(b"id: %d\n" % (number + 1))
    whole = ask(workers[0], "GET", f"/v1/streams/{stream_id}")
    assert whole[2].endswith(read)
    assert ask(workers[1], "GET", f"/v1/streams/{stream_id}") == whole


def test_a_reader_that_leaves_is_gone_at_the_owner_too(workers: RunningWorkers) -> None:
    response_id = background(workers[0])
    readers = [
        Reading(workers[1], "GET", f"{RESPONSES}/{response_id}?stream=true") for _ in range(5)
    ]
    for reader in readers:
        reader.lines(4)
    assert workers.forwarded_to(0) == 5
    for reader in readers:
        reader.close()
    until(lambda: workers.forwarded_to(0) == 0, 10, "no connections between workers")
    ask(workers[0], "POST", f"{RESPONSES}/{response_id}/cancel")


def test_another_tenants_ids_do_not_exist_from_any_worker(workers: RunningWorkers) -> None:
    response_id = background(workers[0])
    unknown = f"{response_id[:-4]}0000"
    for method, path in (
        ("GET", f"{RESPONSES}/{{}}"),
        ("GET", f"{RESPONSES}/{{}}?stream=true"),
        ("GET", f"{RESPONSES}/{{}}/input_items"),
        ("POST", f"{RESPONSES}/{{}}/cancel"),
        ("DELETE", f"{RESPONSES}/{{}}"),
        ("GET", "/v1/streams/{}"),
    ):
        for worker in workers:
            theirs = ask(worker, method, path.format(response_id), key=KEYS[1])
            none = ask(worker, method, path.format(unknown), key=KEYS[1])
            assert theirs[0] == none[0] == 404
            assert theirs[2].replace(response_id.encode(), unknown.encode()) == none[2]
            assert ask(worker, method, path.format(response_id), key="sk-wrong")[0] == 401
    assert status_of(workers[1], response_id) == "in_progress"
    ask(workers[1], "POST", f"{RESPONSES}/{response_id}/cancel")


def counted(worker: OneWorker, route: str = "responses_stored") -> float:
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in worker.metrics_page().splitlines()
        if line.startswith("quire_requests_total{") and f'route="{route}"' in line
    )


def records(worker: OneWorker) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", worker.admin_port, timeout=60)
    connection.request("GET", "/admin/v1/requests?since=5m&route=responses_stored&limit=1000")
    found: list[dict[str, Any]] = json.loads(connection.getresponse().read())["requests"]
    return found


def test_a_forwarded_request_is_counted_once_by_the_owner_as_the_clients(
    workers: RunningWorkers,
) -> None:
    response_id = made(workers[0], SHORT)["id"]
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    before = [counted(worker) for worker in workers]
    status, headers, _ = workers[1].exchange(
        "GET",
        f"{RESPONSES}/{response_id}",
        headers={
            "authorization": f"Bearer {KEYS[0]}",
            "x-request-id": "from-the-client",
            "traceparent": f"00-{trace_id}-b7ad6b7169203331-01",
            "user-agent": "test/1",
            "x-quire-forwarded-client": "1 http 6.6.6.6",
        },
    )
    assert status == 200
    assert headers["x-request-id"].startswith("req_00")
    until(lambda: counted(workers[0]) == before[0] + 1, 5, "the owner counts it")
    assert counted(workers[1]) == before[1]
    (record,) = [one for one in records(workers[0]) if one["request_id"] == headers["x-request-id"]]
    assert record["client_address"] == "127.0.0.1"
    assert record["client_request_id"] == "from-the-client"
    assert record["user_agent"] == "test/1"
    assert headers.get("x-trace-id", trace_id) == trace_id


def test_without_a_valid_key_nothing_is_forwarded(workers: RunningWorkers) -> None:
    response_id = made(workers[0], SHORT)["id"]
    before = [counted(worker) for worker in workers]
    assert ask(workers[1], "GET", f"{RESPONSES}/{response_id}", key="sk-wrong")[0] == 401
    until(lambda: counted(workers[1]) == before[1] + 1, 5, "it is counted where it arrived")
    assert counted(workers[0]) == before[0]


def test_a_conversation_goes_on_at_another_worker(workers: RunningWorkers) -> None:
    first = made(workers[0], SHORT)
    here, there = (
        made(worker, {**SHORT, "previous_response_id": first["id"]}) for worker in workers
    )
    assert here["output"][0]["content"] == there["output"][0]["content"]
    # Kept by the worker that ran it, but not stored.
    body = {"model": "tiny", **SHORT, "stream": True, "store": False}
    reading = Reading(workers[0], "POST", RESPONSES, body)
    reading.reply.read()
    unstored = reading.reply.headers["x-quire-stream-id"]
    for worker in workers:
        status, _, reply = ask(
            worker, "POST", RESPONSES, {**SHORT, "previous_response_id": unstored}
        )
        assert status == 200, reply
    running = background(workers[0])
    replies = [
        ask(worker, "POST", RESPONSES, {**SHORT, "previous_response_id": running})
        for worker in workers
    ]
    assert replies[0] == replies[1]
    assert replies[0][0] == 400
    ask(workers[0], "POST", f"{RESPONSES}/{running}/cancel")


def test_a_thousand_forwards_leak_nothing(workers: RunningWorkers) -> None:
    response_id = made(workers[0], SHORT)["id"]
    path, headers = f"{RESPONSES}/{response_id}", {"authorization": f"Bearer {KEYS[0]}"}
    connection = http.client.HTTPConnection("127.0.0.1", workers[1].port, timeout=60)

    def get() -> None:
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        assert reply.status == 200
        assert json.loads(reply.read())["id"] == response_id

    for _ in range(10):
        get()
    before = workers.descriptors(0), workers.descriptors(1)
    for _ in range(1000):
        get()
    # A few may be open for other reasons, such as the store's.
    for number in range(2):
        until(lambda n=number: workers.descriptors(n) <= before[n] + 8, 10, f"worker {number}'s")
    connection.close()


def test_a_worker_killed_under_a_forwarded_stream_ends_it_with_an_error(tmp_path: Path) -> None:
    with RunningWorkers(2, tmp_path) as workers:
        response_id = background(workers[0])
        kept = background(workers[1])
        reading = Reading(workers[1], "GET", f"{RESPONSES}/{response_id}?stream=true")
        other = Reading(workers[1], "GET", f"{RESPONSES}/{kept}?stream=true")
        reading.lines(30)
        workers[0].worker.end(signal.SIGKILL)
        rest = reading.reply.read().decode().split("\n\n")
        assert rest[-1] == ""
        event, _, data = rest[-2].partition("\ndata: ")
        assert event == "event: error"
        assert json.loads(data)["error"]["code"] == "worker_lost"
        assert other.lines(10)  # a living worker's stream continues
        # Now only the store knows it: as when a replica is lost.
        assert status_of(workers[1], response_id) == "in_progress"
        assert ask(workers[1], "GET", f"/v1/streams/{response_id}")[0] == 404
        status, _, reply = ask(workers[1], "POST", f"{RESPONSES}/{response_id}/cancel")
        assert status == 400, reply
        assert status_of(workers[1], kept) == "in_progress"


def test_a_worker_that_does_not_answer_is_said_to_be_lost(tmp_path: Path) -> None:
    with RunningWorkers(2, tmp_path) as workers:
        response_id = made(workers[0], SHORT)["id"]
        workers[0].worker.end(signal.SIGKILL)
        path = workers.peer_dir / "api-0.sock"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.bind(str(path))
            deaf.listen()
            before = counted(workers[1])
            connection = http.client.HTTPConnection("127.0.0.1", workers[1].port, timeout=60)
            connection.request("GET", f"{RESPONSES}/{response_id}")
            accepted, _ = deaf.accept()
            accepted.recv(65536)
            accepted.close()
            reply = connection.getresponse()
            assert reply.status == 503
            assert json.loads(reply.read())["error"]["code"] == "worker_lost"
            assert counted(workers[1]) == before + 1


@pytest.mark.parametrize("owner", [0, 3])
def test_four_workers(tmp_path: Path, owner: int) -> None:
    with RunningWorkers(4, tmp_path, model=SLOW) as workers:
        response_id = background(workers[owner])
        assert [status_of(worker, response_id) for worker in workers] == ["in_progress"] * 4
        other = workers[(owner + 2) % 4]
        assert ask(other, "POST", f"{RESPONSES}/{response_id}/cancel")[0] == 200
        assert [status_of(worker, response_id) for worker in workers] == ["cancelled"] * 4
