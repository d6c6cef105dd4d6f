"""The admin API of a server with several workers: the same answer on whichever an operator's
connection lands."""

from __future__ import annotations

import http.client
import io
import json
import signal
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.service.running import until
from tests.service.running_workers import OneWorker, RunningWorkers

pytestmark = pytest.mark.integration

KEY = "operate-key-of-the-test"
LONG = {"input": "Hi", "max_output_tokens": 4000, "ignore_eos": True, "background": True}
MISSING = "quire-missing-workers"


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorkers]:
    arguments = (f"--admin-key=operate:ann={KEY}", "--log-level=debug")
    with RunningWorkers(2, tmp_path_factory.mktemp("two"), worker_args=arguments) as running:
        yield running


def ask(
    worker: OneWorker, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", worker.admin_port, timeout=60)
    sent = None if body is None else json.dumps(body).encode()
    names = {"authorization": f"Bearer {KEY}", **headers}
    try:
        connection.request(method, f"/admin/v1{path}", sent, names)
        reply = connection.getresponse()
        found = {name.lower(): value for name, value in reply.getheaders()}
        return reply.status, found, reply.read()
    finally:
        connection.close()


def get(worker: OneWorker, path: str) -> Any:
    status, _, body = ask(worker, "GET", path)
    assert status == 200, body
    return json.loads(body)


def begun(worker: OneWorker) -> tuple[str, str]:
    """A long request's id, and its response's."""
    _, headers, body = worker.exchange("POST", "/v1/responses", json.dumps(LONG).encode())
    return headers["x-request-id"], json.loads(body)["id"]


def ended(worker: OneWorker, count: int) -> list[str]:
    body = json.dumps({"prompt": "Hi", "max_tokens": 1}).encode()
    return [
        worker.exchange("POST", "/v1/completions", body)[1]["x-request-id"] for _ in range(count)
    ]


def audited(worker: OneWorker, action: str, target: str = "") -> int:
    rows = get(worker, "/audit")["rows"]
    return sum(row["action"] == action and row["target"] == target for row in rows)


def live(worker: OneWorker) -> list[str]:
    return [one["request_id"] for one in get(worker, "/requests?state=live")["requests"]]


def events(worker: OneWorker, count: int, query: str = "") -> list[Any]:
    connection = http.client.HTTPConnection("127.0.0.1", worker.admin_port, timeout=60)
    connection.request("GET", f"/admin/v1/feed{query}", headers={"authorization": f"Bearer {KEY}"})
    reply = connection.getresponse()
    found: list[Any] = []
    while len(found) < count:
        line = reply.readline()
        if line.startswith(b"data: "):
            found.append(json.loads(line.removeprefix(b"data: ")))
    connection.close()
    return found


def test_live_requests_are_seen_and_cancelled_from_every_worker(workers: RunningWorkers) -> None:
    first, second = begun(workers[0])[0], begun(workers[1])[0]
    for worker in workers:
        until(lambda one=worker: set(live(one)) == {first, second}, 10, "both are live")
        for request_id in (first, second):
            found = get(worker, f"/requests/{request_id}")
            assert found["live"]
            assert found["request_id"] == request_id
            trace = found["trace_id"]
            if trace:
                assert get(worker, f"/requests/{trace}")["request_id"] == request_id
        frame = events(worker, 1)[0]
        assert {one["request_id"] for one in frame["live"]} == {first, second}
        assert events(worker, 3, "?kv=1")
        kv = get(worker, "/kv")
        assert get(worker, "/kv/times") == get(workers[0], "/kv/times")
        assert {owner[0] for owner in kv["owners"]} == {first, second}
        assert get(worker, "/overview")["missing_workers"] == []
    for request_id, worker in ((first, workers[1]), (second, workers[0])):
        status, _, body = ask(worker, "POST", f"/requests/{request_id}/cancel", {})
        assert status == 200, body
        assert json.loads(body) == {"request_id": request_id, "outcome": "cancelled"}
        assert ask(worker, "POST", f"/requests/{request_id}/cancel", {})[0] in (404, 409)
    for worker in workers:
        until(lambda one=worker: live(one) == [], 10, "both have ended")
        assert get(worker, f"/requests/{first}")["outcome"] == "cancelled"


def test_ended_requests_are_one_list_in_pages(workers: RunningWorkers) -> None:
    made = [*ended(workers[0], 3), *ended(workers[1], 4), *ended(workers[0], 3)]
    path = "/requests?since=5m&route=completions&sort=-received&limit=4"
    for worker in workers:
        until(
            lambda one=worker: (
                {r["request_id"] for r in get(one, f"{path}00")["requests"]} >= set(made)
            ),
            10,
            "all have ended",
        )
        seen: list[str] = []
        cursor = ""
        while True:
            page = get(worker, f"{path}{cursor}")
            seen += [one["request_id"] for one in page["requests"]]
            if page["cursor"] is None:
                break
            cursor = f"&cursor={page['cursor']}"
        assert seen[: len(made)] == made[::-1]
        assert len(seen) == len(set(seen))
    counts = [get(worker, "/overview")["minute"]["ttft"]["count"] for worker in workers]
    assert min(counts) >= len(made)


def test_usage_and_stored_requests_are_current_at_every_worker(workers: RunningWorkers) -> None:
    def used(worker: OneWorker) -> int:
        return sum(row["requests"] for row in get(worker, "/usage?by=route&from=2h")["rows"])

    for turn in range(3):
        before = [used(worker) for worker in workers]
        made = {*ended(workers[0], 2), *ended(workers[1], 3)}
        time.sleep(0.1)
        assert [used(worker) for worker in workers] == [one + 5 for one in before], turn
        for worker in workers:
            page = get(worker, "/requests?since=30d&limit=20")
            assert page["source"] == "store"
            assert made <= {one["request_id"] for one in page["requests"]}


def test_settings_apply_to_all_workers(workers: RunningWorkers) -> None:
    before = get(workers[0], "/settings")
    assert get(workers[1], "/settings")["revision"] == before["revision"]
    change = {"slow_reader_timeout": 17.5, "max_waiting_requests": 99}
    revision = before["revision"]
    status, _, body = ask(workers[1], "PATCH", "/settings", change, **{"if-match": revision})
    assert status == 200, body
    for worker in workers:
        now = {one["name"]: one for one in get(worker, "/settings")["settings"]}
        assert {name: now[name]["value"] for name in change} == change
        assert now["slow_reader_timeout"]["changed_by"] == "ann"
    assert ask(workers[0], "PATCH", "/settings", change, **{"if-match": revision})[0] == 412
    until(lambda: audited(workers[1], "settings", "slow_reader_timeout"), 10, "the store has it")
    assert audited(workers[0], "settings", "slow_reader_timeout") == 1


def test_of_two_changes_at_once_at_two_workers_one_is_made(workers: RunningWorkers) -> None:
    for turn in range(10):
        revision = get(workers[0], "/settings")["revision"]
        together = threading.Barrier(2)

        def change(number: int) -> int:
            value = {"slow_reader_timeout": 30.0 + 2 * turn + number}  # noqa: B023  used in this turn
            together.wait(10)  # noqa: B023
            match = {"if-match": revision}  # noqa: B023
            return ask(workers[number], "PATCH", "/settings", value, **match)[0]

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(change, range(2))) == [200, 412]
        assert get(workers[0], "/settings")["revision"] == get(workers[1], "/settings")["revision"]


