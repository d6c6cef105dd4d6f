"""Long answers in pieces are the same JSON as in one piece."""

from __future__ import annotations

import msgspec
import pytest

from observability.admin_api import BlockRun, KeptRequest, KvMap, Mark, Owner, RequestPage, Series
from service.admin.pieces import array_pieces, kv_pieces, page_pieces, rows_pieces, series_pieces


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 40])
def test_a_page_of_requests(count: int) -> None:
    requests = tuple(
        KeptRequest(request_id=f"req_{n}", received=0.5, route="x") for n in range(count)
    )
    page = RequestPage(requests, "next", "store")
    pieces = list(page_pieces(iter(requests), "next", "store"))
    assert msgspec.json.decode(b"".join(pieces), type=RequestPage) == page
    assert max(map(len, pieces)) < 16 * 100


def test_a_history() -> None:
    series = Series(1.5, 1.0, {"running": (1.0, None) * 3000, "none": ()}, (Mark(1.0, "a", "b"),))
    assert msgspec.json.decode(b"".join(series_pieces(series)), type=Series) == series


def test_a_map_of_the_kv_cache() -> None:
    runs = tuple(BlockRun(n % 3 - 2, n + 1, n % 2 == 0) for n in range(5000))
    found = KvMap(1.0, 9, 16, 1, 2, 3, runs, (Owner("req_1", "bob", 2, 30),))
    assert msgspec.json.decode(b"".join(kv_pieces(found)), type=KvMap) == found


def test_arrays() -> None:
    assert b"".join(array_pieces([1, 2, 3], 2)) == b"[1,2,3]"
    assert b"".join(rows_pieces([])) == b'{"rows":[]}'
