"""Who may join an engine with its ranks, and what others get as an answer."""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest

import engine.ranks.hosts
from engine.config import DeviceError, EngineConfig
from engine.ranks.channel import Channel, encode_message
from engine.ranks.handshake import HandshakeError, introduce
from engine.ranks.hosts import Hosts, JoinedHost, RemoteProcess, own_release
from engine.ranks.messages import (
    JoinHost,
    JoinRank,
    JoinRefused,
    RankEnded,
    RankProgress,
    ToHost,
    Welcome,
)
from engine.ranks.ranks import RankFailedError, Ranks
from tests.e2e.quire_server import until
from tests.engine.ranks.processes import PATIENT

SECRET = "a secret of some length"
RELEASE = own_release()


def config(**settings: Any) -> EngineConfig:
    given = {
        "tensor_parallel_size": 4,
        "tensor_parallel_hosts": 2,
        "ranks_host": "127.0.0.1",
        "ranks_port": 0,
        "ranks_secret": SECRET,
        "device": "cpu",
    }
    return EngineConfig(model="m", **(given | settings))


class Entrance:
    """Where hosts connect."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts

    def dial(self) -> socket.socket:
        """A connection that has said nothing yet."""
        return socket.create_connection(("127.0.0.1", self.hosts.port), 30)

    def connect(self, secret: str = SECRET) -> socket.socket:
        connection = self.dial()
        introduce(connection, secret)
        connection.settimeout(30)
        return connection


class Leader(Entrance):
    """Hosts that are being gathered in a thread."""

    def __init__(self, hosts: Hosts, progress: list[tuple[str, int, int]]) -> None:
        super().__init__(hosts)
        self.progress = progress
        self.lost: list[JoinedHost] = []
        self._found: list[JoinedHost] = []
        self._thread = threading.Thread(
            target=lambda: self._found.extend(hosts.gather(self.lost.append)), daemon=True
        )
        self._thread.start()

    def gathered(self) -> list[JoinedHost]:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self._found


def frame(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


# A message with a field that no one knows, deeper than Python's stack.
NESTED = frame(
    b"\x84\xa4type\xaarank_ended\xa4rank\x02\xa6status\x00\xa1x" + b"\x91" * 3900 + b"\x00"
)
NESTED_BEAT = frame(b"\x83\xa4type\xa4beat\xa5calls\x01\xa1x" + b"\x91" * 100_000 + b"\x00")


class Host:
    """One that joins, without processes."""

    def __init__(
        self, leader: Entrance, *, name: str = "b", release: str = RELEASE, gpus: int = 0
    ) -> None:
        self.leader = leader
        self.socket = leader.connect()
        self.channel: Channel[ToHost] = Channel(self.socket, ToHost)
        self.channel.send(encode_message(JoinHost(name, release, gpus)))
        self.answer = self.channel.receive()
        self.ranks: list[Channel[ToHost]] = []

    def join_rank(self, rank: int, session: str | None = None) -> ToHost | None:
        if session is None:
            assert isinstance(self.answer, Welcome)
            session = self.answer.session
        channel: Channel[ToHost] = Channel(self.leader.connect(), ToHost)
        self.ranks.append(channel)
        channel.send(encode_message(JoinRank(session, rank)))
        return channel.receive()

    def leave(self) -> None:
        for channel in (self.channel, *self.ranks):
            channel.close()


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def led(ends: ExitStack, **settings: Any) -> Leader:
    progress: list[tuple[str, int, int]] = []
    hosts = Hosts(config(**settings), lambda *told: progress.append(told))
    ends.callback(hosts.close)
    return Leader(hosts, progress)


def joined(ends: ExitStack, leader: Leader, **offer: Any) -> Host:
    host = Host(leader, **offer)
    ends.callback(host.leave)
    return host


def test_hosts_get_adjacent_ranks_in_the_order_in_which_they_join(ends: ExitStack) -> None:
    leader = led(ends, tensor_parallel_size=6, tensor_parallel_hosts=3)
    hosts = [joined(ends, leader, name=name) for name in "bc"]
    answers = [host.answer for host in hosts]
    assert [(a.first, a.count) for a in answers if isinstance(a, Welcome)] == [(2, 2), (4, 2)]
    for host, rank in ((hosts[1], 5), (hosts[0], 2), (hosts[0], 3), (hosts[1], 4)):
        assert isinstance(host.join_rank(rank), Welcome)
    found = leader.gathered()
    assert [list(host.ranks) for host in found] == [[2, 3], [4, 5]]
    assert [host.name for host in found] == ["b (127.0.0.1)", "c (127.0.0.1)"]
    assert leader.hosts.interface in ("lo", "lo0", None)


@pytest.mark.parametrize(
    ("offer", "settings", "reason"),
    [
        ({"release": "quire 0.0.1, torch 1.0"}, {}, "it runs quire 0.0.1, torch 1.0, and the lea"),
        ({"gpus": 1}, {"device": "cuda"}, "offers 1 GPUs, and each of the 2 hosts needs 2"),
    ],
)
def test_a_host_that_does_not_fit_is_told_why(
    ends: ExitStack, offer: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    answer = joined(ends, led(ends, **settings), **offer).answer
    assert isinstance(answer, JoinRefused)
    assert reason in answer.reason


def test_one_host_too_many_is_told_so(ends: ExitStack) -> None:
    leader = led(ends)
    joined(ends, leader)
    answer = joined(ends, leader).answer
    assert answer == JoinRefused("the engine has its 2 hosts (--tensor-parallel-hosts)")


def test_a_host_that_comes_while_the_engine_ends_is_told_so(ends: ExitStack) -> None:
    leader, first, _ = whole(ends)
    first.leave()
    until(lambda: leader.lost, 30, "the report")
    answer = joined(ends, leader).answer
    assert answer == JoinRefused(
        "the engine ends, as it has lost a host; the next one takes this host"
    )


def test_a_host_that_leaves_before_the_others_have_come_is_replaced(ends: ExitStack) -> None:
    leader = led(ends)
    first = joined(ends, leader)
    assert isinstance(first.join_rank(2), Welcome)
    until(lambda: leader.progress == [("hosts", 1, 2), ("hosts", 2, 2)], 30, "the progress")
    first.leave()
    until(lambda: leader.progress[2:] == [("hosts", 1, 2)], 30, "the first host's leaving")
    second = joined(ends, leader, name="c")
    for rank in (2, 3):
        assert isinstance(second.join_rank(rank), Welcome)
    assert [host.name for host in leader.gathered()] == ["c (127.0.0.1)"]
    assert leader.lost == []


@pytest.mark.parametrize("sent", [encode_message(RankEnded(2, 1)), NESTED])
def test_a_host_that_cannot_take_part_any_more_is_replaced(ends: ExitStack, sent: bytes) -> None:
    """Before all are here: one of its ranks has ended, or it sends what no host sends."""
    leader = led(ends)
    first = joined(ends, leader)
    assert isinstance(first.join_rank(2), Welcome)
    first.socket.sendall(sent)
    assert first.channel.receive() is None
    until(lambda: not leader.hosts._joined, 30, "the first host's leaving")
    second = joined(ends, leader, name="c")
    for rank in (2, 3):
        assert isinstance(second.join_rank(rank), Welcome)
    assert [host.name for host in leader.gathered()] == ["c (127.0.0.1)"]


def test_a_host_that_does_not_connect_its_ranks_is_replaced(
    ends: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with monkeypatch.context() as patch:
        patch.setattr(engine.ranks.hosts, "_RANKS_SECONDS", 0.3)
        leader = led(ends)
        first = joined(ends, leader)
        assert isinstance(first.answer, Welcome)
        assert first.channel.receive() is None
        until(lambda: not leader.hosts._joined, 30, "the first host's leaving")
    second = joined(ends, leader, name="c")
    for rank in (2, 3):
        assert isinstance(second.join_rank(rank), Welcome)
    assert [host.name for host in leader.gathered()] == ["c (127.0.0.1)"]
    assert "host b (127.0.0.1) is given up: it has connected 0 of its 2 ranks" in caplog.text
    assert "of 2 hosts, and 2 of their 2 ranks" in caplog.text


def whole(ends: ExitStack) -> tuple[Leader, Host, JoinedHost]:
    leader = led(ends)
    host = joined(ends, leader)
    for rank in (2, 3):
        assert isinstance(host.join_rank(rank), Welcome)
    (found,) = leader.gathered()
    return leader, host, found


def test_only_a_hosts_own_ranks_connect_and_each_once(ends: ExitStack) -> None:
    _, host, found = whole(ends)
    assert host.join_rank(3) is None
    assert host.join_rank(1) is None
    assert host.join_rank(2, session="0" * 32) is None
    assert sorted(found.connections) == [2, 3]


def test_a_remote_processs_end_is_what_its_host_reports(ends: ExitStack) -> None:
    _, host, found = whole(ends)
    process = RemoteProcess(found, 3)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    host.channel.send(encode_message(RankEnded(3, -9)))
    host.channel.send(encode_message(RankEnded(1, -15)))  # another host's
    assert process.wait(30) == -9
    assert process.poll() == -9
    assert found.statuses == {3: -9}


def test_killing_one_asks_its_host_to_end_all_and_unblocks_who_sends_to_it(
    ends: ExitStack,
) -> None:
    leader, host, found = whole(ends)
    RemoteProcess(found, 3).kill()
    assert host.channel.receive() is None
    with pytest.raises(OSError, match="pipe"):
        found.connections[3].sendall(bytes(100))
    host.leave()
    RemoteProcess(found, 2).wait(30)
    assert found.is_gone
    until(lambda: leader.lost, 30, "the report")
    assert found.loss == "host b (127.0.0.1) with ranks 2 to 3 left, or cannot be reached"


def test_closing_leaves_the_hosts_and_the_port(ends: ExitStack) -> None:
    leader, host, _ = whole(ends)
    port = leader.hosts.port
    leader.hosts.close()
    leader.hosts.close()
    assert host.channel.receive() is None
    assert leader.lost == []
    again = Hosts(config(ranks_port=port))
    again.close()


def test_a_wrong_secret_is_refused_before_anything_is_decoded(
    ends: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    leader = led(ends)
    with pytest.raises(HandshakeError, match="refused our secret"):
        leader.connect("another secret of some length")
    until(lambda: "it has another secret" in caplog.text, 30, "the log")
    for _ in range(3):  # it tries again and again
        with pytest.raises(HandshakeError, match="refused our secret"):
            leader.connect("another secret of some length")
    assert isinstance(joined(ends, leader).answer, Welcome)
    assert caplog.text.count("it has another secret") == 1
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack("<I", 1 << 30),  # announced, and never sent
        encode_message(JoinHost("x" * 1000, RELEASE, 0)),
        encode_message(JoinHost("b", RELEASE, -1)),
        encode_message(Welcome("s", 1, 1)),  # what only a leader says
        frame(b"\xc1\xc1\xc1"),
        NESTED,
    ],
)
def test_what_no_host_sends_ends_its_connection_and_nothing_else(
    ends: ExitStack, sent: bytes
) -> None:
    leader = led(ends)
    with leader.connect() as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""
    assert isinstance(joined(ends, leader).answer, Welcome)


def test_idle_connections_keep_no_host_from_joining(
    ends: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    leader = led(ends)
    idle = [ends.enter_context(leader.dial()) for _ in range(40)]
    host = joined(ends, leader)
    for rank in (2, 3):
        assert isinstance(host.join_rank(rank), Welcome)
    assert leader.gathered()
    idle[0].settimeout(30)
    while idle[0].recv(100):  # the challenge, and then the end
        pass
    said = "too many connections without the secret: ended the oldest, from 127.0.0.1"
    assert caplog.text.count(said) == 1


def test_warnings_of_any_kind_are_few(ends: ExitStack, caplog: pytest.LogCaptureFixture) -> None:
    hosts = led(ends).hosts
    for number in range(300):
        hosts._warn(f"warning {number}")
    # A thread of an earlier test may log meanwhile, so only these are counted.
    assert caplog.text.count("warning ") == engine.ranks.hosts._MOST_WARNINGS


def test_once_no_host_is_missing_connections_are_accepted_slowly(ends: ExitStack) -> None:
    leader, *_ = whole(ends)
    began = time.monotonic()
    for _ in range(4):
        ends.enter_context(leader.connect())
    assert time.monotonic() - began > 2 * engine.ranks.hosts._LONG_ACCEPT_PAUSE_SECONDS


def test_a_connection_for_which_there_is_no_thread_is_refused_and_the_next_one_is_not(
    ends: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader = led(ends)
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", no_thread)
        with leader.dial() as connection:
            assert connection.recv(100) == b""
    assert "refused a connection from 127.0.0.1: can't start new thread" in caplog.text
    assert isinstance(joined(ends, leader).answer, Welcome)


def no_thread(**_: object) -> threading.Thread:
    raise RuntimeError("can't start new thread")


def test_who_knows_the_secret_and_says_little_is_not_waited_for(
    ends: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if a byte comes now and then: the time is that of the whole greeting."""
    leader = led(ends)
    monkeypatch.setattr(engine.ranks.hosts, "HANDSHAKE_SECONDS", 0.5)
    slow = ends.enter_context(leader.connect())
    sent = 0
    with suppress(OSError):  # it may be closed while a byte is under way
        slow.sendall(struct.pack("<I", 4000))
        while not select.select([slow], [], [], 0.1)[0]:
            slow.sendall(b"x")
            sent += 1
    assert sent < 50


@pytest.mark.parametrize(
    "sent",
    [
        NESTED_BEAT,
        encode_message(RankProgress("lunch", 1, 2)),  # type: ignore[arg-type]
        encode_message(RankProgress("weights", 2**60, 2)),
    ],
)
def test_what_no_rank_sends_ends_all_ranks_and_is_reported(ends: ExitStack, sent: bytes) -> None:
    hosts = Hosts(config(tensor_parallel_size=2))
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(lambda: Ranks(2, limits=PATIENT, hosts=hosts))
        host = Host(Entrance(hosts))
        assert isinstance(host.join_rank(1), Welcome)
        ranks = starting.result(60)
    ends.callback(ranks.close)
    ends.callback(host.leave)
    host.ranks[0].send(sent)
    said = r"rank 1 on host b \(127\.0\.0\.1\) sent what no rank sends: "
    with pytest.raises(RankFailedError, match=said):
        ranks.settle(ValueError("a step that failed"))
    assert ranks._thread.is_alive()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(DeviceError, match=rf"cannot listen on 127\.0\.0\.1:{port} .*in use"):
            Hosts(config(ranks_port=port))
