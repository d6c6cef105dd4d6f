"""A real server's records say what its clients, its counters and its log say, and no more."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.quire_server import QuireServer, free_port, until

pytestmark = pytest.mark.one_process

CANARY = "canaryXyzzy"
REQUESTS = 60
ADMIN_PORT = free_port()


@pytest.fixture(scope="module")
def server() -> Iterator[QuireServer]:
    arguments = (
        *("--admin-port", str(ADMIN_PORT), "--log-format", "json", "--store-url", "none"),
        # Room for a few sequences only, so that some are preempted.
        *("--num-kv-blocks", "33", "--max-model-len", "512", "--max-num-seqs", "8"),
    )
    with QuireServer("simulated:step=2ms,prefill=50000", *arguments) as running:
        yield running


def admin(path: str, **fields: Any) -> Any:
    query = f"?{urllib.parse.urlencode(fields)}" if fields else ""
    url = f"http://127.0.0.1:{ADMIN_PORT}/admin/v1{path}{query}"
    with urllib.request.urlopen(url, timeout=60) as reply:
        return json.loads(reply.read())


def chat(server: QuireServer, number: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    """Stream an answer. Return the request's id, and what the client counted."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    body = {
        "messages": [{"role": "user", "content": f"{CANARY} {number} " * (1 + number % 9)}],
        "max_tokens": 1 + 7 * number % 290,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "timings": True,
        **fields,
    }
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    events = [json.loads(line[6:]) for line in reply if line.startswith(b"data: {")]
    connection.close()
    reason = next(e["choices"][0]["finish_reason"] for e in reversed(events) if e["choices"])
    return reply.headers["x-request-id"], {
        "outcome": reason,
        "usage": events[-1]["usage"],
        "timings": next(event["timings"] for event in events if event.get("timings")),
    }


def all_ended() -> list[dict[str, Any]]:
    found, cursor = [], {}
    while True:
        page = admin("/requests", state="ended", since="1h", limit=17, **cursor)
        assert page["source"] == "memory"
        found += page["requests"]
        if page.get("cursor") is None:
            return [one for one in found if one["route"] == "chat_completions"]
        cursor = {"cursor": page["cursor"]}


def test_records_are_what_clients_counters_and_log_lines_say(server: QuireServer) -> None:
    with ThreadPoolExecutor(16) as clients:
        counted = dict(clients.map(lambda number: chat(server, number), range(REQUESTS)))
    records = {one["request_id"]: one for one in until(lambda: enough(all_ended()), 30, "records")}
    lines = {one["request_id"]: one for one in server.log_lines() if one["event"] == "request"}
    assert records.keys() == counted.keys()
    for request_id, seen in counted.items():
        record, line = records[request_id], lines[request_id]
        usage, timings = seen["usage"], seen["timings"]
        assert record["outcome"] == seen["outcome"] == line["outcome"]
        assert record["prompt_tokens"] == usage["prompt_tokens"]
        assert record["output_tokens"] == usage["completion_tokens"] == line["output_tokens"]
        assert record["prefix"]["matched"] == timings["prefix"]["matched"]
        assert record["prefix"]["at_message"] == timings["prefix"]["at_message"] == 1
        assert abs(record["ttft"] * 1e3 - timings["time_to_first_token_ms"]) < 0.002
        assert abs(record["total"] * 1e3 - line["total_ms"]) < 0.002
        for phase, seconds in record["phases"].items():
            assert abs(seconds * 1e3 - line[f"{phase}_ms"]) < 0.002
        # The mean is at most the longest, which is taken a little later in the same steps.
        if usage["completion_tokens"] > 1:
            assert 0 < record["itl_mean"] <= record["itl_max"]
        outputs = [value for kind, _, value, _ in record["events"] if kind == "output"]
        assert outputs == [2**power for power in range(len(outputs))]
        assert 2 ** len(outputs) > record["output_tokens"] >= 2 ** len(outputs) / 2
        kinds = Counter(kind for kind, *_ in record["events"])
        assert kinds["preempted"] == kinds["resumed"] == record.get("preemptions", 0)
        assert 1 <= len(record["neighbours"]) <= 3
        assert record["neighbours"][0]["seconds"] >= record["neighbours"][-1]["seconds"]
    check_sums(server, list(records.values()))
    # Some step of theirs carried the prompt of another, which is named.
    named = {
        request_id
        for record in records.values()
        for step in record["neighbours"]
        for request_id, _ in step["prefills"]
    }
    assert named
    assert named <= records.keys()


