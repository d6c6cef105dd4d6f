"""A marked value in every secret setting is found nowhere that anybody else can read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.settings_page import settings
from tests.e2e.quire_server import ROOT, QuireServer, command_of, descendants, until
from tests.observability.otlp_receiver import grpc_receiver
from tests.service.tiny_checkpoint import write_tiny_checkpoint

SMALL = ("--load-format", "dummy", "--threads", "1", "--kv-cache-memory", str(64 << 20))
SECRETS = [option for option in settings() if option.secret]
CANARIES = {option.name: f"canary-of-{option.name.replace('_', '-')}" for option in SECRETS}
# The value that holds the mark; where none is given the mark alone will do.
VALUES = {
    "api_key": "team={}",
    "priority_api_key": "vip={}",
    "store_url": "postgresql://u:{}@127.0.0.1:9/x",
}
# Values that a start refuses, mark included.
WRONG = {"signing_key": "canary", "store_url": "canary://u:canary@host/x"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(params=["variable", "file"])
def form(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every secret is set, all in one form."""
    for option in SECRETS:
        value = VALUES.get(option.name, "{}").format(CANARIES[option.name])
        if request.param == "file":
            (tmp_path / option.name).write_text(f"{value}\n")
            monkeypatch.setenv(option.file_variable, str(tmp_path / option.name))
        else:
            monkeypatch.setenv(option.variable, value)
    return str(request.param)


def found_in(*texts: str | bytes) -> list[str]:
    """The names of secrets that one of ``texts`` shows."""
    said = b"\n".join(text.encode() if isinstance(text, str) else text for text in texts)
    return [name for name, canary in CANARIES.items() if canary.encode() in said]


def family_of(server: QuireServer) -> dict[int, str]:
    """The server's processes, each with the module that it runs."""
    assert server.process is not None
    pids = {server.process.pid, *descendants(server.process.pid)}
    words = {pid: [word.decode() for word in command_of(pid)] for pid in pids}
    return {pid: line[line.index("-m") + 1] for pid, line in words.items() if "-m" in line}


def use_everything(server: QuireServer) -> list[str | bytes]:
    """Collect what clients receive, also from processes that start only on demand."""
    key = {"authorization": f"Bearer {CANARIES['priority_api_key']}"}
    assert server.get("/v1/models")[0] == 401
    assert server.get("/v1/models", {"authorization": f"Bearer {CANARIES['api_key']}"})[0] == 200
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}
    asked = {"prompt": "x", "max_tokens": 2, "response_format": form}
    assert server.post("/v1/completions", asked, key)[0] == 200
    long = {"messages": [{"role": "user", "content": "word " * 40_000}], "max_tokens": 1}
    answers = [
        server.post("/v1/chat/completions", long, key),
        server.post("/v1/responses", {"input": "x", "max_output_tokens": 1}, key),
        server.post("/v1/completions", {"prompt": 7, "max_tokens": {}}, key),
    ]
    pages = ("/metrics", "/openapi.json", "/docs", "/health/live", "/health/ready", "/v1/models")
    return [*map(json.dumps, answers), *(server.get(page, key)[1] for page in pages)]


def look_at_processes(server: QuireServer, form: str) -> None:
    family = family_of(server)
    modules = set(family.values())
    assert modules >= {"service.cli", "service.worker", "engine", "engine.constraint.trial"}
    assert "service.preparation" in modules
    # Who was given the secrets, and the one process that needs them.
    knows = {"service.worker", *(["service.cli"] if form == "variable" else [])}
    for pid, module in family.items():
        assert found_in(Path(f"/proc/{pid}/cmdline").read_bytes()) == [], module
        environ = Path(f"/proc/{pid}/environ")
        assert environ.stat().st_mode & 0o077 == 0
        if module not in knows:
            assert found_in(environ.read_bytes()) == [], module


def crash(server: QuireServer, module: str) -> None:
    """Abort a process, so that it dumps what it can, and wait for the next one."""
    pid = next(pid for pid, its in family_of(server).items() if its == module)
    os.kill(pid, signal.SIGABRT)
    until(lambda: pid not in family_of(server), 30, f"the end of {module}")
    until(lambda: module in family_of(server).values(), 60, f"the next {module}")
    server.wait_ready()


def test_a_secret_is_found_nowhere(
    checkpoint: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with grpc_receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        with QuireServer(str(checkpoint), *SMALL, "--log-level", "debug") as server:
            assert found_in(*use_everything(server)) == []
            look_at_processes(server, form)
            until(lambda: "response store unavailable" in server.output(), 30, "the store's error")
            for module in ("engine", "service.worker"):
                crash(server, module)
            assert found_in(*use_everything(server)) == []
            server.terminate()
            assert found_in(server.output()) == []
        assert collector.spans
        assert found_in(*(span.SerializeToString() for span in collector.spans)) == []
        assert found_in(json.dumps(collector.resources, default=str)) == []


def quire(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "service.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
    )


def test_the_doctor_shows_no_secret(checkpoint: Path, form: str) -> None:
    done = quire("doctor", str(checkpoint), "--port", "0")
    assert done.stdout
    assert found_in(done.stdout, done.stderr) == []


def test_a_start_that_fails_shows_no_secret(form: str, tmp_path: Path) -> None:
    done = quire("serve", str(tmp_path / "no-such-model"))
    assert done.returncode == 1
    assert found_in(done.stdout, done.stderr) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_secret_that_is_refused_is_not_quoted(
    name: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = next(option for option in SECRETS if option.name == name)
    monkeypatch.setenv(option.variable, WRONG[name])
    done = quire("serve", str(checkpoint), *SMALL, "--port", "0")
    assert done.returncode != 0
    assert b"canary" not in done.stdout + done.stderr


@pytest.mark.parametrize("aliases", [("a", "b"), ("other", "a")])
def test_keys_whose_aliases_are_refused_are_not_quoted(
    aliases: tuple[str, str], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_API_KEY", ",".join(f"{alias}=canary" for alias in aliases))
    done = quire("serve", str(checkpoint), *SMALL, "--port", "0")
    assert done.returncode == 2
    assert b"alias" in done.stderr
    assert b"canary" not in done.stdout + done.stderr
