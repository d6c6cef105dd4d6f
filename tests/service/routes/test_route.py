"""A table denies what it does not have, and finds what has no handler."""

from __future__ import annotations

import pytest

from observability.admin_api import AdminScope
from service.routes.route import ANY_PATH, Anyone, BodyBound, Port, RouteRow, RouteTable
from service.tenants.caller import KeyScope

ONE = RouteRow(Port.PUBLIC, "GET", "/one/{name:path}", KeyScope.READ, "Read one")
ALL = RouteRow(Port.PUBLIC, "GET", "/all", Anyone.ALWAYS, "Read all")


def table(*routes: RouteRow) -> RouteTable:
    return RouteTable(Port.PUBLIC, routes)


def test_a_request_finds_its_route_and_no_other() -> None:
    both = table(ONE, ALL)
    assert both.find("GET", "/one/{name}") is ONE
    assert both.named("GET /one/{name:path}") is ONE
    for method, path in (("POST", "/all"), ("GET", "/one"), ("OPTIONS", "/all"), ("", "")):
        assert both.find(method, path) is None


def test_a_row_may_be_for_a_method_of_every_path() -> None:
    options = RouteRow(Port.PUBLIC, "OPTIONS", ANY_PATH, KeyScope.READ, "Ask")
    both = table(ALL, options)
    assert both.find("OPTIONS", "/all") is options
    assert both.find("GET", "/all") is ALL
    assert both.find("GET", "/none") is None
    both.check_served([ALL])


def test_each_row_has_one_handler_and_each_handler_a_row() -> None:
    both = table(ONE, ALL)
    both.check_served([ALL, ONE])
    with pytest.raises(ValueError, match="GET /all has 0 handlers, not one"):
        both.check_served([ONE])
    with pytest.raises(ValueError, match=r"GET /one/\{name:path\} has 2 handlers"):
        both.check_served([ONE, ONE, ALL])
    with pytest.raises(ValueError, match="GET /all is not in the table"):
        table(ONE).check_served([ONE, ALL])
    with pytest.raises(LookupError, match=r"GET /all is not in the table of the public port"):
        table(ONE).named("GET /all")


def test_a_row_that_contradicts_another_or_its_port_is_refused() -> None:
    again = RouteRow(Port.PUBLIC, "GET", "/one/{name}", KeyScope.INFERENCE, "Again")
    elsewhere = RouteRow(Port.ADMIN, "GET", "/all", AdminScope.READ, "Elsewhere")
    operators = RouteRow(Port.PUBLIC, "GET", "/all", AdminScope.READ, "For operators")
    for rows in ((ONE, again), (elsewhere,), (operators,)):
        with pytest.raises(ValueError, match="public: GET"):
            table(*rows)
    with pytest.raises(ValueError, match="admin: GET"):
        RouteTable(
            Port.ADMIN, [RouteRow(Port.ADMIN, "GET", "/all", KeyScope.READ, "With the wrong key")]
        )


def test_bodies_are_bounded_by_the_setting_or_less() -> None:
    assert [body.most_bytes(1 << 20) for body in BodyBound] == [0, 1 << 20, 1 << 16]