def enough(records: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    return records if len(records) >= REQUESTS else None


def check_sums(server: QuireServer, records: list[dict[str, Any]]) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{ADMIN_PORT}/metrics", timeout=60) as reply:
        page = reply.read().decode()

    def total(name: str, label: str = "") -> float:
        lines = (line for line in page.splitlines() if line.startswith(name) and label in line)
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    assert total("quire_preemptions_total") == sum(one.get("preemptions", 0) for one in records) > 0
    assert total("quire_requests_total", 'route="chat_completions"') == len(records)
    assert total("quire_generated_tokens_total") == sum(one["output_tokens"] for one in records)


def test_a_live_request_shows_how_far_it_is(server: QuireServer) -> None:
    started = threading.Event()
    leave = threading.Event()

    def stream() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        messages = [{"role": "user", "content": "Hello!"}]
        body = {"messages": messages, "max_tokens": 400, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        reply = connection.getresponse()
        reply.readline()
        started.set()
        leave.wait(60)
        connection.close()

    client = threading.Thread(target=stream)
    client.start()
    assert started.wait(60)
    request = until(generating, 30, "a live request with output")
    assert request["live"]
    assert 0 < request["output_tokens"] <= 400
    assert request["prompt_tokens_computed"] <= request["prompt_tokens"]
    leave.set()
    client.join()
    request_id = request["request_id"]
    ended = until(lambda: ended_one(request_id), 30, "its end")
    assert ended["outcome"] in ("client_gone", "length")


def generating() -> dict[str, Any] | None:
    live: list[dict[str, Any]] = admin("/requests", state="live")["requests"]
    return next(
        (one for one in live if one["phase"] == "decode" and one.get("output_tokens")), None
    )


def ended_one(request_id: str) -> dict[str, Any] | None:
    one: dict[str, Any] = admin(f"/requests/{request_id}")
    return None if one.get("live") else one


def test_a_miss_is_shown_at_the_message_that_differs(server: QuireServer) -> None:
    rules = {"role": "system", "content": "Follow the rules of the house. " * 6}
    question = {"role": "user", "content": "What is the weather like in Oslo today? " * 6}
    for place in ("Oslo", "Rome"):
        answer = {"role": "assistant", "content": f"{place} is sunny and warm today. " * 6}
        last = {"role": "user", "content": "Thank you. " * 6}
        messages = [rules, question, answer, last]
        request_id, seen = chat(server, 1, messages=messages, max_tokens=1)
    prefix = seen["timings"]["prefix"]
    record = until(lambda: ended_one(request_id), 30, "its end")
    assert prefix["stopped"] == "diverged"
    assert prefix["matched"] > 0
    assert (prefix["at_message"], prefix["messages"]) == (3, 4)
    assert prefix["role"] == "assistant"
    assert record["prefix"]["at_message"] == 3
    assert record["prefix"]["role"] == "assistant"


def test_a_question_that_differs_is_not_blamed_on_the_instructions(server: QuireServer) -> None:
    """The block that holds the beginning of the question begins in the instructions."""
    rules = {"role": "system", "content": "Be brief and friendly, and never lie. " * 6}
    for question in ("Why is the sky blue?", "Are owls birds?"):
        messages = [rules, {"role": "user", "content": question}]
        request_id, _ = chat(server, 1, messages=messages, max_tokens=1)
    prefix = until(lambda: ended_one(request_id), 30, "its end")["prefix"]
    assert prefix["stopped"] == "diverged"
    assert (prefix["at_message"], prefix["to_message"], prefix["messages"]) == (1, 2, 2)


def test_no_content_is_in_any_record(server: QuireServer) -> None:
    request_id, _ = chat(server, 5)
    chat(server, 6, messages=[{"role": "user", "content": "x", "shade": CANARY}])
    until(lambda: ended_one(request_id), 30, "its end")
    for path in ("/requests", f"/requests/{request_id}"):
        assert CANARY not in json.dumps(admin(path))
