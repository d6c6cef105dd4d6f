"""The law of work for every field of every request, at the bound that its own struct declares.

Bodies are generated (``bounds``), so a new field is covered the day it is added. They are sent some
at a time; when these cost too much together, each is sent alone to say which it was.
``QUIRE_LAW_BYTES`` makes them larger than the ordinary run's; ``make test-slow`` sends bodies of
the largest size that the server takes, and fields in pairs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pytest

from tests.law.bounds import Bound, body_of, bounds_of, encoded
from tests.law.measuring import Ask, Cost, LawServer, batched
from tests.law.pairs import Pairs
from tests.law.routes import ROUTES, Body, Route, decoded_structs

BYTES = int(os.environ.get("QUIRE_LAW_BYTES", 64 * 1024))
LARGEST = 7 * 1024 * 1024
MOST_BYTES = 8 * 1024 * 1024  # what the server takes
AT_ONCE = 4
TOGETHER = 24


def asks(route: Route, size: int) -> Iterator[tuple[str, Ask]]:
    """A request for each bound, and its name. They are made as they are sent: all together would
    take gigabytes."""
    for bound in bounds_of(route.struct):
        if bound.place.path.startswith(route.only):
            yield bound.name, Ask(route.path, within(route, bound, size))


def within(route: Route, bound: Bound, size: int) -> bytes:
    """A body that is not refused for its size alone, whatever else had to stand in it."""
    while True:
        body = body_of(route.struct, bound, route.base, size)
        data = encoded(route.place(limited(route, body)))
        if len(data) <= MOST_BYTES:
            return data
        size //= 2


def limited(route: Route, body: Body) -> Body:
    return {name: route.limits.get(name, value) for name, value in body.items()}


def check(server: LawServer, named: Iterable[tuple[str, Ask]]) -> dict[str, str]:
    """How each was answered. Prints the worst of what they cost; ``pytest -rP`` shows it."""
    broken: dict[str, Cost] = {}
    answers: dict[str, str] = {}
    worst = Cost([], 0, 0, 0)
    for batch in batched(named, TOGETHER):
        cost = server.cost_of([ask for _, ask in batch], at_once=AT_ONCE)
        answers |= zip((name for name, _ in batch), cost.answers, strict=True)
        worst = worst.worse(cost)
        if is_cheap(cost):
            continue
        for name, ask in batch:
            cost = server.cost_of([ask])
            if not is_cheap(cost):
                broken[name] = cost
    print(f"{len(answers)} bodies, at most {worst.figures()}")
    assert not broken
    return answers


def is_cheap(cost: Cost) -> bool:
    try:
        cost.check()
    except AssertionError:
        return False
    return True


def test_every_struct_that_is_decoded_has_a_route_here() -> None:
    assert set(decoded_structs()) <= {route.struct for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
def test_a_field_at_its_bound_holds_up_nobody(server: LawServer, route: Route) -> None:
    check(server, asks(route, BYTES))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
def test_a_field_of_the_largest_body_holds_up_nobody(server: LawServer, route: Route) -> None:
    check(server, asks(route, LARGEST))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
def test_two_fields_at_their_bounds_hold_up_nobody(server: LawServer, route: Route) -> None:
    """Every pair of the request's fields of which one may be large."""
    pairs = Pairs(route, MOST_BYTES).send_all(lambda named: check(server, named))
    print(f"{pairs} pairs")
