"""A group of one rank exchanges with itself what no group at all does. Groups of several are tested
with processes, in ``tests/engine/ranks``."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from engine.sharding import collectives
from engine.sharding.collectives import ALONE, CollectiveError, Group, Meeting
from engine.sharding.shard import Shard
from engine.sharding.symmetric import MOST_SUMMED_BYTES, OneShotSums

CPU = torch.device("cpu")


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    group = Group(Shard(0, 1), CPU, Meeting.on_one_host(tmp_path / "store"))
    yield group
    group.close()


def test_one_rank_s_group_and_none_give_the_same(group: Group) -> None:
    x = torch.arange(6.0).view(2, 3)
    across = x.t()  # not contiguous
    for one in (group, ALONE):
        assert torch.equal(one.all_reduce(x.clone()), x)
        assert torch.equal(one.all_gather(across), across[None])
        gathered = one.gather(across)
        assert gathered is not None
        assert torch.equal(gathered, across[None])
        assert torch.equal(one.broadcast(across), across)
        assert one.minimum(-(2**40)) == -(2**40)


def test_a_call_counts_when_it_begins_even_if_it_fails(group: Group) -> None:
    group.minimum(3)
    group.broadcast(torch.ones(1))
    assert group.calls == 2
    with pytest.raises(CollectiveError, match="the ranks lost each other"):
        group.all_reduce(torch.ones(1, dtype=torch.uint16))
    assert group.calls == 3
    assert ALONE.calls == 0


def test_a_group_may_be_closed_twice_and_another_begun(tmp_path: Path, group: Group) -> None:
    group.close()
    group.close()
    other = Group(Shard(0, 1), CPU, Meeting.on_one_host(tmp_path / "another"))
    assert other.minimum(7) == 7
    other.close()


def test_several_hosts_meet_at_a_port_of_the_leaders_address_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    meeting = Meeting.led_here(socket.create_server(("127.0.0.1", 0)), "127.0.0.1", "lo")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", meeting.port), 30)
    other = Meeting.at("127.0.0.1", meeting.port, "lo")
    assert other.port == meeting.port
    group = Group(Shard(0, 1), CPU, meeting)
    assert group.minimum(7) == 7
    group.close()


def test_a_host_that_cannot_reach_the_leaders_other_ports_says_so_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collectives, "_CONNECT", timedelta(seconds=1))
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # and no one listens
        port = unheard.getsockname()[1]
        said = f"cannot reach 127.0.0.1:{port} within 1 s; all ports between the hosts must be open"
        with pytest.raises(CollectiveError, match=said):
            Meeting.at("127.0.0.1", port, "lo")


def test_few_rows_are_added_up_in_one_launch_where_that_is_possible(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, ...]] = []

    def add_up(sums: OneShotSums, x: torch.Tensor) -> torch.Tensor:
        taken.append(tuple(x.shape))
        return x + x

    monkeypatch.setattr(OneShotSums, "__call__", add_up)
    few, many = torch.ones(2, 8), torch.ones(MOST_SUMMED_BYTES // 4 + 8)
    assert torch.equal(group.all_reduce(few), few)  # on a CPU never
    group._sums_of_few = OneShotSums(torch.empty(0, dtype=torch.uint8), "0")
    assert torch.equal(group.all_reduce(few), few + few)
    assert torch.equal(group.all_reduce(many), many)
    assert taken == [(2, 8)]
    assert group.calls == 3
