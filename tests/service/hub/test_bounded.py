"""What ends a transfer. Whole downloads without an end are in test_fetching.py."""

from __future__ import annotations

import pytest

from service.hub.bounded import bounded_transfer
from service.hub.errors import HubError


@pytest.mark.parametrize("initial", [0, 60], ids=["new", "resumed"])
def test_a_piece_beyond_the_most_ends_it(initial: int) -> None:
    transfer = bounded_transfer("a.json", 100)
    with transfer(initial=initial, name="http") as pieces:
        pieces.update(100 - initial)
        with pytest.raises(HubError, match=r"more than 100 B of a\.json"):
            pieces.update(1)


def test_what_a_server_sends_anew_is_not_counted_twice() -> None:
    with bounded_transfer("a.json", 100)(initial=60, name="http") as pieces:
        pieces.update(-60)
        pieces.update(100)


@pytest.mark.parametrize(
    ("most", "name"), [(None, "http"), (100, "huggingface_hub.xet_get.transfer")]
)
def test_an_unknown_size_and_chunks_have_no_bound(most: int | None, name: str) -> None:
    with bounded_transfer("a.json", most)(name=name) as pieces:
        pieces.update(1000)
