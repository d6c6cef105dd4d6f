from __future__ import annotations

import re

import pytest

from service.ids import MOST_NUMBERED, Ids

PREFIXES = ("req_", "resp_", "msg_", "chatcmpl-", "cmpl-", "embd-", "rerank-", "score-")


@pytest.mark.parametrize("ids", [Ids(), Ids(0, 2), Ids(3, 4), Ids(255, MOST_NUMBERED)])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_ids_have_one_shape_whichever_worker_makes_them(ids: Ids, prefix: str) -> None:
    made = {ids.new(prefix) for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(f"{prefix}[0-9a-f]{{32}}", one) for one in made)
    assert all(ids.other_worker(one) is None for one in made)


def test_with_one_worker_all_digits_are_random() -> None:
    assert len({Ids().new("req_")[4:6] for _ in range(200)}) > 50


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_worker_knows_which_one_made_an_id(prefix: str) -> None:
    workers = [Ids(number, 4) for number in range(4)]
    for maker in workers:
        one = maker.new(prefix)
        others = [reader.other_worker(one) for reader in workers]
        assert others == [None if reader is maker else maker.worker for reader in workers]
        assert [reader.made_here(one) for reader in workers] == [r is maker for r in workers]


@pytest.mark.parametrize(
    "other",
    [
        *("", "resp_", "resp_00", "resp_" + "z" * 32, "resp_01" + "0" * 31, "resp_01" + "0" * 29),
        *("RESP_01" + "0" * 30, "01" + "0" * 30, "resp_01" + "0" * 30 + "\n"),
        "resp_02" + "0" * 30,  # of a server with more workers
    ],
)
def test_what_no_worker_of_this_server_made_belongs_to_none(other: str) -> None:
    assert Ids(0, 2).other_worker(other) is None


def test_one_worker_forwards_nothing() -> None:
    assert Ids().other_worker(Ids(1, 2).new("resp_")) is None
