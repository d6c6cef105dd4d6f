from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from service.errors import OverloadedError
from service.ids import Ids
from service.peers.peers import Peers


def test_one_worker_has_no_peers(tmp_path: Path) -> None:
    for alone in (Peers(), Peers(Ids(), tmp_path), Peers(Ids(0, 2))):
        assert not alone
        assert alone.others() == []
        assert alone.owner_of(Ids(1, 2).new("resp_")) is None


def test_the_others_are_those_that_run(tmp_path: Path) -> None:
    assert Peers(Ids(1, 4), tmp_path).others() == [0, 2, 3]
    assert Peers(Ids(1, 4), tmp_path, lambda: [1, 3]).others() == [3]


def test_the_first_that_runs_leads(tmp_path: Path) -> None:
    assert Peers().leads
    assert Peers(Ids(0, 4), tmp_path).leads
    assert Peers(Ids(1, 4), tmp_path, lambda: [1, 3]).leads
    late = Peers(Ids(3, 4), tmp_path, lambda: [1, 3])
    assert not late.leads
    assert late.lead == 1


def test_the_one_that_the_supervisor_names_leads(tmp_path: Path) -> None:
    peers = [Peers(Ids(n, 3), tmp_path, lambda: [0, 1, 2], lead=lambda: 2) for n in range(3)]
    assert [one.lead for one in peers] == [2, 2, 2]
    assert [one.leads for one in peers] == [False, False, True]
    assert Peers(lead=lambda: 2).leads  # the only worker


def test_an_id_leads_to_its_workers_socket(tmp_path: Path) -> None:
    peers = Peers(Ids(0, 2), tmp_path)
    assert peers.owner_of(Ids(1, 2).new("resp_")) == 1
    assert peers.owner_of(peers.ids.new("resp_")) is None
    assert peers.socket_of(1) == tmp_path / "api-1.sock"


def test_requests_on_their_way_are_bounded(tmp_path: Path) -> None:
    peers = Peers(Ids(0, 2), tmp_path, most=2)
    with peers.place(), peers.place():
        assert peers.forwarded == 2
        with pytest.raises(OverloadedError, match="the maximum"), peers.place():
            pass
    assert peers.forwarded == 0


def test_no_key_takes_the_places_of_another(tmp_path: Path) -> None:
    peers = Peers(Ids(0, 2), tmp_path, most=6)
    with contextlib.ExitStack() as held:
        for _ in range(3):  # half: one share stays free
            held.enter_context(peers.place("greedy"))
        with pytest.raises(OverloadedError, match="its share"), peers.place("greedy"):
            pass
        for owner in ("second", "second", "third"):
            held.enter_context(peers.place(owner))
        with pytest.raises(OverloadedError, match="the maximum"), peers.place():
            pass
        with pytest.raises(OverloadedError), peers.place("third"):
            pass
        with peers.place("late"):  # it has none
            assert peers.forwarded == 7
    assert peers.forwarded == 0
    with peers.place("greedy"), peers.place("greedy"), peers.place("greedy"):  # all is free again
        pass
