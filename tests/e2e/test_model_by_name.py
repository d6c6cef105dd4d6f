"""``quire serve OWNER/NAME`` against a hub on loopback."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocket import MODEL_DIR
from tests.e2e.quire_server import QuireServer, command_of, descendants, until
from tests.service.hub_server import HubServer, Repository

NAME = "quire/pocket"
WEIGHTS = "model.safetensors"
SMALL = ("--num-kv-blocks", "64", "--max-model-len", "256", "--device", "cpu")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer({NAME: Repository.of(MODEL_DIR)}) as server:
        for name, value in server.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        yield server


def health(server: QuireServer, path: str = "/health") -> tuple[int, dict[str, Any]]:
    try:
        status, body = server.get(path)
    except OSError:
        return 0, {}
    return status, json.loads(body)


def downloading(server: QuireServer) -> bool:
    return health(server)[1].get("download", {}).get("bytes_total", 0) > 0


def ended(server: QuireServer) -> int:
    assert server.process is not None
    process = server.process
    until(lambda: process.poll() is not None, 60, "its end")
    return int(process.returncode)


def complete(server: QuireServer) -> str:
    body = {"model": NAME, "prompt": "Hello", "max_tokens": 4, "temperature": 0}
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer
    assert answer["model"] == NAME
    return str(answer["choices"][0]["text"])


def test_it_downloads_once_says_so_serves_and_later_starts_without_the_hub(hub: HubServer) -> None:
    hub.pause_at = 0
    size = (MODEL_DIR / WEIGHTS).stat().st_size
    server = QuireServer(NAME, *SMALL, "--data-parallel-size", "2").start()
    try:
        until(lambda: downloading(server), 60, "the download")
        status, body = health(server)
        assert (status, body["status"], body["model"]) == (503, "downloading", NAME)
        assert body["download"] == {"bytes_done": 0, "bytes_total": size}
        assert body["engine"]["detail"] == (
            f"downloading the model: 0 B of {size / 1e6:.1f} MB (0 %)"
        )
        assert health(server, "/health/live")[0] == 200
        status, answer = server.post("/v1/completions", {"model": NAME, "prompt": "x"})
        assert status == 503
        assert "downloading the model" in answer["error"]["message"]
        # Killed, as by the kernel when memory is short: another continues.
        assert server.process is not None
        (process,) = (
            pid for pid in descendants(server.process.pid) if b"service.hub" in command_of(pid)
        )
        hub.pause_at = None
        os.kill(process, signal.SIGKILL)
        server.wait_ready()
        assert "download" not in health(server)[1]
        first = complete(server)
        assert len(hub.downloads(WEIGHTS)) == 2  # the one that was killed, and one for both engines
    finally:
        server.terminate()
    hub.requests.clear()
    with QuireServer(NAME, *SMALL) as again:
        assert complete(again) == first
    assert hub.requests == []


def test_a_wrong_file_is_not_served(hub: HubServer) -> None:
    repository = hub.repositories[NAME]
    repository.wrong[WEIGHTS] = bytes(len(repository.files[WEIGHTS]))
    server = QuireServer(NAME, *SMALL).start()
    try:
        assert ended(server) == 1
    finally:
        server.terminate()
    said = server.output()
    assert f"quire: {WEIGHTS} of '{NAME}' has another checksum than the hub announced" in said
    assert "Traceback" not in said


def test_a_missing_model_ends_the_start_with_one_sentence(hub: HubServer) -> None:
    server = QuireServer("quire/nothing").start()
    try:
        assert ended(server) == 1
    finally:
        server.terminate()
    said = [line for line in server.output().splitlines() if not line.startswith("{")]
    assert said == [
        f"quire: there is no model 'quire/nothing' on {hub.url}, or it needs a token (HF_TOKEN), "
        "and no directory of that name here; check the spelling"
    ]


def test_an_interrupt_while_the_first_files_come_ends_it_at_once(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Repository, "is_large", lambda _self, name: name != "config.json")
    hub.pause_at = 0
    server = QuireServer(NAME, *SMALL).start()
    try:
        assert hub.paused.wait(30)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert ended(server) == 128 + signal.SIGTERM
    finally:
        server.terminate()
    assert "Traceback" not in server.output()
