"""``quire serve`` as a process: its output, what it survives, what it leaves after its end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.supervision.restarts import FAILING_DEATHS, HOPELESS_DEATHS
from tests.e2e.quire_server import QuireServer, command_of, descendants, is_running, until
from tests.service.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.one_process

SMALL = ("--load-format", "dummy", "--threads", "1", "--kv-cache-memory", str(64 << 20))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


def ended(server: QuireServer, seconds: float = 30) -> int:
    """The exit code of a server that ends by itself."""
    process = server.process
    assert process is not None
    until(lambda: (server.output(), process.poll() is not None)[1], seconds, "quire serve to end")
    return int(process.returncode)


def supervisor_of(server: QuireServer) -> subprocess.Popen[bytes]:
    assert server.process is not None
    return server.process


def child(server: QuireServer, module: str) -> int:
    """Process id of the running child that is ``python -m module``."""

    def find() -> int | None:
        for pid in descendants(supervisor_of(server).pid):
            if module.encode() in command_of(pid) and is_running(pid):
                return pid
        return None

    return until(find, 10, f"the {module} process")


@pytest.fixture
def server(checkpoint: Path) -> Iterator[QuireServer]:
    """For tests that end it."""
    with QuireServer(str(checkpoint), *SMALL) as running:
        yield running


@pytest.fixture(scope="module")
def shared_server(checkpoint: Path) -> Iterator[QuireServer]:
    """For tests after which it serves as before."""
    with QuireServer(str(checkpoint), *SMALL) as running:
        yield running


def is_gone(pid: int) -> bool:
    return not is_running(pid)


def complete(server: QuireServer) -> int:
    status, _ = server.post(
        "/v1/completions",
        {"model": "tiny", "prompt": "x", "max_tokens": 3, "ignore_eos": True},
    )
    return int(status)


def test_it_says_where_it_listens_what_to_try_and_when_it_is_ready(
    shared_server: QuireServer,
) -> None:
    until(lambda: "ready in" in shared_server.output(), 10, "the ready line")
    said = shared_server.output()
    for words in (
        f"OpenAI base URL  {shared_server.url}/v1",
        f"{shared_server.url}/docs",
        f"quire dashboard --url {shared_server.url}",
        f"curl {shared_server.url}/v1/models",
        "loading tiny from",
        "s: model tiny",
    ):
        assert words in said


def test_the_socket_answers_loading_before_the_model_is_loaded(checkpoint: Path) -> None:
    server = QuireServer(str(checkpoint), *SMALL).start()
    try:
        statuses = []

        def probe() -> bool:
            try:
                statuses.append(server.get("/health/ready"))
            except OSError:
                return False
            return statuses[-1][0] == 200

        until(probe, 60, "readiness")
        status, body = statuses[0]
        assert status == 503
        assert json.loads(body)["status"] == "loading"
    finally:
        server.terminate()


def test_children_are_out_of_reach_of_the_terminals_interrupt_and_it_ends_all_of_them(
    server: QuireServer,
) -> None:
    """A terminal sends SIGINT to the whole foreground group: the supervisor's own."""
    supervisor = supervisor_of(server)
    family = descendants(supervisor.pid)
    group = os.getpgid(supervisor.pid)
    assert group not in {os.getpgid(pid) for pid in family}
    os.killpg(group, signal.SIGINT)
    assert ended(server) == 0
    assert not any(map(is_running, family))
    assert "draining" in server.output()


