"""Keys are made, used, limited, rotated and revoked while a server runs, as a user would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import grpc
import openai
import pytest

from service.proto.quire.v1 import quire_pb2 as pb
from service.proto.quire.v1.quire_pb2_grpc import QuireStub
from tests.e2e.quire_server import (
    ADMIN_ACCEPTS,
    ROOT,
    QuireServer,
    command_of,
    descendants,
    free_port,
    until,
)

pytestmark = pytest.mark.one_process

# What a change may take to be known everywhere.
WITHIN_SECONDS = 10
ADMIN_KEY = "admin-key-of-test"
MODEL = "simulated:step=1ms,output=40"


@dataclass
class Place:
    server: QuireServer
    store: str
    file: Path
    grpc_port: int

    def keys(self, *arguments: str) -> str:
        """Run ``quire keys``; return what it prints."""
        command = [sys.executable, "-P", "-m", "service.cli", "keys", *arguments]
        done = subprocess.run(
            [*command, "--store-url", self.store],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def create(self, alias: str, *arguments: str) -> str:
        key = self.keys("create", "--alias", alias, *arguments)
        until(lambda: self.models(key) == 200, WITHIN_SECONDS, "the new key is accepted")
        return key

    def models(self, key: str) -> int:
        return self.server.get("/v1/models", {"authorization": f"Bearer {key}"})[0]

    def chat(self, key: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, **fields}
        headers = {"authorization": f"Bearer {key}"}
        return self.server.post("/v1/chat/completions", body, headers)  # type: ignore[no-any-return]

    def openai(self, key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.server.url}/v1", api_key=key, max_retries=0)

    def admin(self, path: str, body: Any = None) -> Any:
        lines = [line for line in self.server.log_lines() if line["event"] == ADMIN_ACCEPTS]
        request = urllib.request.Request(
            f"http://127.0.0.1:{lines[-1]['port']}/admin/v1{path}",
            headers={"authorization": f"Bearer {ADMIN_KEY}"},
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.loads(reply.read())

    def used(self, alias: str) -> int:
        """Tokens of a key, as the dashboard shows them."""

        def found() -> Any:
            with suppress(urllib.error.HTTPError):  # the database is away after a restart
                return self.admin("/usage?by=key&bucket=day")

        rows = until(found, 30, "usage")["rows"]
        return sum(
            row["prompt_tokens"] + row["output_tokens"] for row in rows if row["group"] == alias
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("keys")
    file = folder / "keys.toml"
    file.write_text('[[keys]]\nalias = "filed"\nkey = "qk_of-the-file-1"\n')
    store, port = f"sqlite:///{folder}/store.sqlite3", free_port()
    arguments = ["--stored-keys", "--keys-file", str(file), "--store-url", store]
    named = ["--log-format", "json", "--served-model-name", "simulated"]
    rest = ["--grpc-port", str(port), "--admin-key", ADMIN_KEY, "--api-key", "flags=sk-of-a-flag"]
    with QuireServer(*named, *arguments, *rest, MODEL) as server:
        yield Place(server, store, file, port)


def test_keys_of_all_sources_are_accepted_and_others_are_not(place: Place) -> None:
    stored = place.create("team")
    for key in (stored, "qk_of-the-file-1", "sk-of-a-flag"):
        assert place.chat(key)[0] == 200
    assert place.models("") == 401
    assert place.models(stored[:-1] + ("a" if stored[-1] != "a" else "b")) == 401


def test_both_keys_are_valid_while_they_overlap(place: Place) -> None:
    first = place.create("rotated")
    second = place.keys("rotate", "rotated", "--overlap", "4s")
    until(lambda: place.models(second) == 200, WITHIN_SECONDS, "the second key is accepted")
    until(lambda: place.models(first) == 401, WITHIN_SECONDS, "the first key has ended")
    assert "has expired" in place.chat(first)[1]["error"]["message"]
    assert place.chat(second)[0] == 200


def test_a_revoked_key_ends_everywhere_within_seconds(place: Place) -> None:
    key = place.create("revoked")
    place.keys("revoke", "revoked")
    until(lambda: place.models(key) == 401, WITHIN_SECONDS, "the key is refused")
    with grpc.insecure_channel(f"127.0.0.1:{place.grpc_port}") as channel:
        with pytest.raises(grpc.RpcError) as refusal:
            QuireStub(channel).ListModels(
                pb.ListModelsRequest(), metadata=(("authorization", f"Bearer {key}"),)
            )
        assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.proves("rotation", "process")
def test_a_changed_file_is_read_and_a_broken_one_changes_nothing(place: Place) -> None:
    def write(text: str) -> None:
        """As a Secret's volume does it."""
        draft = place.file.with_suffix(".new")
        draft.write_text(text)
        draft.replace(place.file)

    write('[[keys]]\nalias = "filed"\nkey = "qk_of-the-file-2"\n')
    until(lambda: place.models("qk_of-the-file-2") == 200, WITHIN_SECONDS, "the new key")
    assert place.models("qk_of-the-file-1") == 401
    write('[[keys]]\nalias = "filed"\nkey = "qk_of-the-file-3\n')
    until(lambda: "keys file cannot be used" in place.server.output(), WITHIN_SECONDS, "its line")
    assert place.models("qk_of-the-file-2") == 200
    assert "qk_of-the-file" not in place.server.output()


