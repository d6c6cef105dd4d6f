from __future__ import annotations

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
