"""Whose a request is shows in its log line and in the metrics, over HTTP and gRPC, and its key
never does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.grpc.clients import GrpcService, chat, put_together
from tests.service.live.test_lifecycle import CHAT, LONG, leave
from tests.service.running import RunningService, until

OLD, NEW, PLAIN = "sk-canary-old", "sk-canary-new", "sk-canary-plain"
SHORT = {**LONG, "max_tokens": 5}


@pytest.fixture(scope="module")
def keyed(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcService]:
    folder = tmp_path_factory.mktemp("who")
    keys = folder / "keys"
    keys.write_text(f"team={OLD}\n{PLAIN}\nteam={NEW}\n")
    store = f"--store-url=sqlite:///{folder / 'responses.sqlite'}"
    service = GrpcService(tiny_model, folder, store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUIRE_API_KEY_FILE", str(keys))
        service.__enter__()
    try:
        yield service
    finally:
        service.__exit__()


def ask(
    service: RunningService, key: str, path: str, body: Any, agent: str = "who/1"
) -> tuple[int, Any, str]:
    """Status, answer and the request's id."""
    headers = {"authorization": f"Bearer {key}", "user-agent": agent}
    status, sent, reply = service.exchange("POST", path, json.dumps(body).encode(), headers)
    return status, json.loads(reply), sent["x-request-id"]


def lines(service: RunningService) -> list[dict[str, Any]]:
    written = [json.loads(line) for line in service.worker.output().splitlines() if line[:1] == "{"]
    return [line for line in written if line["event"] == "request"]


def line_of(service: RunningService, request_id: str) -> dict[str, Any]:
    def found() -> list[dict[str, Any]]:
        return [line for line in lines(service) if line["request_id"] == request_id]

    [line] = until(found, 10, "the request's log line")
    return line


def counted(service: GrpcService) -> dict[tuple[str, str], float]:
    found = {}
    for line in service.metrics_page().splitlines():
        if line.startswith("quire_key_tokens_total{"):
            key, kind = (line.split(f'{label}="')[1].split('"')[0] for label in ("key", "kind"))
            found[key, kind] = float(line.rsplit(" ", 1)[1])
    return found


@pytest.mark.parametrize(
    ("key", "alias"), [(OLD, "team"), (NEW, "team"), (PLAIN, "key2"), (f"team={NEW}", "team")]
)
def test_the_log_line_names_the_key_by_its_alias_and_the_client(
    keyed: GrpcService, key: str, alias: str
) -> None:
    status, _, request_id = ask(keyed, key, CHAT, SHORT, agent="curl/8 (Köln)")
    assert status == 200
    line = line_of(keyed, request_id)
    assert (line["key"], line["client_address"]) == (alias, "127.0.0.1")
    assert line["user_agent"] == "curl/8 (K?ln)"


def test_a_wrong_key_has_no_alias(keyed: GrpcService) -> None:
    status, _, request_id = ask(keyed, "team", CHAT, SHORT)
    assert status == 401
    line = line_of(keyed, request_id)
    assert (line["outcome"], line["key"]) == ("refused:unauthorized", None)
    assert line["client_address"] == "127.0.0.1"


def test_calls_of_grpc_have_them_too(keyed: GrpcService) -> None:
    said = put_together(keyed.stub.Chat(chat(max_tokens=2), metadata=(("x-api-key", NEW),)))
    line = line_of(keyed, said.started.request_id)
    assert (line["key"], line["client_address"]) == ("team", "127.0.0.1")
    assert line["user_agent"].startswith("grpc-python/")


def test_tokens_of_each_key_are_those_of_its_requests_also_of_aborted_ones(
    keyed: GrpcService,
) -> None:
    for key in (OLD, NEW, PLAIN, OLD):
        line_of(keyed, ask(keyed, key, CHAT, SHORT)[2])
    leaver = http.client.HTTPConnection("127.0.0.1", keyed.port, timeout=60)
    body = json.dumps({**LONG, "stream": True}).encode()
    leaver.request("POST", CHAT, body, {"authorization": f"Bearer {PLAIN}"})
    reply = leaver.getresponse()
    reply.read(2000)
    leave(leaver)
    line = line_of(keyed, str(reply.getheader("x-request-id")))
    assert (line["outcome"], line["key"]) == ("client_gone", "key2")
    assert line["output_tokens"] > 0
    used: dict[tuple[str, str], float] = {}
    for each in lines(keyed):
        for kind, tokens in (
            ("prompt", each["prompt_tokens"] - each["cached_tokens"]),
            ("cached", each["cached_tokens"]),
            ("output", each["output_tokens"]),
        ):
            pair = each["key"] or "other", kind
            used[pair] = used.get(pair, 0) + tokens
    shown = counted(keyed)
    assert {key for key, _ in shown} == {"team", "key2", "other", "loadtest"}
    assert shown == {pair: used.get(pair, 0) for pair in shown}


def test_keys_of_one_alias_share_what_they_store(keyed: GrpcService) -> None:
    status, made, _ = ask(keyed, OLD, "/v1/responses", {"input": "Hi", "max_output_tokens": 2})
    assert status == 200
    path = f"/v1/responses/{made['id']}"
    for key, found in ((OLD, 200), (NEW, 200), (PLAIN, 404)):
        assert keyed.get(path, authorization=f"Bearer {key}")[0] == found


def test_no_key_is_in_log_metrics_or_arguments(keyed: GrpcService) -> None:
    for key in (OLD, NEW, PLAIN):
        assert ask(keyed, key, CHAT, SHORT)[0] == 200
        assert ask(keyed, f"{key}x", CHAT, SHORT)[0] == 401
    argv = Path(f"/proc/{keyed.worker.popen.pid}/cmdline").read_text()
    said = keyed.worker.output() + keyed.engine.output() + argv
    said += keyed.metrics_page() + "".join(
        keyed.get(path)[1].decode() for path in ("/metrics", "/health", "/openapi.json")
    )
    assert "canary" not in said


def test_clients_are_left_out_where_the_operator_must(tiny_model: Path, tmp_path: Path) -> None:
    with GrpcService(tiny_model, tmp_path, "--no-log-clients") as service:
        line = line_of(service, ask(service, "unused", CHAT, SHORT)[2])
        assert (line["key"], line["client_address"], line["user_agent"]) == (None, None, None)
        assert service.metrics_page().count('quire_key_tokens_total{key="other"') == 3