def test_a_drain_is_one_of_all_workers(workers: RunningWorkers) -> None:
    assert json.loads(ask(workers[0], "POST", "/drain", {})[2])["draining"]
    for worker in workers:
        assert worker.get("/health/ready")[0] == 503
    assert not json.loads(ask(workers[1], "POST", "/resume", {})[2])["draining"]
    for worker in workers:
        assert worker.get("/health/ready")[0] == 200
    until(lambda: audited(workers[1], "resume"), 10, "the store has it")
    until(lambda: audited(workers[1], "drain"), 10, "the store has it")
    assert audited(workers[0], "drain") == audited(workers[0], "resume") == 1


def test_a_log_level_is_one_of_all_workers(workers: RunningWorkers) -> None:
    assert ask(workers[0], "POST", "/loglevel", {"level": "error", "seconds": 60})[0] == 200
    sizes = []
    for worker in workers:
        until(lambda one=worker: one.worker.output(), 5, "a log")
        sizes.append(len(worker.worker.output()))
        ended(worker, 1)
    assert ask(workers[1], "POST", "/loglevel", {"level": "debug", "seconds": 60})[0] == 200
    for worker, size in zip(workers, sizes, strict=True):
        assert '"request_id"' not in worker.worker.output()[size:]
        ended(worker, 1)
        until(lambda one=worker: '"request_id"' in one.worker.output()[-4000:], 5, "it logs again")


