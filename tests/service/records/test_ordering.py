"""Pages follow one another without gaps, whatever is sorted by."""

from __future__ import annotations

import base64

import pytest

from observability.admin_api import MAX_PAGE, RequestQuery
from service.records.ordering import Ordering, Position, QueryError


def test_the_largest_come_first_after_a_minus_and_missing_values_always_last() -> None:
    down = Ordering.of(RequestQuery(sort="-ttft"))
    places = [down.key(value, "a") for value in (0.5, None, 2.0, -1.0)]
    assert [place.value for place in sorted(places)] == [-2.0, -0.5, 1.0, 0.0]
    up = Ordering.of(RequestQuery(sort="ttft"))
    assert max(up.key(value, "a") for value in (0.5, None, 9e9)).is_missing


def test_equal_values_are_in_order_of_their_ids() -> None:
    order = Ordering.of(RequestQuery(sort="-total"))
    assert order.key(1.0, "a") < order.key(1.0, "b") < order.key(0.5, "a")


@pytest.mark.parametrize("place", [Position(False, -1.25, "req_1"), Position(True, 0.0, "req_2")])
def test_a_cursor_continues_where_the_page_ended(place: Position) -> None:
    cursor = Ordering.of(RequestQuery(sort="-total")).cursor(place)
    assert Ordering.of(RequestQuery(sort="-total", cursor=cursor)).after == place


def test_a_query_that_cannot_be_answered_says_what_is_allowed() -> None:
    with pytest.raises(QueryError, match="use one of received, ended"):
        Ordering.of(RequestQuery(sort="colour"))
    with pytest.raises(QueryError, match=f"from 1 to {MAX_PAGE:,}"):
        Ordering.of(RequestQuery(limit=MAX_PAGE + 1))
    cursor = Ordering.of(RequestQuery(sort="-total")).cursor(Position(False, 1.0, "a"))
    with pytest.raises(QueryError, match="sorted by '-total', not 'total'"):
        Ordering.of(RequestQuery(sort="total", cursor=cursor))
    for broken in ("!", "x" * 600, "ä", base64.urlsafe_b64encode(b"[1]").decode(), ""):
        with pytest.raises(QueryError, match="unchanged"):
            Ordering.of(RequestQuery(cursor=broken))


def test_an_error_names_the_parameter_at_fault() -> None:
    cursor = Ordering.of(RequestQuery(sort="-total")).cursor(Position(False, 1.0, "a"))
    for field, query in (
        ("sort", RequestQuery(sort="colour")),
        ("limit", RequestQuery(limit=0)),
        ("cursor", RequestQuery(sort="total", cursor=cursor)),
        ("cursor", RequestQuery(sort="-total", cursor=f"{cursor[:4]}!{cursor[4:]}")),
    ):
        with pytest.raises(QueryError) as refusal:
            Ordering.of(query)
        assert refusal.value.field == field
