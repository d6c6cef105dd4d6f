"""An engine and ``quire join``, as two hosts on this machine: same tokens as one process, and a new
start together after any part of it was killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from engine.messages import FRAME_HEADER, Fatal, Loading, Ready, SamplingParams, StepOutputs
from engine.ranks.channel import Channel
from engine.ranks.join import Session, rank_environment, stop_signals
from engine.ranks.messages import ToHost
from tests.e2e.quire_server import command_of, free_port, is_running, until
from tests.engine.driving import Engine
from tests.engine.engine_client import EngineClient, running_engine
from tests.engine.loop.test_process import FOREVER
from tests.engine.ranks.processes import ranks_of, wait_gone
from tests.engine.tiny_models import VARIANTS, save_model

pytestmark = pytest.mark.integration

SECRET = "a secret of some length"
PROMPT = [1, 2, 3, 4, 5]
TOKENS = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


@pytest.fixture(scope="module")
def expected(model: Path) -> list[int]:
    """The tokens of one process."""
    params = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
    engine = Engine(model, cpu_path="torch", dtype="float32")
    return engine.generate([PROMPT], params)[0].token_ids


class Joined:
    """``quire join``, with its log."""

    def __init__(
        self, port: int, log: Path, secret: str = SECRET, leader: str = "localhost"
    ) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "engine.ranks.join", f"{leader}:{port}", "--name=b",
                 "--log-format=json"],
                stderr=output,
                env=os.environ | {"QUIRE_RANKS_SECRET": secret},
            )  # fmt: skip

    @property
    def ranks(self) -> list[int]:
        return ranks_of(self.process.pid)

    def says(self, text: str, seconds: float = 60) -> None:
        until(lambda: text in self._log.read_text(), seconds, f"{text!r} in the log")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def join(port: int, log: Path, secret: str = SECRET) -> Iterator[Joined]:
    joined = Joined(port, log, secret)
    try:
        yield joined
    finally:
        joined.end()


@contextmanager
def leading(
    model: Path,
    path: Path,
    port: int,
    monkeypatch: pytest.MonkeyPatch,
    size: int = 2,
    host: str = "127.0.0.1",
) -> Iterator[tuple[subprocess.Popen[bytes], EngineClient]]:
    monkeypatch.setenv("QUIRE_RANKS_SECRET", SECRET)
    argv = [sys.executable, "-m", "engine", "--model", str(model), "--socket", str(path),
            "--device", "cpu", "--threads", "1", "--dtype", "float32", "--log-format", "json",
            "--tensor-parallel-size", str(size), "--tensor-parallel-hosts", "2",
            "--ranks-host", host, "--ranks-port", str(port)]  # fmt: skip
    with running_engine(argv, path) as process:
        yield process, EngineClient(path)


def generate(client: EngineClient, handle: int = 1) -> list[int]:
    client.submit(handle, PROMPT, TOKENS)
    client.wait(StepOutputs, lambda step: handle in client.finished)
    return client.tokens[handle]


def secret_in_environment(pid: int) -> bool:
    return SECRET.encode() in Path(f"/proc/{pid}/environ").read_bytes()


def test_two_hosts_give_the_tokens_of_one_process_and_the_next_engine_too(
    model: Path, expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts first. After the leader's engine is killed, its host's ranks end, and the host
    joins the next one."""
    port = free_port()
    with join(port, tmp_path / "join.log") as host:
        host.says("Connection refused; trying again")
        with leading(model, tmp_path / "1.sock", port, monkeypatch, size=4) as (process, client):
            assert client.wait(Ready).tensor_parallel_size == 4
            assert len(host.ranks) == 2
            own = ranks_of(process.pid)
            assert len(own) == 1
            ranks = [*host.ranks, *own]
            assert not any(secret_in_environment(pid) for pid in ranks)
            # The address that the name led to, whatever others it has.
            assert all(b"--leader=127.0.0.1" in command_of(pid) for pid in ranks)
            assert generate(client) == expected
            process.kill()
            process.wait()
            wait_gone(*ranks)
        with leading(model, tmp_path / "2.sock", port, monkeypatch, size=4) as (process, client):
            client.wait(Ready)
            assert not set(host.ranks) & set(ranks)
            assert generate(client) == expected
            process.terminate()
            assert process.wait(30) == 0
        host.process.terminate()
        assert host.process.wait(30) == 0


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_hosts_meet_over_ipv6(
    model: Path, expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    host = Joined(port, tmp_path / "join.log", leader="[::1]")
    try:
        with leading(model, tmp_path / "1.sock", port, monkeypatch, host="::") as (_, client):
            client.wait(Ready)
            [rank] = host.ranks
            assert b"--leader=::1" in command_of(rank)
            assert generate(client) == expected
    finally:
        host.end()


@pytest.mark.parametrize("what", ["rank", "host"])
def test_a_death_on_another_host_ends_the_engine_and_is_named(
    model: Path,
    expected: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    what: str,
) -> None:
    port = free_port()
    host = Joined(port, tmp_path / "join.log")
    try:
        with leading(model, tmp_path / "1.sock", port, monkeypatch) as (process, client):
            client.wait(Ready)
            client.submit(1, PROMPT, FOREVER)
            client.wait(StepOutputs, lambda step: bool(step.handles))
            (rank,) = host.ranks
            killed = rank if what == "rank" else host.process.pid
            os.kill(killed, signal.SIGKILL)
            error = client.wait(Fatal).error
            assert process.wait(15) == 1
            wait_gone(rank)
        if what == "rank":
            said = "rank 1 on host b (127.0.0.1) was killed by SIGKILL"
        else:
            said = "host b (127.0.0.1) with rank 1 left, or cannot be reached"
            host.end()
            host = Joined(port, tmp_path / "again.log")
        assert error == f"EngineDeadError: {said}"
        assert capfd.readouterr().err.count(f'"{said}; all ranks end"') == 1
        with leading(model, tmp_path / "2.sock", port, monkeypatch) as (_, client):
            client.wait(Ready)
            assert generate(client) == expected
    finally:
        host.end()


def test_a_wrong_secret_is_refused_on_both_sides(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    port = free_port()
    with leading(model, tmp_path / "engine.sock", port, monkeypatch) as (process, client):
        with join(port, tmp_path / "join.log", secret="another secret of some length") as host:
            host.says("it refused our secret; give both the same QUIRE_RANKS_SECRET")
            assert host.ranks == []
        assert client.wait(Loading) == Loading("hosts", 1, 2)
        began = time.monotonic()
        with join(port, tmp_path / "right.log"):
            # Not since the engine began to wait: its clients compare it with their patience.
            assert client.wait(Ready).load_seconds < time.monotonic() - began
        client.wait(Fatal)
        assert process.wait(15) == 1
    assert "refused a connection from 127.0.0.1: it has another secret" in capfd.readouterr().err


def test_sigterm_ends_a_host_that_waits_and_an_engine_that_waits(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with join(port, tmp_path / "join.log") as host:
        host.says("trying again")
        host.process.terminate()
        assert host.process.wait(30) == 0
    with leading(model, tmp_path / "engine.sock", port, monkeypatch, size=4) as (process, _):
        until(lambda: connects(port), 60, "the leader's port")
        ranks = ranks_of(process.pid)
        process.terminate()
        assert process.wait(30) == 0
        wait_gone(*ranks)


def connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_host_whose_leader_stops_answering_ends_its_ranks(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that breaks off is the host's own; its ranks must not live on."""
    port = free_port()
    with (
        join(port, tmp_path / "join.log") as host,
        leading(model, tmp_path / "engine.sock", port, monkeypatch) as (process, client),
    ):
        client.wait(Ready)
        (rank,) = host.ranks
        began = time.monotonic()
        process.kill()
        wait_gone(rank)
        assert time.monotonic() - began < 15
        assert is_running(host.process.pid)
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "secret", "said"),
    [
        (["nowhere"], SECRET, "expected HOST:PORT, got 'nowhere'"),
        (["b:0"], SECRET, "a port is 1 to 65535"),
        (["b:29500"], None, "--ranks-secret (or QUIRE_RANKS_SECRET) is required"),
        (["b:29500"], "short", "QUIRE_RANKS_SECRET: Expected `str` of length >= 16"),
    ],
)
def test_what_is_missing_is_said_at_once(
    arguments: list[str], secret: str | None, said: str
) -> None:
    environ = {name: value for name, value in os.environ.items() if "RANKS" not in name}
    run = subprocess.run(
        [sys.executable, "-m", "engine.ranks.join", *arguments],
        env=environ | ({} if secret is None else {"QUIRE_RANKS_SECRET": secret}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert said in run.stderr
    assert "short'" not in run.stderr


def test_ranks_get_neither_our_settings_nor_the_secret_and_gloo_its_interface() -> None:
    before = {"QUIRE_RANKS_SECRET": SECRET, "HOME": "/h"}
    assert rank_environment(before, "eth1") == {"HOME": "/h", "GLOO_SOCKET_IFNAME": "eth1"}
    assert rank_environment({"GLOO_SOCKET_IFNAME": "ib0"}, "eth1")["GLOO_SOCKET_IFNAME"] == "ib0"
    assert rank_environment(before, None) == {"HOME": "/h"}


class Unkillable:
    """A process that hangs in the kernel, which no test can bring about."""

    pid = 1

    def kill(self) -> None:
        pass

    def poll(self) -> None:
        pass

    def wait(self, timeout: float) -> int:
        raise subprocess.TimeoutExpired("rank", timeout)


def test_a_rank_that_cannot_be_killed_ends_the_host(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = socket.socketpair()
    channel: Channel[ToHost] = Channel(ours, ToHost)
    session = Session(ours, channel)
    session.ranks[3] = Unkillable()  # type: ignore[assignment]
    with theirs, pytest.raises(SystemExit) as end:
        session.end()
    assert end.value.code == 1
    assert "rank 3, process 1, was killed and is still there after 30 s" in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        # A message with a field that no one knows, deeper than Python's stack.
        b"\x83\xa4type\xa7refused\xa6reason\xa1r\xa1x" + b"\x91" * 3900 + b"\x00",
    ],
)
def test_what_no_leader_sends_ends_the_session(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = socket.socketpair()
    session = Session(ours, Channel(ours, ToHost))
    with ours, theirs:
        theirs.sendall(FRAME_HEADER.pack(len(body)) + body)
        assert session._has_ended()
    assert "the leader sent what no leader sends" in caplog.text


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert stop_signals() == [signal.SIGTERM, signal.SIGINT]
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert signal.SIGHUP in stop_signals()
    finally:
        signal.signal(signal.SIGHUP, before)
