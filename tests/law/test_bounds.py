"""The law of work for every field of every request, at the bound that its own struct declares.

Bodies are generated (``bounds``), so a new field is covered the day it is added. They are sent some
at a time; when these cost too much together, each is sent alone to say which it was.
``QUIRE_LAW_BYTES`` makes them larger than the ordinary run's; ``make test-slow`` sends bodies of
the largest size that the server takes, and fields in pairs.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.law import rpc
from tests.law.bounds import Bound, body_of, bounds_of, encoded
from tests.law.conftest import ServerOf
from tests.law.measuring import Ask
from tests.law.pairs import Pairs
from tests.law.routes import ROUTES, Body, Route, decoded_structs, uncovered_paths

BYTES = int(os.environ.get("QUIRE_LAW_BYTES", 64 * 1024))
DISTINCT = [route for route in ROUTES if not route.alike]
LARGEST = 7 * 1024 * 1024
MOST_BYTES = 8 * 1024 * 1024  # what the server takes


def asks(route: Route, size: int) -> Iterator[tuple[str, Ask]]:
    """A request for each bound, and its name. They are made as they are sent: all together would
    take gigabytes."""
    for index, bound in enumerate(bounds_of(route.struct)):
        if bound.place.path.startswith(route.only):
            yield f"{bound.name} ({index})", Ask(route.path, within(route, bound, size))


def within(route: Route, bound: Bound, size: int) -> bytes:
    """Return a body that is small enough not to be refused for its size alone."""
    while True:
        body = body_of(route.struct, bound, route.base, size)
        data = encoded(route.place(limited(route, body)))
        if len(data) <= MOST_BYTES:
            return data
        size //= 2


def limited(route: Route, body: Body) -> Body:
    return {name: route.limits.get(name, value) for name, value in body.items()}


def test_every_struct_that_is_decoded_has_a_route_here() -> None:
    assert set(decoded_structs()) <= {route.struct for route in ROUTES}


def test_every_path_of_the_application_is_covered_here() -> None:
    assert not uncovered_paths()


def test_the_request_that_is_varied_is_answered(server_of: ServerOf) -> None:
    """If a request is refused with any value in a field, its figures would mean nothing."""
    refused = {}
    for pools in (False, True):
        asked = [one for one in (*ROUTES, *rpc.CALLS) if one.pools is pools]
        cost = server_of(asked[0]).cost_of([Ask(one.path, one.valid) for one in asked], at_once=1)
        for one, answer in zip(asked, cost.answers, strict=True):
            if answer != "200":
                refused[one.id] = answer[:3]
    # What these name is not there.
    assert refused == {"responses-item-item_reference": "404", "Abort": "404"}


@pytest.mark.parametrize("route", DISTINCT, ids=lambda route: route.id)
def test_a_field_at_its_bound_does_not_block_other_requests(
    server_of: ServerOf, route: Route
) -> None:
    server_of(route).hold_to_the_law(asks(route, BYTES))


@pytest.mark.parametrize("call", rpc.CALLS, ids=lambda call: call.id)
def test_a_message_field_at_its_bound_does_not_block_other_requests(
    server_of: ServerOf, call: rpc.Call
) -> None:
    server_of(call).hold_to_the_law(rpc.asks(call, BYTES))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("call", rpc.CALLS, ids=lambda call: call.id)
def test_a_field_of_the_largest_message_does_not_block_other_requests(
    server_of: ServerOf, call: rpc.Call
) -> None:
    server_of(call).hold_to_the_law(itertools.chain(rpc.asks(call, LARGEST), rpc.repeats(call)))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
def test_a_field_of_the_largest_body_does_not_block_other_requests(
    server_of: ServerOf, route: Route
) -> None:
    server_of(route).hold_to_the_law(asks(route, LARGEST))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("route", DISTINCT, ids=lambda route: route.id)
def test_two_fields_at_their_bounds_do_not_block_other_requests(
    server_of: ServerOf, route: Route
) -> None:
    """Every pair of the request's fields of which one may be large."""
    pairs = Pairs(route, MOST_BYTES).send_all(server_of(route).hold_to_the_law)
    print(f"{pairs} pairs")
