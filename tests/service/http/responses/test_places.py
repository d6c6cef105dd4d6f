"""Which WebSocket connections are admitted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from engine.python_command import python_command
from service.errors import UpgradeRequiredError
from service.http.responses.places import SocketPlaces, check_places
from service.tenants.caller import ANYBODY, Caller
from service.tenants.limit_memory import LimitMemory
from service.tenants.places import owner_number

ONE, OTHER = Caller(owner="one", shares=True), Caller(owner="other", shares=True)


def test_the_bound_holds_for_all_workers_together() -> None:
    """Whichever of them gets the connections."""
    descriptor = os.memfd_create("memory-under-test")
    memories = [LimitMemory(os.dup(descriptor)) for _ in range(2)]
    workers = [SocketPlaces(lambda memory=memory: memory, 8) for memory in memories]  # type: ignore[misc]
    taken = [(worker, worker.take(ANYBODY)) for worker in (*[workers[0]] * 7, workers[1])]
    for worker in workers:
        with pytest.raises(UpgradeRequiredError, match="8 WebSocket connections are open"):
            worker.take(ANYBODY)
    worker, place = taken[0]
    worker.free(place)
    workers[1].take(ANYBODY)


def test_a_key_without_connections_is_admitted_and_none_exceeds_its_share() -> None:
    taken: Counter[int] = Counter({owner_number("one"): 2})
    with pytest.raises(UpgradeRequiredError, match="its share"):
        check_places(ONE, taken, 4)
    check_places(OTHER, taken, 4)
    check_places(OTHER, taken, 2)
    with pytest.raises(UpgradeRequiredError, match="the most allowed"):
        check_places(ANYBODY, taken, 2)


def test_none_is_admitted_where_there_are_none() -> None:
    def memory() -> LimitMemory:
        raise AssertionError("not needed")

    with pytest.raises(UpgradeRequiredError, match="disabled"):
        SocketPlaces(memory, 0).take(ANYBODY)


DIES = """
import sys
from service.http.responses.places import SocketPlaces
from service.tenants.caller import ANYBODY
from service.tenants.limit_memory import LimitMemory
memory = LimitMemory(int(sys.argv[1]))
SocketPlaces(lambda: memory, 1).take(ANYBODY)
"""


def test_connections_of_a_worker_that_died_leave_their_places() -> None:
    descriptor = os.memfd_create("memory-under-test")
    memory = LimitMemory(descriptor)
    command = python_command("-c", DIES, str(descriptor))
    subprocess.run(command, check=True, pass_fds=[descriptor], stdout=sys.stderr)
    with memory.lock():
        assert memory.places.owned().total() == 1
    SocketPlaces(lambda: memory, 1).take(ANYBODY)
