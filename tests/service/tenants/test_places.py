"""Places are counted for all workers, and those of a dead one are free again."""

from __future__ import annotations

import os
from collections import Counter

from service.tenants.limit_memory import LimitMemory
from service.tenants.places import MOST_PLACES, PLACES_CELLS, SharedPlaces, owner_number


def _counted(**owned: int) -> Counter[int]:
    return Counter({owner_number(owner): number for owner, number in owned.items()})


def _cells() -> memoryview[int]:
    return memoryview(bytearray(8 * PLACES_CELLS)).cast("q")


def test_each_place_is_taken_once_and_found_again_when_free() -> None:
    places = SharedPlaces(_cells())
    taken = [places.take(owner) for owner in ("a", "b", "a")]
    assert sorted(taken) == [1, 2, 3]
    assert places.owned() == _counted(a=2, b=1)
    places.free(taken[1])
    assert places.owned() == _counted(a=2)
    assert places.take("c") == taken[1]
    assert places.owned() == _counted(a=2, c=1)
    for place in taken:
        places.free(place)
    assert places.owned() == Counter()


def test_what_is_free_at_the_end_is_not_read_again() -> None:
    cells = _cells()
    places = SharedPlaces(cells)
    first, second = places.take("a"), places.take("a")
    places.free(first)
    assert cells[0] == 2
    places.free(second)
    assert cells[0] == 0


def test_all_places_can_be_taken() -> None:
    places = SharedPlaces(_cells())
    places._cells[0] = MOST_PLACES
    places._cells[1:] = memoryview((1 << 6 | 1).to_bytes(8, "little") * MOST_PLACES).cast("q")
    places.free(MOST_PLACES)
    assert places.take("last") == MOST_PLACES


def test_a_place_whose_taking_was_cut_is_free() -> None:
    cells = _cells()
    cells[1] = owner_number("killed") << 6 | 1
    places = SharedPlaces(cells)
    assert places.owned() == Counter()
    assert places.take("next") == 1
    assert places.owned() == _counted(next=1)


def test_the_places_of_a_dead_worker_are_free() -> None:
    cells = _cells()
    one, other = SharedPlaces(cells, 0), SharedPlaces(cells, 31)
    for places in (one, other, other, one, other):
        places.take("team")
    one.free_column(31)
    assert other.owned() == _counted(team=2)


def test_workers_count_in_the_same_memory() -> None:
    descriptor = os.memfd_create("memory-under-test")
    one, other = LimitMemory(descriptor), LimitMemory(os.dup(descriptor))
    with one.lock():
        place = one.places.take("team")
    with other.lock():
        assert other.places.owned() == _counted(team=1)
        other.places.free(place)
    with one.lock():
        assert one.places.owned() == Counter()