def test_the_runtime_directory_is_private_and_gone_in_the_end(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with QuireServer(str(checkpoint), *SMALL) as server:
        (directory,) = tmp_path.iterdir()
        assert directory.stat().st_mode & 0o777 == 0o700
        assert (directory / "engine.sock").stat().st_mode & 0o777 == 0o600
        assert server.terminate() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_killed_engine_is_started_again_and_serves(shared_server: QuireServer) -> None:
    assert complete(shared_server) == 200
    before = shared_server.total("quire_generated_tokens_total")
    ready_lines = shared_server.output().count("ready in")
    engine = child(shared_server, "engine")
    os.kill(engine, signal.SIGKILL)
    until(lambda: not is_running(engine), 10, "the engine to die")
    until(lambda: shared_server.get("/health/ready")[0] == 503, 10, "the loss to be noticed")
    until(lambda: shared_server.get("/health/ready")[0] == 200, 30, "a new engine")
    assert child(shared_server, "engine") != engine
    assert complete(shared_server) == 200
    assert shared_server.total("quire_generated_tokens_total") == before + 3
    until(lambda: shared_server.output().count("ready in") > ready_lines, 5, "the ready line again")


def test_a_killed_worker_is_started_again_and_no_connection_is_refused(
    shared_server: QuireServer,
) -> None:
    worker = child(shared_server, "service.worker")
    os.kill(worker, signal.SIGKILL)
    # The supervisor holds the listening socket: this waits in it for the new worker.
    assert shared_server.get("/health/live")[0] == 200
    assert child(shared_server, "service.worker") != worker
    until(lambda: shared_server.get("/health/ready")[0] == 200, 30, "readiness")
    assert complete(shared_server) == 200


def test_an_engine_that_dies_again_and_again_is_refused_for_and_still_tried(
    checkpoint: Path,
) -> None:
    server = QuireServer(str(checkpoint), *SMALL)
    server.module = "tests.service.impatient_cli"
    server.start()
    try:
        live: list[int] = []

        def kill_engines_until(count: int) -> dict[str, Any]:
            """Before they are ready; what /health says once so many have died."""

            def health() -> dict[str, Any] | None:
                with contextlib.suppress(OSError, TimeoutError):
                    os.kill(child(server, "engine"), signal.SIGKILL)
                deaths = server.output().count('"event":"died"')
                return json.loads(server.get("/health")[1]) if deaths >= count else None

            return until(health, 60, f"{count} deaths")

        until(lambda: is_listening(server), 30, "the worker to listen")
        failing = kill_engines_until(FAILING_DEATHS + 1)
        assert failing["status"] == "failing"
        assert "times in a row without progress" in failing["problem"]
        assert server.get("/health/ready")[0] == 503
        assert server.get("/health/live")[0] == 200
        status, reply = server.post("/v1/completions", {"model": "tiny", "prompt": "x"})
        assert (status, reply["error"]["code"]) == (503, "engine_unavailable")
        kill_engines_until(HOPELESS_DEATHS + 1)
        live.append(server.get("/health/live")[0])
        until(lambda: server.get("/health/ready")[0] == 200, 60, "the one that nobody killed")
        live.append(server.get("/health/live")[0])
        assert live == [503, 200]
        assert complete(server) == 200
    finally:
        server.__exit__()


def test_a_restart_that_the_system_refuses_is_tried_again_and_ends_nothing(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARVED_START", "3")  # after the worker and the engine
    server = QuireServer(str(checkpoint), *SMALL)
    server.module = "tests.service.starved_cli"
    with server:
        os.kill(child(server, "engine"), signal.SIGKILL)
        until(lambda: "cannot be started" in server.output(), 20, "the failed attempt")
        assert complete(server) == 200  # it waits for the next engine
        assert server.terminate() == 0
        (line,) = [line for line in server.log_lines() if line["event"] == "cannot be started"]
        assert (line["child"], line["error"]) == ("engine", "Resource temporarily unavailable")
        assert "Traceback" not in server.output()


def test_a_first_start_that_the_system_refuses_is_reported_in_one_sentence(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARVED_START", "2")
    server = QuireServer(str(checkpoint), *SMALL)
    server.module = "tests.service.starved_cli"
    server.start()
    assert ended(server) == 1
    last = server.output().rstrip().splitlines()[-1]
    assert last == "quire: the engine could not start: Resource temporarily unavailable"
    assert "Traceback" not in server.output()


@pytest.mark.parametrize("module", ["engine", "service.worker"])
def test_a_removed_runtime_directory_ends_it_once_a_child_is_to_start_again(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with QuireServer(str(checkpoint), *SMALL) as server:
        (directory,) = tmp_path.iterdir()
        shutil.rmtree(directory)
        assert complete(server) == 200
        os.kill(child(server, module), signal.SIGKILL)
        assert ended(server) == 1
        last = server.output().rstrip().splitlines()[-1]
        assert last.startswith(f"quire: {directory}, which every process needs at its start, was ")
        assert "FileNotFoundError" not in server.output()


@pytest.mark.parametrize("module", ["engine", "service.worker"])
def test_changed_files_of_the_model_end_it_once_a_child_is_to_start_again(
    tmp_path: Path, module: str
) -> None:
    model = write_tiny_checkpoint(tmp_path / "tiny")
    with QuireServer(str(model), *SMALL) as server:
        changed = model / "tokenizer.json"
        changed.write_text(changed.read_text() + " ")
        assert complete(server) == 200
        os.kill(child(server, module), signal.SIGKILL)
        assert ended(server) == 1
        last = server.output().rstrip().splitlines()[-1]
        assert last.startswith(f"quire: the model's file {changed} was changed, added or removed")


def is_listening(server: QuireServer) -> bool:
    with contextlib.suppress(OSError):
        return server.get("/health/live")[0] == 200
    return False


def test_a_hanging_process_is_killed_and_restarted(checkpoint: Path) -> None:
    limits = ("--worker-hang-timeout", "4", "--engine-hang-timeout", "4")
    stopped = []
    with QuireServer(str(checkpoint), *SMALL, *limits) as server:
        for module, name in (("service.worker", "worker"), ("engine", "engine")):
            hangs = child(server, module)
            stopped.append((name, hangs))
            os.kill(hangs, signal.SIGSTOP)
            until(partial(is_gone, hangs), 30, f"the {name} to be killed")
            until(lambda: is_listening(server), 30, "the worker to listen")
            until(lambda: server.get("/health/ready")[0] == 200, 60, "readiness")
            assert complete(server) == 200
        killed = [
            line for line in server.log_lines() if line["event"] == "is unresponsive, killing it"
        ]
        # On a machine without a free core another process may be silent for as long.
        assert set(stopped) <= {(line["child"], line["pid"]) for line in killed}


def test_nothing_it_prints_can_end_or_block_it(checkpoint: Path) -> None:
    """Started by nohup, with stdout's reader gone and stderr's not reading."""
    reader, stdout = os.pipe()
    os.close(reader)
    stalled, stderr = os.pipe()
    os.set_blocking(stderr, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(stderr, bytes(1 << 16)):
            pass
    os.set_blocking(stderr, True)
    server = QuireServer()
    arguments = ["-m", "service.cli", "serve", "--port", str(server.port), str(checkpoint), *SMALL]
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "nohup", sys.executable, *arguments],
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    os.close(stdout)
    os.close(stderr)
    server.process = process
    try:
        until(lambda: is_listening(server), 60, "the worker to listen")
        until(lambda: server.get("/health/ready")[0] == 200, 60, "readiness")
        for _ in range(2):
            engine = child(server, "engine")
            os.kill(engine, signal.SIGKILL)
            until(partial(is_gone, engine), 10, "the engine to die")
            assert complete(server) == 200  # it waits for the next engine
        process.send_signal(signal.SIGHUP)
        assert complete(server) == 200
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(stalled)


def test_killing_the_supervisor_leaves_no_orphan_even_while_loading(checkpoint: Path) -> None:
    server = QuireServer(str(checkpoint), *SMALL).start()
    child(server, "engine")
    child(server, "service.worker")
    supervisor = supervisor_of(server)
    family = descendants(supervisor.pid)
    supervisor.kill()
    supervisor.wait()
    until(lambda: not any(map(is_running, family)), 20, "its children to end")


def test_a_second_signal_ends_everything_at_once(server: QuireServer) -> None:
    supervisor = supervisor_of(server)
    family = descendants(supervisor.pid)
    # A worker that hangs does not drain.
    os.kill(child(server, "service.worker"), signal.SIGSTOP)
    supervisor.send_signal(signal.SIGTERM)
    until(lambda: "stopping" in server.output(), 10, "the first signal")
    begin = time.monotonic()
    supervisor.send_signal(signal.SIGINT)
    assert ended(server) == 128 + signal.SIGINT
    assert time.monotonic() - begin < 10  # the drain would take thirty
    assert not any(map(is_running, family))


def test_a_port_in_use_is_reported_at_once(shared_server: QuireServer, checkpoint: Path) -> None:
    second = QuireServer(str(checkpoint), *SMALL)
    second.port = shared_server.port
    second.start()
    assert ended(second, 10) == 1
    assert f"cannot listen on 127.0.0.1:{shared_server.port}" in second.output()


def test_a_model_that_does_not_load_ends_it_with_a_message(tmp_path: Path) -> None:
    broken = write_tiny_checkpoint(tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text())
    kind = {"model_type": "perceptron", "architectures": ["PerceptronForCausalLM"]}
    (broken / "config.json").write_text(json.dumps({**config, **kind}))
    server = QuireServer(str(broken), *SMALL).start()
    assert ended(server) == 1
    last = server.output().rstrip().splitlines()[-1]
    assert last.startswith("quire: the engine could not start: ")
    assert "PerceptronForCausalLM is not supported" in last


@pytest.mark.parametrize("workers", [1, 2], ids=["worker", "workers"])
def test_a_tokenizer_that_does_not_load_ends_it_with_a_message(
    tmp_path: Path, workers: int
) -> None:
    path = write_tiny_checkpoint(tmp_path) / "tokenizer.json"
    fields = json.loads(path.read_text())
    fields["model"]["merges"] = [["zz", "qq"]]
    path.write_text(json.dumps(fields))
    server = QuireServer(str(tmp_path), *SMALL, f"--api-workers={workers}").start()
    assert ended(server) == 1
    lines = server.output().rstrip().splitlines()
    name = r"worker" if workers == 1 else r"worker-[01]"
    said = rf"quire: the {name} could not start: tokenizer\.json: .* cannot read it: Token `zz` "
    assert re.match(said, lines[-1])
    assert "Traceback" not in "".join(lines)


def _write_impostors(folder: Path) -> Path:
    """Create modules named like those that children load; each reports that it was executed."""
    told = folder / "executed"
    code = f"open({str(told)!r}, 'a').write(__file__ + chr(10))\n"
    for name in ("engine", "engine/constraint", "service", "observability", "pocket"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(code)
    for name in ("engine/constraint/trial", "engine/__main__", "service/worker", "msgspec"):
        (folder / f"{name}.py").write_text(code)
    return told


def test_no_process_executes_a_file_of_the_working_directory(
    checkpoint: Path, tmp_path: Path
) -> None:
    executed = _write_impostors(tmp_path / "folder")
    with QuireServer(str(checkpoint), *SMALL, cwd=tmp_path / "folder") as server:
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}
        asked = {"prompt": "x", "max_tokens": 2, "response_format": form}
        assert server.post("/v1/completions", asked)[0] == 200
        child(server, "engine.constraint.trial")
    assert not executed.exists(), executed.read_text()


def test_streams_that_outlast_the_drain_get_an_error_and_are_cut(checkpoint: Path) -> None:
    with QuireServer(str(checkpoint), *SMALL, "--drain-timeout", "0.5") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        body = {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        reply = connection.getresponse()
        reply.read(300)
        supervisor_of(server).send_signal(signal.SIGTERM)
        rest = reply.read().decode()
        assert ended(server) == 0
        last = json.loads(
            [line for line in rest.splitlines() if line.startswith("data: {")][-1][6:]
        )
        assert last["error"]["code"] == "shutting_down"
        connection.close()
        (line,) = [line for line in server.log_lines() if line.get("route") == "completions"]
        assert line["outcome"] == "error:shutdown"
        assert 0 < line["output_tokens"] < 4000