def test_a_load_run_is_seen_and_stopped_from_every_worker(workers: RunningWorkers) -> None:
    assert ask(workers[1], "GET", "/load")[2] == ask(workers[0], "GET", "/load")[2]
    profile = next(iter(get(workers[0], "/load")["profiles"]))
    plan = {"profile": profile, "rate": 1, "seconds": 60, "concurrency": 1}
    status, _, body = ask(workers[1], "POST", "/load", plan)
    assert status == 202, body
    for worker in workers:
        assert get(worker, "/load")["run"]["state"] == "running"
        assert ask(worker, "POST", "/load", plan)[0] == 409
    assert ask(workers[1], "DELETE", "/load")[0] == 200
    assert get(workers[0], "/load")["run"]["state"] == "stopped"
    assert ask(workers[1], "POST", "/load", {"profile": "none"})[0] == 422


def test_an_incident_bundle_has_all_workers_requests(workers: RunningWorkers) -> None:
    made = {*ended(workers[0], 2), *ended(workers[1], 2)}
    for worker in workers:
        until(
            lambda one=worker: (
                made
                <= {r["request_id"] for r in get(one, "/requests?since=5m&limit=1000")["requests"]}
            ),
            10,
            "all have ended",
        )
        status, _, body = ask(worker, "GET", "/bundle")
        assert status == 200
        with zipfile.ZipFile(io.BytesIO(body)) as bundle:
            requests = json.loads(bundle.read("requests.json"))["requests"]
            ids = [one["request_id"] for one in requests]
            assert made <= set(ids)
            assert len(ids) == len(set(ids))
            times = [one["ended"] for one in requests]
            assert times == sorted(times, reverse=True)
            assert json.loads(bundle.read("overview.json"))["missing_workers"] == []


def test_the_last_worker_to_start_takes_over_what_was_changed_and_a_silent_one_is_named(
    workers: RunningWorkers,
) -> None:
    revision = get(workers[0], "/settings")["revision"]
    change = {"slow_reader_timeout": 23.5}
    assert ask(workers[0], "PATCH", "/settings", change, **{"if-match": revision})[0] == 200
    workers[1].worker.end(signal.SIGKILL)
    status, headers, _ = ask(workers[0], "GET", "/requests?state=live")
    assert status == 200
    assert headers[MISSING] == "1"
    assert get(workers[0], "/overview")["missing_workers"] == [1]
    assert events(workers[0], 1)[0]["overview"]["missing_workers"] == [1]
    assert ask(workers[0], "POST", "/drain", {})[1][MISSING] == "1"
    workers[1].start_worker()
    until(
        lambda: MISSING not in ask(workers[0], "GET", "/requests?state=live")[1], 60, "it is back"
    )
    settings = {one["name"]: one["value"] for one in get(workers[1], "/settings")["settings"]}
    assert settings["slow_reader_timeout"] == 23.5
    assert workers[1].get("/health/ready")[0] == 503  # drained, too
    assert ask(workers[1], "POST", "/resume", {})[0] == 200
    for worker in workers:
        until(lambda one=worker: one.get("/health/ready")[0] == 200, 10, "both accept again")
    # One that is stopped, and so does not answer in time.
    workers[1].worker.popen.send_signal(signal.SIGSTOP)
    try:
        status, headers, _ = ask(workers[0], "GET", "/requests?state=live")
        assert (status, headers[MISSING]) == (200, "1")
    finally:
        workers[1].worker.popen.send_signal(signal.SIGCONT)