@pytest.mark.proves("limits", "process")
def test_requests_per_minute_with_openais_client(place: Place) -> None:
    client = place.openai(place.create("rpm", "--requests-per-minute", "3"))
    for left in (2, 1, 0):
        answer = client.chat.completions.with_raw_response.create(
            model="simulated", messages=[{"role": "user", "content": "x"}], max_tokens=2
        )
        assert answer.headers["x-ratelimit-limit-requests"] == "3"
        assert answer.headers["x-ratelimit-remaining-requests"] == str(left)
    with pytest.raises(openai.RateLimitError) as refusal:
        client.chat.completions.create(
            model="simulated", messages=[{"role": "user", "content": "x"}], max_tokens=2
        )
    error = refusal.value
    assert (error.type, error.code) == ("requests", "rate_limit_exceeded")
    assert 1 <= int(error.response.headers["retry-after"]) <= 61
    assert error.response.headers["x-ratelimit-remaining-requests"] == "0"
    assert error.response.headers["x-ratelimit-reset-requests"].endswith("s")
    assert error.response.headers["x-quire-reason"] == "refused:limit"
    # What does not need the engine is not counted, and says what is left too.
    models = client.models.with_raw_response.list()
    assert models.headers["x-ratelimit-remaining-requests"] == "0"


def test_tokens_per_minute_with_anthropics_client(place: Place) -> None:
    key = place.create("tpm", "--tokens-per-minute", "100")
    client = anthropic.Anthropic(base_url=place.server.url, api_key=key, max_retries=0)

    def send(tokens: int) -> Any:
        return client.messages.with_raw_response.create(
            model="simulated", max_tokens=tokens, messages=[{"role": "user", "content": "x"}]
        )

    answer = send(20)
    usage = answer.parse().usage
    assert answer.headers["anthropic-ratelimit-tokens-limit"] == "100"
    # Settled by what was used, not by what might have been.
    used = usage.input_tokens + usage.output_tokens
    left = 100 - used
    headers = send(1).headers
    assert int(headers["anthropic-ratelimit-tokens-remaining"]) == left - usage.input_tokens - 1
    assert headers["anthropic-ratelimit-tokens-reset"].endswith("Z")
    with pytest.raises(anthropic.RateLimitError) as refusal:
        send(left)
    assert refusal.value.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]
    assert int(refusal.value.response.headers["retry-after"]) >= 1
    with pytest.raises(anthropic.BadRequestError, match="may use 100 per minute"):
        send(1000)


