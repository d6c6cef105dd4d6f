"""The law of work for every field of every request, at the bound that its own struct declares.

Bodies are generated (``bounds``), so a new field is covered the day it is added. They are sent some
at a time; when these cost too much together, each is sent alone to say which it was.
``QUIRE_LAW_BYTES`` makes them larger than the ordinary run's; ``make test-slow`` sends bodies of
the largest size that the server takes, and fields in pairs.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.law.bounds import Bound, body_of, bounds_of, encoded
from tests.law.measuring import Ask, Cost, LawServer
from tests.law.routes import ROUTES, Body, Route, decoded_structs

BYTES = int(os.environ.get("QUIRE_LAW_BYTES", 64 * 1024))
LARGEST = 7 * 1024 * 1024
MOST_BYTES = 8 * 1024 * 1024  # what the server takes
AT_ONCE = 4
TOGETHER = 24
# Where a pair of fields multiplies, both hold much: numbers count, and what may be large.
_PAIRED_BYTES = 64 * 1024


def asks(route: Route, bounds: Iterable[Bound], size: int) -> dict[str, Ask]:
    """A request for each bound, by name."""
    found = {}
    for bound in bounds:
        if bound.place.path.startswith(route.only):
            found[bound.name] = Ask(route.path, within(route, bound, size))
    return found


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


def check(server: LawServer, named: dict[str, Ask]) -> None:
    """Prints the worst of what they cost; ``pytest -rP`` shows it."""
    broken: dict[str, Cost] = {}
    worst = Cost([], 0, 0, 0)
    for batch in batches(list(named.items())):
        cost = server.cost_of([ask for _, ask in batch], at_once=AT_ONCE)
        worst = worst.worse(cost)
        if is_cheap(cost):
            continue
        for name, ask in batch:
            cost = server.cost_of([ask])
            if not is_cheap(cost):
                broken[name] = cost
    print(f"{len(named)} bodies, at most {worst.figures()}")
    assert not broken


def batches(named: list[tuple[str, Ask]]) -> Iterator[list[tuple[str, Ask]]]:
    for start in range(0, len(named), TOGETHER):
        yield named[start : start + TOGETHER]


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
    check(server, asks(route, bounds_of(route.struct), BYTES))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
def test_a_field_of_the_largest_body_holds_up_nobody(server: LawServer, route: Route) -> None:
    check(server, asks(route, bounds_of(route.struct), LARGEST))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
def test_two_fields_at_their_bounds_hold_up_nobody(server: LawServer, route: Route) -> None:
    """One bound for each field of the request itself: the one with the largest body."""
    largest: dict[str, tuple[int, Any]] = {}
    for bound in bounds_of(route.struct):
        if not bound.place.path.startswith(route.only):
            continue
        name = bound.place.steps[0].name
        value = body_of(route.struct, bound, route.base, LARGEST // 2)[name]
        size = len(encoded({name: value}))
        if name not in largest or size > largest[name][0]:
            largest[name] = (size, value)
    named = {}
    for (one, (size, first)), (other, (more, second)) in itertools.combinations(largest.items(), 2):
        if max(size, more) >= _PAIRED_BYTES:
            body = limited(route, {**route.base, one: first, other: second})
            data = encoded(route.place(body))
            if len(data) <= MOST_BYTES:
                named[f"{one} × {other}"] = Ask(route.path, data)
    check(server, named)
