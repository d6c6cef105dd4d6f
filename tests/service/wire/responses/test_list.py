"""The pages of a stored response's input items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequestError
from service.wire.responses.list import item_page


@given(count=st.integers(0, 9), limit=st.integers(1, 4))
def test_pages_one_after_another_are_the_whole_list(count: int, limit: int) -> None:
    items = [{"id": f"i{index}"} for index in range(count)]
    page = item_page(items, limit, None)
    read = list(page.data)
    while page.has_more:
        assert len(page.data) == limit
        assert page.first_id == page.data[0]["id"]
        page = item_page(items, limit, page.last_id)
        assert page.data
        read += page.data
    assert read == items


def test_an_empty_page_has_neither_first_nor_last() -> None:
    page = item_page([{"id": "a"}], 5, "a")
    assert (page.data, page.first_id, page.last_id, page.has_more) == ([], None, None, False)


def test_an_item_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        item_page([{"id": "a"}], 5, "b")
    assert caught.value.param == "after"