def test_a_daily_budget_survives_restarts_of_the_worker(place: Place) -> None:
    key = place.create("daily", "--tokens-per-day", "60")
    status, reply = place.chat(key, max_tokens=40)
    assert status == 200
    used = reply["usage"]["total_tokens"]
    assert place.used("daily") == used
    assert place.server.process is not None
    worker = next(
        pid for pid in descendants(place.server.process.pid) if b"service.worker" in command_of(pid)
    )
    os.kill(worker, signal.SIGKILL)
    place.server.wait_ready()
    until(lambda: place.models(key) == 200, WITHIN_SECONDS, "the next worker knows the keys")
    with pytest.raises(openai.APIStatusError, match="at midnight UTC") as refusal:
        place.openai(key).chat.completions.create(
            model="simulated", messages=[{"role": "user", "content": "hello"}], max_tokens=40
        )
    assert (refusal.value.status_code, refusal.value.code) == (402, "insufficient_quota")
    client = anthropic.Anthropic(base_url=place.server.url, api_key=key)
    with pytest.raises(anthropic.APIStatusError, match="at midnight UTC") as said:
        client.messages.create(
            model="simulated", max_tokens=40, messages=[{"role": "user", "content": "x"}]
        )
    assert said.value.body["error"]["type"] == "billing_error"  # type: ignore[index]
    assert place.used("daily") == used


def test_a_daily_budget_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[[keys]]\nalias = "daily"\nkey = "key-of-daily"\ntokens_per_day = 60\n')
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    arguments = ("--keys-file", str(file), "--store-url", store, "--log-format", "json", MODEL)
    with QuireServer(*arguments) as server:
        status, reply = Place(server, store, file, 0).chat("key-of-daily", max_tokens=40)
        assert status == 200
        used = reply["usage"]["total_tokens"]
        assert 20 < used <= 60
    with QuireServer(*arguments) as server:
        place = Place(server, store, file, 0)

        def knows() -> bool:
            [row] = place.admin("/keys")["keys"]
            return bool(row["tokens_today"] == used)

        until(knows, 15, "the usage of before the restart")
        status, reply = place.chat("key-of-daily", max_tokens=40)
        assert (status, reply["error"]["code"]) == (402, "insufficient_quota")


def test_a_limit_over_grpc(place: Place) -> None:
    key = place.create("remote", "--requests-per-minute", "1")
    request = pb.GenerateRequest(text="hello", max_tokens=2)
    with grpc.insecure_channel(f"127.0.0.1:{place.grpc_port}") as channel:
        generate = QuireStub(channel).Generate
        with_key = (("authorization", f"Bearer {key}"),)
        list(generate(request, metadata=with_key))
        with pytest.raises(grpc.RpcError) as refusal:
            list(generate(request, metadata=with_key))
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailing = dict(refusal.value.trailing_metadata())
    assert trailing["quire-error-code"] == "rate_limit_exceeded"
    assert trailing["x-ratelimit-remaining-requests"] == "0"
    assert int(trailing["retry-after"]) >= 1


def test_usage_is_what_was_answered_to_the_token(place: Place) -> None:
    key = place.create("counted", "--tokens-per-day", "1000000", "--concurrent-requests", "50")
    total = 0
    for tokens in (1, 7, 30):
        status, reply = place.chat(key, max_tokens=tokens)
        assert status == 200
        total += reply["usage"]["total_tokens"]
    assert place.used("counted") == total


def test_no_key_is_in_the_log_or_the_store(place: Place) -> None:
    key = place.create("secretive")
    assert place.chat(key)[0] == 200
    store = b"".join(one.read_bytes() for one in place.file.parent.glob("store.sqlite3*"))
    assert b"secretive" in store
    assert key.encode() not in store
    assert key not in place.server.output()
    assert key not in place.keys("list", "--json")
    assert key not in place.keys("show", "secretive")
